"""Code that somebody has to approve: it waits, goes on under an approval of its commit, and gets less than other."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.approval import Approval, ApprovalEnd
from gpurun.domain.ids import CommitSha, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedImage
from gpurun.domain.offer import Isolation
from gpurun.domain.plan import ModelFile
from gpurun.domain.run import AttemptState, RunState, Untrusted, Verdict
from gpurun.domain.source import Gitlink
from gpurun.flow import approvals
from gpurun.flow.facts import Links, gather
from gpurun.plan.lock import write_lock
from gpurun.ports.store import Kind
from tests.fakes.parts import FakeUplinks, Script
from tests.fakes.rows import IMAGE, REPO, SHA
from tests.fakes.world import CONFIG, World

RUN = "01kdrun0000000000000000001"
FORK = {"untrusted": Untrusted.FORK, "base_ref": "main"}
MODEL = f"    models: [{{id: org/model, revision: {'5' * 40}}}]\n"


@pytest.fixture
def world(store, clock, chance):
    return World(store, clock, chance)


def an_approval(world, **changes):
    given = Approval(
        id=world.chance.ulid(), repo=REPO, pr=1, sha=SHA, max_usd_micro=None, by="carol",
        at=world.clock.now(), asked_at=world.clock.now(),
    )  # fmt: skip
    return replace(given, **changes)


async def approve(world, **changes):
    """Intake's part."""
    given = an_approval(world, **changes)

    def apply(tx):
        tx.approve(given)
        tx.wake(Kind.RUN, RUN)

    await world.store.write(apply)
    await world.beat()


async def void(world, end=ApprovalEnd.PUSHED, head="d" * 40):
    turn = approvals.Turn(repo=REPO, pr=1, end=end, head=CommitSha(head), actor="github")
    await world.store.write(lambda tx: approvals.take(tx, turn))


async def assert_approved(world):
    """Law 11: whatever was sent to a provider had an approval of its commit at that moment."""
    run = await world.the_run()
    given = await world.store.read(lambda tx: tx.approvals(REPO, 1))
    for attempt in await world.the_attempts():
        if attempt.create_sent_at is not None:
            sent = attempt.create_sent_at
            held = [one for one in given if one.sha == run.sha and one.at <= sent <= (one.ended_at or sent)]
            assert held, attempt


async def waits(world, config=CONFIG, **more):
    await world.start(config_text=config, **{**FORK, **more})
    await world.run_for(minutes=1)
    run = await world.the_run()
    assert (run.state, run.attempts) == (RunState.WAITING_APPROVAL, 0), (run.state, run.reason, run.detail)
    assert not world.cloud.book
    return run


async def test_it_waits_is_allowed_and_runs(world):
    run = await waits(world)
    assert run.plan is not None
    assert (run.quote.worst_usd_micro, run.quote.label) == (833_334, "Big GPU (fake)")
    await approve(world, max_usd_micro=840_000)
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    (given,) = await world.store.read(lambda tx: tx.approvals(REPO, 1))
    assert run.approval == given.id
    (instance,) = world.cloud.book
    assert instance.launch.isolation is Isolation.UNTRUSTED
    kinds = [entry.kind for entry in await world.audit(f"run:{RUN}")]
    assert kinds == ["run_waiting_approval", "run_queued", "run_ended"]
    await assert_approved(world)


async def test_an_approval_that_was_there_before_is_taken(world):
    await world.start(config_text=CONFIG, **FORK)
    await approve(world)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    await assert_approved(world)


async def test_an_approval_of_another_commit_starts_nothing(world):
    await waits(world)
    await approve(world, sha=CommitSha("d" * 40))
    await world.run_for(minutes=5)
    assert (await world.the_run()).state is RunState.WAITING_APPROVAL
    assert not world.cloud.book


async def test_a_ceiling_that_is_too_low_waits_and_says_so_until_a_higher_one(world):
    await waits(world)
    await approve(world, max_usd_micro=500_000)
    await world.run_for(minutes=5)
    run = await world.the_run()
    assert run.state is RunState.WAITING_APPROVAL
    assert "is for at most $0.50" in run.detail
    await approve(world, max_usd_micro=2_000_000)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


@pytest.mark.parametrize("end", [ApprovalEnd.PUSHED, ApprovalEnd.CLOSED, ApprovalEnd.DRAFTED, ApprovalEnd.REBASED])
async def test_what_runs_is_stopped_when_its_approval_ends(world, end):
    await waits(world)
    world.agents.script = Script(works_s=99_999)
    await approve(world)
    await world.run_for(seconds=30)
    assert (await world.the_run()).state is RunState.ACTIVE
    await void(world, end)
    await world.run_until_over()
    run = await world.expect(Verdict.CANCELLED)
    assert not world.cloud.alive
    assert run.cancel_by
    await assert_approved(world)


async def test_what_waits_ends_with_a_push(world):
    await waits(world)
    await void(world)
    await world.run_until_over()
    run = await world.expect(Verdict.CANCELLED)
    assert run.cancel_by == "a push: the head is dddddddddddd now"


async def test_nobody_approves_for_13_days(world):
    await waits(world)
    world.clock.advance(seconds=timedelta(days=13).total_seconds())
    await world.run_until_over()
    await world.expect(Verdict.REFUSED, "expired")


@pytest.mark.parametrize("told", [True, False])
async def test_an_approval_that_ends_right_before_create_makes_no_instance(world, told):
    """The CAS looks at the approval in its own transaction, whatever the step saw before."""

    class EndsIt(FakeUplinks):
        async def open(self, attempt_id, provider):
            given = await world.store.read(lambda tx: tx.approval(REPO, 1))
            if given is not None and told:
                await void(world)
            elif given is not None:
                await world.store.write(lambda tx: tx.end_approval(given.id, ApprovalEnd.REVOKED, "carol"))
            return await super().open(attempt_id, provider)

    world.uplinks = EndsIt()
    world.restart()
    await waits(world)
    await approve(world)
    await world.run_for(minutes=2)
    assert not world.cloud.book
    (attempt,) = await world.the_attempts()
    assert (attempt.state, attempt.create_sent_at) == (AttemptState.VOID, None)
    run = await world.the_run()
    assert run.verdict is (Verdict.CANCELLED if told else Verdict.LOST)


async def test_an_approval_that_ends_without_a_word_to_the_run_stops_it_too(world):
    await waits(world)
    world.agents.script = Script(works_s=99_999)
    await approve(world)
    await world.run_for(seconds=30)
    (given,) = await world.store.read(lambda tx: tx.approvals(REPO, 1))
    await world.store.write(lambda tx: tx.end_approval(given.id, ApprovalEnd.REVOKED, "carol"))
    await world.run_for(minutes=3)
    (attempt,) = await world.the_attempts()
    assert attempt.state in (AttemptState.GONE, AttemptState.VOID)


# what it does not get


async def test_the_bots_own_engine_refuses_it(world):
    world.refuse_untrusted = frozenset({"fake"})
    world.restart()
    await world.start(config_text=CONFIG, **FORK)
    await world.run_until_over()
    run = await world.expect(Verdict.REFUSED, "policy")
    assert "does not run on the machine of the bot itself" in run.detail
    assert "GPURUN_ALLOW_UNTRUSTED_LOCAL=true" in run.detail


async def test_trusted_code_runs_there(world):
    world.refuse_untrusted = frozenset({"fake"})
    world.restart()
    await world.start()
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    (instance,) = world.cloud.book
    assert instance.launch.isolation is Isolation.STANDARD


async def test_only_providers_that_the_policy_names_for_it(world):
    policy = "version: 1\npolicy: {untrusted: {providers: [docker]}}\n"
    await world.start(config_text=CONFIG, policy_text=policy, **FORK)
    await world.run_until_over()
    run = await world.expect(Verdict.REFUSED, "policy")
    assert "runs on none of the providers that the job may use" in run.detail


@pytest.mark.parametrize(
    ("kind", "policy", "runs"),
    [
        ("open", None, True),
        ("gated", None, False),
        ("gated", "version: 1\npolicy: {untrusted: {gated_models: true}}\n", True),
        ("private", None, False),
        ("private", "version: 1\npolicy: {untrusted: {gated_models: true}}\n", False),
    ],
)
async def test_models(world, kind, policy, runs):
    file = ModelFile(path="config.json", size=2, sha256="a" * 64, etag="b" * 40)
    world.hub.models["org/model", Revision("5" * 40)] = (file,)
    if kind != "open":
        getattr(world.hub, kind).add("org/model")
    await world.start(config_text=CONFIG + MODEL, policy_text=policy, **FORK)
    await world.run_for(minutes=1)
    run = await world.the_run()
    if runs:
        assert run.state is RunState.WAITING_APPROVAL
    else:
        assert (run.verdict, run.reason) == (Verdict.REFUSED, "policy")
        assert "gets what everybody may download" in run.detail


async def test_a_private_submodule_is_not_lent_by_whoever_asks(world):
    link = Gitlink(path="lib", name="lib", url="../lib", commit=CommitSha("9" * 40))
    world.git.links[SHA] = (link,)
    world.git.trees[link.commit] = world.git.trees[SHA]
    await world.start(config_text=CONFIG + "    checkout: {submodules: fetch}\n", **FORK)
    await world.run_for(minutes=1)
    assert world.forge.readers == [""]


async def test_nothing_of_its_tree_is_shown_to_help_with_a_first_file(world):
    await world.start(config_text=None, **FORK)
    await world.run_until_over()
    await world.expect(Verdict.REFUSED, "config")
    assert world.git.looks == 0


async def test_the_request_holds_the_line_to_type_and_the_difference(world):
    base = CONFIG.replace("python smoke.py", "python good.py")
    world.forge.at_branch[".gpurun.yml"] = base.encode()
    run = await waits(world, policy_text="version: 1\npermissions: {approve: admin}\n")
    facts = await world.store.read(lambda tx: gather(tx, run.id, Links()))
    assert facts.request.command == f"/gpurun approve sha={SHA} max-cost=0.84"
    assert facts.request.who == "people with the role admin"
    assert [one.key for one in facts.request.changed] == ["run"]
    assert "-    run: python good.py" in facts.request.file_diff
    assert not facts.request.is_new


async def test_an_image_that_only_the_lock_changed_is_told(world):
    def lock(digest):
        tag = ImageTag("registry.example/app:1")
        pin = ImagePin(digest=digest, platforms=(("linux/amd64", digest),))
        return write_lock(Lock(images=(LockedImage(ref=tag, pin=pin, locked_on="2026-12-01"),))).encode()

    config = CONFIG.replace(IMAGE, "registry.example/app:1")
    world.forge.at_branch |= {".gpurun.yml": config.encode(), ".gpurun.lock": lock("sha256:" + "b" * 64)}
    world.forge.files[".gpurun.lock"] = lock(IMAGE.digest)
    world.images.known.add(type(IMAGE)(f"registry.example/app:1@{IMAGE.digest}"))
    run = await waits(world, config)
    facts = await world.store.read(lambda tx: gather(tx, run.id, Links()))
    assert facts.request.file_diff == ()
    assert [one.key for one in facts.request.changed] == ["image"]


async def test_a_base_that_has_no_file_or_none_that_can_be_read(world):
    world.forge.at_branch[".gpurun.yml"] = b"jobs: [\n"
    run = await waits(world)
    facts = await world.store.read(lambda tx: gather(tx, run.id, Links()))
    assert facts.request.is_new
    assert facts.request.changed == ()
