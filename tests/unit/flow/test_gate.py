"""`gpurun/gate`: green when every required job has passed at that very commit, or somebody who may says otherwise."""

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gpurun.domain.gate import Override, Pause
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.run import RunState, Verdict
from gpurun.report.gate import GATE_NAME
from tests.unit.flow.town import Town, open_town

DIGEST = "a" * 64
IMAGE = f"ghcr.io/acme/app@sha256:{DIGEST}"
SMOKE = {"image": IMAGE, "run": "python smoke.py", "required": True, "limits": {"max_duration": "10m"}}


def file(extra=None, **jobs):
    """JSON is YAML."""
    return json.dumps({"version": 1, "jobs": {"smoke": SMOKE} | jobs} | (extra or {}))


def without(job, key):
    return {name: value for name, value in job.items() if name != key}


BASE = file(full=without(SMOKE, "required") | {"run": "python full.py"})


@pytest.fixture
def store_url(tmp_path):
    """One database is enough: the rows have tests on both, and so has the story of `tests/e2e/test_failpoints.py`."""
    return str(tmp_path / "gpurun.db")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance, gates=True) as town:
        town.repo.grant("carol", "maintain")
        town.alice.push(town.repo, {".gpurun.yml": BASE, "app.py": "pass"}, branch="main")
        town.alice.close(town.pull)
        town.pull = town.alice.open_pull_request(town.repo, branch="work", files={"app.py": "print(1)"})
        await town.settle()
        yield town


def change(town: Town, files, *, head="change", by="alice", **more):
    town.pull = town.github.user(by).open_pull_request(town.repo, branch=head, files=files, **more)
    return town.pull


def branch(town: Town, name, files):
    """A branch that leaves the default one."""
    town.repo.git.set_ref(f"refs/heads/{name}", town.repo.git.resolve("main"))
    town.alice.push(town.repo, files, branch=name)


def gate(town: Town, pull=None):
    """The newest check of the gate at the head: what GitHub shows."""
    pull = pull or town.pull
    found = [one for one in town.github.checks(town.repo, name=GATE_NAME) if one.head_sha == pull.head_sha]
    return found[-1] if found else None


def says(town: Town, pull=None):
    check = gate(town, pull)
    return None if check is None else (check.conclusion or check.status)


async def run(town: Town, verdict=Verdict.PASSED, *, job="smoke", by="alice"):
    await town.says(f"/gpurun {job}", by=by, on=town.pull)
    live = [one for one in await town.runs() if one.state is not RunState.ENDED]
    await town.end(live[-1], verdict)
    await town.settle()


async def approve(town: Town, *, by="carol"):
    await town.says(f"/gpurun approve sha={town.pull.head_sha}", by=by, on=town.pull)


# the way of a pull request


async def test_it_waits_runs_and_turns_green(town: Town):
    assert says(town) == "action_required"
    assert gate(town).title == "not started: smoke. Type /gpurun smoke"
    (need,) = town.github.checks(town.repo, name="gpurun / smoke")
    assert (need.conclusion, need.title) == ("action_required", "not started. Type /gpurun smoke")
    assert [one.identifier for one in need.actions] == ["run"]
    await town.says("/gpurun smoke", on=town.pull)
    assert (says(town), gate(town).title) == ("in_progress", "running: smoke")
    (live,) = await town.runs()
    await town.end(live, Verdict.PASSED)
    await town.settle()
    assert (says(town), gate(town).title) == ("success", "passed: smoke")
    assert gate(town).details_url.startswith(f"https://bot.example/runs/{live.id}")


@pytest.mark.parametrize(
    ("verdict", "conclusion", "title"),
    [
        (Verdict.PASSED, "success", "passed: smoke"),
        (Verdict.FAILED, "failure", "failed: smoke"),
        (Verdict.TIMEOUT, "failure", "failed: smoke"),
        (Verdict.LOST, "failure", "failed: smoke"),
        (Verdict.REFUSED, "failure", "failed: smoke"),
        (Verdict.CANCELLED, "action_required", "has to run again: smoke. Type /gpurun smoke"),
    ],
)
async def test_each_verdict_has_its_conclusion(town: Town, verdict, conclusion, title):
    await run(town, verdict)
    assert (says(town), gate(town).title) == (conclusion, title)
    await run(town, Verdict.PASSED)
    assert says(town) == "success"


async def test_the_newest_run_counts(town: Town):
    await run(town, Verdict.PASSED)
    await run(town, Verdict.FAILED)
    assert says(town) == "failure"


async def test_a_job_that_is_not_required_changes_nothing(town: Town):
    await run(town, Verdict.PASSED, job="full")
    assert says(town) == "action_required"
    await run(town)
    await run(town, Verdict.FAILED, job="full")
    assert says(town) == "success"


async def test_a_button_makes_it_look_again_as_a_command_does(town: Town):
    await run(town, Verdict.FAILED)
    both = file(full=SMOKE | {"run": "python full.py"})
    town.alice.push(town.repo, {".gpurun.yml": both}, branch="main")
    await town.later(minutes=6)
    assert gate(town).title == "failed: smoke"
    (check,) = [one for one in town.github.checks(town.repo, name="gpurun / smoke") if one.conclusion == "failure"]
    town.alice.rerun(check)
    await town.settle()
    assert "full" in {line.split(" | ")[0].strip("| `") for line in gate(town).summary.splitlines()}


async def test_a_push_needs_a_new_run(town: Town):
    await run(town)
    before = town.pull.head_sha
    town.alice.push(town.pull, {"app.py": "print(2)"})
    await town.settle()
    assert says(town) == "action_required"
    assert before != town.pull.head_sha


async def test_no_gate_where_nothing_is_required(town: Town):
    town.alice.push(town.repo, {".gpurun.yml": file(smoke=without(SMOKE, "required"))}, branch="main")
    change(town, {"app.py": "print(9)"})
    await town.settle()
    await run(town)
    assert gate(town) is None


async def test_the_head_may_add_a_required_job(town: Town):
    change(town, {".gpurun.yml": file(full=SMOKE | {"run": "python full.py"})})
    await town.settle()
    await run(town)
    assert (says(town), gate(town).title) == ("action_required", "not started: full. Type /gpurun full")
    await run(town, job="full")
    assert says(town) == "success"


async def test_a_lost_delivery_is_made_up_for_by_a_command(town: Town):
    pull = change(town, {"app.py": "print(3)"})
    town.github.queued.clear()
    await town.says("/gpurun help", on=pull)
    assert says(town) == "action_required"


async def test_a_closed_pull_request_has_no_open_gate(town: Town):
    town.alice.close(town.pull)
    await town.settle()
    assert await town.store.read(lambda tx: tx.gates(town.repo.ref, town.pull.number)) == ()
    town.alice.reopen(town.pull)
    await town.settle()
    assert says(town) == "action_required"
    assert len(await town.store.read(lambda tx: tx.gates(town.repo.ref, town.pull.number))) == 1


# paths


PATHS = file(smoke=SMOKE | {"paths": ["src/**"]})


@pytest.mark.parametrize(
    ("files", "applies"),
    [({"src/a.py": "1"}, True), ({"docs/a.md": "1"}, False), ({"keep/src/a.py": "1"}, False)],
)
async def test_paths_say_for_which_changes_a_job_is_required(town: Town, files, applies):
    town.alice.push(town.repo, {".gpurun.yml": PATHS}, branch="main")
    change(town, files)
    await town.settle()
    if applies:
        assert says(town) == "action_required"
    else:
        assert (says(town), gate(town).title) == ("success", "smoke: n/a by paths")


async def test_a_file_that_moves_away_was_there(town: Town):
    text = "same\n" * 30
    town.alice.push(town.repo, {".gpurun.yml": PATHS, "src/model.py": text}, branch="main")
    change(town, {"src/model.py": None, "docs/model.py": text})
    await town.settle()
    assert says(town) == "action_required"


# what a pull request may not do by itself


CHANGES = {
    "required: false": {".gpurun.yml": file(smoke=SMOKE | {"required": False})},
    "no required": {".gpurun.yml": file(smoke=without(SMOKE, "required"))},
    "run: true": {".gpurun.yml": file(smoke=SMOKE | {"run": "true"})},
    "the job is dropped": {".gpurun.yml": json.dumps({"version": 1, "jobs": {"full": without(SMOKE, "required")}})},
    "the job is renamed": {".gpurun.yml": json.dumps({"version": 1, "jobs": {"smokes": SMOKE}})},
    "the file is dropped": {".gpurun.yml": None},
    "a longer limit": {".gpurun.yml": file(smoke=SMOKE | {"limits": {"max_duration": "5h"}})},
    "another image": {".gpurun.yml": file(smoke=SMOKE | {"image": IMAGE.replace("a" * 64, "b" * 64)})},
    "paths": {".gpurun.yml": file(smoke=SMOKE | {"paths": ["nowhere/**"]})},
    "environment": {".gpurun.yml": file(smoke=SMOKE | {"env": {"SKIP": "1"}})},
    "other resources": {".gpurun.yml": file(smoke=SMOKE | {"resources": {"memory": "1GB"}})},
    "a secret": {".gpurun.yml": file(smoke=SMOKE | {"secrets": ["TOKEN"]})},
    "by defaults": {".gpurun.yml": file({"defaults": {"setup": "cp /bin/true smoke.py"}})},
    "moved to a folder": {
        ".gpurun.yml": json.dumps({"version": 1, "jobs": {"full": without(SMOKE, "required")}}),
        "sub/.gpurun.yml": file(smoke=SMOKE | {"run": "true"}),
    },
}
UNREADABLE = {
    "broken YAML": {".gpurun.yml": "version: 1\njobs: [\n"},
    "a key that nobody knows": {".gpurun.yml": file(smoke=SMOKE | {"assert": []})},
    "far too large": {".gpurun.yml": BASE + " " * 70_000},
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_check_that_is_changed_needs_an_approver_of_that_commit(town: Town, name):
    pull = change(town, CHANGES[name])
    await town.settle()
    dropped = name in ("the job is dropped", "the job is renamed", "the file is dropped", "moved to a folder")
    if not dropped:
        await run(town)
    assert says(town) == "action_required"
    title = gate(town).title
    assert title.startswith("the check itself changed: smoke. Type /gpurun approve sha=")
    assert [one.identifier for one in gate(town).actions] == ["approve"]
    await approve(town, by="alice")
    assert says(town) == "action_required"
    await approve(town)
    if name == "moved to a folder":
        await town.says("/gpurun smoke path=sub", on=pull)
        await town.end((await town.runs())[-1], Verdict.PASSED)
        await town.settle()
    if name == "the job is renamed":
        await run(town, job="smokes")
    assert says(town) == "success"
    assert ("removed, approved by @" in gate(town).title) is dropped
    town.alice.push(pull, {"other.txt": "1"})
    await town.settle()
    await town.later(minutes=2)  # much was written in a moment, and a new check gives way to verdicts
    assert says(town) == "action_required"
    assert gate(town).title.startswith("the check itself changed: smoke")


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_file_that_nobody_can_read_turns_nothing_green(town: Town, name):
    change(town, UNREADABLE[name])
    await town.settle()
    assert says(town) == "action_required"
    assert "of this commit cannot be read" in gate(town).title
    await approve(town)
    assert says(town) == "action_required"


async def test_the_base_branch_that_the_pull_request_goes_to_counts(town: Town):
    branch(town, "next", {".gpurun.yml": file(smoke=without(SMOKE, "required"))})
    change(town, {".gpurun.yml": BASE}, base="next")
    await town.settle()
    assert gate(town).title == "not started: smoke. Type /gpurun smoke"  # its own copy asks for it
    await run(town)
    assert says(town) == "success"
    strict = file(smoke=SMOKE, full=SMOKE | {"run": "python full.py"})
    town.alice.push(town.repo, {".gpurun.yml": strict}, branch="main")
    town.alice.change_base(town.pull, "main")
    await town.settle()
    assert says(town) == "action_required"


async def test_a_base_file_that_nobody_can_read_turns_nothing_green(town: Town):
    branch(town, "next", {".gpurun.yml": "jobs: ["})
    change(town, {".gpurun.yml": BASE}, base="next")
    await town.settle()
    await run(town)
    assert says(town) == "action_required"
    assert gate(town).title.startswith("nobody can know what is required: ")


async def test_another_pull_request_with_the_same_commit_turns_nothing_green(town: Town):
    """GitHub shows one check of that name for a commit, whichever pull request it was made for."""
    lax = file(smoke=without(SMOKE, "required"), tiny=SMOKE | {"run": "true"})
    branch(town, "lax", {".gpurun.yml": lax})
    first = change(town, {"app.py": "print(4)"})
    await town.settle()
    assert says(town, first) == "action_required"
    second = town.alice.open_pull_request(town.repo, branch="again", files={}, base="lax")
    second.head_sha = first.head_sha
    town.alice._pull_hook("synchronize", second, before=first.head_sha, after=first.head_sha)
    await town.settle()
    await town.says(f"/gpurun approve sha={first.head_sha}", by="carol", on=second)
    assert says(town, first) == "action_required"
    titles = [one.title for one in town.github.checks(town.repo, name=GATE_NAME) if one.head_sha == first.head_sha]
    assert titles[-1].endswith("not started: smoke. Type /gpurun smoke")
    await run(town)  # on the first
    assert says(town, first) == "success"


# people


async def test_an_override_counts_for_its_commit_and_says_who_and_why(town: Town):
    await run(town, Verdict.FAILED)
    given = Override(
        id="o", repo=town.repo.ref, pr=town.pull.number, sha=CommitSha(town.pull.head_sha), job=JobName("smoke"),
        folder="", reason="the host is broken @everyone", by="carol", at=town.clock.now(),
    )  # fmt: skip

    def apply(tx):
        tx.override(given)
        tx.raise_gate(given.repo, given.pr)

    await town.store.write(apply)
    await town.settle()
    assert says(town) == "success"
    assert gate(town).title.replace("\u200b", "") == "smoke: overridden by @carol: the host is broken @everyone"
    town.alice.push(town.pull, {"app.py": "print(5)"})
    await town.settle()
    assert says(town) == "action_required"
    assert await town.store.read(lambda tx: tx.overrides(given.repo, given.pr, given.sha)) == ()


async def test_a_pause_holds_the_gate(town: Town):
    await run(town)
    pause = Pause(id="p", repo=town.repo.ref, reason="moving house", by="dora", at=town.clock.now())

    def apply(tx):
        tx.pause(pause)
        tx.raise_gate(pause.repo, town.pull.number)

    await town.store.write(apply)
    await town.settle()
    assert says(town) == "action_required"
    assert "moving house" in gate(town).title


async def test_an_approval_that_is_revoked_takes_its_word_back(town: Town):
    change(town, CHANGES["run: true"])
    await town.settle()
    await run(town)
    await approve(town)
    assert says(town) == "success"
    await town.says("/gpurun revoke", by="carol", on=town.pull)
    assert says(town) == "action_required"


async def test_code_of_a_fork_waits_and_says_so(town: Town):
    change(town, {"app.py": "print(6)"}, by="bob", fork=True)
    await town.settle()
    assert says(town) == "action_required"
    await town.says("/gpurun smoke", on=town.pull)
    (asked,) = await town.runs()
    assert asked.untrusted is not None
    assert says(town) == "in_progress"


# whatever happens


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A story takes a second: nobody waits for the smallest one."""
VERDICTS = st.sampled_from(list(Verdict))
EDITS = st.sampled_from(["app", *CHANGES, *UNREADABLE, "back"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), VERDICTS),
        st.tuples(st.just("start"), st.none()),
        st.tuples(st.just("push"), EDITS),
        st.tuples(st.sampled_from(["approve", "revoke", "override", "pause", "resume", "reopen", "late"]), st.none()),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=12, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_nothing_is_green_that_did_not_run(tmp_path_factory, clock, chance, steps):
    """Law 10, of the gate: after any story it is green only for what passed at the head, or an approver's word."""
    from tests.services.postgres import make_store

    folder = tmp_path_factory.mktemp("gate")
    async with (
        make_store(str(folder / "db.sqlite"), clock, chance) as store,
        open_town(folder, store, clock, chance, gates=True) as town,
    ):
        town.repo.grant("carol", "maintain")
        town.alice.push(town.repo, {".gpurun.yml": BASE, "app.py": "pass"}, branch="main")
        change(town, {"app.py": "print(1)"}, head="story")
        await town.settle()
        for number, (what, detail) in enumerate(steps):
            await _happens(town, number, what, detail)
            await town.later(minutes=1)
            await _is_honest(town)


async def _happens(town: Town, number: int, what: str, detail) -> None:
    pull = town.pull
    match what:
        case "run":
            await town.says("/gpurun smoke", on=pull)
            for one in await town.runs():
                if one.state is not RunState.ENDED:
                    await town.end(one, detail)
        case "start":
            await town.says("/gpurun smoke", on=pull)
        case "push":
            files = {"app.py": f"print({number})"} if detail == "app" else {".gpurun.yml": BASE}
            files = (CHANGES | UNREADABLE).get(detail, files)
            town.alice.push(pull, {**files, "n.txt": str(number)})
        case "approve":
            await approve(town)
        case "revoke":
            await town.says("/gpurun revoke", by="carol", on=pull)
        case "override":
            given = Override(
                id=f"o{number}", repo=town.repo.ref, pr=pull.number, sha=CommitSha(pull.head_sha),
                job=JobName("smoke"), folder="", reason="r", by="carol", at=town.clock.now(),
            )  # fmt: skip
            await town.store.write(lambda tx: (tx.override(given), tx.raise_gate(given.repo, given.pr)))
        case "pause":
            pause = Pause(id=f"p{number}", repo=town.repo.ref, reason="r", by="dora", at=town.clock.now())
            await town.store.write(lambda tx: (tx.pause(pause), tx.raise_gate(pause.repo, pull.number)))
        case "resume":

            def resume(tx):
                held = tx.pause_of(town.repo.ref)
                if held is not None:
                    tx.end_pause(held.id, "dora")
                tx.raise_gate(town.repo.ref, pull.number)

            await town.store.write(resume)
        case "reopen":
            town.alice.close(pull)
            await town.settle()
            town.alice.reopen(pull)
        case "late":
            town.clock.advance(minutes=20)


async def _is_honest(town: Town) -> None:
    """By what the fakes hold, and not by what the product has worked out."""
    if says(town) != "success":
        return
    sha = CommitSha(town.pull.head_sha)

    def read(tx):
        approval = tx.approval(town.repo.ref, town.pull.number)
        return (
            [one for one in tx.runs_of_pull(town.repo.ref, town.pull.number, sha) if one.job == "smoke"],
            tx.overrides(town.repo.ref, town.pull.number, sha),
            approval is not None and approval.sha == sha,
            tx.pause_of(town.repo.ref),
        )

    runs, overrides, approved, pause = await town.store.read(read)
    assert pause is None
    if overrides:
        return
    text = _file_at(town, sha)
    as_it_was = text == BASE
    assert as_it_was or approved
    gone = approved and '"smoke"' not in text
    assert gone or runs[-1].verdict is Verdict.PASSED


def _file_at(town: Town, sha) -> str:
    found = [one for one in town.repo.git.tree(sha) if one["path"] == ".gpurun.yml"]
    return town.repo.git.blob(found[0]["sha"]).decode() if found else ""
