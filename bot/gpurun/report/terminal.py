"""The report for a terminal and for scripts: the same facts as the comment's."""

from __future__ import annotations

from pydantic import BaseModel

from gpurun.report import pieces
from gpurun.report.comment import title
from gpurun.report.facts import RunFacts
from gpurun.report.text import code, prose
from gpurun.report.why import why


def render_terminal(facts: RunFacts) -> str:
    """Markdown without HTML: verdict, why, pins, times, cost, metrics, artifacts. The log was shown before."""
    said = why(facts)
    parts = [
        f"### {title(facts)}",
        prose(said.sentence, 1500),
        code(said.evidence),
        pieces.pins(facts),
        pieces.times(facts),
        pieces.attempts(facts),
        pieces.cost(facts),
        pieces.metrics(facts.summary),
        pieces.artifacts(facts),
    ]
    return "\n\n".join(part for part in parts if part)


class ModelResult(BaseModel):
    """A pinned model."""

    id: str
    revision: str
    sha256: dict[str, str]
    """By path."""


class RunResult(BaseModel):
    """What `gpurun run --json` prints. Keys are only ever added."""

    run: str
    repo: str
    job: str
    commit: str
    tree: str | None
    image: str | None
    models: list[ModelResult]
    plan_digest: str
    result_key: str
    verdict: str
    reason: str
    detail: str
    exit_code: int | None
    """Of the job's command; None when it never ended by itself."""
    attempts: int
    duration_s: float
    usd: str
    """Decimal; `0` may be a declared price, see `usd_declared`."""
    usd_declared: bool
    log_bytes: int
    artifacts: dict[str, str]
    """sha256 by path."""


def run_result(facts: RunFacts) -> RunResult:
    """Of a run that has ended."""
    run, attempt = facts.run, facts.attempt
    models = run.plan.models if run.plan else run.pins.models
    micro = sum(cost.usd_micro for cost in facts.costs)
    return RunResult(
        run=run.id,
        repo=run.repo.name,
        job=run.job,
        commit=run.sha,
        tree=run.pins.tree,
        image=run.plan.image if run.plan else None,
        models=[
            ModelResult(id=model.id, revision=model.revision, sha256={file.path: file.sha256 for file in model.files})
            for model in models
        ],
        plan_digest=run.plan_digest,
        result_key=run.result_key,
        verdict=run.verdict.value if run.verdict else "lost",
        reason=run.reason,
        detail=run.detail,
        exit_code=attempt.result.exit_code if attempt and attempt.result else None,
        attempts=len(facts.attempts),
        duration_s=((run.ended_at or facts.now) - run.created_at).total_seconds(),
        usd=f"{micro / 1_000_000:f}",
        usd_declared=any(cost.declared for cost in facts.costs),
        log_bytes=facts.log_size,
        artifacts={artifact.path: artifact.sha256 for artifact in facts.artifacts},
    )
