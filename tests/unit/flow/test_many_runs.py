"""1,000 runs an hour on one installation, against GitHub's buckets: nobody is limited, every verdict arrives.

18 minutes of it, which already is more to write than an hour allows; `make soak` takes the whole hour.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from gpurun.domain.errors import Bug, ForgeLimited
from gpurun.domain.ids import JobName
from gpurun.domain.publication import Publication, PublicationKind
from gpurun.domain.run import RunState, Verdict
from gpurun.flow.facts import Links
from gpurun.flow.publish import Publisher
from gpurun.flow.worker import Worker
from gpurun.ports.store import Kind
from tests.fakes.clock import START
from tests.fakes.github.answers import Refusal
from tests.fakes.github.limits import Limits
from tests.fakes.parts import SourceOnlyForge
from tests.fakes.rows import REPO, a_run

RUNS = int(os.getenv("GPURUN_TEST_RUNS", "300"))
GAP = timedelta(hours=1) / 1000
PULL_REQUESTS = 100
JOBS = ("smoke", "full")
LASTS = timedelta(seconds=90)
TICK = timedelta(seconds=18)


@dataclass
class BucketForge(SourceOnlyForge):
    """Comments and checks in memory, behind the buckets of the fake GitHub."""

    limits: Limits | None = None
    clock: object = None
    comments: dict[int, str] = field(default_factory=dict)
    checks: dict[int, object] = field(default_factory=dict)
    shown: dict[str, datetime] = field(default_factory=dict)
    """By run, when its check got its conclusion."""
    writes: Counter = field(default_factory=Counter)
    ids: object = field(default_factory=lambda: itertools.count(1))

    def _write(self, what):
        try:
            self.limits.spend(REPO.installation_id, "POST")
        except Refusal as refusal:
            raise ForgeLimited(str(refusal), retry_after_s=60, told=False) from refusal
        self.writes[what] += 1

    async def react(self, repo, comment_id, content):
        self._write("reactions")
        return next(self.ids)

    async def create_comment(self, repo, pr, body):
        self._write("comments made")
        made = next(self.ids)
        self.comments[made] = body
        return made

    async def update_comment(self, repo, comment_id, body):
        self._write("comments edited")
        self.comments[comment_id] = body

    async def create_check(self, repo, sha, check):
        self._write("checks made")
        return self._keep(next(self.ids), check)

    async def update_check(self, repo, check_id, check):
        self._write("checks edited")
        self._keep(check_id, check)
        return True

    def _keep(self, check_id, check):
        self.checks[check_id] = check
        if check.conclusion:
            self.shown.setdefault(check.external_id, self.clock.now())
        return check_id

    async def find_comment(self, repo, pr, *, marker, since):
        raise Bug("no answer was lost")

    async def find_check(self, repo, sha, *, name, external_id):
        raise Bug("no answer was lost")


def the_run(number, now):
    job = JobName(JOBS[number // PULL_REQUESTS % len(JOBS)])
    return a_run(id=f"01kdrun{number:019d}", pr=1 + number % PULL_REQUESTS, job=job, created_at=now, due_at=None)


def start(number, chance):
    """What intake commits for a command."""

    def apply(tx):
        run = the_run(number, tx.now())
        tx.add_run(run)
        for kind in (PublicationKind.REACT, PublicationKind.CHECK, PublicationKind.COMMENT):
            own = "" if kind is PublicationKind.REACT else run.id
            tx.publish(
                Publication(
                    id=chance.ulid(), kind=kind, repo=REPO, pr=run.pr, run_id=own, text="eyes", comment_id=7,
                    nonce=chance.token(8), created_at=tx.now(), due_at=tx.now(), final=not own,
                )
            )  # fmt: skip

    return apply


def go_on(number):
    """The engine has news that can wait."""
    return lambda tx: tx.raise_rev(the_run(number, tx.now()).id, final=False, urgent=False)


def end(number):
    """The verdict."""

    def apply(tx):
        run_id = the_run(number, tx.now()).id
        tx.wake(Kind.RUN, run_id)
        (lease,) = tx.claim(Kind.RUN, limit=1, token="engine", length=timedelta(seconds=75))
        ended = {"state": RunState.ENDED, "verdict": Verdict.PASSED, "reason": "exit", "ended_at": tx.now()}
        assert tx.save_run(replace(tx.run(run_id), due_at=None, **ended), lease)
        tx.raise_rev(run_id, final=True, urgent=True)

    return apply


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.timeout(900)
async def test_a_thousand_runs_an_hour_are_not_limited_and_every_verdict_arrives(store, clock, chance, capsys):
    forge = BucketForge(limits=Limits(clock), clock=clock)
    publisher = Publisher(store=store, forge=forge, links=Links(public_url="https://bot.example"))
    # three processes, as far as the outbox can tell
    workers = [Worker(store, clock, chance, {Kind.PUBLICATION: publisher}, limit=8) for _ in range(3)]
    events = sorted(
        [(START + GAP * n, n, start(n, chance)) for n in range(RUNS)]
        + [(START + GAP * n + LASTS / 3 * part, n, go_on(n)) for n in range(RUNS) for part in (1, 2)]
        + [(START + GAP * n + LASTS, n, end(n)) for n in range(RUNS)],
        key=lambda event: event[:2],
    )
    ended = {the_run(n, START).id: START + GAP * n + LASTS for n in range(RUNS)}
    turn = itertools.cycle(workers)
    while events or len(forge.shown) < RUNS:
        now = [act for at, _, act in events if at <= clock.now()]
        events = events[len(now) :]
        if now:
            await store.write(lambda tx, acts=now: [act(tx) for act in acts])
        await next(turn).step_until_idle()
        due = await store.read(lambda tx: tx.next_due())
        wait = TICK if events else max((due or clock.now()) - clock.now(), timedelta(seconds=1))
        clock.advance(seconds=wait.total_seconds())
        assert clock.now() - START < timedelta(hours=12), "verdicts are missing"
    limits = forge.limits
    waits = sorted((forge.shown[run_id] - at).total_seconds() / 60 for run_id, at in ended.items())
    figures = (
        f"{RUNS} runs at 1,000 an hour on one installation: "
        f"{sum(forge.writes.values())} writes ({dict(forge.writes)}), "
        f"limited {limits.secondary_hits} times; "
        f"the last verdict came after {(clock.now() - START) / timedelta(hours=1):.1f} h, "
        f"one waits {waits[RUNS // 2]:.0f} min (median), {waits[-1]:.0f} min (longest)"
    )
    with capsys.disabled():
        sys.stdout.write(f"\n{figures}\n")
    newest = {(run.pr, run.job): run.id for run in (the_run(n, START) for n in range(RUNS))}
    assert (limits.secondary_hits, limits.primary_hits, limits.banned) == (0, 0, set())
    assert {check.conclusion for check in forge.checks.values()} == {"success"}
    assert len(forge.checks) == RUNS
    assert len(forge.comments) == len(newest)
    for run_id in newest.values():
        assert [body for body in forge.comments.values() if run_id in body and "passed" in body]
