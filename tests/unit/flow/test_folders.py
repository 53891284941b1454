"""Several `.gpurun.yml` in one repository: which one a command means, and how each folder's runs are told apart."""

from __future__ import annotations

import pytest

from gpurun.domain.run import RunState, Verdict
from gpurun.flow.look import MAX_FOLDERS, touched_folders
from tests.fakes.github.gitrepo import Link
from tests.unit.flow.town import Town, open_town

IMAGE = f"ghcr.io/acme/app@sha256:{'a' * 64}"


def config(*jobs: str) -> str:
    lines = "".join(f'  {job}: {{image: "{IMAGE}", run: python {job}.py}}\n' for job in jobs)
    return f"version: 1\njobs:\n{lines}"


@pytest.fixture
def store_url(tmp_path):
    """SQLite: what is written is the same on both, and `test_intake` runs on both."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town


async def opened(town: Town, files):
    """A pull request without a file at the top, unless `files` has one."""
    return town.alice.open_pull_request(town.repo, branch="mono", files=files)


def replies(town: Town, pull) -> list[str]:
    return [one.body.partition("\n\n<!--")[0] for one in town.comments(pull) if "### gpurun" not in one.body]


def asked_for(town: Town, since: int, part: str) -> int:
    return sum(part in one.path for one in town.github.requests[since:])


async def test_a_named_folder_is_the_one(town: Town):
    pull = await opened(town, {".gpurun.yml": config("smoke"), "a/b/.gpurun.yml": config("smoke")})
    await town.says("/gpurun smoke path=a/b", on=pull)
    (run,) = await town.runs()
    assert (run.job, run.folder, run.config_text) == ("smoke", "a/b", config("smoke"))
    assert [c.name for c in town.github.checks(town.repo)] == ["gpurun / smoke (a/b)"]
    (comment,) = town.comments(pull)
    assert comment.body.startswith("### gpurun smoke (a/b): ")
    assert "To stop it, write `/gpurun cancel smoke path=a/b`." in comment.body


async def test_each_folder_has_its_run_comment_and_check(town: Town):
    files = {f"{folder}.gpurun.yml": config("smoke") for folder in ("", "a/", "b/")}
    pull = await opened(town, files)
    await town.says("/gpurun smoke\n/gpurun smoke path=a\n/gpurun smoke path=b", on=pull)
    await town.says("/gpurun path=a smoke", on=pull)
    assert [run.folder for run in await town.runs()] == ["", "a", "b"]
    assert len(town.comments(pull)) == 4  # one says that the second command joined a run
    names = [c.name for c in town.github.checks(town.repo)]
    assert names == ["gpurun / smoke", "gpurun / smoke (a)", "gpurun / smoke (b)"]
    town.alice.push(pull, {"more.py": "pass"})
    await town.says("/gpurun smoke path=a", on=pull)
    assert len(town.comments(pull)) == 4
    assert len(town.github.checks(town.repo)) == 4


async def test_a_named_folder_without_a_file_starts_nothing(town: Town):
    pull = await opened(town, {".gpurun.yml": config("smoke")})
    await town.says("/gpurun smoke path=a", on=pull)
    assert await town.runs() == ()
    assert replies(town, pull) == [
        "There is no `a/.gpurun.yml` at the head of this pull request, so nothing was started."
    ]


async def test_an_unknown_job_of_a_named_folder(town: Town):
    pull = await opened(town, {"a/.gpurun.yml": config("smoke", "full")})
    await town.says("/gpurun smok path=a", on=pull)
    assert replies(town, pull) == [
        "There is no job `smok` in `a/.gpurun.yml`. Did you mean `/gpurun smoke path=a`? Jobs: `smoke`, `full`."
    ]


async def test_the_only_folder_with_the_job_is_found(town: Town):
    pull = await opened(town, {"a/x.py": "1", "pkg/deep/src/y.py": "2", "pkg/.gpurun.yml": config("smoke")})
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    assert run.folder == "pkg"


async def test_the_file_lies_above_a_changed_file_and_was_not_changed_itself(town: Town):
    town.alice.push(town.repo, {"pkg/.gpurun.yml": config("smoke"), "other/.gpurun.yml": config("smoke")})
    pull = await opened(town, {"pkg/src/deep/y.py": "2"})
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    assert run.folder == "pkg"


async def test_the_top_wins_when_it_has_the_job_and_nobody_looks_further(town: Town):
    pull = await opened(town, {".gpurun.yml": config("smoke"), "a/.gpurun.yml": config("smoke")})
    since = len(town.github.requests)
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    assert run.folder == ""
    assert asked_for(town, since, "/files") == 0


async def test_a_job_that_the_top_lacks_is_looked_for(town: Town):
    pull = await opened(town, {".gpurun.yml": config("smoke"), "a/.gpurun.yml": config("full")})
    await town.says("/gpurun full", on=pull)
    (run,) = await town.runs()
    assert run.folder == "a"


async def test_of_several_a_person_chooses(town: Town):
    pull = await opened(town, {"a/.gpurun.yml": config("smoke"), "b/c/.gpurun.yml": config("smoke", "full")})
    await town.says("/gpurun smoke", on=pull)
    assert await town.runs() == ()
    assert replies(town, pull) == [
        "Several folders have this job. Write `/gpurun smoke path=a` or `/gpurun smoke path=b/c`."
    ]


async def test_a_job_that_no_file_has_is_answered_with_all_of_them(town: Town):
    files = {".gpurun.yml": config("smoke"), "a/.gpurun.yml": config("full"), "b/.gpurun.yml": "version: 2\n"}
    pull = await opened(town, files)
    await town.says("/gpurun ful", on=pull)
    assert replies(town, pull) == [
        (
            "No `.gpurun.yml` that was looked at has a job `ful`. Did you mean `/gpurun full path=a`? "
            "`.gpurun.yml`: `smoke`; `a/.gpurun.yml`: `full`; "
            "`b/.gpurun.yml`: has a fault, and `gpurun validate b/.gpurun.yml` says where."
        )
    ]


async def test_no_file_anywhere_is_a_run_that_says_so(town: Town):
    pull = await opened(town, {"a/x.py": "1"})
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    assert (run.folder, run.config_text) == ("", None)


async def test_a_broken_file_at_the_top_is_the_one_that_is_told(town: Town):
    pull = await opened(town, {".gpurun.yml": "version: 2\n", "a/.gpurun.yml": config("smoke")})
    since = len(town.github.requests)
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    assert run.folder == ""
    assert asked_for(town, since, "/files") == 0


async def test_help_lists_jobs_by_folder_when_the_top_has_no_file(town: Town):
    pull = await opened(town, {"a/.gpurun.yml": config("smoke"), "b/.gpurun.yml": config("full", "eval")})
    await town.says("/gpurun help", on=pull)
    (answer,) = replies(town, pull)
    assert "Jobs with `path=a`: `smoke`." in answer
    assert "Jobs with `path=b`: `full`, `eval`." in answer


async def test_who_may_run_nothing_makes_nobody_look_through_folders(town: Town):
    pull = await opened(town, {"a/.gpurun.yml": config("smoke")})
    since = len(town.github.requests)
    await town.says("/gpurun smoke\n/gpurun help", by="bob", on=pull)
    assert asked_for(town, since, "/files") == 0
    assert await town.runs() == ()


async def test_a_second_look_at_the_same_commit_asks_only_for_the_files(town: Town):
    pull = await opened(town, {f"d{n}/x.py": str(n) for n in range(10)} | {"d3/.gpurun.yml": config("smoke")})
    since = len(town.github.requests)
    await town.says("/gpurun smoke", on=pull)
    assert (asked_for(town, since, "/files"), asked_for(town, since, "/trees/")) == (1, 1 + 1 + 1 + 10)
    since = len(town.github.requests)
    await town.says("/gpurun help", on=pull)
    assert (asked_for(town, since, "/files"), asked_for(town, since, "/trees/")) == (0, 1 + 2)
    town.alice.push(pull, {"d4/.gpurun.yml": config("full")})
    await town.says("/gpurun full", on=pull)
    assert [run.folder for run in await town.runs()] == ["d3", "d4"]


async def test_more_folders_than_are_looked_through_are_told(town: Town):
    many = {f"d{n:03}/x.py": "1" for n in range(MAX_FOLDERS)} | {"z/.gpurun.yml": config("smoke")}
    pull = await opened(town, many | {"d000/.gpurun.yml": config("full")})
    await town.says("/gpurun smoke", on=pull)
    (answer,) = replies(town, pull)
    assert "touches more folders than are looked through; `path=<folder>` names any." in answer
    await town.says("/gpurun smoke path=z", on=pull)
    assert [run.folder for run in await town.runs()] == ["z"]


async def test_github_cannot_list_the_files(town: Town):
    pull = await opened(town, {"a/.gpurun.yml": config("smoke")})
    town.github.fail_next("GET", "/repos/{}/{}/pulls/{}/files", status=422)
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    assert (run.folder, run.config_text) == ("", None)


async def test_what_a_search_costs_is_taken_from_the_budget_of_reads(town: Town):
    pull = await opened(town, {f"d{n}/x.py": str(n) for n in range(20)} | {"d3/.gpurun.yml": config("smoke")})
    installation = town.repo.installation_id

    async def until():
        pace = await town.store.read(lambda tx: tx.pace(installation))
        return pace.reads_until

    await town.says("/gpurun smoke path=d3", on=pull)
    before, asked = await until(), len(town.github.requests)
    await town.says("/gpurun help", on=pull)
    reads = sum(one.method == "GET" for one in town.github.requests[asked:])
    booked = ((await until()) - max(before, town.clock.now())).total_seconds() / 0.9
    assert reads - 1 <= booked <= reads + 5


@pytest.mark.parametrize(
    ("typed", "stopped", "said"),
    [
        ("/gpurun cancel smoke", [""], []),
        ("/gpurun cancel smoke path=a", ["a"], []),
        ("/gpurun cancel path=b", ["b"], []),
        ("/gpurun cancel", ["", "a", "b"], []),
        ("/gpurun cancel smoke path=c", [], ["No run of `smoke` in `c` is going on"]),
    ],
)
async def test_cancel_means_one_folder(town: Town, typed, stopped, said):
    pull = await opened(town, {f"{folder}.gpurun.yml": config("smoke") for folder in ("", "a/", "b/")})
    await town.says("/gpurun smoke\n/gpurun smoke path=a\n/gpurun smoke path=b", on=pull)
    await town.says(typed, on=pull)
    assert [run.folder for run in await town.runs() if run.cancel_at] == stopped
    answers = replies(town, pull)
    assert len(answers) == len(said)
    assert all(part in answer for part, answer in zip(said, answers, strict=True))


async def test_cancel_without_a_folder_asks_when_several_run_and_none_at_the_top(town: Town):
    pull = await opened(town, {f"{folder}/.gpurun.yml": config("smoke") for folder in "ab"})
    await town.says("/gpurun smoke path=a\n/gpurun smoke path=b", on=pull)
    await town.says("/gpurun cancel smoke", on=pull)
    assert [run.cancel_at for run in await town.runs()] == [None, None]
    assert replies(town, pull) == [
        "Several folders have this job. Write `/gpurun cancel smoke path=a` or `/gpurun cancel smoke path=b`."
    ]
    (first, _) = await town.runs()
    await town.end(first, Verdict.PASSED)
    await town.says("/gpurun cancel smoke", on=pull)
    assert [run.folder for run in await town.runs() if run.cancel_at] == ["b"]
    assert [run.state for run in await town.runs()] == [RunState.ENDED, RunState.PLANNING]


async def test_a_job_that_comments_do_not_start_says_how_it_is_started(town: Town):
    silent = config("smoke").replace("run:", "trigger: {comment: false}, run:")
    pull = await opened(town, {"a/.gpurun.yml": silent})
    await town.says("/gpurun smoke", on=pull)
    assert await town.runs() == ()
    assert replies(town, pull) == [
        (
            "Comments do not start `smoke`: its `trigger` says `comment: false`. "
            "`gpurun run smoke --path a` runs it locally."
        )
    ]


async def test_the_policy_is_the_one_at_the_top_of_the_default_branch_for_every_folder(town: Town):
    policy = config("x") + "policy: {providers: [docker]}\n"
    town.alice.push(town.repo, {".gpurun.yml": policy, "a/.gpurun.yml": config("smoke")})
    pull = await opened(town, {".gpurun.yml": config("y"), "a/x.py": "1"})
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    assert (run.folder, run.policy_text) == ("a", policy)


async def test_who_may_not_run_makes_nobody_ask_for_files(town: Town):
    pull = await opened(town, {".gpurun.yml": config("smoke"), "a/b/c/d/.gpurun.yml": config("smoke")})
    since = len(town.github.requests)
    await town.says("\n".join(f"/gpurun {job} path=a/b/c/d" for job in ("smoke", "x", "y")), on=pull, by="bob")
    assert await town.runs() == ()
    assert asked_for(town, since, "/git/") == 2  # whether the default branch gives them the right: its end and its top


async def test_nothing_is_asked_of_git_for_a_comment_that_was_edited(town: Town):
    pull = await opened(town, {".gpurun.yml": config("smoke")})
    since = len(town.github.requests)
    comment = town.alice.comment(pull, "/gpurun smoke path=a")
    town.alice.edit_comment(comment, "/gpurun smoke")
    await town.settle()
    assert await town.runs() == ()
    assert asked_for(town, since, "/git/") == 0


async def test_a_policy_that_is_too_large_lets_nothing_start_and_is_told_as_it_is(town: Town):
    town.alice.push(town.repo, {".gpurun.yml": "#" * 70_000})
    pull = await opened(town, {".gpurun.yml": config("smoke")})
    await town.says("/gpurun smoke", on=pull)
    assert await town.runs() == ()
    (told,) = replies(town, pull)
    assert ".gpurun.yml is 70,000 bytes long" in told


async def test_a_link_in_the_place_of_a_file_is_named(town: Town):
    pull = await opened(town, {".gpurun.yml": Link("other.yml"), "other.yml": config("smoke")})
    await town.says("/gpurun smoke", on=pull)
    assert await town.runs() == ()
    (told,) = replies(town, pull)
    assert ".gpurun.yml is a symbolic link; put the file itself there." in told


def test_deep_paths_make_few_folders():
    deep = "/".join("d" for _ in range(2_000)) + "/x"
    assert len(touched_folders([deep, "é/" * 1_000 + "x"])) == 20


def test_folders_of_changed_files_and_above_the_highest_first():
    assert touched_folders(["x", "a/b/c/d", "a/e", "a b/x", "f`/x", "z/x"]) == ("a", "z", "a/b", "a/b/c")
