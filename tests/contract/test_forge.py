"""GitHubForge against the GitHub that keeps state: each call of the port, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from pydantic import SecretStr

from gpurun.adapters.github import GitHubForge
from gpurun.domain.errors import Bug, ForgeRefused, ForgeUnavailable, UserError
from gpurun.domain.forge import Annotation, Check, CheckAction, CheckStatus, Permission
from gpurun.domain.ids import BranchName, CommitSha
from tests.fakes.github import FakeGitHub, Link, Submodule, serving
from tests.fakes.github.keys import app_key, pem

COMMENTS = "/repos/{}/{}/issues/{}/comments"
CHECKS = "/repos/{}/{}/check-runs"
PULL = "/repos/{}/{}/pulls/{}"
TOKENS = "/app/installations/{}/access_tokens"
UNKNOWN = CommitSha("0" * 40)


@pytest.fixture
def github(tmp_path, clock):
    fake = FakeGitHub(tmp_path / "github", clock=clock)
    yield fake
    assert not fake.troubles.unused


@pytest.fixture
def repo(github):
    made = github.create_repo("acme/train", files={"README.md": "hi"}, private=True)
    made.grant("alice", "write")
    return made


@pytest.fixture
def pull(github, repo):
    return github.user("alice").open_pull_request(repo, branch="smoke", files={".gpurun.yml": "version: 1\n"})


def make_forge(github, clock, **change):
    settings = {
        "app_id": github.app.id,
        "private_key": github.app.private_key,
        "api_url": github.api_url,
        "git_url": github.git_url,
        "transport": github.transport,
    }
    return GitHubForge(**{**settings, **change}, clock=clock)


@pytest.fixture
def forge(github, clock):
    return make_forge(github, clock)


def a_check(**change):
    fields = {
        "name": "gpurun / smoke",
        "external_id": "run-1",
        "status": CheckStatus.IN_PROGRESS,
        "conclusion": None,
        "title": "Booting",
        "summary": "On its way.",
    }
    return Check(**{**fields, **change})


# pull requests, comments, people


async def test_a_pull_request_is_read_as_it_is_now(github, forge, repo, pull):
    github.user("alice").push(pull, {"train.py": "print(1)"})

    found = await forge.pull_request(repo.ref, pull.number)

    assert found.head_sha == pull.head_sha
    assert found.base_sha == repo.git.resolve("main")
    assert (found.number, found.open, found.draft, found.author, found.base_ref) == (1, True, False, "alice", "main")
    assert not found.is_fork_of(repo.ref.name)


async def test_a_pull_request_from_a_fork_says_so_also_when_the_fork_is_gone(github, forge, repo):
    mallory = github.user("mallory")
    pull = mallory.open_pull_request(repo, files={"x": "1"}, fork=True)

    assert (await forge.pull_request(repo.ref, pull.number)).head_repo == "mallory/train"
    mallory.delete_fork(pull)

    found = await forge.pull_request(repo.ref, pull.number)
    assert found.head_repo is None
    assert found.is_fork_of(repo.ref.name)


async def test_a_closed_pull_request_is_not_open(github, forge, repo, pull):
    github.user("alice").close(pull)

    assert not (await forge.pull_request(repo.ref, pull.number)).open


async def test_a_comment_is_read_again(github, forge, repo, pull):
    comment = github.user("alice").comment(pull, "/gpurun smoke")
    github.user("alice").edit_comment(comment, "never mind")

    found = await forge.comment(repo.ref, comment.id)

    assert (found.body, found.author, found.author_is_bot) == ("never mind", "alice", False)


async def test_a_deleted_comment_is_refused_with_404(github, forge, repo, pull):
    comment = github.user("alice").comment(pull, "/gpurun smoke")
    github.user("alice").delete_comment(comment)

    with pytest.raises(ForgeRefused) as caught:
        await forge.comment(repo.ref, comment.id)
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("role", "push", "maintain", "admin"),
    [
        ("none", False, False, False),
        ("read", False, False, False),
        ("triage", False, False, False),
        ("write", True, False, False),
        ("maintain", True, True, False),
        ("admin", True, True, True),
    ],
)
async def test_rights_are_what_the_role_gives(github, forge, repo, role, push, maintain, admin):
    github.user("bob")
    repo.grant("bob", role)

    assert await forge.permission(repo.ref, "bob") == Permission(push=push, maintain=maintain, admin=admin)


async def test_rights_are_asked_anew_each_time(github, forge, repo):
    github.user("alice")
    assert (await forge.permission(repo.ref, "alice")).push
    repo.grant("alice", "read")

    assert not (await forge.permission(repo.ref, "alice")).push


async def test_nobody_has_no_rights(forge, repo):
    assert await forge.permission(repo.ref, "no-such-user") == Permission(push=False, maintain=False, admin=False)


# files and source


async def test_a_file_is_read_at_that_commit_and_no_other(github, forge, repo, pull):
    before = CommitSha(pull.head_sha)
    github.user("alice").push(pull, {".gpurun.yml": "version: 2\n"})

    assert await forge.read_file(repo.ref, before, ".gpurun.yml", max_bytes=1000) == b"version: 1\n"
    assert await forge.read_file(repo.ref, CommitSha(pull.head_sha), ".gpurun.yml", max_bytes=11) == b"version: 2\n"


async def test_a_branch_is_a_branch_whatever_tags_are_called(github, forge, repo, pull):
    github.user("alice").push(repo, {".gpurun.yml": "version: 1\n"}, branch="release/1")
    repo.git.set_ref("refs/tags/release/1", pull.head_sha)
    repo.git.set_ref("refs/tags/heads/release/1", pull.head_sha)
    github.user("alice").push(pull, {".gpurun.yml": "version: 3\n"})
    repo.git.set_ref("refs/tags/release/1", pull.head_sha)
    branch = BranchName("release/1")
    assert await forge.read_file(repo.ref, branch, ".gpurun.yml", max_bytes=1000) == b"version: 1\n"
    with pytest.raises(ForgeRefused):
        await forge.read_file(repo.ref, BranchName("none"), ".gpurun.yml", max_bytes=1000)


async def test_a_file_in_a_folder_is_found(github, forge, repo, pull):
    sha = CommitSha(github.user("alice").push(pull, {"a/b/c.txt": bytes(range(256))}))

    assert await forge.read_file(repo.ref, sha, "a/b/c.txt", max_bytes=1000) == bytes(range(256))
    assert await forge.read_file(repo.ref, sha, "a/x/c.txt", max_bytes=1000) is None


async def test_what_is_not_there_is_none(github, forge, repo, pull):
    sha = CommitSha(github.user("alice").push(pull, {"other.yml": "version: 1\n", ".gpurun.yml": None}))

    assert await forge.read_file(repo.ref, sha, ".gpurun.yml", max_bytes=1000) is None


@pytest.mark.parametrize(
    ("instead", "what"),
    [
        ({".gpurun.yml": Link("other.yml")}, "a symbolic link; put the file itself there."),
        ({".gpurun.yml": Link("nowhere.yml")}, "a symbolic link; put the file itself there."),
        ({".gpurun.yml": Submodule("a" * 40)}, "a submodule; a file belongs there."),
        ({".gpurun.yml": None, ".gpurun.yml/x": "1"}, "a folder; a file belongs there."),
    ],
    ids=["symlink", "dangling", "submodule", "folder"],
)
async def test_what_is_no_plain_file_is_named(github, forge, repo, pull, instead, what):
    sha = CommitSha(github.user("alice").push(pull, {"other.yml": "version: 1\n", **instead}))

    with pytest.raises(UserError) as caught:
        await forge.read_file(repo.ref, sha, ".gpurun.yml", max_bytes=1000)
    assert str(caught.value) == f".gpurun.yml is {what}"
    assert caught.value.hint
    assert await forge.read_files(repo.ref, sha, [".gpurun.yml"], max_bytes=1000) == ()


async def test_a_file_that_is_too_large_is_the_persons_mistake(github, forge, repo, pull):
    sha = CommitSha(github.user("alice").push(pull, {".gpurun.yml": "x" * 2001}))

    with pytest.raises(UserError, match=r"\.gpurun\.yml is 2,001 bytes long; at most 2,000"):
        await forge.read_file(repo.ref, sha, ".gpurun.yml", max_bytes=2000)


async def test_of_several_files_those_that_are_there_are_read_and_shared_folders_asked_for_once(
    github, forge, repo, pull
):
    files = {"a/f": "1", "a/b/f": "22", "c/f": Link("a/f"), "d/f": "x" * 11}
    sha = CommitSha(github.user("alice").push(pull, files))
    asked = ["f", "a/f", "a/b/f", "a/b/c/f", "c/f", "d/f", "a/b"]

    before = len(github.requests)
    found = await forge.read_files(repo.ref, sha, asked, max_bytes=10)
    assert [(one.path, one.content) for one in found] == [("a/f", b"1"), ("a/b/f", b"22"), ("d/f", None)]
    paths = [one.path for one in github.requests[before:] if "/git/" in one.path]
    assert len(paths) == len(set(paths)) == 7  # top, a, a/b, c and d, and two files


async def test_what_a_pull_request_changes_is_listed_whatever_it_does_to_a_file(github, forge, repo, pull):
    alice = github.user("alice")
    base = {"kept": "k", "gone/f": "g", "old/name": "same\n" * 20, "edited": "1"}
    alice.push(repo, base)
    change = alice.open_pull_request(
        repo,
        branch="more",
        files={"gone/f": None, "edited": "2", "new/é f": "n", "old/name": None, "new/name": "same\n" * 20},
    )
    alice.push(repo, {"on/main": "later"})

    found = await forge.changed_files(repo.ref, change.number)
    assert sorted(found.paths) == ["edited", "gone/f", "new/name", "new/é f", "old/name"]
    assert found.all_there


async def test_the_files_of_a_large_pull_request_come_in_pages_up_to_githubs_limit(github, forge, repo):
    alice = github.user("alice")
    many = alice.open_pull_request(repo, branch="many", files={f"d/{n:04}": str(n) for n in range(250)})
    before = len(github.requests)
    assert len((await forge.changed_files(repo.ref, many.number)).paths) == 250
    pages = [one.query for one in github.requests[before:] if one.path.endswith("/files")]
    assert pages == [f"per_page=100&page={page}" for page in (1, 2, 3)]

    too_many = alice.open_pull_request(repo, branch="more", files={f"d/{n:04}": str(n) for n in range(3_001)})
    found = await forge.changed_files(repo.ref, too_many.number)
    assert (len(found.paths), found.all_there) == (3_000, False)


async def test_an_unknown_commit_is_not_an_absent_file(forge, repo):
    with pytest.raises(ForgeRefused) as caught:
        await forge.read_file(repo.ref, UNKNOWN, ".gpurun.yml", max_bytes=1000)
    assert caught.value.status == 404


async def test_git_fetches_a_commit_of_a_private_repository_with_the_source(github, clock, repo, pull, tmp_path):
    first = pull.head_sha
    github.user("alice").push(pull, {"x": "1"}, force=True)
    async with serving(github):
        forge = make_forge(github, clock)
        source = await forge.git_source(repo.ref)
        await forge.close()
        mirror = tmp_path / "mirror"
        await _git("init", "--bare", "--quiet", str(mirror))
        fetch = ("-C", str(mirror), "fetch", "--quiet", "--depth=1", source.url, first)

        # no branch holds that commit any more
        assert await _git(*fetch, authorization=source.authorization.get_secret_value()) == 0
        assert await _git("-C", str(mirror), "cat-file", "-e", f"{first}^{{commit}}") == 0
        assert await _git(*fetch) != 0
        assert source.url == f"{github.git_url}/acme/train.git"


async def _git(*argv, authorization=""):
    env = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "PATH": "/usr/bin:/bin"}
    if authorization:
        env |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: {authorization}",
        }
    process = await asyncio.create_subprocess_exec("git", *argv, env=env, stderr=subprocess.DEVNULL)
    return await process.wait()


async def test_the_credential_of_a_source_reaches_one_repository_and_reads_only(github, forge, repo):
    github.create_repo("acme/other", private=True)

    source = await forge.git_source(repo.ref)

    (token,) = github.tokens.values()
    assert token.repos == frozenset({"acme/train"})
    assert token.permissions == {"contents": "read", "metadata": "read"}
    assert token.value not in repr(source)


# comments and reactions


async def test_a_reaction_is_the_same_when_sent_twice(github, forge, repo, pull):
    comment = github.user("alice").comment(pull, "/gpurun smoke")

    first = await forge.react(repo.ref, comment.id, "eyes")

    assert await forge.react(repo.ref, comment.id, "eyes") == first
    assert [(one.content, one.author.login) for one in comment.reactions] == [("eyes", "gpurun[bot]")]


async def test_a_comment_is_written_and_changed(github, forge, repo, pull):
    comment_id = await forge.create_comment(repo.ref, pull.number, "Queued 🚀")
    await forge.update_comment(repo.ref, comment_id, "Passed")

    (comment,) = github.comments(pull)
    assert (comment.id, comment.body, comment.history) == (comment_id, "Passed", ["Queued 🚀"])
    assert comment.author.login == "gpurun[bot]"


async def test_changing_a_deleted_comment_is_refused_with_404(github, forge, repo, pull):
    comment_id = await forge.create_comment(repo.ref, pull.number, "Queued")
    github.user("alice").delete_comment(pull.comments[comment_id])

    with pytest.raises(ForgeRefused) as caught:
        await forge.update_comment(repo.ref, comment_id, "Passed")
    assert caught.value.status == 404


async def test_a_comment_that_is_too_long_is_refused_with_422(forge, repo, pull):
    await forge.create_comment(repo.ref, pull.number, "x" * 65_536)

    with pytest.raises(ForgeRefused, match="too long") as caught:
        await forge.create_comment(repo.ref, pull.number, "x" * 65_537)
    assert caught.value.status == 422


async def test_a_comment_whose_answer_was_lost_is_found_by_its_marker(github, forge, repo, pull, clock):
    since = clock.now() - timedelta(minutes=1)
    github.time_out_next("POST", COMMENTS, after_doing=True)
    with pytest.raises(ForgeUnavailable):
        await forge.create_comment(repo.ref, pull.number, "Queued <!-- gpurun:n0nce -->")

    found = await forge.find_comment(repo.ref, pull.number, marker="<!-- gpurun:n0nce -->", since=since)

    assert [comment.id for comment in github.comments(pull)] == [found]


async def test_only_our_own_and_recent_comments_are_found(github, forge, repo, pull, clock):
    old = await forge.create_comment(repo.ref, pull.number, "<!-- gpurun:one -->")
    clock.advance(minutes=10)
    since = clock.now()
    github.user("alice").comment(pull, "quoting <!-- gpurun:one -->")

    assert await forge.find_comment(repo.ref, pull.number, marker="<!-- gpurun:one -->", since=since) is None
    an_hour_ago = clock.now() - timedelta(hours=1)
    assert await forge.find_comment(repo.ref, pull.number, marker="<!-- gpurun:one -->", since=an_hour_ago) == old


async def test_malicious_log_that_holds_a_marker_makes_no_comment_somebody_elses(github, forge, repo, pull, clock):
    """A job prints what it has read on GitHub; ours stands at the end."""
    since = clock.now() - timedelta(minutes=1)
    await forge.create_comment(repo.ref, pull.number, "```\n<!-- gpurun:one -->\n```\n\n<!-- gpurun:two -->\n")

    assert await forge.find_comment(repo.ref, pull.number, marker="<!-- gpurun:one -->", since=since) is None
    assert await forge.find_comment(repo.ref, pull.number, marker="<!-- gpurun:two -->", since=since) is not None


async def test_a_comment_is_found_behind_a_page_of_others(github, forge, repo, pull, clock):
    for n in range(130):
        github.user("alice").comment(pull, f"comment {n}")
    ours = await forge.create_comment(repo.ref, pull.number, "<!-- gpurun:one -->")

    assert await forge.find_comment(repo.ref, pull.number, marker="<!-- gpurun:one -->", since=clock.now()) == ours
    assert await forge.find_comment(repo.ref, pull.number, marker="<!-- gpurun:two -->", since=clock.now()) is None


# checks


async def test_a_check_is_made_and_finished(github, forge, repo, pull, clock):
    sha = CommitSha(pull.head_sha)
    button = CheckAction(label="Cancel", description="Stop it", identifier="cancel")
    check_id = await forge.create_check(repo.ref, sha, a_check(actions=(button,)))
    (check,) = github.checks(repo, sha=pull.head_sha)
    assert (check.id, check.status, check.conclusion) == (check_id, "in_progress", None)
    assert [shown.identifier for shown in check.actions] == ["cancel"]

    done = a_check(
        status=CheckStatus.COMPLETED,
        conclusion="success",
        title="Passed",
        text="long",
        details_url="https://bot.example/runs/1",
        started_at=clock.now(),
        completed_at=clock.now(),
    )
    await forge.update_check(repo.ref, check_id, done)

    assert (check.status, check.conclusion, check.title, check.text) == ("completed", "success", "Passed", "long")
    assert (check.external_id, check.details_url) == ("run-1", "https://bot.example/runs/1")
    assert (check.started_at, check.completed_at) == (clock.now(), clock.now())
    assert check.actions == []


async def test_a_check_that_is_completed_stays_so_and_the_newest_is_found(github, forge, repo, pull):
    sha = CommitSha(pull.head_sha)
    waits = a_check(status=CheckStatus.COMPLETED, conclusion="action_required")
    first = await forge.create_check(repo.ref, sha, waits)
    assert await forge.update_check(repo.ref, first, waits)
    assert not await forge.update_check(repo.ref, first, a_check(title="Running"))
    assert (repo.checks[first].conclusion, repo.checks[first].title) == ("action_required", "Running")

    second = await forge.create_check(repo.ref, sha, a_check(title="Running"))
    assert await forge.update_check(repo.ref, second, a_check(title="Still running"))
    assert await forge.find_check(repo.ref, sha, name=a_check().name, external_id="run-1") == second


async def test_a_check_on_an_unknown_commit_is_refused_with_422(forge, repo):
    with pytest.raises(ForgeRefused, match="No commit found") as caught:
        await forge.create_check(repo.ref, UNKNOWN, a_check())
    assert caught.value.status == 422


@pytest.mark.parametrize(("status", "conclusion"), [(CheckStatus.COMPLETED, None), (CheckStatus.QUEUED, "success")])
async def test_a_conclusion_belongs_to_a_completed_check(forge, repo, pull, status, conclusion):
    with pytest.raises(Bug):
        await forge.create_check(repo.ref, CommitSha(pull.head_sha), a_check(status=status, conclusion=conclusion))


def annotations(count):
    return tuple(Annotation(path=".gpurun.yml", line=n + 1, message=f"line {n}") for n in range(count))


@pytest.mark.parametrize(("count", "calls"), [(50, 1), (51, 2), (120, 3)])
async def test_b034_many_annotations_go_out_in_several_calls(github, forge, repo, pull, count, calls):
    check_id = await forge.create_check(repo.ref, CommitSha(pull.head_sha), a_check(annotations=annotations(count)))

    assert [one.start_line for one in repo.checks[check_id].annotations] == list(range(1, count + 1))
    writes = [seen for seen in github.requests if "/check-runs" in seen.path and seen.method != "GET"]
    assert len(writes) == calls


async def test_annotations_are_not_doubled_by_a_call_whose_answer_was_lost(github, forge, repo, pull):
    check_id = await forge.create_check(repo.ref, CommitSha(pull.head_sha), a_check())
    full = a_check(annotations=annotations(70))
    github.fail_next("PATCH", CHECKS + "/{}", status=502, after_doing=True)
    with pytest.raises(ForgeUnavailable):
        await forge.update_check(repo.ref, check_id, full)

    await forge.update_check(repo.ref, check_id, full)

    assert [one.start_line for one in repo.checks[check_id].annotations] == list(range(1, 71))


async def test_a_check_is_found_by_name_and_external_id(github, forge, repo, pull):
    sha = CommitSha(pull.head_sha)
    first = await forge.create_check(repo.ref, sha, a_check(external_id="run-1"))
    second = await forge.create_check(repo.ref, sha, a_check(external_id="run-2"))

    assert await forge.find_check(repo.ref, sha, name="gpurun / smoke", external_id="run-1") == first
    assert await forge.find_check(repo.ref, sha, name="gpurun / smoke", external_id="run-2") == second
    assert await forge.find_check(repo.ref, sha, name="gpurun / smoke", external_id="run-3") is None
    assert await forge.find_check(repo.ref, sha, name="gpurun / other", external_id="run-1") is None


async def test_the_check_of_another_app_is_not_ours(github, forge, repo, pull):
    sha = CommitSha(pull.head_sha)
    check_id = await forge.create_check(repo.ref, sha, a_check())
    repo.checks[check_id].app_id = 99

    assert await forge.find_check(repo.ref, sha, name="gpurun / smoke", external_id="run-1") is None


# tokens


async def test_one_token_serves_many_callers_and_a_new_one_comes_before_it_ends(github, forge, repo, pull, clock):
    await asyncio.gather(*(forge.pull_request(repo.ref, pull.number) for _ in range(5)))
    assert len(github.tokens) == 1

    clock.advance(minutes=56)
    await forge.pull_request(repo.ref, pull.number)
    assert len(github.tokens) == 2


async def test_a_refused_token_is_renewed_once(github, forge, repo, pull):
    await forge.pull_request(repo.ref, pull.number)
    github.revoke_tokens()

    assert (await forge.pull_request(repo.ref, pull.number)).number == pull.number

    github.fail_next("GET", PULL, status=401, body={"message": "Bad credentials"}, times=2)
    with pytest.raises(ForgeRefused) as caught:
        await forge.pull_request(repo.ref, pull.number)
    assert caught.value.status == 401


async def test_a_write_with_a_refused_token_happens_once(github, forge, repo, pull):
    await forge.pull_request(repo.ref, pull.number)
    github.revoke_tokens()

    await forge.create_comment(repo.ref, pull.number, "Queued")

    assert [comment.body for comment in github.comments(pull)] == ["Queued"]


async def test_another_apps_key_is_refused_with_401(github, clock, repo, pull):
    forge = make_forge(github, clock, private_key=SecretStr(pem(app_key(1))))
    with pytest.raises(ForgeRefused) as caught:
        await forge.pull_request(repo.ref, pull.number)
    assert caught.value.status == 401


@pytest.mark.parametrize("pem_text", ["", "-----BEGIN PRIVATE KEY----- s3cret", "s3cret"])
async def test_a_key_that_is_none_is_refused_without_quoting_it(github, clock, repo, pull, pem_text):
    forge = make_forge(github, clock, private_key=SecretStr(pem_text))
    with pytest.raises(ForgeRefused, match="private key") as caught:
        await forge.pull_request(repo.ref, pull.number)
    assert caught.value.status == 401
    assert "s3cret" not in repr(caught.value)
    assert caught.value.__cause__ is None


async def test_two_forges_share_no_token(github, clock, repo, pull):
    await make_forge(github, clock).pull_request(repo.ref, pull.number)
    await make_forge(github, clock).pull_request(repo.ref, pull.number)

    assert len(github.tokens) == 2


async def test_the_bots_login_is_asked_once(github, forge):
    assert await forge.bot_login() == "gpurun[bot]"
    assert await forge.bot_login() == "gpurun[bot]"
    assert [seen.path for seen in github.requests] == ["/app"]


# refusals and trouble


@pytest.mark.parametrize("status", [404, 410, 422, 451, 403])
async def test_a_refusal_keeps_its_status(github, forge, repo, pull, status):
    github.fail_next("GET", PULL, status=status, body={"message": "No"})

    with pytest.raises(ForgeRefused, match="No") as caught:
        await forge.pull_request(repo.ref, pull.number)
    assert caught.value.status == status


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 409])
async def test_trouble_at_github_is_worth_another_try(github, forge, repo, pull, status):
    github.fail_next("GET", PULL, status=status)

    with pytest.raises(ForgeUnavailable) as caught:
        await forge.pull_request(repo.ref, pull.number)
    assert caught.value.retry_after_s is None


async def test_nothing_is_retried_behind_our_back(github, forge, repo, pull):
    github.fail_next("POST", COMMENTS, status=502, after_doing=True)

    with pytest.raises(ForgeUnavailable):
        await forge.create_comment(repo.ref, pull.number, "Queued")
    assert len(github.comments(pull)) == 1


async def test_no_answer_is_worth_another_try(github, forge, repo, pull):
    github.time_out_next("GET", PULL)

    with pytest.raises(ForgeUnavailable, match="in time"):
        await forge.pull_request(repo.ref, pull.number)


async def test_trouble_while_the_token_is_made_is_the_same_trouble(github, forge, repo, pull):
    github.fail_next("POST", TOKENS, status=502)
    with pytest.raises(ForgeUnavailable):
        await forge.pull_request(repo.ref, pull.number)

    assert (await forge.pull_request(repo.ref, pull.number)).number == pull.number


async def test_the_primary_limit_says_when_it_ends(github, forge, repo, pull):
    await forge.pull_request(repo.ref, pull.number)
    github.exhaust_rate_limit(reset_in_s=600)

    with pytest.raises(ForgeUnavailable) as caught:
        await forge.pull_request(repo.ref, pull.number)
    assert caught.value.retry_after_s == pytest.approx(600, abs=1)


@pytest.mark.parametrize("status", [403, 429])
async def test_the_secondary_limit_says_when_it_ends(github, forge, repo, pull, status):
    github.fail_next("POST", COMMENTS, status=status, headers={"retry-after": "30"}, body={"message": "slow down"})

    with pytest.raises(ForgeUnavailable) as caught:
        await forge.create_comment(repo.ref, pull.number, "Queued")
    assert caught.value.retry_after_s == 30


async def test_a_limit_only_in_words_is_a_minute(github, forge, repo, pull):
    words = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}
    github.fail_next("POST", COMMENTS, status=403, body=words)

    with pytest.raises(ForgeUnavailable) as caught:
        await forge.create_comment(repo.ref, pull.number, "Queued")
    assert caught.value.retry_after_s == 60


async def test_a_suspended_installation_is_refused_and_others_go_on(github, forge, repo, pull):
    other = github.create_repo("globex/train")
    await forge.permission(repo.ref, "alice")
    github.suspend(repo)

    with pytest.raises(ForgeRefused, match="suspended") as caught:
        await forge.pull_request(repo.ref, pull.number)
    assert caught.value.status == 403
    assert await forge.permission(other.ref, "globex") == Permission(push=True, maintain=True, admin=True)

    github.unsuspend(repo)
    assert (await forge.pull_request(repo.ref, pull.number)).number == pull.number


async def test_a_missing_permission_is_refused_with_403(github, clock, repo, pull):
    github.installations[repo.installation_id].permissions = {"metadata": "read", "pull_requests": "read"}
    forge = make_forge(github, clock)

    assert (await forge.pull_request(repo.ref, pull.number)).number == pull.number
    with pytest.raises(ForgeRefused) as caught:
        await forge.create_comment(repo.ref, pull.number, "Queued")
    assert caught.value.status == 403


async def test_a_renamed_repository_is_still_reached_under_its_old_name(github, forge, repo, pull):
    old = repo.ref
    github.rename(repo, "acme/trainer")

    assert (await forge.pull_request(old, pull.number)).number == pull.number
    await forge.create_comment(old, pull.number, "Queued")
    assert [comment.body for comment in github.comments(pull)] == ["Queued"]


async def test_a_private_repository_of_others_does_not_exist(github, forge, repo):
    hidden = github.create_repo("globex/secret", private=True)
    through_acme = hidden.ref.__class__(installation_id=repo.installation_id, name=hidden.ref.name, id=hidden.id)

    with pytest.raises(ForgeRefused) as caught:
        await forge.pull_request(through_acme, 1)
    assert caught.value.status == 404


async def test_every_address_comes_from_the_setting(github, repo, pull, clock):
    seen = []

    class Watching(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            seen.append(f"{request.url.host}{request.url.path}")
            return await github.transport.handle_async_request(request)

    forge = make_forge(github, clock, transport=Watching())
    await forge.pull_request(repo.ref, pull.number)
    await forge.bot_login()
    source = await forge.git_source(repo.ref)

    assert seen
    assert all(url.startswith("github.test/api/v3/") for url in seen)
    assert source.url.startswith("http://github.test/acme/")


# buttons


async def test_a_check_is_read_again(github, forge, repo, pull):
    made = await forge.create_check(repo.ref, CommitSha(pull.head_sha), a_check())

    seen = await forge.read_check(repo.ref, made)

    assert (seen.id, seen.name, seen.external_id, seen.head_sha) == (made, "gpurun / smoke", "run-1", pull.head_sha)
    assert seen.ours


async def test_a_check_of_another_app_says_so_and_one_that_is_not_there_is_refused_with_404(github, forge, repo, pull):
    made = await forge.create_check(repo.ref, CommitSha(pull.head_sha), a_check())
    github.checks(repo)[0].app_id = 7

    assert not (await forge.read_check(repo.ref, made)).ours
    with pytest.raises(ForgeRefused) as refused:
        await forge.read_check(repo.ref, made + 1)
    assert refused.value.status == 404


@pytest.fixture
def hook(github):
    """Deliveries go to somebody who takes them."""

    async def take(scope, receive, send):
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body"})

    github.hook_url = "http://bot.test/github"
    github.hook_transport = httpx.ASGITransport(app=take)


def minutes_ago(clock, minutes):
    return clock.now() - timedelta(minutes=minutes)


async def test_what_github_has_sent_is_found_by_its_guid_and_nothing_else_is(github, forge, repo, pull, hook, clock):
    github.user("alice").comment(pull, "hi")
    opened, said = await github.deliver()

    found = await forge.delivery(said.guid, since=minutes_ago(clock, 10))

    assert found is not None
    assert (found.event, found.at, found.again) == ("issue_comment", clock.now(), False)
    assert json.loads(found.body) == json.loads(said.body)
    assert await forge.delivery("00000000-0000-4000-8000-000000000001", since=minutes_ago(clock, 10)) is None
    assert opened.guid != said.guid


async def test_a_delivery_of_before_is_not_looked_for(github, forge, repo, pull, hook, clock):
    *_, sent = await github.deliver()
    clock.advance(minutes=20)

    assert await forge.delivery(sent.guid, since=minutes_ago(clock, 10)) is None
    assert await forge.delivery(sent.guid, since=minutes_ago(clock, 30)) is not None


async def test_a_delivery_that_was_sent_again_is_told_as_one_unless_the_first_is_near(
    github, forge, repo, pull, hook, clock
):
    *_, sent = await github.deliver()
    first = clock.now()
    clock.advance(minutes=20)
    await github.redeliver(sent)

    again = await forge.delivery(sent.guid, since=minutes_ago(clock, 10))
    assert (again.at, again.again) == (clock.now(), True)
    whole = await forge.delivery(sent.guid, since=minutes_ago(clock, 30))
    assert (whole.at, whole.again) == (first, False)


async def test_a_delivery_behind_a_page_of_others_is_found_and_the_looking_has_an_end(
    github, forge, repo, pull, hook, clock
):
    *_, sent = await github.deliver()
    (one,) = github.records
    github.records += [replace(one, id=github.new_id(), hook=replace(one.hook, guid=f"g-{n}")) for n in range(250)]

    assert (await forge.delivery(sent.guid, since=minutes_ago(clock, 10))).event == "pull_request"
    pages = [request for request in github.requests if request.path == "/app/hook/deliveries"]
    assert len(pages) == 3

    github.records += [replace(one, id=github.new_id(), hook=replace(one.hook, guid="g")) for _ in range(2000)]
    with pytest.raises(ForgeRefused, match="more since"):
        await forge.delivery(sent.guid, since=minutes_ago(clock, 10))


async def test_only_the_app_itself_reads_what_was_sent(github, repo, pull, hook, clock):
    other = make_forge(github, clock, private_key=SecretStr(pem(app_key(1))))
    with pytest.raises(ForgeRefused) as refused:
        await other.delivery("g", since=clock.now())
    assert refused.value.status == 401
