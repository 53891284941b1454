"""Buttons of checks: what they do, who may press them, and presses that never were."""

from __future__ import annotations

import json

import httpx
import pytest

from gpurun.domain.approval import ApprovalEnd
from gpurun.domain.forge import Check, CheckStatus
from gpurun.domain.gate import Gate
from gpurun.domain.ids import CommitSha
from gpurun.domain.run import Verdict
from gpurun.flow.intake_press import PATIENCE
from gpurun.flow.press import NotForUs, press_of
from tests.fakes.github import webhooks
from tests.fakes.github.state import CheckButton
from tests.unit.flow.town import CONFIG, Town, open_town


@pytest.fixture
def store_url(tmp_path):
    """One database is enough: the rows have tests on both, and so has the story of `tests/e2e/test_failpoints.py`."""
    return str(tmp_path / "gpurun.db")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance, gates=True) as town:
        town.repo.grant("dan", "maintain")
        town.repo.grant("erin", "write")
        yield town


@pytest.fixture
def fork(town):
    return town.bob.open_pull_request(town.repo, branch="x", files={".gpurun.yml": CONFIG}, fork=True)


async def ended(town: Town, command="/gpurun smoke", verdict=Verdict.FAILED, on=None):
    """A run of that command has ended; its check."""
    await town.says(command, on=on)
    run = (await town.runs())[-1]
    await town.end(run, verdict)
    await town.settle()
    return check_of(town, run)


def check_of(town: Town, run):
    (check,) = (one for one in town.github.checks(town.repo) if one.external_id == run.id)
    return check


def show(check, identifier):
    if identifier not in [button.identifier for button in check.actions]:
        check.actions = [*check.actions[:2], CheckButton(identifier, "of a test", identifier)]


async def press(town: Town, check, identifier, *, by="alice"):
    show(check, identifier)
    town.github.user(by).press(check, identifier)
    await town.settle()


async def rerun(town: Town, check, *, by="alice"):
    town.github.user(by).rerun(check)
    await town.settle()


async def gate_of(town: Town, pull):
    """What `gpurun/gate` stands on, and a required job that nobody has started."""
    sha = CommitSha(pull.head_sha)
    gate = Gate(
        id=town.chance.ulid(),
        repo=town.repo.ref,
        pr=pull.number,
        sha=sha,
        base_ref="main",
        created_at=town.clock.now(),
        due_at=None,
    )
    await town.store.write(lambda tx: tx.open_gate(gate))
    return await town.store.read(lambda tx: tx.gate(gate.id))


async def a_check(town: Town, pull, external_id, name="gpurun / smoke"):
    check = Check(
        name=name,
        external_id=external_id,
        status=CheckStatus.COMPLETED,
        conclusion="action_required",
        title="nobody has started it",
        summary="Write `/gpurun smoke`.",
    )
    made = await town.forge.create_check(town.repo.ref, CommitSha(pull.head_sha), check)
    return town.repo.checks[made]


def said(town: Town, on=None):
    """The last answer in words."""
    return town.comments(on)[-1].body


async def kinds(town: Town, subject="repo:acme/train#1"):
    return [entry.kind for entry in await town.store.read(lambda tx: tx.audit_of(subject))]


async def last_note(town: Town):
    return list((await town.inbox_states()).values())[-1]


# Re-run, Run


@pytest.mark.parametrize("identifier", ["rerun", None])
async def test_rerun_starts_the_same_job_again_at_the_head(town: Town, identifier):
    check = await ended(town)
    await (press(town, check, identifier) if identifier else rerun(town, check))
    first, second = await town.runs()
    assert (second.job, second.sha, second.who, second.why) == ("smoke", first.sha, "alice", "button")
    assert second.comment_id is None
    assert check_of(town, second) is not check
    (entry,) = [
        one for one in await town.store.read(lambda tx: tx.audit_of("repo:acme/train#1")) if one.kind == "press_taken"
    ]
    assert (entry.actor, entry.data["check"]) == ("@alice", check.id)
    assert entry.data["on"] == "gpurun / smoke"


async def test_rerun_asks_for_what_was_asked_for(town: Town):
    await town.says("/gpurun smoke provider=docker max-cost=1.50 repeat=2")
    for run in await town.runs():
        await town.end(run, Verdict.FAILED)
    await town.settle()
    first, second = await town.runs()
    await press(town, check_of(town, second), "rerun")
    again = (await town.runs())[2:]
    assert [(run.narrow.provider, run.narrow.max_usd_micro, run.narrow.number, run.narrow.of) for run in again] == [
        ("docker", 1_500_000, 1, 2),
        ("docker", 1_500_000, 2, 2),
    ]
    assert {run.narrow.batch for run in again}.isdisjoint({first.narrow.batch, ""})


async def test_a_job_of_a_folder_is_run_again_there(town: Town):
    pull = town.alice.open_pull_request(town.repo, branch="sub", files={"sub/.gpurun.yml": CONFIG})
    check = await ended(town, "/gpurun smoke path=sub", on=pull)
    await press(town, check, "rerun")
    assert [run.folder for run in await town.runs()] == ["sub", "sub"]


async def test_run_on_a_required_job_that_nobody_has_started(town: Town):
    gate = await gate_of(town, town.pull)
    check = await a_check(town, town.pull, f"need:{gate.id}:smoke")
    await press(town, check, "run", by="erin")
    (run,) = await town.runs()
    assert (run.job, run.folder, run.sha, run.who) == ("smoke", "", town.pull.head_sha, "erin")


async def test_run_on_a_required_job_of_a_folder(town: Town):
    pull = town.alice.open_pull_request(town.repo, branch="sub", files={"sub/deep/.gpurun.yml": CONFIG})
    gate = await gate_of(town, pull)
    await press(town, await a_check(town, pull, f"need:{gate.id}:sub/deep:full"), "run")
    (run,) = await town.runs()
    assert (run.job, run.folder) == ("full", "sub/deep")


async def test_an_old_check_whose_run_is_not_the_newest_still_means_the_job(town: Town):
    old = await ended(town)
    await ended(town)
    await press(town, old, "rerun")
    assert len(await town.runs()) == 3


async def test_a_second_press_joins_what_goes_on(town: Town):
    check = await ended(town)
    await press(town, check, "rerun")
    await town.later(seconds=5)
    await press(town, check, "rerun")
    assert len(await town.runs()) == 2


async def test_two_presses_in_one_second_are_one(town: Town):
    check = await ended(town)
    town.alice.rerun(check)
    town.alice.rerun(check)
    await town.settle()
    taken = [kind for kind in await kinds(town) if kind == "press_taken"]
    assert (len(await town.runs()), len(taken)) == (2, 1)


async def test_two_people_in_one_second_are_two_who_asked_for_one_run(town: Town):
    check = await ended(town)
    show(check, "rerun")
    for name in ("alice", "erin"):
        town.github.user(name).press(check, "rerun")
    await town.settle()
    _, run = await town.runs()
    assert (run.who, run.also_asked) == ("alice", ("erin",))


async def test_the_same_delivery_again_changes_nothing(town: Town):
    check = await ended(town)
    await press(town, check, "rerun")
    await town.end((await town.runs())[-1], Verdict.FAILED)
    (hook,) = [one for one in town.github.sent if one.action == "requested_action"]
    assert await town.github.redeliver(hook) == 202
    await town.settle()
    assert len(await town.runs()) == 2


async def test_a_push_since_then_starts_nothing_and_says_so(town: Town):
    check = await ended(town)
    town.alice.push(town.pull, {"x": "1"})
    await press(town, check, "rerun")
    assert len(await town.runs()) == 1
    assert f"`alice` pressed Re-run at `gpurun / smoke`. That check is of `{check.head_sha[:12]}`" in said(town)
    assert f"is `{town.pull.head_sha[:12]}` now, so nothing was started" in said(town)


async def test_a_closed_pull_request_starts_nothing_and_says_so(town: Town):
    check = await ended(town)
    town.alice.close(town.pull)
    await press(town, check, "rerun")
    assert len(await town.runs()) == 1
    assert "This pull request is closed" in said(town)


# Cancel


async def test_cancel_stops_that_run(town: Town):
    await town.says("/gpurun smoke\n/gpurun full")
    smoke, full = await town.runs()
    await press(town, check_of(town, smoke), "cancel", by="erin")
    smoke, full = await town.runs()
    assert (smoke.cancel_by, full.cancel_at) == ("erin", None)
    assert "run_cancel_asked" in await kinds(town, f"run:{smoke.id}")


async def test_cancel_of_a_run_that_has_ended_stops_no_newer_one(town: Town):
    check = await ended(town)
    await town.says("/gpurun smoke")
    await press(town, check, "cancel")
    assert [run.cancel_at for run in await town.runs()] == [None, None]
    assert "had ended already" in said(town)


async def test_cancel_works_after_a_push_and_after_a_close(town: Town):
    await town.says("/gpurun smoke\n/gpurun full")
    smoke, full = await town.runs()
    town.alice.push(town.pull, {"x": "1"})
    await press(town, check_of(town, smoke), "cancel")
    town.alice.close(town.pull)
    await press(town, check_of(town, full), "cancel")
    assert [run.cancel_by for run in await town.runs()] == ["alice", "the end of the pull request"]


async def test_who_may_not_cancel_is_told_five_times_an_hour(town: Town):
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    before = len(town.comments())
    for _ in range(6):
        await press(town, check_of(town, run), "cancel", by="bob")
        await town.later(minutes=5)
    assert [one.cancel_at for one in await town.runs()] == [None]
    assert len(town.comments()) == before + 5
    assert "`bob` pressed Cancel at `gpurun / smoke`." in said(town)
    assert "and whoever started the run" in said(town)
    assert (await kinds(town, f"run:{run.id}")).count("cancel_denied") == 6


# Approve


async def test_approve_is_for_the_commit_of_the_check_and_a_push_voids_it(town: Town, fork):
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    await press(town, check_of(town, run), "approve:460000", by="dan")
    given = await town.store.read(lambda tx: tx.approval(town.repo.ref, fork.number))
    assert (given.sha, given.max_usd_micro, given.by) == (fork.head_sha, 460_000, "dan")
    assert given.asked_at == town.clock.now()
    town.bob.push(fork, {"x": "1"})
    await town.settle()
    every = await town.store.read(lambda tx: tx.approvals(town.repo.ref, fork.number))
    assert [one.end for one in every] == [ApprovalEnd.PUSHED]


async def test_approve_of_a_commit_that_is_not_the_head_any_more_approves_nothing(town: Town, fork):
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    town.bob.push(fork, {"x": "1"})
    await press(town, check_of(town, run), "approve:460000", by="dan")
    assert await town.store.read(lambda tx: tx.approvals(town.repo.ref, fork.number)) == ()
    assert "Nothing was approved" in said(town, fork)


async def test_a_button_without_a_price_approves_without_a_ceiling(town: Town, fork):
    gate = await gate_of(town, fork)
    await press(town, await a_check(town, fork, f"gate:{gate.id}", "gpurun/gate"), "approve", by="dan")
    given = await town.store.read(lambda tx: tx.approval(town.repo.ref, fork.number))
    assert (given.sha, given.max_usd_micro) == (fork.head_sha, None)
    assert "`dan` pressed Approve at `gpurun/gate`. " in said(town, fork)


@pytest.mark.parametrize("by", ["bob", "alice"])
async def test_who_may_not_approve_is_told_so(town: Town, fork, by):
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    await press(town, check_of(town, run), "approve", by=by)
    assert await town.store.read(lambda tx: tx.approvals(town.repo.ref, fork.number)) == ()
    assert "people with the role maintain" in said(town, fork)
    assert "approve_denied" in await kinds(town, f"repo:acme/train#{fork.number}")


async def test_permissions_of_the_default_branch_count_for_buttons_too(town: Town, fork):
    rules = "permissions: {users: {bob: approve}}\n"
    town.alice.push(town.repo, {".gpurun.yml": CONFIG + rules}, branch="main")
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    await press(town, check_of(town, run), "approve", by="bob")
    assert (await town.store.read(lambda tx: tx.approval(town.repo.ref, fork.number))).by == "bob"


async def test_a_right_that_was_taken_away_does_not_count(town: Town):
    check = await ended(town)
    town.repo.grant("alice", "read")
    await press(town, check, "rerun")
    assert len(await town.runs()) == 1
    assert "is for people with write access" in said(town)
    assert "run_denied" in await kinds(town)


# the gate


async def test_rerun_of_the_gate_looks_again_and_starts_nothing(town: Town):
    gate = await gate_of(town, town.pull)
    check = await a_check(town, town.pull, f"gate:{gate.id}", "gpurun/gate")
    await town.later(minutes=5)
    await rerun(town, check)
    (again,) = await town.store.read(lambda tx: tx.gates(town.repo.ref, town.pull.number))
    assert (again.id, again.looked_at) == (gate.id, town.clock.now())
    assert await town.runs() == ()


async def test_the_gate_of_another_head_does_not_look_again(town: Town):
    gate = await gate_of(town, town.pull)
    check = await a_check(town, town.pull, f"gate:{gate.id}", "gpurun/gate")
    await town.settle()
    town.alice.push(town.pull, {"x": "1"})
    await town.later(minutes=5)
    await rerun(town, check)
    assert (await town.store.read(lambda tx: tx.gate(gate.id))).looked_at < town.clock.now()
    assert "That check is of" in said(town)


async def test_somebody_without_a_right_makes_the_gate_look_at_nothing(town: Town):
    gate = await gate_of(town, town.pull)
    check = await a_check(town, town.pull, f"gate:{gate.id}", "gpurun/gate")
    await town.settle()
    await town.later(minutes=5)
    await rerun(town, check, by="bob")
    assert (await town.store.read(lambda tx: tx.gate(gate.id))).looked_at < town.clock.now()
    assert "look_denied" in await kinds(town)


# Re-run all


async def test_rerun_all_starts_what_did_not_pass_once(town: Town):
    await ended(town, "/gpurun smoke", Verdict.FAILED)
    await ended(town, "/gpurun smoke", Verdict.LOST)
    await ended(town, "/gpurun full", Verdict.PASSED)
    town.alice.rerun_all(town.pull)
    await town.settle()
    assert [run.job for run in (await town.runs())[3:]] == ["smoke"]


async def test_rerun_all_takes_a_repeat_whole_when_one_of_its_runs_did_not_pass(town: Town):
    await town.says("/gpurun smoke repeat=2")
    for run, verdict in zip(await town.runs(), (Verdict.FAILED, Verdict.PASSED), strict=True):
        await town.end(run, verdict)
    await town.settle()
    town.alice.rerun_all(town.pull)
    await town.settle()
    assert [run.narrow.number for run in (await town.runs())[2:]] == [1, 2]


async def test_rerun_all_where_everything_passed_says_so(town: Town):
    await ended(town, "/gpurun smoke", Verdict.FAILED)
    await ended(town, "/gpurun smoke", Verdict.PASSED)
    town.alice.rerun_all(town.pull)
    await town.settle()
    assert len(await town.runs()) == 2
    assert "`alice` pressed Re-run all at `all checks`." in said(town)


async def test_rerun_all_of_a_commit_that_nobody_ran_is_nobodys_business(town: Town):
    town.alice.rerun_all(town.pull)
    await town.settle()
    assert await last_note(town) == "ignored: no run of that commit"


# presses that never were


async def post(town: Town, hook, *, guid="00000000-0000-4000-8000-000000000001", **changes):
    """Signed with the right secret, and not by GitHub."""
    body = json.dumps(json.loads(hook.body) | changes).encode()
    secret = town.github.app.webhook_secret.get_secret_value()
    headers = {**hook.headers, "X-GitHub-Delivery": guid, "X-Hub-Signature-256": webhooks.signature(secret, body)}
    async with httpx.AsyncClient(transport=town.github.hook_transport) as client:
        assert (await client.post(town.github.hook_url, content=body, headers=headers)).status_code == 202
    await town.settle()


def made_up(town: Town, check, identifier, *, by):
    """As if they had pressed it."""
    show(check, identifier)
    town.github.user(by).press(check, identifier)
    return town.github.queued.pop()


async def test_a_stolen_secret_alone_approves_nothing_and_is_on_record(town: Town, fork):
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    before = len(town.comments(fork))
    await post(town, made_up(town, check_of(town, run), "approve", by="dan"))
    assert (await last_note(town)).startswith("new")
    for _ in range(5):
        await town.later(minutes=1)
    assert await last_note(town) == "ignored: forged_suspect: GitHub has sent no such delivery"
    assert await town.store.read(lambda tx: tx.approvals(town.repo.ref, fork.number)) == ()
    assert len(town.comments(fork)) == before
    (entry,) = [
        one for one in await town.store.read(lambda tx: tx.audit_of("repo:acme/train")) if one.kind == "forged_suspect"
    ]
    assert entry.data["said"] == "@dan: approve"


async def test_a_made_up_press_holds_up_no_command_and_no_other_check(town: Town):
    smoke = await ended(town, "/gpurun smoke")
    full = await ended(town, "/gpurun full")
    await post(town, made_up(town, smoke, "rerun", by="alice"))
    await press(town, full, "rerun")
    await town.says("/gpurun help")
    assert [run.job for run in await town.runs()] == ["smoke", "full", "full"]
    assert "Jobs here" in said(town)


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": {"login": "dan", "type": "User"}},
        {"requested_action": {"identifier": "approve"}},
        {"action": "rerequested"},
    ],
)
async def test_a_true_press_in_other_words_is_forged(town: Town, fork, changes):
    """Somebody catches a delivery on its way and changes it."""
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    check = check_of(town, run)
    show(check, "cancel")
    town.bob.press(check, "cancel")
    hook = town.github.queued[-1]
    changed = json.loads(hook.body) | changes
    hook.body = json.dumps(changed).encode()
    await town.settle()
    assert (await last_note(town)).startswith("ignored: forged_suspect: GitHub has sent cancel by @bob under this id")
    assert await town.store.read(lambda tx: tx.approvals(town.repo.ref, fork.number)) == ()
    assert [one.cancel_at for one in await town.runs()] == [None]


async def test_a_press_that_is_said_to_be_at_another_commit_is_forged(town: Town):
    check = await ended(town)
    hook = made_up(town, check, "rerun", by="alice")
    await post(town, hook, check_run={**json.loads(hook.body)["check_run"], "head_sha": "d" * 40})
    assert await last_note(town) == f"ignored: forged_suspect: the check stands on {check.head_sha}"


async def test_a_list_that_is_late_is_asked_again(town: Town):
    town.github.records_lag_s = 12
    check = await ended(town)
    await press(town, check, "rerun")
    assert len(await town.runs()) == 1
    await town.later(seconds=5)
    assert len(await town.runs()) == 1
    await town.later(seconds=10)
    assert len(await town.runs()) == 2
    lists = [one for one in town.github.requests if one.path == "/app/hook/deliveries"]
    assert len(lists) == 3


async def test_the_looking_has_an_end(town: Town):
    town.github.records_lag_s = 10 * PATIENCE.total_seconds()
    check = await ended(town)
    await press(town, check, "rerun")
    for _ in range(60):
        await town.later(seconds=10)
    assert len(await town.runs()) == 1
    assert len([one for one in town.github.requests if one.path == "/app/hook/deliveries"]) == 5


async def test_a_press_of_long_ago_that_is_sent_again_spends_no_money(town: Town):
    check = await ended(town)
    town.github.hook_down = True
    await press(town, check, "rerun")
    hook = town.github.sent[-1]
    town.github.hook_down = False
    await town.later(hours=3)
    assert await town.github.redeliver(hook) == 202
    await town.settle()
    assert len(await town.runs()) == 1
    assert await last_note(town) == "ignored: pressed too long ago, and sent again"


async def test_a_press_that_is_sent_again_soon_counts(town: Town):
    check = await ended(town)
    town.github.hook_down = True
    await press(town, check, "rerun")
    town.github.hook_down = False
    await town.later(minutes=3)
    assert await town.github.redeliver(town.github.sent[-1]) == 202
    await town.settle()
    assert len(await town.runs()) == 2


async def test_the_check_of_another_app_is_not_ours(town: Town):
    check = await ended(town)
    check.app_id = 7
    await press(town, check, "rerun")
    assert len(await town.runs()) == 1
    assert await last_note(town) == "ignored: a check of another App"


@pytest.mark.parametrize("external_id", ["", "01kdrun0000000000000000009", "gate:x", "need:x:smoke", "need:", "what:x"])
async def test_a_check_of_nothing_that_we_know_is_left_alone(town: Town, external_id):
    await press(town, await a_check(town, town.pull, external_id), "rerun")
    assert (await last_note(town)).startswith("ignored: a check of no ")
    assert await town.runs() == ()


@pytest.mark.parametrize("identifier", ["stop", "approve:", "approve:-1", "approve:1e9", "rerequested", "run:x"])
async def test_a_button_that_we_never_made_does_nothing(town: Town, identifier):
    check = await ended(town)
    await press(town, check, identifier)
    assert len(await town.runs()) == 1
    assert (await last_note(town)).startswith("ignored")


async def test_bots_press_nothing(town: Town):
    check = await ended(town)
    town.repo.grant("helper[bot]", "admin")
    await press(town, check, "rerun", by="helper[bot]")
    assert len(await town.runs()) == 1
    assert await last_note(town) == "ignored: pressed by a bot"


async def test_a_check_of_another_repository_under_this_name_is_none_of_ours(town: Town):
    check = await ended(town)
    hook = made_up(town, check, "rerun", by="alice")
    await post(town, hook, repository={"id": 9, "full_name": "acme/train"})
    assert await last_note(town) == "ignored: a check of no run that we know"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"action": "rerequested", "check_run": {"id": 7}, "repository": {"id": 1, "full_name": "a/../b"}}',
        b'{"action": "rerequested", "check_run": {"id": "7"}}',
    ],
)
def test_a_delivery_of_another_shape_is_no_press(body):
    assert isinstance(press_of("check_run", body), NotForUs)


# trouble


async def test_a_suspended_installation_keeps_the_press(town: Town):
    check = await ended(town)
    show(check, "rerun")
    town.alice.press(check, "rerun")
    await town.github.deliver()
    town.github.suspend(town.repo, told=False)
    await town.settle()
    assert len(await town.runs()) == 1
    town.github.unsuspend(town.repo)
    await town.later(minutes=20)
    assert len(await town.runs()) == 2


async def test_a_missing_permission_is_said_to_who_pressed(town: Town):
    check = await ended(town)
    town.github.fail_next("GET", "/repos/{}/{}/pulls/{}", status=403, body={"message": "Resource not accessible"})
    await press(town, check, "rerun")
    assert len(await town.runs()) == 1
    assert "`alice` pressed Re-run at `gpurun / smoke`. Nothing was done: GitHub did not let gpurun read" in said(town)


async def test_an_outage_is_waited_for(town: Town):
    check = await ended(town)
    town.github.fail_next("GET", "/app/hook/deliveries", status=502, times=2)
    await press(town, check, "rerun")
    await town.later(minutes=1)
    await town.later(minutes=1)
    assert len(await town.runs()) == 2


async def test_a_limit_is_kept_and_the_press_not_lost(town: Town):
    check = await ended(town)
    town.github.fail_next("GET", "/repos/{}/{}/check-runs/{}", status=429, headers={"retry-after": "30"})
    await press(town, check, "rerun")
    assert len(await town.runs()) == 1
    await town.later(seconds=31)
    assert len(await town.runs()) == 2
