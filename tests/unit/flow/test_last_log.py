"""Instances that ended with words for the bot in their own log."""

from __future__ import annotations

import base64

import pytest

from gpurun.domain.run import Phase, ResultKind, Verdict
from gpurun.domain.stream import StreamName
from gpurun.flow import failpoints
from gpurun.run.tokens import claim_token
from gpurun_agent import protocol
from tests.fakes.parts import PASSED, Script
from tests.fakes.world import SECRET, World

DIES = Script(dies_in=Phase.COLLECTING)
HALF = b"::gpurun:: run\nhalf"


@pytest.fixture
def store_url(tmp_path):
    """The crashes of both databases are in `test_engine_crashes`."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    yield World(store, clock, chance)
    failpoints.disarm()


def frames(attempt_id: str, log: bytes = b"", offset: int = 0, **end: object) -> bytes:
    """What an agent prints."""
    lines = [b"%s%s log %d %s" % (protocol.FRAME_LOG, attempt_id.encode(), offset, base64.b64encode(log))]
    if end:
        records = base64.b64encode(protocol.encode(list(end.items())))
        lines.append(b"%s%s %s" % (protocol.FRAME_END, attempt_id.encode(), records))
    return b"some\n" + b"\n".join(lines) + b"\n::gpurun-boot 1 x exit 75\n"


async def a_job_dies_with(world: World, print_out, stored: bytes = HALF) -> bytes:
    """Its log in the end. `print_out` makes the instance's own log of the attempt's id."""
    world.agents.script = Script(works_s=3600)
    await world.start()
    await world.run_for(minutes=1)
    (instance,) = world.cloud.book
    attempt_id = instance.launch.attempt_id
    if stored:
        await world.store.write(lambda tx: tx.append(attempt_id, StreamName.LOG, 0, stored))
    world.cloud.exit(instance, print_out(attempt_id))
    await world.run_until_over()
    end = await world.store.read(lambda tx: tx.stream_end(attempt_id, StreamName.LOG))
    return await world.store.read(lambda tx: tx.read_stream(attempt_id, StreamName.LOG, offset=0, max_bytes=end.next))


async def test_the_job_has_its_own_result_and_its_whole_log(world):
    def words(attempt):
        return frames(attempt, b"lf and whole\n", 17, result="passed", exit_code=0, log_size=30)

    assert await a_job_dies_with(world, words) == b"::gpurun:: run\nhalf and whole\n"
    await world.expect(Verdict.PASSED)
    (attempt,) = await world.the_attempts()
    assert [entry.kind for entry in await world.audit(f"attempt:{attempt.id}")].count("attempt_destroying") == 1


async def test_a_failure_is_a_failure(world):
    await a_job_dies_with(
        world, lambda attempt: frames(attempt, result="failed", exit_code=3, reason="exit", log_size=19)
    )
    await world.expect(Verdict.FAILED, "exit")
    (attempt,) = await world.the_attempts()
    assert (attempt.result.kind, attempt.result.exit_code) == (ResultKind.FAILED, 3)


async def test_a_pass_needs_exit_code_0(world):
    await a_job_dies_with(world, lambda attempt: frames(attempt, result="passed", exit_code=1, log_size=19))
    await world.expect(Verdict.LOST, "agent")


@pytest.mark.parametrize("printed", [b"", b"Killed\n", b"::gpurun-log 1 x log 0 AAAA\n\xff\xfe::gpurun-end 1 x !!!\n"])
async def test_without_an_end_the_log_may_be_incomplete(world, printed):
    told = b"\n::gpurun:: the log may be incomplete: the agent did not report its end\n"
    assert await a_job_dies_with(world, lambda _: printed) == HALF + told
    run = await world.expect(Verdict.LOST, "host")
    assert run.detail.endswith("The log may be incomplete.")


async def test_words_of_another_attempt_count_for_nothing(world):
    log = await a_job_dies_with(world, lambda _: frames("0" * 26, b"!", 19, result="passed", exit_code=0))
    assert b"!" not in log
    await world.expect(Verdict.LOST, "host")


async def test_an_instance_that_never_claimed_says_nothing_about_a_job(world):
    world.agents.script = Script(claims=False)
    await world.start()
    await world.run_for(minutes=1)
    for _ in range(2):  # it is tried again
        instance = world.cloud.book[-1]
        world.cloud.exit(instance, frames(instance.launch.attempt_id, b"x", 0, result="passed", exit_code=0))
        await world.run_for(minutes=1)
    await world.run_until_over()
    await world.expect(Verdict.LOST, "boot")
    attempts = await world.the_attempts()
    ends = [await world.store.read(lambda tx, of=one.id: tx.stream_end(of, StreamName.LOG)) for one in attempts]
    assert [end.next for end in ends] == [0, 0]


async def test_the_bot_masks_what_it_reads_back(world):
    def words(attempt):
        token = claim_token(SECRET, attempt)
        return frames(
            attempt, b"\nkey " + token.encode() + b"\n", 19, result="failed", detail=token, exit_code=1, log_size=9
        )

    log = await a_job_dies_with(world, words)
    assert log.startswith(HALF + b"\nkey ***")
    run = await world.expect(Verdict.FAILED)
    assert set(run.detail) == {"*"}


async def test_the_quota_holds_for_what_is_read_back(world):
    def many(attempt):
        end = frames(attempt, result="passed", exit_code=0, log_size=2_000_019)
        return b"".join(frames(attempt, b"y" * 2000, 19 + 2000 * n) for n in range(1000)) + end

    log = await a_job_dies_with(world, many)
    assert len(log) == 1_000_000
    await world.expect(Verdict.PASSED)


async def test_a_provider_that_does_not_show_its_log_is_not_waited_for(world):
    world.cloud.break_down("logs", "unavailable")
    log = await a_job_dies_with(world, lambda attempt: frames(attempt, b"!", 19, result="passed", exit_code=0))
    assert log.endswith(b"the log may be incomplete: the agent did not report its end\n")
    await world.expect(Verdict.LOST, "host")


@pytest.mark.parametrize("edge", ["attempt.last_log.before", "attempt.last_log.after", "attempt.settle.after"])
async def test_a_worker_that_dies_around_it_doubles_nothing(world, edge):
    def words(attempt):
        failpoints.arm(edge, "raise")
        return frames(attempt, b"lf and whole\n", 17, result="passed", exit_code=0, log_size=30)

    assert await a_job_dies_with(world, words) == b"::gpurun:: run\nhalf and whole\n"
    assert world.crashes == 1
    await world.expect(Verdict.PASSED)


async def test_an_agent_that_finishes_while_its_log_is_read_has_told_all(world, monkeypatch):
    read = world.cloud.logs

    async def logs(ref, *, max_bytes):
        await world.store.write(lambda tx: tx.set_result(world.cloud.book[0].launch.attempt_id, PASSED))
        return await read(ref, max_bytes=max_bytes)

    monkeypatch.setattr(world.cloud, "logs", logs)
    assert await a_job_dies_with(world, lambda _: b"") == HALF
    await world.expect(Verdict.PASSED)


async def test_a_job_over_its_deadline_while_no_bot_was_there(world):
    """Hours later another process finds what the agent left."""
    world.agents.script = Script(works_s=36_000, talks=False)
    await world.start()
    await world.run_for(minutes=1)
    (instance,) = world.cloud.book
    attempt_id = instance.launch.attempt_id
    world.cloud.exit(instance, frames(attempt_id, b"done\n", 0, result="passed", exit_code=0, log_size=5))
    world.clock.advance(hours=5)
    world.restart()
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
