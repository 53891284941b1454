"""Commands for a whole repository, overrides, and questions that anyone may ask."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.forge import RepoRef
from gpurun.domain.gate import Gate, GateLook, Needed
from gpurun.domain.ids import JobName
from gpurun.domain.run import Verdict
from gpurun.domain.stream import StreamName
from gpurun.ports.store import Kind
from tests.fakes.rows import an_attempt
from tests.unit.flow.town import Town, open_town


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        town.repo.grant("carol", "maintain")
        town.repo.grant("root", "admin")
        yield town


def last(town, pull=None):
    return town.comments(pull)[-1].body


async def kinds(town):
    return [
        entry.kind for entry in await town.store.read(lambda tx: tx.audit_of(f"repo:acme/train#{town.pull.number}"))
    ]


async def with_gate(town: Town, *needed: Needed) -> None:
    """What somebody has read of the base branch."""

    def apply(tx):
        row = Gate(
            id="gate1",
            repo=town.repo.ref,
            pr=town.pull.number,
            sha=town.pull.head_sha,
            base_ref="main",
            created_at=tx.now(),
            due_at=tx.now(),
        )
        tx.open_gate(row)
        (lease,) = tx.claim(Kind.GATE, limit=1, token="t", length=timedelta(seconds=75))
        tx.save_gate(replace(row, look=GateLook(needed=needed), due_at=None), lease)

    await town.store.write(apply)


async def test_while_paused_nothing_starts_and_what_waits_says_so(town: Town):
    await town.says("/gpurun smoke")
    await town.says('/gpurun pause reason="new driver, @everyone"', by="root")
    assert "Nothing starts in this repository from now on: new driver, @\u200beveryone" in last(town)
    await town.later(seconds=20)
    (run,) = await town.runs()
    assert run.paused
    (check,) = town.github.checks(town.repo)
    assert (check.status, check.conclusion) == ("completed", "action_required")
    assert "paused: new driver" in check.title
    assert "is paused by `root` since" in town.comments()[0].body
    await town.says("/gpurun full")
    assert len(await town.runs()) == 1
    assert "Nothing was started. This repository is paused by `root` since" in last(town)
    await town.says("/gpurun resume", by="root")
    await town.later(seconds=20)
    assert "The pause by `root` has ended." in last(town)
    (run,) = await town.runs()
    assert not run.paused
    waited, check = town.github.checks(town.repo)  # GitHub leaves a completed one completed
    assert (waited.conclusion, check.status) == ("action_required", "in_progress")
    await town.says("/gpurun full")
    assert len(await town.runs()) == 2
    assert {"paused", "resumed", "run_paused"} <= set(await kinds(town))


async def test_only_admins_pause_resume_and_stop_everything(town: Town):
    await town.says("/gpurun pause reason=x\n/gpurun resume\n/gpurun stop-all", by="carol")
    assert last(town).count("people with the role admin") == 3
    assert await town.store.read(lambda tx: tx.pause_of(town.repo.ref)) is None
    assert {"pause_denied", "resume_denied", "stop_all_denied"} <= set(await kinds(town))


async def test_resume_says_when_there_was_no_pause(town: Town):
    await town.says("/gpurun resume", by="root")
    assert "This repository is not paused" in last(town)


async def test_stop_all_cancels_every_run_of_the_repository_with_one_reply(town: Town):
    other = town.alice.open_pull_request(town.repo, branch="other", files={"x": "1"})
    await town.says("/gpurun smoke\n/gpurun full")
    await town.says("/gpurun smoke", on=other)
    before = len(town.comments(other))
    await town.says("/gpurun stop-all", by="root", on=other)
    assert [run.cancel_by for run in await town.runs()] == ["root"] * 3
    assert len(town.comments(other)) == before + 1
    assert "3 runs of this repository were told to stop." in last(town, other)
    await town.says("/gpurun stop-all", by="root")
    assert "No run of this repository goes on that had not been told to stop." in last(town)


async def test_an_override_is_for_a_required_job_at_the_head(town: Town):
    await with_gate(town, Needed(job=JobName("smoke")), Needed(job=JobName("smoke"), folder="sub"))
    await town.says('/gpurun override smoke reason="flaky, fixes #1"', by="carol")
    assert f"counts as passed at `{town.pull.head_sha}` until the next push: flaky, fixes \\#\u200b1." in last(town)
    held = await town.store.read(lambda tx: tx.overrides(town.repo.ref, town.pull.number, town.pull.head_sha))
    assert [(one.job, one.folder, one.by, one.reason) for one in held] == [("smoke", "", "carol", "flaky, fixes #1")]
    await town.says("/gpurun override smok reason=x", by="carol")
    assert 'Did you mean `/gpurun override smoke reason="x"`?' in last(town)
    await town.says("/gpurun override smoke reason=x", by="alice")
    assert "people with the role maintain" in last(town)
    await town.says("/gpurun override cancel", by="carol")
    assert "The override of smoke has ended" in last(town)
    await town.says("/gpurun override cancel", by="carol")
    assert "Nothing is overridden" in last(town)
    assert {"overridden", "override_ended", "override_denied"} <= set(await kinds(town))


async def test_an_override_of_a_sub_folder_is_named_by_its_path(town: Town):
    await with_gate(town, Needed(job=JobName("smoke"), folder="a"), Needed(job=JobName("smoke"), folder="b"))
    await town.says("/gpurun override smoke reason=x", by="carol")
    assert '`/gpurun override smoke path=a reason="x"`' in last(town)
    await town.says("/gpurun override smoke path=b reason=x", by="carol")
    assert "smoke (b) counts as passed" in last(town)


async def test_anyone_lists_the_jobs(town: Town):
    await with_gate(town, Needed(job=JobName("smoke")))
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    await town.end(run, Verdict.FAILED)
    await town.says("/gpurun list", by="bob")
    text = last(town)
    assert "| `/gpurun smoke` | none | yes | not known | ❌ [failed](https://bot.example/runs/" in text
    assert "| `/gpurun full` | none | no | not known | never |" in text


async def test_status_says_what_goes_on_and_why_it_waits(town: Town):
    await town.says("/gpurun status", by="bob")
    assert "Nothing goes on for this pull request." in last(town)
    await town.says("/gpurun smoke")
    await town.later(minutes=2)
    await town.says("/gpurun status")
    assert "⏳ smoke: pinning · since 12:00:00 UTC (2 m 00 s) · no cost so far · run [`01k" in last(town)


async def test_logs_are_the_last_lines_in_a_fence_that_holds(town: Town):
    await town.says("/gpurun logs", by="bob")
    assert "No run is known for this pull request." in last(town)
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    lines = "".join(f"line {n}\n" for n in range(90)) + "````\n::error::x\x1b[31m\n@everyone\n"

    def write(tx):
        tx.add_attempt(an_attempt(run_id=run.id))
        tx.append(an_attempt().id, StreamName.LOG, 0, lines.encode())

    await town.store.write(write)
    town.clock.advance(hours=1)
    await town.says(f"/gpurun logs {run.id}\n/gpurun logs smoke", by="erin")
    text = last(town)
    assert "line 89" in text
    assert "line 10\n" not in text
    assert "`````text\n" in text
    assert "\x1b" not in text
    assert "One comment shows the log of one run." in text
    await town.progress(run)
    await town.later(minutes=5)
    assert last(town) == text


async def test_a_log_of_another_repository_is_not_shown(town: Town):
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    other = RepoRef(installation_id=1, name=run.repo.name, id=run.repo.id + 1)
    assert other != run.repo
    await town.says("/gpurun logs 01kdrun0000000000000000009")
    assert "No run of `01kdrun0000000000000000009`, and none with that id," in last(town)
