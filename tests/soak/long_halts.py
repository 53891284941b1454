"""Halts that really last: 12, 25 and 90 s, at the edges where a frozen worker could do harm."""

from __future__ import annotations

import pytest

from gpurun.flow.worker import LEASE
from tests.e2e.test_two_processes import all_over, ask, attempts, open_pair, smoke
from tests.world.laws import Record
from tests.world.nursery import Nursery

pytestmark = [pytest.mark.docker, pytest.mark.postgres, pytest.mark.timeout(600)]

BEFORE = ("attempt.create.before", "attempt.destroy.before", "publish.create_comment.before")
AFTER = ("attempt.create.after", "attempt.destroy.after", "publish.create_comment.after", "observe.list.after")
HALTS = [(edge, s) for s in (12, 25) for edge in BEFORE] + [(edge, 90) for edge in BEFORE + AFTER]


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.mark.parametrize(("failpoint", "seconds"), HALTS)
async def test_a_halt_that_lasts(tmp_path, base_images, nursery, postgres_url, failpoint, seconds):
    """Whatever it was at: one check, one comment, one run of the job's code, nothing left."""
    async with open_pair(tmp_path, base_images.python, nursery, postgres_url, really=True) as pair:
        smoke(pair.world)
        at_start = failpoint.startswith("observe.")  # passed before anybody asks for anything
        await pair.halted_at(failpoint, for_s=seconds, after=None if at_start else ask(pair.world))
        pair.thaw()
        if at_start:
            await pair.world.bot.answers()
            ask(pair.world)()
        await all_over(pair)
        assert attempts(pair.world)[-1] == ("gone", "passed")
        if seconds < LEASE.total_seconds():
            assert len(Record.of(pair.world.database).attempts) == 1
