"""A run as the words and numbers of its page. Pure: rows in, text out; the template only arranges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpurun.domain.folder import job_in
from gpurun.domain.manifest import manifest_digest
from gpurun.domain.plan import ModelPin, Resources
from gpurun.domain.run import BUILDING, BUILT, FETCHED, FETCHING, Attempt, AttemptState, Phase, Run, RunState, Verdict
from gpurun.domain.stream import Artifact
from gpurun.domain.telemetry import Series, Summary
from gpurun.telemetry.meter import attempt_cost, cost_line, usd_text

REFRESH_S = 5
"""How often the facts of a live run are drawn anew although nothing but numbers moved."""

_STATES = {
    RunState.PLANNING: "planning",
    RunState.WAITING_APPROVAL: "waiting for approval",
    RunState.QUEUED: "queued",
    RunState.ACTIVE: "starting",
}
_TONES = {Verdict.PASSED: "good", Verdict.FAILED: "bad", Verdict.TIMEOUT: "bad", Verdict.LOST: "bad"}
_GONE = frozenset({AttemptState.GONE, AttemptState.VOID})


@dataclass(frozen=True, slots=True)
class Step:
    """One phase of the timeline."""

    name: str
    at: str
    took: str
    """Empty for the phase it is in."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One line of the table of attempts."""

    number: int
    where: str
    instance: str
    result: str
    cost: str


@dataclass(frozen=True, slots=True)
class MetricView:
    """One measured quantity."""

    name: str
    latest: str
    low: str
    mean: str
    high: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Everything above the log."""

    run: Run
    title: str
    word: str
    """The verdict, or where it is now."""
    tone: str
    """good, bad, live, idle."""
    detail: str
    asked: str
    took: str
    where: str
    cost: str
    steps: tuple[Step, ...]
    pins: tuple[tuple[str, str], ...]
    models: tuple[ModelPin, ...]
    attempts: tuple[AttemptView, ...]
    landed: tuple[tuple[str, str], ...]
    metrics: tuple[MetricView, ...]
    metrics_note: str
    artifacts: tuple[Artifact, ...]
    manifest: str
    """Digest of the list of artifacts; empty when there are none."""
    left_out: str
    """Which artifacts were not kept."""
    ended: bool
    rev: str
    """Changes when the facts should be drawn anew."""


def run_view(
    run: Run,
    attempts: tuple[Attempt, ...],
    shown: Attempt | None,
    *,
    artifacts: tuple[Artifact, ...],
    summary: Summary | None,
    now: datetime,
) -> RunView:
    """`shown` is the attempt whose log, metrics and artifacts the page shows."""
    until = run.ended_at or now
    return RunView(
        run=run,
        title=f"{job_in(run.job, run.folder)} · {run.repo.name}" + (f" #{run.pr}" if run.pr else ""),
        word=run.verdict.value if run.verdict else _live_word(run, shown),
        tone=_TONES.get(run.verdict, "idle") if run.verdict else "live",
        detail=run.detail or (shown.preparing if shown and not run.verdict else ""),
        asked=f"@{run.who}, {moment(run.created_at)}",
        took=duration(until - run.created_at),
        where=shown.offer.label if shown else "",
        cost=_total_cost(attempts, now),
        steps=_steps(shown, now) if shown else (),
        pins=tuple(_pins(run)),
        models=run.plan.models if run.plan else run.pins.models,
        attempts=tuple(_attempt_view(attempt, now) for attempt in attempts),
        landed=tuple(sorted(shown.landed.items())) if shown else (),
        metrics=tuple(_metrics(summary)) if summary else (),
        metrics_note=_metrics_note(summary),
        artifacts=artifacts,
        manifest=manifest_digest(artifacts),
        left_out=shown.result.left_out if shown and shown.result else "",
        ended=run.state is RunState.ENDED,
        rev=revision(run, shown, now=now),
    )


def has_ended(run: Run, attempt: Attempt | None) -> bool:
    """No more bytes will come for this attempt (None: the run never had one)."""
    if run.state is RunState.ENDED:
        return True
    return attempt is not None and (attempt.result is not None or attempt.state in _GONE)


def revision(run: Run, shown: Attempt | None, *, now: datetime) -> str:
    """A short word that is the same as long as the page shows the same facts."""
    told: list[object] = [run.state, run.verdict, run.detail, run.cancel_at, len(run.pins.models), run.pins.tree]
    if shown:
        told += [shown.number, shown.state, shown.phase, shown.preparing, shown.result]
    if run.state is not RunState.ENDED:
        told.append(int(now.timestamp()) // REFRESH_S)
    return hashlib.sha256(repr(told).encode("utf-8", "replace")).hexdigest()[:12]


def moment(at: datetime) -> str:
    """`2026-01-05 12:00:03 UTC`."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def duration(length: timedelta) -> str:
    """`1 h 2 min`, `3 min 4 s`, `5.6 s`."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size_text(n_bytes: float) -> str:
    """`12 B`, `3.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024 or unit == "GiB":
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    raise AssertionError


def _live_word(run: Run, shown: Attempt | None) -> str:
    if run.cancel_at is not None:
        return "cancelling"
    if run.state is RunState.ACTIVE and shown and shown.phase:
        return shown.phase.value
    return _STATES.get(run.state, run.state.value)


def _total_cost(attempts: tuple[Attempt, ...], now: datetime) -> str:
    costs = [cost for attempt in attempts if (cost := attempt_cost(attempt, now))]
    if not costs:
        return "nothing yet"
    if len(costs) == 1:
        return cost_line(costs[0])
    return f"{usd_text(sum(cost.usd_micro for cost in costs))} in {len(costs)} attempts"


def _steps(attempt: Attempt, now: datetime) -> tuple[Step, ...]:
    seen = [("created", attempt.create_sent_at)] if attempt.create_sent_at else []
    seen += sorted(((_step_name(name), at) for name, at in attempt.phase_times.items()), key=lambda step: step[1])
    seen.sort(key=lambda step: step[1])
    ends = [at for _, at in seen[1:]] + [attempt.result_at or now]
    steps = []
    for (name, at), end in zip(seen, ends, strict=True):
        assert at is not None
        last = name == Phase.FINISHED
        steps.append(Step(name, f"{at:%H:%M:%S}", "" if last else duration(end - at)))
    return tuple(steps)


def _step_name(name: str) -> str:
    ours = {BUILDING: "build", BUILT: "image ready", FETCHING: "fetching weights", FETCHED: "weights ready"}
    return ours.get(name) or Phase(name).value


def _pins(run: Run) -> Iterator[tuple[str, str]]:
    yield "commit", run.sha
    plan = run.plan
    if plan is None:
        if run.pins.tree:
            yield "tree", run.pins.tree
        return
    yield "tree", plan.tree
    yield "image", plan.container_image
    if plan.build is not None:
        yield "built of", plan.build.dockerfile
        for image in plan.build.images:
            yield "on", image
    yield "plan", run.plan_digest
    yield "needs", _needs(plan.resources)
    yield "at most", duration(timedelta(seconds=plan.max_duration_s))
    for name, value in plan.env:
        yield "env", f"{name}={value}"


def _needs(need: Resources) -> str:
    parts = [
        f"{need.gpus} GPU" if need.gpus else "no GPU",
        f"VRAM ≥ {need.vram_min_mib} MiB" if need.vram_min_mib else "",
        f"{need.cpus:g} CPU" if need.cpus else "",
        f"{need.memory_mib} MiB memory" if need.memory_mib else "",
        f"{need.disk_mib} MiB disk" if need.disk_mib else "",
    ]
    return ", ".join(filter(None, parts))


def _attempt_view(attempt: Attempt, now: datetime) -> AttemptView:
    result = attempt.result
    told = "" if result is None else result.kind.value
    if result is not None and result.exit_code is not None:
        told += f", exit {result.exit_code}"
    elif result is not None and result.reason:
        told += f" ({result.reason})"
    cost = attempt_cost(attempt, now)
    return AttemptView(
        attempt.number, attempt.offer.label, attempt.state.value, told, cost_line(cost) if cost else "nothing yet"
    )


def _metrics(summary: Summary) -> Iterator[MetricView]:
    yield from _metric("CPU", summary.cpu_pct, "%")
    yield from _metric(_with_total("RAM", summary.ram_total_mib), summary.ram_mib, "MiB")
    yield from _metric("disk", summary.disk_mib, "MiB")
    for gpu in summary.gpus[:16]:
        name = f"GPU {gpu.index}"
        yield from _metric(f"{name} busy", gpu.util_pct, "%")
        yield from _metric(_with_total(f"{name} VRAM", gpu.vram_total_mib), gpu.vram_mib, "MiB")
        yield from _metric(f"{name} power", gpu.power_w, "W")
        yield from _metric(f"{name} temperature", gpu.temp_c, "°C")
        yield from _metric(f"{name} SM clock", gpu.sm_mhz, "MHz")


def _with_total(name: str, total_mib: float | None) -> str:
    return name if total_mib is None else f"{name} of {total_mib:.0f} MiB"


def _metric(name: str, series: Series | None, unit: str) -> Iterator[MetricView]:
    if series is not None:
        shown = (f"{value:.1f} {unit}" if unit == "%" else f"{value:.0f} {unit}" for value in (
            series.latest, series.low, series.mean, series.high
        ))  # fmt: skip
        yield MetricView(name, *shown)


def _metrics_note(summary: Summary | None) -> str:
    if summary is None or summary.samples == 0:
        return "No samples yet."
    note = "1 sample" if summary.samples == 1 else f"{summary.samples} samples"
    if summary.gpus[16:]:
        note += f", {len(summary.gpus) - 16} more GPUs"
    if not summary.gpus:
        note += ", no GPU in the instance"
    if summary.broken_lines:
        note += f", {summary.broken_lines} unreadable lines"
    return note + "."
