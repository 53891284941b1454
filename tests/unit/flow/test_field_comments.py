"""What people met with bots that listen to comments, each with an input that once went wrong somewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gpurun.domain.run import Untrusted, Verdict
from gpurun.flow.worker import Worker
from tests.fakes.github import Comment, payloads
from tests.unit.flow.town import CONFIG, Town, open_town

SLOW = ("GET", "/repos/{}/{}/pulls/{}")


@pytest.fixture
def store_url(tmp_path):
    """One database: nothing here depends on which."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town


def answered(town: Town) -> list[int]:
    return [status for hook in town.github.sent for status in hook.statuses]


async def edited(town: Town, comment: Comment, changes: Mapping[str, Any], body: str) -> None:
    """A delivery as GitHub writes it, with `changes` of our choice; the comment itself stays as it was."""
    issue = payloads.issue(town.github, town.pull)
    told = {**payloads.comment(town.github, comment), "body": body}
    sender = payloads.user(town.github, comment.author)
    event = {"issue": issue, "comment": told, "changes": dict(changes), "sender": sender}
    town.github.queue("issue_comment", "edited", town.repo, event)
    await town.settle()


async def test_b003_a_delivery_is_answered_without_a_word_with_github(town: Town):
    town.github.slow(*SLOW, seconds=15)
    asked = len(town.github.requests)
    town.alice.comment(town.pull, "/gpurun smoke")
    before = town.clock.now()
    await town.github.deliver()
    assert set(answered(town)) == {202}
    assert town.clock.now() == before
    assert len(town.github.requests) == asked
    await town.settle()
    await town.later(seconds=60)
    assert len(await town.runs()) == 1


@pytest.mark.parametrize("first", ["comment", "close"])
async def test_b004_a_comment_and_a_close_at_once_make_one_comment(town: Town, first: str):
    acts = {
        "comment": lambda: town.alice.comment(town.pull, "/gpurun smoke"),
        "close": lambda: town.alice.close(town.pull),
    }
    for act in (first, *({"comment", "close"} - {first})):
        acts[act]()
    await town.github.deliver()
    workers = [Worker(town.store, town.clock, town.chance, town.handlers(), limit=4) for _ in range(2)]
    await asyncio.gather(*(worker.step_until_idle() for worker in workers))
    await town.settle()
    (said,) = town.comments()
    assert await town.runs() == ()
    assert "closed" in said.body


async def test_b005_a_typo_mended_days_later_starts_nothing(town: Town):
    comment = await town.says("/gpurun smoke")
    await town.end((await town.runs())[0], Verdict.PASSED)
    await town.later(days=3)
    town.alice.edit_comment(comment, "/gpurun smoke\n\ntypo fixed")
    await town.settle()
    assert len(await town.runs()) == 1
    assert len(town.comments()) == 1


@pytest.mark.parametrize("changes", [{}, {"body": {}}, {"body": {"from": "hello"}}, {"title": {"from": "x"}}])
async def test_b007_an_edit_with_any_changes_is_taken_and_starts_nothing(town: Town, changes):
    comment = await town.says("hello")
    await edited(town, comment, changes, "/gpurun smoke")
    assert set(answered(town)) == {202}
    assert await town.runs() == ()
    assert town.comments() == []


async def test_b012_the_help_of_a_bot_calls_no_bot(town: Town):
    for login in ("gpurun[bot]", "another[bot]"):
        town.github.user(login).comment(town.pull, "Usage:\n/gpurun smoke")
    await town.says("/gpurun help")
    for _ in range(3):
        await town.settle()
    assert await town.runs() == ()
    assert len([one for one in town.comments() if one.app_id]) == 1


async def test_b015_several_commands_each_once_and_one_answer(town: Town):
    await town.says("/gpurun smoke\r\n/gpurun full\r\n/gpurun smoke")
    assert [run.job for run in await town.runs()] == ["smoke", "full"]
    (said,) = [one.body for one in town.comments() if "more than once" in one.body]
    assert "`/gpurun smoke` is written more than once; it counts once." in said


async def test_b016_an_unknown_job_is_answered_with_the_jobs(town: Town):
    await town.says("/gpurun smoke-test.v2")
    (said,) = town.comments()
    assert said.body.startswith("There is no job `smoke-test.v2` in `.gpurun.yml`.")
    assert "Jobs: `smoke`, `full`." in said.body


@pytest.mark.parametrize("body", ["> /gpurun full\n\nwhy so expensive?", "> > /gpurun full", "> it was\n/gpurun full"])
async def test_b017_a_quoted_command_of_somebody_else_runs_nothing(town: Town, body: str):
    await town.says(body)
    assert await town.runs() == ()
    assert town.comments() == []


async def test_b019_a_comment_on_an_issue_never_asks_for_its_pull_request(town: Town):
    issue = town.alice.open_issue(town.repo, "a question")
    town.alice.comment(issue, "/gpurun smoke")
    await town.settle()
    assert [one.path for one in town.github.requests if "/pulls/" in one.path] == []
    assert town.comments(issue) == []


async def test_b020_a_fork_that_is_gone_is_a_fork_and_who_may_not_run_it_is_on_record(town: Town):
    fork = town.bob.open_pull_request(town.repo, branch="patch-1", files={".gpurun.yml": CONFIG}, fork=True)
    town.bob.delete_fork(fork)
    await town.says("/gpurun smoke", on=fork, by="bob")
    assert await town.runs() == ()
    entries = await town.store.read(lambda tx: tx.audit_of(f"repo:acme/train#{fork.number}"))
    assert "run_denied" in [entry.kind for entry in entries]
    await town.says("/gpurun smoke", on=fork)
    assert [(run.sha, run.untrusted) for run in await town.runs()] == [(fork.head_sha, Untrusted.FORK)]


async def test_b021_a_merged_pull_request_runs_nothing_and_says_what_to_do(town: Town):
    town.alice.merge(town.pull)
    await town.says("/gpurun smoke")
    assert await town.runs() == ()
    assert town.comments()[0].body.startswith(
        "This pull request is closed, so nothing was started. "
        "Its author, and people with write access, can reopen it when it was not merged; "
        "else write the command on an open one."
    )


async def test_b021_a_draft_is_a_pull_request_like_any_other(town: Town):
    draft = town.alice.open_pull_request(town.repo, branch="draft", files={".gpurun.yml": CONFIG}, draft=True)
    await town.says("/gpurun smoke", on=draft)
    assert [run.sha for run in await town.runs()] == [draft.head_sha]


async def test_b021_no_branch_of_a_pull_request_is_asked_for_by_its_name(town: Town):
    """So that one that was deleted between comment and run is not missed. The policy is at the end of another."""
    await town.says("/gpurun smoke")
    assert len(await town.runs()) == 1
    named = [one.path for one in town.github.requests if "/git/ref" in one.path or "/branches" in one.path]
    assert named == [f"/repos/{town.repo.name}/git/ref/heads/main"]
    assert town.pull.head_branch != "main"
    trees = [one.path.rpartition("/")[2] for one in town.github.requests if "/git/trees/" in one.path]
    assert {len(name) for name in trees} == {40}


async def test_b022_a_push_right_after_the_comment_changes_nothing_of_what_is_shown(town: Town):
    seen = town.pull.head_sha
    await town.says("/gpurun smoke")
    pushed = town.alice.push(town.pull, {"evil.py": "import os"})
    await town.later(seconds=30)
    (run,) = await town.runs()
    (check,) = town.github.checks(town.repo)
    assert run.sha == check.head_sha == seen
    assert seen in town.comments()[0].body
    assert pushed not in town.comments()[0].body


async def test_b027_a_suspended_installation_does_not_hold_another_up(town: Town):
    other = town.github.create_repo("globex/net")
    other.grant("carol", "write")
    carol = town.github.user("carol")
    pull = carol.open_pull_request(other, branch="x", files={".gpurun.yml": CONFIG})
    town.alice.comment(town.pull, "/gpurun smoke")
    town.github.suspend(town.repo)
    carol.comment(pull, "/gpurun smoke")
    await town.settle()
    assert [run.repo.name for run in await town.runs()] == ["globex/net"]
    assert len(town.comments(pull)) == 1


BRANCHES = ["topic-$(sleep${IFS}9)", "--upload-pack=evil", "a;b", 'ref"}}){id}', "a`id`b", "$(id)", "-x"]


@pytest.mark.parametrize("branch", BRANCHES)
async def test_b124_a_branch_name_is_never_code(town: Town, branch: str):
    pull = town.alice.open_pull_request(town.repo, branch=branch, files={".gpurun.yml": CONFIG})
    await town.says("/gpurun smoke", on=pull)
    assert [run.sha for run in await town.runs()] == [pull.head_sha]
    assert branch not in "".join(one.path for one in town.github.requests)
    assert branch not in town.comments(pull)[0].body


TITLES = ['a "b" `c` ${{ secrets.X }}', "$(id)", "@acme/all fixes #1", "\n/gpurun full"]


@pytest.mark.parametrize("title", TITLES)
async def test_b125_a_title_reaches_nobody(town: Town, title: str):
    pull = town.alice.open_pull_request(town.repo, branch="t", files={".gpurun.yml": CONFIG}, title=title)
    await town.says("/gpurun smoke", on=pull)
    assert [run.job for run in await town.runs()] == ["smoke"]
    assert title not in town.comments(pull)[0].body


@pytest.mark.parametrize("body", ["/gpurun smoke; curl x", '/gpurun smoke --env "A=$(id)"', "/gpurun $(id)"])
async def test_b125_free_text_behind_a_command_runs_nothing_and_is_answered(town: Town, body: str):
    await town.says(body)
    assert await town.runs() == ()
    assert len(town.comments()) == 1


TREES = ("GET", "/repos/{}/{}/git/trees/{}")


@pytest.mark.parametrize(
    ("status", "message", "answer"),
    [
        (403, "Resource not accessible by integration", "did not let gpurun read what it needs"),
        (500, "Server Error", "GitHub did not answer several times"),
    ],
)
async def test_b057_a_file_that_cannot_be_read_is_not_an_absent_one(town: Town, status: int, message: str, answer: str):
    town.github.fail_next(*TREES, status=status, body={"message": message}, times=99)
    await town.says("/gpurun smoke")
    for _ in range(12):
        await town.later(minutes=2)
    assert await town.runs() == ()
    (said,) = town.comments()
    assert answer in said.body


@pytest.mark.parametrize(
    ("text", "kept"), [(None, None), ("", ""), ("# nothing\n", "# nothing\n"), ("a:\n\tb", "a:\n\tb")]
)
async def test_b057_absent_and_invalid_files_make_a_run_that_is_refused(town: Town, text: str | None, kept: str | None):
    files = {"README.md": "x"} if text is None else {".gpurun.yml": text}
    pull = town.alice.open_pull_request(town.repo, branch="other", files=files)
    await town.says("/gpurun smoke", on=pull)
    assert [run.config_text for run in await town.runs()] == [kept]
    assert [check.name for check in town.github.checks(town.repo)] == ["gpurun / smoke"]
