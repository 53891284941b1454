"""The report for a terminal and for scripts: the same facts as the comment's."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from gpurun.domain.manifest import manifest_digest
from gpurun.domain.plan import ModelPin
from gpurun.domain.run import Verdict
from gpurun.domain.stream import INSTALLED
from gpurun.domain.telemetry import Cost
from gpurun.report import pieces
from gpurun.report.comment import plain_title
from gpurun.report.facts import RunFacts
from gpurun.report.source import SourcePin, source_pins
from gpurun.report.text import duration, one_line, size, usd
from gpurun.report.why import why

_INDENT = "  "
_NAME_WIDTH = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalReport:
    """Clean plain text; nothing in it is cut to the width of the terminal, so that digests can be copied."""

    headline: str
    because: str
    """Why it did not pass, with the line of the log that says most. Empty when it passed."""
    table: str
    """A name and a value on each line: pins, times, cost, metrics, artifacts."""


def render_terminal(facts: RunFacts, *, artifacts_dir: str = "") -> TerminalReport:
    """`artifacts_dir`: where they were written to. The log was shown before."""
    said = why(facts)
    evidence = [_INDENT + one_line(said.evidence)] if said.evidence else []
    rows = [*_pins(facts), *_times(facts), *_attempts(facts), *_cost(facts), *_metrics(facts)]
    rows += _artifacts(facts, artifacts_dir)
    return TerminalReport(
        headline=one_line(plain_title(facts)),
        because="\n".join([one_line(said.sentence, 1500), *evidence]) if said.sentence else "",
        table="\n".join(f"{_INDENT}{name:<{_NAME_WIDTH}}{value}" for name, value in rows),
    )


Rows = list[tuple[str, str]]


def _pins(facts: RunFacts) -> Rows:
    run = facts.run
    tree = f" (tree {run.pins.tree})" if run.pins.tree else ""
    rows = [("commit", f"{run.sha}{tree}")]
    if run.plan is not None:
        rows += [(pin.name, _source(pin)) for pin in source_pins(run.plan)]
        rows.append(("image", one_line(run.plan.container_image)))
    if run.plan is not None and run.plan.build is not None:
        rows.append(("built of", one_line(run.plan.build.dockerfile)))
        rows += [("on", one_line(image)) for image in run.plan.build.images]
    models = run.plan.models if run.plan is not None else run.pins.models
    rows += [(model.kind, _model(model)) for model in models]
    if run.plan_digest:
        rows.append(("plan", run.plan_digest))
    return rows


def _source(pin: SourcePin) -> str:
    what = f"{pin.path}@{pin.commit}" if pin.path else ""
    return one_line(", ".join(filter(None, (what, pin.about))))


def _model(model: ModelPin) -> str:
    files = "1 file" if len(model.files) == 1 else f"{len(model.files)} files"
    return one_line(f"{model.id}@{model.revision}, {files}, {size(sum(file.size for file in model.files))}")


def _times(facts: RunFacts) -> Rows:
    spans = pieces.spans(facts)
    return [("time", " · ".join(f"{name} {took}" for name, took in spans))] if spans else []


def _attempts(facts: RunFacts) -> Rows:
    """What became of earlier tries; nothing when there was one."""
    if len(facts.attempts) < 2:
        return []
    return [
        (f"attempt {one.number}", one_line(f"{one.result.kind}: {one.result.detail}" if one.result else "no result"))
        for one in facts.attempts
    ]


def _cost(facts: RunFacts) -> Rows:
    if not facts.costs or facts.attempt is None:
        return []
    total = usd(sum(one.usd_micro for one in facts.costs))
    source = "declared price" if facts.costs[-1].declared else "price"
    return [("cost", f"{total} = {' + '.join(map(_part, facts.costs))}; {source} of {facts.attempt.offer.label}")]


def _part(one: Cost) -> str:
    return f"{duration(one.elapsed.total_seconds())} × {usd(one.usd_per_hour_micro)}/h"


def _metrics(facts: RunFacts) -> Rows:
    lines = pieces.metric_lines(facts.summary)
    rows = [("metrics" if number == 0 else "", one_line(line)) for number, line in enumerate(lines)]
    return rows + [("gpu", one_line(f"{what}: {said}")) for what, said in pieces.gpu_notes(facts)]


def _artifacts(facts: RunFacts, folder: str) -> Rows:
    left_out = [("not kept", one_line(facts.left_out, 1500))] if facts.left_out else []
    if not facts.artifacts:
        return left_out
    files = [("", f"{_INDENT}{one_line(one.path)}  {size(one.size)}") for one in pieces.own_artifacts(facts)]
    told = [("artifacts", one_line(folder) or f"{len(files)} kept"), *files] if files else []
    installed = [(one, f"{one_line(folder)}/" if folder else "") for one in facts.artifacts if one.path == INSTALLED]
    told += [("installed", f"{place}{one.path}  {size(one.size)}") for one, place in installed]
    return [*told, ("manifest", manifest_digest(facts.artifacts)), *left_out]


class ModelResult(BaseModel):
    """A pinned model."""

    id: str
    revision: str
    sha256: dict[str, str]
    """By path."""


class RunResult(BaseModel):
    """What `gpurun run --json` prints, always and whole. Keys are only ever added.

    What is not known is empty or null: a run that was refused before it had a row has no `run` and no `commit`.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    run: str
    """The run's id; empty when nothing was run."""
    repo: str
    """`owner/name` of `origin` when that is on GitHub, else `local/<folder>`."""
    job: str
    """As it was typed."""
    folder: str
    """Of the file with the job, from the top of the repository; empty for the top."""
    commit: str
    """40 hex digits. Of a snapshot when the checkout had uncommitted changes."""
    tree: str | None
    """The tree of the commit; equal files have equal trees. Null before it was fetched."""
    image: str | None
    """With its digest; `gpurun-build:` and the SHA-256 of its inputs for one that was built; null before the plan."""
    models: list[ModelResult]
    """`id`, `revision`, and `sha256` by path, of each model."""
    plan_digest: str
    """Equal for runs that were told to do the same at the same commit."""
    result_key: str
    """The same with the tree in the place of the commit."""
    verdict: str
    """`passed`, `failed`, `timeout`, `lost`, `cancelled` or `refused`."""
    reason: str
    """One word: `exit`, `setup`, `weights_mismatch`, `max_duration`, `asked`, `pin`, `config`, `usage`, `no_engine` or
    another one."""
    detail: str
    """A sentence for people. May hold text of others."""
    exit_code: int | None
    """Of the job's command; null when it never ended by itself."""
    attempts: int
    """How often it was tried."""
    duration_s: float
    """From the request to the verdict, in seconds."""
    usd: str
    """A decimal number; `0` may be a declared price, see `usd_declared`."""
    usd_declared: bool
    """The price is what the operator declared, not what a provider bills."""
    log_bytes: int
    """Size of the whole log."""
    times_s: dict[str, float]
    """Seconds of each step that was seen: `plan and queue`, `pull` and `build` of a job with `build`, `boot`, `source`,
    `models`, `setup`, `run`, `collect`, `clear up`. Of weights that came before there was a container, `models` has the
    time, and `boot` does not."""
    artifacts: dict[str, str]
    """sha256 by path. `gpurun/installed.txt` is what was installed when `run` began."""
    artifacts_dir: str
    """The folder that the artifacts were written to; empty when there are none."""
    artifacts_manifest: str
    """`sha256:…` of the list of their paths, sizes and hashes; empty when there are none."""
    artifacts_left_out: str
    """Which files were not kept, why, and how large they are. Text of others."""


def run_result(facts: RunFacts, *, artifacts_dir: str = "") -> RunResult:
    """Of a run that has ended."""
    run, attempt = facts.run, facts.attempt
    models = run.plan.models if run.plan else run.pins.models
    micro = sum(cost.usd_micro for cost in facts.costs)
    return RunResult(
        run=run.id,
        repo=run.repo.name,
        job=run.job,
        folder=run.folder,
        commit=run.sha,
        tree=run.pins.tree,
        image=run.plan.container_image if run.plan else None,
        models=[
            ModelResult(id=model.path, revision=model.revision, sha256={file.path: file.sha256 for file in model.files})
            for model in models
        ],
        plan_digest=run.plan_digest,
        result_key=run.result_key,
        verdict=run.verdict.value if run.verdict else "lost",
        reason=run.reason,
        detail=run.detail or why(facts).sentence,
        exit_code=attempt.result.exit_code if attempt and attempt.result else None,
        attempts=len(facts.attempts),
        duration_s=((run.ended_at or facts.now) - run.created_at).total_seconds(),
        usd=f"{micro / 1_000_000:f}",
        usd_declared=any(cost.declared for cost in facts.costs),
        log_bytes=facts.log_size,
        times_s=pieces.step_seconds(facts),
        artifacts={artifact.path: artifact.sha256 for artifact in facts.artifacts},
        artifacts_dir=artifacts_dir,
        artifacts_manifest=manifest_digest(facts.artifacts),
        artifacts_left_out=facts.left_out,
    )


def no_run_result(job: str, verdict: Verdict, *, reason: str, detail: str) -> RunResult:
    """Of a command that ended before there was a run."""
    return RunResult(
        run="",
        repo="",
        job=job,
        folder="",
        commit="",
        tree=None,
        image=None,
        models=[],
        plan_digest="",
        result_key="",
        verdict=verdict.value,
        reason=reason,
        detail=detail,
        exit_code=None,
        attempts=0,
        duration_s=0.0,
        usd="0",
        usd_declared=False,
        log_bytes=0,
        times_s={},
        artifacts={},
        artifacts_dir="",
        artifacts_manifest="",
        artifacts_left_out="",
    )
