"""Every event in every state, in any order, against a small model of the world.

The model keeps rows as the store would: engine-owned columns by the decisions, facts set once, intents by people. The
provider makes instances, loses answers and lies in no list. In the end time passes in a healthy world, and everything
must have come to an end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpurun.domain.approval import Approval
from gpurun.domain.offer import InstanceState, Preparation
from gpurun.domain.run import Attempt, AttemptState, Phase, Result, ResultKind, RunState, Untrusted, Verdict
from gpurun.run.decide_attempt import (
    Accepted,
    AskLastLog,
    AskLastWords,
    AttemptFacts,
    AttemptIsOver,
    Destroy,
    Destroyed,
    LastWords,
    LeftBehind,
    Look,
    Prepare,
    Rejected,
    SaveAttempt,
    SendCreate,
    StillThere,
    Unclear,
    decide_attempt,
)
from gpurun.run.decide_run import AskOffers, Choose, PinNext, RunFacts, RunIsOver, SaveRun, decide_run, enter
from gpurun.run.names import attempt_name
from gpurun.run.trust import while_approved
from tests.fakes.clock import START
from tests.fakes.rows import OFFER, PLAN, REPO, SHA, a_run, an_account, an_attempt

OVER = (AttemptState.GONE, AttemptState.VOID)
PHASES = (Phase.SOURCE, Phase.WEIGHTS, Phase.SETUP, Phase.RUNNING, Phase.COLLECTING)
CREATES = (
    "accepted",
    "capacity",
    "invalid",
    "refused_and_made",
    "lost",
    "lost_and_made",
    "id_in_error",
    "died",
    "died_and_made",
)
GOOD = ("accepted",) * 8
SILENCE = LastWords("", "")
NOTHING_LEFT = LeftBehind()


@dataclass
class Instance:
    ref: str
    name: str
    alive: bool = True
    state: InstanceState = InstanceState.RUNNING


class World(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = START
        self.run = a_run()
        self.attempts: list[Attempt] = []
        self.account = an_account()
        self.instances: list[Instance] = []
        self.strays: set[str] = set()
        self.creates: list[str] = []
        self.ran_user_code: set[str] = set()
        self.ended: dict[str, object] = {}
        self.cancel_at_the_end = False
        self.approval: Approval | None = None

    # rows, as the store keeps them

    def put(self, row):
        self.attempts = [row if row.id == old.id else old for old in self.attempts]

    def fact(self, attempt_id, **values):
        attempt = self.row(attempt_id)
        self.put(replace(attempt, **values, due_at=self.now if attempt.state not in OVER else None))

    def row(self, attempt_id):
        return next(attempt for attempt in self.attempts if attempt.id == attempt_id)

    def set_ref(self, attempt_id, ref):
        known = self.row(attempt_id).instance_ref
        if known is None:
            self.fact(attempt_id, instance_ref=ref)
        elif known != ref:
            self.strays.add(ref)

    def set_result(self, attempt_id, result):
        if self.row(attempt_id).result is None:
            self.fact(attempt_id, result=result, result_at=self.now)
            self.wake_run()

    def wake_run(self):
        if self.run.state is not RunState.ENDED:
            self.run = replace(self.run, due_at=self.now)

    def make(self, attempt):
        instance = Instance(f"i-{len(self.instances)}", attempt.name)
        self.instances.append(instance)
        return instance

    def instance_of(self, attempt):
        return next(
            (i for i in self.instances if i.alive and i.name == attempt.name and i.ref not in self.strays), None
        )

    # the engine

    def step_run(self, offers, slots, pin):
        facts = RunFacts(approval=self.approval)
        decision = decide_run(self.run, tuple(self.attempts), facts, self.now)
        if isinstance(decision, AskOffers):
            facts = replace(facts, offers=(OFFER,) * offers, free_slots={"fake": slots})
            decision = decide_run(self.run, tuple(self.attempts), facts, self.now)
        match decision:
            case SaveRun(row):
                self.run = row
            case Choose(offer):
                self.choose(offer)
            case PinNext():
                if pin:
                    state = RunState.WAITING_APPROVAL if self.run.untrusted else RunState.QUEUED
                    self.run = replace(enter(self.run, state, self.now), plan=PLAN)
                else:
                    self.run = replace(self.run, due_at=self.now + timedelta(seconds=30))
            case RunIsOver():
                self.run = replace(self.run, due_at=None)

    def choose(self, offer):
        number = self.run.attempts + 1
        deadline = self.now + timedelta(minutes=60)
        attempt_id = f"{number:026}"
        self.run = replace(enter(self.run, RunState.ACTIVE, self.now), attempts=number)
        self.attempts.append(
            an_attempt(
                id=attempt_id,
                number=number,
                offer=offer,
                name=attempt_name("a1b2c3d4", attempt_id, deadline),
                created_at=self.now,
                state_since=self.now,
                due_at=self.now,
                hard_deadline=deadline,
            )
        )

    def step_attempt(self, attempt, create="accepted", ready=True, destroyed=True, words=SILENCE, left=NOTHING_LEFT):
        facts = AttemptFacts(account=self.account, receiver_up_at=START)
        run = while_approved(self.run, self.approval, self.now)
        decision = decide_attempt(attempt, run, facts, self.now)
        if isinstance(decision, Prepare):
            facts = replace(facts, prepared=Preparation(ready=ready, message="pulling"))
            decision = decide_attempt(attempt, run, facts, self.now)
        match decision:
            case SendCreate():
                attempt = replace(attempt, state=AttemptState.CREATING, create_sent_at=self.now, state_since=self.now)
                self.put(attempt)
                created = self.call_create(attempt, create)
                if created is None:
                    return  # the worker died in the call
                facts = replace(facts, created=created)
            case Look():
                alive = tuple(i.ref for i in self.instances if i.alive and i.name == attempt.name)
                facts = replace(facts, found=alive)
            case AskLastWords():
                facts = replace(facts, last_words=words)
            case AskLastLog():
                facts = replace(facts, left_behind=left)
            case Destroy():
                assert attempt.instance_ref is not None
                if destroyed:
                    self.end_instance(attempt.instance_ref)
                facts = replace(facts, destroyed=Destroyed() if destroyed else StillThere("not yet"))
            case _:
                pass
        if isinstance(facts.created, Accepted):
            self.set_ref(attempt.id, facts.created.ref)
        match decide_attempt(self.row(attempt.id), run, facts, self.now):
            case SaveAttempt(row=row, result=result, ref=ref, strays=strays):
                self.strays |= set(strays)
                self.put(row)
                if ref is not None:
                    self.set_ref(row.id, ref)
                    self.put(replace(self.row(row.id), due_at=row.due_at))
                if result is not None:
                    self.set_result(row.id, result)
                self.wake_run()
            case AttemptIsOver():
                pass
            case other:
                raise AssertionError(other)

    def call_create(self, attempt, outcome):
        self.creates.append(attempt.id)
        earlier = [other for other in self.attempts if other.number < attempt.number]
        assert all(other.state in (*OVER, AttemptState.UNSURE) for other in earlier)
        match outcome:
            case "accepted":
                return Accepted(self.make(attempt).ref)
            case "capacity" | "invalid":
                return Rejected(outcome, "no")
            case "refused_and_made":  # and the observer was faster than the answer
                self.set_ref(attempt.id, self.make(attempt).ref)
                return Rejected("capacity", "no")
            case "lost_and_made":
                self.make(attempt)
                return Unclear("timed out")
            case "lost":
                return Unclear("timed out")
            case "id_in_error":
                return Unclear("500", self.make(attempt).ref)
            case "died_and_made":
                self.make(attempt)
        return None

    def end_instance(self, ref):
        for instance in self.instances:
            if instance.ref == ref:
                instance.alive = False

    def due(self):
        return [a for a in self.attempts if a.due_at is not None and a.due_at <= self.now]

    # events

    @rule(offers=st.integers(0, 1), slots=st.integers(0, 1), pin=st.booleans())
    def the_run_steps(self, offers, slots, pin):
        if self.run.due_at is not None and self.run.due_at <= self.now:
            self.step_run(offers, slots, pin)

    @rule(minutes=st.sampled_from([0, 0, 1]), create=st.sampled_from((*CREATES, *GOOD)))
    def all_goes_well(self, minutes, create):
        """Most rows most of the time; it leads the search into the late states."""
        self.now += timedelta(minutes=minutes)
        for _ in range(3):
            self.list_cleanly()
            if self.run.due_at is not None and self.run.due_at <= self.now:
                self.step_run(1, 1, True)
            for attempt in self.due():
                self.step_attempt(attempt, create)

    @precondition(lambda self: self.due())
    @rule(data=st.data(), create=st.sampled_from(CREATES), ready=st.booleans(), destroyed=st.booleans())
    def an_attempt_steps(self, data, create, ready, destroyed):
        words = data.draw(st.sampled_from([LastWords("", ""), LastWords("no_python", "No python3.")]))
        left = data.draw(st.sampled_from([NOTHING_LEFT, LeftBehind(Result(kind=ResultKind.FAILED, exit_code=1))]))
        self.step_attempt(data.draw(st.sampled_from(self.due())), create, ready, destroyed, words, left)

    @initialize(
        rounds=st.sampled_from([0, 1, 1, 1, 2, 2]),
        create=st.sampled_from((*CREATES, *GOOD)),
        works=st.booleans(),
        cancel=st.booleans(),
    )
    def it_starts_somewhere(self, rounds, create, works, cancel):
        """Most of what is worth finding lies behind the first attempt."""
        self.cancel_at_the_end = cancel
        for _ in range(rounds):
            self.all_goes_well(0, create)
        if works:
            self.an_agent_works()

    @rule(seconds=st.sampled_from([1, 1, 5, 5, 20, 31, 31, 61, 61, 301, 601, 1801, 7200]))
    def time_passes(self, seconds):
        self.now += timedelta(seconds=seconds)

    @rule(really=st.sampled_from([True, False, False, False]))
    def somebody_cancels(self, really):
        if really:
            self.ask_cancel()

    def ask_cancel(self):
        if self.run.state is not RunState.ENDED and self.run.cancel_at is None:
            self.run = replace(self.run, cancel_at=self.now, due_at=self.now)
            for attempt in self.attempts:
                self.fact(attempt.id)

    @rule()
    def the_provider_refuses_to_list(self):
        self.account = replace(self.account, broken_since=self.account.broken_since or self.now)

    @rule()
    def the_observer_lists(self):
        self.list_cleanly()

    def list_cleanly(self):
        self.account = replace(self.account, list_ok_at=self.now, broken_since=None)
        for attempt in self.attempts:
            if attempt.state in OVER:
                continue
            instance = self.instance_of(attempt)
            if instance is not None:
                self.set_ref(attempt.id, instance.ref)
                self.fact(attempt.id, observed=instance.state, observed_gone_at=None)
            elif attempt.instance_ref is not None:
                self.fact(attempt.id, observed_gone_at=self.now)
        self.reap()

    def reap(self):
        owned = {a.instance_ref for a in self.attempts if a.state not in OVER}
        named = {a.name for a in self.attempts if a.state not in OVER and a.instance_ref is None}
        for instance in self.instances:
            if instance.alive and instance.ref not in owned and instance.name not in named:
                instance.alive = False

    def agents(self):
        return [a for a in self.attempts if self.instance_of(a) is not None]

    @precondition(lambda self: self.agents())
    @rule(data=st.data())
    def an_agent_claims(self, data):
        attempt = data.draw(st.sampled_from(self.agents()))
        if claimable(attempt) and attempt.claimed_at is None:
            self.fact(attempt.id, claimed_at=self.now, last_seen_at=self.now, phase=Phase.CLAIMED)

    @precondition(lambda self: self.agents())
    @rule()
    def an_agent_works(self):
        for attempt in self.agents():
            if claimable(attempt):
                self.fact(attempt.id, claimed_at=attempt.claimed_at or self.now, last_seen_at=self.now)
                self.ran_user_code.add(attempt.id)
                times = {Phase.SETUP.value: self.now, **attempt.phase_times}
                self.fact(attempt.id, phase=Phase.RUNNING, phase_times=times)

    @precondition(lambda self: [a for a in self.agents() if a.claimed_at])
    @rule(data=st.data(), phase=st.sampled_from(PHASES))
    def an_agent_goes_on(self, data, phase):
        attempt = data.draw(st.sampled_from([a for a in self.agents() if a.claimed_at]))
        if not claimable(attempt):
            return  # it is told 410 and ends itself
        if phase in (Phase.SETUP, Phase.RUNNING):
            self.ran_user_code.add(attempt.id)
        times = {phase.value: self.now, **attempt.phase_times}
        self.fact(attempt.id, phase=phase, phase_times=times, last_seen_at=self.now)

    @precondition(lambda self: [a for a in self.agents() if a.claimed_at])
    @rule(data=st.data(), kind=st.sampled_from(ResultKind))
    def an_agent_finishes(self, data, kind):
        attempt = data.draw(st.sampled_from([a for a in self.agents() if a.claimed_at]))
        if claimable(attempt):
            self.set_result(attempt.id, Result(kind=kind, reason="exit"))

    @precondition(lambda self: any(i.alive for i in self.instances))
    @rule(data=st.data(), vanishes=st.booleans())
    def an_instance_dies(self, data, vanishes):
        instance = data.draw(st.sampled_from([i for i in self.instances if i.alive]))
        instance.alive = not vanishes
        instance.state = InstanceState.EXITED

    # laws

    @invariant()
    def at_most_one_attempt_can_claim(self):
        assert sum(claimable(attempt) for attempt in self.attempts) <= 1

    @invariant()
    def user_code_runs_in_at_most_one_attempt(self):
        assert len(self.ran_user_code) <= 1

    @invariant()
    def create_is_sent_once(self):
        assert len(self.creates) == len(set(self.creates))

    @invariant()
    def who_has_an_instance_is_looked_at_again(self):
        for attempt in self.attempts:
            assert (attempt.due_at is None) == (attempt.state in OVER), attempt
            if attempt.state is AttemptState.VOID:
                assert attempt.instance_ref is None or attempt.instance_ref in self.strays
            if attempt.state in (*OVER, AttemptState.DESTROYING, AttemptState.UNSURE):
                assert attempt.result is not None

    @invariant()
    def a_run_that_has_not_ended_is_looked_at_again(self):
        assert (self.run.due_at is None) == (self.run.state is RunState.ENDED)

    @invariant()
    def ends_absorb(self):
        verdict = {self.run.id: (self.run.verdict, self.run.ended_at)} if self.run.ended_at else {}
        results = {a.id: a.result for a in self.attempts if a.result is not None}
        states = {f"{a.id} state": a.state for a in self.attempts if a.state in OVER}
        now = {**verdict, **results, **states}
        for key, value in self.ended.items():
            assert now[key] == value
        self.ended = now

    @invariant()
    def nothing_is_green_that_did_not_pass(self):
        if self.run.verdict is Verdict.PASSED:
            assert self.attempts[-1].result.kind is ResultKind.PASSED

    def teardown(self):
        """From here on nobody speaks and everything works: time alone must end it all."""
        if self.cancel_at_the_end:
            self.ask_cancel()
        cancelled_before_the_end = self.run.cancel_at is not None and self.run.state is not RunState.ENDED
        decided = any(a.result is not None for a in self.attempts)
        for _ in range(400):
            if self.run.state is RunState.ENDED and all(a.state in OVER for a in self.attempts):
                break
            due = [at for at in (self.run.due_at, *(a.due_at for a in self.attempts)) if at is not None]
            self.now = max(self.now, min(*due, self.now + timedelta(minutes=2)) if due else self.now)
            self.list_cleanly()
            for attempt in self.due():
                self.step_attempt(attempt, "lost")
            if self.run.due_at is not None and self.run.due_at <= self.now:
                self.step_run(0, 0, False)
        else:
            raise AssertionError((self.run.state, [(a.state, a.due_at) for a in self.attempts], self.now))
        self.list_cleanly()
        assert not [i for i in self.instances if i.alive and i.ref not in self.strays]
        if cancelled_before_the_end and not decided:
            assert self.run.verdict is Verdict.CANCELLED


def claimable(attempt):
    return attempt.result is None and attempt.claim_revoked_at is None and attempt.state not in OVER


class OfAFork(World):
    """The same with code that needs an approval, which comes and goes at any time."""

    def __init__(self):
        super().__init__()
        self.run = a_run(untrusted=Untrusted.FORK)
        self.given = 0

    @initialize(early=st.booleans(), ends=st.sampled_from([None, None, True, False]))
    def somebody_was_early(self, early, ends):
        """`ends`: right before the first create, and whether the run is told."""
        if early:
            self.somebody_approves(None)
        if early and ends is not None:
            while self.run.state in (RunState.PLANNING, RunState.WAITING_APPROVAL, RunState.QUEUED):
                self.step_run(1, 1, True)
            self.the_approval_ends(ends)

    @rule(most=st.sampled_from([None, None, 2_000_000, 1]))
    def somebody_approves(self, most):
        self.given += 1
        self.approval = Approval(
            id=f"approval-{self.given}", repo=REPO, pr=1, sha=SHA, max_usd_micro=most, by="carol",
            at=self.now, asked_at=self.now,
        )  # fmt: skip
        self.wake_run()

    @precondition(lambda self: self.approval)
    @rule(told=st.booleans())
    def the_approval_ends(self, told):
        self.approval = None
        if told and self.run.approval:
            self.ask_cancel()
        self.wake_run()

    def choose(self, offer):
        assert self.approval.covers(833_334), "it may cost more than was allowed"
        super().choose(offer)

    def call_create(self, attempt, outcome):
        assert self.approval is not None, "nobody allowed this"
        return super().call_create(attempt, outcome)

    def teardown(self):
        self.cancel_at_the_end = True  # else what waits would wait for 13 days
        super().teardown()


World.TestCase.settings = OfAFork.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
TestOfAFork = OfAFork.TestCase
