"""A run in every situation, as facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName, Revision, TreeSha
from gpurun.domain.offer import Offer
from gpurun.domain.plan import ModelFile, ModelPin, Plan
from gpurun.domain.run import Attempt, AttemptState, Phase, Pins, Result, ResultKind, Run, RunState, Verdict
from gpurun.domain.stream import Artifact
from gpurun.domain.telemetry import Cost, GpuSummary, Series, Summary
from gpurun.report.facts import RunFacts

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
SHA = CommitSha("4f0c" * 10)
TREE = TreeSha("9b1d" * 10)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


MODEL = ModelPin(
    id="minishlab/potion-base-8M",
    revision=Revision("0123456789" * 4),
    files=(
        ModelFile(path="config.json", size=118, sha256="a" * 64, etag="b" * 40),
        ModelFile(path="model.safetensors", size=16_000_000, sha256="c" * 64, etag="c" * 64),
    ),
)
PLAN = Plan(
    repo=RepoName("org/app"),
    commit=SHA,
    tree=TREE,
    job=JobName("smoke"),
    image=ImageRef("ghcr.io/org/app@sha256:" + "0123456789abcdef" * 4),
    run="python smoke.py",
    models=(MODEL,),
    max_duration_s=1200,
)
OFFER = Offer(provider="docker", id="local", label="local Docker", usd_per_hour_micro=0, declared=True)
RENTED = Offer(
    provider="runpod", id="4090", label="RTX 4090 (RunPod, secure)", usd_per_hour_micro=690_000, declared=False
)
PLANNING = Run(
    id="01kebgx0000000000000000001",
    repo=RepoRef(installation_id=7, name=RepoName("org/app"), id=1),
    pr=1,
    job=JobName("smoke"),
    sha=SHA,
    who="alice",
    why="comment",
    comment_id=11,
    created_at=START,
    read_key="key",
    config_text="version: 1\njobs:\n  smoke:\n    image: python:3.12\n    run: python smoke.py\n",
    state_since=START,
    due_at=START,
)
QUEUED = replace(
    PLANNING,
    state=RunState.QUEUED,
    state_since=at(1.2),
    pins=Pins(tree=TREE, image_confirmed=True, models=(MODEL,)),
    plan=PLAN,
    plan_digest="sha256:" + "fedcba9876543210" * 4,
)
ACTIVE = replace(QUEUED, state=RunState.ACTIVE, state_since=at(1.6), attempts=1)
CHOSEN = Attempt(
    id="01kebgx0000000000000000002",
    run_id=PLANNING.id,
    number=1,
    offer=OFFER,
    name="gpurun-abcd1234-01kebgx0000000000000000002-t8a1c0",
    claim_sha256="d" * 64,
    created_at=at(1.6),
    hard_deadline=at(3600),
    state_since=at(1.6),
    due_at=at(1.6),
    preparing="pulling image 43 %",
)
LIVE = replace(
    CHOSEN,
    state=AttemptState.LIVE,
    state_since=at(6),
    preparing="",
    create_sent_at=at(5),
    instance_ref="c0ffee",
    claimed_at=at(6),
    phase=Phase.RUNNING,
    phase_times={
        "claimed": at(6),
        "source": at(6.1),
        "weights": at(6.4),
        "setup": at(8),
        "running": at(20),
    },
    last_seen_at=at(30),
)
DONE = replace(
    LIVE,
    state=AttemptState.GONE,
    phase=Phase.FINISHED,
    phase_times={**LIVE.phase_times, "collecting": at(40), "finished": at(40.6)},
    result=Result(kind=ResultKind.PASSED, exit_code=0, reason="exit"),
    result_at=at(40.7),
    destroy_asked_at=at(40.8),
    gone_at=at(41.5),
)
SUMMARY = Summary(
    samples=33,
    broken_lines=0,
    duration_s=33.0,
    cpu_pct=Series(latest=40, low=3, mean=37.4, high=99),
    ram_mib=Series(latest=900, low=300, mean=700, high=1300),
    ram_total_mib=32_768,
    disk_mib=None,
    net_rx_bytes=1.0,
    net_tx_bytes=1.0,
    gpus=(
        GpuSummary(
            index=0,
            util_pct=Series(latest=0, low=0, mean=57, high=98),
            vram_mib=Series(latest=0, low=400, mean=9000, high=11_264),
            vram_total_mib=24_576,
            power_w=Series(latest=1, low=22, mean=180, high=310),
        ),
    ),
)
COST = Cost(elapsed=timedelta(seconds=36.5), usd_per_hour_micro=0, usd_micro=0, declared=True)
ARTIFACTS = (Artifact(path="out/metrics.json", size=214, sha256="e" * 64, blob="x"),)
LOG = b"loading weights\r\n\x1b[32mready\x1b[0m\nchecksum 8d5c6a12\n"

BASE = RunFacts(
    run=PLANNING,
    now=at(42),
    run_url="https://gpurun.example/runs/01kebgx0000000000000000001?key=k",
    forge_url="https://github.com",
    hub_url="https://huggingface.co",
)


def ended(verdict: Verdict, *, reason: str = "", detail: str = "", run: Run = ACTIVE, **more: object) -> Run:
    return replace(
        run,
        state=RunState.ENDED,
        verdict=verdict,
        reason=reason,
        detail=detail,
        ended_at=at(41),
        state_since=at(41),
        due_at=None,
        **more,
    )


def with_result(kind: ResultKind, *, exit_code: int | None = None, reason: str = "", detail: str = "") -> Attempt:
    return replace(DONE, result=Result(kind=kind, exit_code=exit_code, reason=reason, detail=detail))


FULL = replace(
    BASE,
    run=ended(Verdict.PASSED, reason="exit"),
    attempts=(DONE,),
    log_tail=LOG,
    log_size=len(LOG),
    summary=SUMMARY,
    costs=(COST,),
    artifacts=ARTIFACTS,
)
TRACEBACK = (
    b"step 1\nTraceback (most recent call last):\n"
    b'  File "smoke.py", line 3, in <module>\n    check(loss)\n'
    b"ValueError: loss is nan, see @acme/all fixes #1\n"
)
LOST_BEFORE = replace(
    CHOSEN,
    state=AttemptState.VOID,
    offer=RENTED,
    result=Result(kind=ResultKind.LOST, reason="no_capacity", detail="No RTX 4090 is free."),
    result_at=at(3),
)

SITUATIONS: dict[str, RunFacts] = {
    "planning": BASE,
    "queued": replace(
        BASE, run=replace(QUEUED, reason="slot", detail="Waiting for a free place on local Docker."), now=at(3)
    ),
    "preparing": replace(BASE, run=ACTIVE, attempts=(CHOSEN,), now=at(3)),
    "booting": replace(
        BASE,
        run=ACTIVE,
        attempts=(replace(CHOSEN, state=AttemptState.BOOTING, state_since=at(5), create_sent_at=at(5), preparing=""),),
        now=at(5.5),
        costs=(replace(COST, elapsed=timedelta(seconds=0.5)),),
    ),
    "running": replace(
        BASE,
        run=replace(ACTIVE, also_asked=("bob",)),
        attempts=(LIVE,),
        now=at(30),
        log_tail=LOG,
        log_size=len(LOG),
        costs=(replace(COST, elapsed=timedelta(seconds=25)),),
    ),
    "quiet": replace(BASE, run=ACTIVE, attempts=(LIVE,), now=at(105), costs=(COST,)),
    "stopping": replace(
        BASE, run=replace(ACTIVE, cancel_at=at(29), cancel_by="bob"), attempts=(LIVE,), now=at(30), costs=(COST,)
    ),
    "waiting for approval": replace(BASE, run=replace(QUEUED, state=RunState.WAITING_APPROVAL)),
    "paused": replace(BASE, run=replace(QUEUED, paused=True)),
    "passed": FULL,
    "passed at the second try": replace(
        FULL,
        attempts=(LOST_BEFORE, replace(DONE, number=2, offer=RENTED)),
        costs=(Cost(elapsed=timedelta(seconds=41), usd_per_hour_micro=690_000, usd_micro=7859, declared=False),),
    ),
    "failed": replace(
        FULL,
        run=ended(Verdict.FAILED, reason="exit"),
        attempts=(with_result(ResultKind.FAILED, exit_code=1, reason="exit"),),
        log_tail=TRACEBACK,
        log_size=4_500_000,
    ),
    "killed": replace(
        FULL,
        run=ended(Verdict.FAILED, reason="exit"),
        attempts=(with_result(ResultKind.FAILED, exit_code=137, reason="exit"),),
        log_tail=b"",
        log_size=0,
    ),
    "setup failed": replace(
        FULL,
        run=ended(Verdict.FAILED, reason="setup"),
        attempts=(with_result(ResultKind.FAILED, exit_code=127, reason="setup"),),
        log_tail=b"sh: pipp: not found\n",
        log_size=20,
    ),
    "weights mismatch": replace(
        FULL,
        run=ended(
            Verdict.FAILED,
            reason="weights_mismatch",
            detail="model.safetensors of minishlab/potion-base-8M is not what its hash says.",
        ),
        attempts=(with_result(ResultKind.FAILED, reason="weights_mismatch"),),
        log_tail=b"",
        log_size=0,
    ),
    "timed out": replace(
        FULL,
        run=ended(Verdict.TIMEOUT, reason="max_duration", detail="The job ran longer than max_duration."),
        attempts=(with_result(ResultKind.TIMEOUT, reason="max_duration"),),
    ),
    "lost": replace(
        FULL,
        run=ended(Verdict.LOST, reason="host", detail="The instance ended while the job ran."),
        attempts=(
            replace(with_result(ResultKind.LOST, reason="host"), gone_at=None, unconfirmed_at=at(41)),
        ),
    ),
    "no capacity": replace(
        BASE, run=ended(Verdict.LOST, reason="no_capacity", detail="No provider offers 2 GPUs.", run=QUEUED)
    ),
    "cancelled": replace(
        FULL,
        run=ended(Verdict.CANCELLED, reason="asked", detail="Cancelled by bob.", cancel_by="bob", cancel_at=at(30)),
    ),
    "superseded": replace(
        FULL, run=ended(Verdict.CANCELLED, reason="asked", superseded_by="01kebgx0000000000000000009")
    ),
    "refused for its file": replace(
        BASE,
        run=ended(
            Verdict.REFUSED,
            reason="config",
            detail="`jobs.smoke.image`: 'python:3.12' names an image by tag, and a tag can move. "
            "Write it with its digest, name@sha256:…",
            run=PLANNING,
            error_line=4,
        ),
    ),
    "refused for a pin": replace(
        BASE,
        run=ended(Verdict.REFUSED, reason="pin", detail="The registry has no such manifest.", run=PLANNING),
    ),
    "approval expired": replace(
        BASE, run=ended(Verdict.REFUSED, reason="expired", detail="Nobody approved the run in 13 days.", run=QUEUED)
    ),
}  # fmt: skip
