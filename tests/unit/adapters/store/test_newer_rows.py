"""Rows of a later version: reading one says so, and nothing touches it."""

from __future__ import annotations

import pytest

from gpurun.domain.errors import NewerRow
from tests.fakes.rows import a_run

LATER = {
    "a state": "UPDATE run SET state = 'hibernating'",
    "an identifier": f"UPDATE run SET sha = '{'a' * 64}'",
    "a structure": """UPDATE run SET pins = '{"tree": 5}'""",
}


@pytest.mark.parametrize("what", LATER)
async def test_what_this_version_does_not_know_is_named_as_such(store, what):
    run = a_run()

    def make_later(tx):
        tx.add_run(run)
        tx._connection.exec_driver_sql(LATER[what])

    await store.write(make_later)
    with pytest.raises(NewerRow, match="does not know"):
        await store.read(lambda tx: tx.run(run.id))
    with pytest.raises(NewerRow):
        await store.write(lambda tx: tx.latest_runs(limit=1))
