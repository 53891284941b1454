"""The laws that other stories rely on can be broken: each is shown a world in which it does not hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.world import World, laws, open_world
from tests.world.laws import Record, assert_laws, assert_log

pytestmark = pytest.mark.docker


async def test_each_law_can_be_broken(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python) as world:
        world.jobs(smoke={"run": "echo went"})
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "success")
        await world.expect_comment("✅ passed")
        good = await assert_laws(world)
        assert_log(world, "smoke", b"went\n")
        with pytest.raises(AssertionError, match="5 bytes, not 6; at 4"):
            assert_log(world, "smoke", b"went.\n")
        for why, record in broken_rows(good).items():
            assert broken(world, record), why
        for why, spoil, repair in spoiled_worlds(world, good):
            spoil()
            assert broken(world, good), why
            repair()
        assert not broken(world, good)


def broken(world: World, record: Record) -> bool:
    """Some law does not hold."""
    looks = (
        lambda: laws.assert_one_claim(record),
        lambda: laws.assert_one_instance_each(world, record),
        lambda: laws.assert_one_end_each(record),
        lambda: laws.assert_one_answer_each(world, record),
        lambda: laws.assert_deliveries(world, record),
        lambda: laws.assert_streams_whole(record),
        lambda: laws.assert_no_secret(world, record),
        lambda: laws.assert_green_ran(world, record),
    )
    for look in looks:
        try:
            look()
        except AssertionError:
            return True
    return False


def broken_rows(good: Record) -> dict[str, Record]:
    """By what is wrong with them."""
    (run,), (attempt,) = good.runs, good.attempts
    ended = next(entry for entry in good.audit if entry["kind"] == "run_ended")
    gone = next(entry for entry in good.audit if entry["kind"] == "attempt_gone")
    second = {**attempt, "id": "another", "name": "another", "number": 2}
    failed = json.dumps({**json.loads(attempt["result"]), "kind": "failed"})
    chunk = good.chunks[-1]
    (claim,) = (token for token in laws._agent_tokens(good) if token in claim_of(good))
    return {
        "a second attempt too early": replace(good, attempts=[attempt, {**second, "created_at": 1}]),
        "a second attempt ran too": replace(good, attempts=[attempt, {**second, "created_at": attempt["gone_at"] + 1}]),
        "an instance without a row": replace(good, attempts=[]),
        "a run that goes on": replace(good, runs=[{**run, "state": "active"}]),
        "two ends": replace(good, audit=[*good.audit, ended]),
        "another end": replace(good, runs=[{**run, "verdict": "failed"}]),
        "life after death": replace(good, audit=[*good.audit, {**gone, "kind": "attempt_live"}]),
        "an instance that is left": replace(good, attempts=[{**attempt, "state": "destroying"}]),
        "a command that acted twice": replace(good, commands=[]),
        "a delivery that is lost": replace(good, inbox=[]),
        "bytes that are lost": replace(good, chunks=good.chunks[:-1]),
        "bytes that are doubled": replace(good, chunks=[*good.chunks, chunk]),
        "a token in a row": replace(good, runs=[{**run, "detail": claim}]),
        "a token in the log": replace(good, chunks=[*good.chunks[:-1], {**chunk, "data": claim.encode()}]),
        "green without a result": replace(good, attempts=[{**attempt, "result": failed}]),
        "green without an agent": replace(good, attempts=[{**attempt, "claimed_at": None}]),
        "green without a command": replace(good, attempts=[{**attempt, "phase_times": "{}"}]),
    }


def claim_of(record: Record) -> str:
    return laws.tokens.claim_token(record.secret, record.attempts[0]["id"])


def spoiled_worlds(world: World, good: Record):
    """What is wrong, how it becomes so, and how it becomes right again."""
    (check,) = world.github.checks(world.repo)
    (comment,) = world.bot_comments()
    pull = world.pull
    assert pull is not None
    body, made = comment.body, world.engine_log._made
    (name,) = world.made_containers()
    twin = replace_id(comment)

    def secret() -> None:
        comment.body += world.github.app.webhook_secret.get_secret_value()

    yield (
        "another conclusion",
        lambda: vars(check).update(conclusion="failure"),
        lambda: vars(check).update(conclusion="success"),
    )
    yield "the comment twice", lambda: pull.comments.update({twin.id: twin}), lambda: pull.comments.pop(twin.id)
    yield "a secret in a comment", secret, lambda: vars(comment).update(body=body)
    once_more = (world.install, name)
    yield "a container twice", lambda: made.append(once_more), lambda: made.remove(once_more)


def replace_id(comment):
    """The same comment, posted once more."""
    twin = object.__new__(type(comment))
    vars(twin).update(vars(comment), id=comment.id + 1)
    return twin
