"""The facts of a run as a report gets them."""

from __future__ import annotations

import pytest

from gpurun.domain.run import RunState
from gpurun.domain.stream import StreamName
from gpurun.flow.facts import BLANK_BYTES, Links, gather
from gpurun.report import pieces
from gpurun.report.facts import LOG_TAIL_BYTES
from tests.fakes.rows import PLAN, a_run, an_attempt

MIB = 1024 * 1024


@pytest.fixture
def store_url(tmp_path):
    """A log is the same on both databases."""
    return str(tmp_path / "gpurun.sqlite")


async def shown(store, log: bytes):
    """The facts of a run whose attempt printed that."""
    run, attempt = a_run(state=RunState.ACTIVE, plan=PLAN, attempts=1), an_attempt()

    def add(tx):
        tx.add_run(run)
        tx.add_attempt(attempt)
        for at in range(0, len(log), 4 * MIB):
            tx.append(attempt.id, StreamName.LOG, at, log[at : at + 4 * MIB])

    await store.write(add)
    return await store.read(lambda tx: gather(tx, run.id, Links()))


async def test_the_end_of_a_log(store):
    facts = await shown(store, b"x" * 100_000 + b"end")
    assert facts.log_tail == (b"x" * 100_000 + b"end")[-LOG_TAIL_BYTES:]


@pytest.mark.parametrize("blank", [b"\n" * 1_000_000, b" \r\n\0" * MIB], ids=["newlines", "white"])
async def test_b100_a_million_empty_lines_do_not_hide_what_was_said_before(store, blank):
    facts = await shown(store, b"step\n" * 50_000 + b"acc=0.91" + blank)
    assert facts.log_tail.endswith(b"step\nacc=0.91")
    assert len(facts.log_tail) == LOG_TAIL_BYTES
    about, lines = pieces.log(facts)
    assert about.startswith("Log, last 50 lines of ")
    assert lines.endswith("step\nacc=0.91\n```")


async def test_the_look_back_ends(store):
    facts = await shown(store, b"acc=0.91" + b"\n" * (BLANK_BYTES + 2 * MIB))
    assert facts.log_tail == b"\n" * LOG_TAIL_BYTES
    assert pieces.log(facts)[1] == "```text\n\n```"


async def test_many_empty_lines_within_the_end_are_shown_as_one(store):
    facts = await shown(store, b"one\n\n\ntwo\n" + b"\n" * 1000 + b"three\n")
    assert pieces.log(facts) == ("Log", "```text\none\n\n\ntwo\n\nthree\n```")
