"""Comments become runs, cancels and one answer, whatever GitHub does."""

from __future__ import annotations

import json

import pytest

from gpurun.domain.errors import Bug
from gpurun.domain.run import Untrusted, Verdict
from tests.unit.flow.town import CONFIG, Town, open_town


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town


async def test_a_run_has_its_reaction_comment_and_check(town: Town):
    comment = await town.says("/gpurun smoke")
    (run,) = await town.runs()
    assert (run.job, run.sha, run.who, run.pr) == ("smoke", town.pull.head_sha, "alice", 1)
    assert town.reactions(comment) == ["eyes"]
    assert [c.name for c in town.github.checks(town.repo)] == ["gpurun / smoke"]
    assert len(town.comments()) == 1


async def test_b022_the_sha_is_the_one_at_command_time(town: Town):
    before = town.pull.head_sha
    await town.says("/gpurun smoke")
    town.alice.push(town.pull, {"more.py": "pass"})
    await town.settle()
    assert [run.sha for run in await town.runs()] == [before]


async def test_b001_the_same_delivery_again_changes_nothing(town: Town):
    await town.says("/gpurun smoke")
    for hook in list(town.github.sent):
        await town.github.redeliver(hook)
    await town.settle()
    assert len(await town.runs()) == 1
    assert len(town.comments()) == 1


async def test_the_same_comment_under_another_delivery_id_changes_nothing(town: Town):
    await town.says("/gpurun smoke\n/gpurun help")
    hook = next(h for h in town.github.sent if h.event == "issue_comment")
    hook.guid = "11111111-2222-4333-8444-555555555555"
    assert await town.github.redeliver(hook) == 202
    await town.settle()
    assert len(await town.runs()) == 1
    assert len(town.comments()) == 2


async def test_two_people_share_one_run(town: Town):
    town.repo.grant("erin", "write")
    await town.says("/gpurun smoke")
    second = await town.says("/gpurun smoke", by="erin")
    (run,) = await town.runs()
    assert run.also_asked == ("erin",)
    assert town.reactions(second) == ["eyes"]
    _, joined = town.comments()
    assert f"already runs like this for this commit: [`{run.id}`](https://bot.example/runs/{run.id}?key=" in joined.body


async def test_a_new_commit_is_a_new_run_and_takes_the_comment_over(town: Town):
    await town.says("/gpurun smoke")
    town.alice.push(town.pull, {"more.py": "pass"})
    await town.says("/gpurun smoke")
    first, second = await town.runs()
    assert first.sha != second.sha
    assert len(town.comments()) == 1
    assert second.id in town.comments()[0].body
    assert len(town.github.checks(town.repo)) == 2


async def test_b015_several_commands_of_one_comment(town: Town):
    await town.says("/gpurun smoke\r\n/gpurun full\r\n/gpurun nothing\r\n/gpurun help\r\n")
    assert [run.job for run in await town.runs()] == ["smoke", "full"]
    answer = [c.body for c in town.comments() if "nothing" in c.body]
    assert len(answer) == 1
    assert "| comment |" in answer[0]
    assert len(town.comments()) == 3


@pytest.mark.parametrize("right", ["none", "read", "triage"])
async def test_who_may_not_write_starts_nothing(town: Town, right: str):
    if right != "none":
        town.repo.grant("bob", right)
    await town.says("/gpurun smoke", by="bob" if right != "none" else "stranger")
    assert await town.runs() == ()
    assert "write access" in town.comments()[0].body


@pytest.mark.parametrize("right", ["write", "maintain", "admin"])
async def test_who_may_write_may_run(town: Town, right: str):
    town.repo.grant("bob", right)
    await town.says("/gpurun smoke", by="bob")
    assert len(await town.runs()) == 1


async def test_a_run_of_a_branch_of_somebody_who_may_push_is_trusted(town: Town):
    await town.says("/gpurun smoke")
    assert [run.untrusted for run in await town.runs()] == [None]


async def test_b020_a_deleted_fork_is_a_fork(town: Town):
    fork = town.bob.open_pull_request(town.repo, branch="x", files={".gpurun.yml": CONFIG}, fork=True)
    town.bob.delete_fork(fork)
    await town.says("/gpurun smoke", on=fork)
    assert [run.untrusted for run in await town.runs()] == [Untrusted.FORK]


async def test_b021_a_closed_pull_request_runs_nothing(town: Town):
    town.alice.close(town.pull)
    await town.says("/gpurun smoke")
    assert await town.runs() == ()
    assert "closed" in town.comments()[0].body


async def test_b005_b007_an_edited_comment_starts_nothing(town: Town):
    comment = await town.says("hello")
    town.alice.edit_comment(comment, "/gpurun smoke")
    await town.settle()
    assert await town.runs() == ()
    assert town.comments() == []


async def test_b005_a_comment_that_was_edited_before_it_was_read_starts_nothing(town: Town):
    comment = town.alice.comment(town.pull, "/gpurun smoke")
    town.clock.advance(seconds=3)
    town.alice.edit_comment(comment, "/gpurun full")
    await town.settle()
    assert await town.runs() == ()


async def test_a_forged_delivery_of_a_comment_that_is_not_there_starts_nothing(town: Town):
    comment = town.alice.comment(town.pull, "/gpurun smoke")
    town.alice.delete_comment(comment)
    await town.settle()
    assert await town.runs() == ()
    assert town.comments() == []


async def test_a_delivery_that_names_another_author_starts_nothing(town: Town):
    town.bob.comment(town.pull, "/gpurun smoke")
    (hook,) = [h for h in town.github.queued if h.event == "issue_comment"]
    forged = hook.body.replace(b'"login": "bob"', b'"login": "alice"')
    assert forged != hook.body
    hook.body = forged  # it is signed when it is sent
    await town.settle()
    assert await town.runs() == ()


async def test_a_delivery_that_moves_a_comment_to_another_pull_request_starts_nothing(town: Town):
    """Whoever has the webhook secret must not run one branch with a comment that was written about another."""
    other = town.alice.open_pull_request(town.repo, branch="other", files={".gpurun.yml": CONFIG, "x": "evil"})
    town.alice.comment(town.pull, "/gpurun smoke")
    (hook,) = [h for h in town.github.queued if h.event == "issue_comment"]
    body = json.loads(hook.body)
    body["issue"]["number"] = other.number
    hook.body = json.dumps(body).encode()
    await town.settle()
    assert await town.runs() == ()
    found = await town.store.read(lambda tx: tx.audit_of(f"repo:acme/train#{other.number}"))
    assert [(entry.kind, entry.data["note"]) for entry in found] == [
        ("forged_suspect", f"the comment stands on #{town.pull.number}")
    ]


@pytest.mark.parametrize(("days", "runs"), [(6, 1), (8, 0)])
async def test_a_delivery_of_a_comment_of_long_ago_starts_nothing(town: Town, days, runs):
    town.alice.comment(town.pull, "/gpurun smoke")
    town.clock.advance(seconds=days * 86_400)
    await town.settle()
    assert len(await town.runs()) == runs


async def test_a_delivery_with_another_text_starts_nothing_and_is_on_record(town: Town):
    town.alice.comment(town.pull, "/gpurun smoke")
    (hook,) = [h for h in town.github.queued if h.event == "issue_comment"]
    hook.body = hook.body.replace(b"/gpurun smoke", b"/gpurun full")
    await town.settle()
    assert await town.runs() == ()
    assert "forged_suspect" in [entry.kind for entry in await audit(town)]


async def test_b012_b019_comments_on_issues_and_of_bots_are_not_for_us(town: Town):
    issue = town.alice.open_issue(town.repo, "a question")
    town.alice.comment(issue, "/gpurun smoke")
    town.github.user("dependabot[bot]").comment(town.pull, "/gpurun smoke")
    town.github.user("gpurun[bot]").comment(town.pull, "/gpurun smoke")
    await town.settle()
    assert await town.runs() == ()
    assert len([c for c in town.comments() if c.app_id]) == 0


async def test_cancel_is_asked_of_every_live_run(town: Town):
    await town.says("/gpurun smoke\n/gpurun full")
    await town.says("/gpurun cancel smoke")
    smoke, full = await town.runs()
    assert (smoke.cancel_by, full.cancel_at) == ("alice", None)
    await town.says("/gpurun cancel")
    assert [run.cancel_at is not None for run in await town.runs()] == [True, True]


async def test_a_reader_may_not_cancel_for_others(town: Town):
    await town.says("/gpurun smoke")
    await town.says("/gpurun cancel", by="bob")
    (run,) = await town.runs()
    assert run.cancel_at is None
    assert any("/gpurun cancel" in c.body for c in town.comments())


async def test_nothing_to_cancel_after_the_end(town: Town):
    await town.says("/gpurun smoke")
    await town.end((await town.runs())[0], Verdict.PASSED)
    await town.settle()
    await town.says("/gpurun cancel")
    assert "nothing to cancel" in town.comments()[-1].body


async def test_b057_a_broken_file_makes_a_run_that_can_be_refused(town: Town):
    town.alice.push(town.pull, {".gpurun.yml": "jobs: ["})
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    assert run.config_text == "jobs: ["


@pytest.mark.parametrize("raw", [b"\x00", b"\xff\xfe\x00j", "caf\u00e9: \ud800".encode("utf-8", "surrogatepass"), b""])
async def test_b057_a_file_that_is_no_text_makes_a_run_too(town: Town, raw: bytes):
    town.alice.push(town.pull, {".gpurun.yml": raw})
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    assert run.config_text is not None
    assert run.config_text.encode("utf-8", "surrogateescape") == raw


async def test_a_huge_file_is_answered(town: Town):
    town.alice.push(town.pull, {".gpurun.yml": "#" * 70_000})
    await town.says("/gpurun smoke")
    assert await town.runs() == ()
    assert "at most 65,536" in town.comments()[0].body


CALLS = {
    "comment": ("GET", "/repos/{}/{}/issues/comments/{}"),
    "pull": ("GET", "/repos/{}/{}/pulls/{}"),
    "permission": ("GET", "/repos/{}/{}/collaborators/{}/permission"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_passing_fault_of_github_only_delays(town: Town, call: str, status: int):
    town.github.fail_next(*CALLS[call], status=status, headers={"retry-after": "7"} if status == 429 else {}, times=2)
    await town.says("/gpurun smoke")
    assert await town.runs() == ()
    for _ in range(8):
        await town.later(seconds=30)
    assert len(await town.runs()) == 1
    assert len(town.comments()) == 1


@pytest.mark.parametrize("call", CALLS)
async def test_a_lasting_fault_ends_in_one_answer(town: Town, call: str):
    town.github.fail_next(*CALLS[call], status=502, times=99)
    await town.says("/gpurun smoke")
    for _ in range(12):
        await town.later(minutes=2)
    assert await town.runs() == ()
    assert ["did not answer" in c.body for c in town.comments()] == [True]


@pytest.mark.parametrize("call", ["pull", "permission"])
async def test_a_lasting_refusal_of_github_is_answered(town: Town, call: str):
    """Such as a permission of the App that nobody accepted."""
    town.github.fail_next(*CALLS[call], status=403, body={"message": "Resource not accessible by integration"})
    await town.says("/gpurun smoke")
    assert await town.runs() == ()
    assert ["permissions of the App" in c.body for c in town.comments()] == [True]


async def test_a_key_that_is_refused_for_a_moment_loses_no_command(town: Town):
    town.github.fail_next(*CALLS["pull"], status=401, times=3)
    await town.says("/gpurun smoke")
    for _ in range(4):
        await town.later(seconds=30)
    assert len(await town.runs()) == 1


async def test_b027_a_suspended_installation_starts_nothing_and_breaks_nothing(town: Town):
    comment = town.alice.comment(town.pull, "/gpurun smoke")
    town.github.suspend(town.repo)
    await town.settle()
    town.github.unsuspend(town.repo)
    assert await town.runs() == ()
    assert town.reactions(comment) == []
    await town.says("/gpurun smoke")
    assert len(await town.runs()) == 1


async def test_nobody_joins_a_run_that_was_told_to_end(town: Town):
    await town.says("/gpurun smoke")
    await town.says("/gpurun cancel\n/gpurun smoke")
    first, second = await town.runs()
    assert (first.cancel_by, second.cancel_at) == ("alice", None)
    assert [second.id in c.body for c in town.comments()] == [True]


async def test_a_cancel_on_a_closed_pull_request_finds_everything_told_to_stop(town: Town):
    await town.says("/gpurun smoke")
    town.alice.close(town.pull)
    await town.says("/gpurun cancel")
    (run,) = await town.runs()
    assert run.cancel_by == "the end of the pull request"
    assert ["closed" in c.body for c in town.comments() if c.app_id] == [False]


@pytest.mark.parametrize("error", [KeyError("no such thing"), Bug("impossible")])
async def test_a_comment_that_always_breaks_us_is_answered_and_blocks_nobody(town: Town, monkeypatch, error):
    async def broken(repo, login):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(town.forge, "permission", broken)
        await town.says("/gpurun smoke")
        for _ in range(8):
            await town.later(minutes=2)
    assert await town.runs() == ()
    assert ["was not acted on" in c.body for c in town.comments()] == [True]
    await town.says("/gpurun full")
    assert [run.job for run in await town.runs()] == ["full"]
    assert "delivery_poisoned" in [entry.kind for entry in await audit(town)]


async def test_every_command_is_on_record(town: Town):
    await town.says("/gpurun smoke\n/gpurun help\n/gpurun nothing\n/gpurun estimate\n/gpurun cancel full")
    taken = [str(entry.data["command"]) for entry in await audit(town) if entry.kind == "command_taken"]
    assert taken[:3] == ["/gpurun smoke", "/gpurun help", "/gpurun nothing"]
    assert taken[3].startswith("not understood: ")
    assert taken[4] == "/gpurun cancel full"


async def test_a_run_of_a_later_version_only_delays_the_comments_of_its_pull_request(town: Town):
    await town.says("/gpurun full")
    await set_state(town, "hibernating")
    await town.says("/gpurun smoke")
    for _ in range(8):
        await town.later(minutes=2)
    assert not any("was not acted on" in c.body for c in town.comments())
    await set_state(town, "queued")
    await town.later(minutes=2)
    assert [run.job for run in await town.runs()] == ["full", "smoke"]


async def set_state(town: Town, state: str) -> None:
    """As another version of gpurun would."""
    await town.store.write(
        lambda tx: tx._connection.exec_driver_sql(f"UPDATE run SET state = '{state}', due_at = NULL")
    )


async def audit(town: Town):
    """Of the pull request."""
    return await town.store.read(lambda tx: tx.audit_of("repo:acme/train#1"))
