"""What fails in the database may be logged with its traceback, and says nothing of what was being stored."""

from __future__ import annotations

import traceback

import pytest
from sqlalchemy import text

from gpurun.domain.errors import Bug, GpurunError
from tests.unit.adapters.store.samples import a_delivery, a_run

CANARY = "canary-77d24a5f0e9b1c"


@pytest.mark.parametrize(
    "statement", ["INSERT INTO no_such_table VALUES (:secret)", "UPDATE meta SET no_such_column = :secret"]
)
async def test_a_refused_statement_keeps_its_parameters_to_itself(store, statement):
    with pytest.raises(GpurunError) as caught:
        await store.write(lambda tx: tx._connection.execute(text(statement), {"secret": CANARY}))
    assert CANARY not in "".join(traceback.format_exception(caught.value))


async def test_a_row_that_is_there_already_keeps_its_key_to_itself(store):
    await store.write(lambda tx: tx.add_run(a_run(read_key=CANARY)))
    with pytest.raises(Bug) as caught:
        await store.write(lambda tx: tx.add_run(a_run(read_key=CANARY)))
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_rows_do_not_show_keys_and_bodies():
    assert CANARY not in repr(a_run(read_key=CANARY))
    assert CANARY not in repr(a_delivery(body=CANARY.encode()))
