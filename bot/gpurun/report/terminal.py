"""The report for a terminal and for scripts: the same facts as the comment's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
LEFT_OUT_LINES = 10
"""Of what was not kept; the log has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the artifacts of a run were written to."""

    folder: str = ""
    """The one that was asked for; empty when there are no artifacts."""
    unwritten: Mapping[str, str] = field(default_factory=dict)
    """Why, by path, of those that could not be written to it."""
    instead: str = ""
    """Where those of them are that are not in `nowhere`; empty when none is."""
    nowhere: Mapping[str, str] = field(default_factory=dict)
    """Why, by path, of those that could not be written there either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalReport:
    """Clean plain text; nothing in it is cut to the width of the terminal, so that digests can be copied."""

    headline: str
    because: str
    """Why it did not pass, with the line of the log that says most. Empty when it passed."""
    table: str
    """A name and a value on each line: pins, times, cost, metrics, artifacts."""


def render_terminal(facts: RunFacts, *, places: Places | None = None) -> TerminalReport:
    """`places`: of the artifacts. The log was shown before."""
    said = why(facts)
    evidence = [_INDENT + one_line(said.evidence)] if said.evidence else []
    rows = [*_pins(facts), *_times(facts), *_attempts(facts), *_cost(facts), *_metrics(facts)]
    rows += _artifacts(facts, places or Places())
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
    return [
        ("cost", f"{total} = {' + '.join(map(_part, facts.costs))}; {source} of {one_line(facts.attempt.offer.label)}")
    ]


def _part(one: Cost) -> str:
    return f"{duration(one.elapsed.total_seconds())} × {usd(one.usd_per_hour_micro)}/h"


def _metrics(facts: RunFacts) -> Rows:
    lines = pieces.metric_lines(facts.summary)
    rows = [("metrics" if number == 0 else "", one_line(line)) for number, line in enumerate(lines)]
    return rows + [("gpu", one_line(f"{what}: {said}")) for what, said in pieces.gpu_notes(facts)]


def unwritten_artifacts(places: Places, state: str) -> str:
    """What could not be written where it was wanted, why, and where it is; empty when all was. `state`: the run's."""
    if not places.unwritten:
        return ""
    return "\n".join(
        [
            f"{pieces.counted(len(places.unwritten), 'artifact')} could not be written to {one_line(places.folder)}:",
            *_with_reasons(places.unwritten),
            *_instead(places, state),
        ]
    )


def _instead(places: Places, state: str) -> list[str]:
    where = one_line(places.instead)
    if not places.nowhere:
        return [f"{'It is' if len(places.unwritten) == 1 else 'They are'} in {where}."]
    kept = f"The bytes are still in {one_line(state)}, which is kept until 20 later runs have ended."
    if not where:
        return [kept]
    return [f"The others are in {where}; not there either:", *_with_reasons(places.nowhere), kept]


def _with_reasons(unwritten: Mapping[str, str]) -> list[str]:
    told = [f"{_INDENT}{one_line(path)}: {one_line(why)}" for path, why in [*unwritten.items()][: pieces.MAX_ROWS]]
    more = len(unwritten) - len(told)
    return [*told, f"{_INDENT}and {more} more"] if more else told


def _artifacts(facts: RunFacts, places: Places) -> Rows:
    folder = places.folder
    left_out = _left_out(facts)
    if not facts.artifacts:
        return left_out
    own = [one for one in pieces.own_artifacts(facts) if one.path not in places.unwritten]
    files = [("", f"{_INDENT}{one_line(one.path)}  {size(one.size)}") for one in own[: pieces.MAX_ROWS]]
    more = len(own) - len(files)
    if more:
        files.append(("", f"{_INDENT}and {more:,} more" + (f" in {one_line(folder)}" if folder else "")))
    told = [("artifacts", one_line(folder) or f"{len(own):,} kept"), *files] if own else []
    installed = [
        (one, f"{one_line(folder)}/" if folder else "")
        for one in facts.artifacts
        if one.path == INSTALLED and one.path not in places.unwritten
    ]
    told += [("installed", f"{place}{one.path}  {size(one.size)}") for one, place in installed]
    return [*told, ("manifest", manifest_digest(facts.artifacts)), *left_out]


def _left_out(facts: RunFacts) -> Rows:
    lines = [one_line(line) for line in facts.left_out.splitlines()]
    shown = lines[:LEFT_OUT_LINES]
    if len(lines) > len(shown):
        shown.append(f"and {len(lines) - len(shown)} more")
    return [("" if number else "not kept", line) for number, line in enumerate(shown)]


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
    artifacts_unwritten: dict[str, str]
    """Why, by path, of those that could not be written to it: the code is 4 when the job passed."""
    artifacts_instead: str
    """The folder that those were written to instead; empty when there are none, or there was no room either."""
    artifacts_manifest: str
    """`sha256:…` of the list of their paths, sizes and hashes; empty when there are none."""
    artifacts_left_out: str
    """Which files were not kept, why, and how large they are: a line for each reason and each name. Text of others."""


def run_result(facts: RunFacts, *, places: Places | None = None) -> RunResult:
    """Of a run that has ended."""
    places = places or Places()
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
        artifacts_dir=places.folder,
        artifacts_unwritten=dict(places.unwritten),
        artifacts_instead=places.instead,
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
        artifacts_unwritten={},
        artifacts_instead="",
        artifacts_manifest="",
        artifacts_left_out="",
    )
