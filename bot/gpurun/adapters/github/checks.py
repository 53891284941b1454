"""A check as the bodies of GitHub's calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gpurun.domain.errors import Bug
from gpurun.domain.forge import Annotation, Check, CheckStatus

ANNOTATIONS_PER_CALL = 50
"""Source: https://docs.github.com/en/rest/checks/runs"""


def bodies(check: Check, *, annotations_there: int = 0) -> Iterator[dict[str, object]]:
    """The bodies of one call, or of several when there are many annotations.

    GitHub adds annotations with each call, so those that are there already are left out.
    """
    rest = check.annotations[annotations_there:]
    yield _body(check, rest[:ANNOTATIONS_PER_CALL])
    for start in range(ANNOTATIONS_PER_CALL, len(rest), ANNOTATIONS_PER_CALL):
        yield _body(check, rest[start : start + ANNOTATIONS_PER_CALL])


def _body(check: Check, annotations: Sequence[Annotation]) -> dict[str, object]:
    if (check.status is CheckStatus.COMPLETED) != (check.conclusion is not None):
        raise Bug(f"check {check.name!r}: a conclusion belongs to a completed check and to no other")
    output: dict[str, object] = {"title": check.title, "summary": check.summary}
    if check.text:
        output["text"] = check.text
    if annotations:
        output["annotations"] = [_annotation(one) for one in annotations]
    body: dict[str, object] = {
        "name": check.name,
        "external_id": check.external_id,
        "status": check.status.value,
        "output": output,
        # an empty list takes the buttons away
        "actions": [
            {"label": one.label, "description": one.description, "identifier": one.identifier} for one in check.actions
        ],
    }
    optional = {
        "conclusion": check.conclusion,
        "details_url": check.details_url or None,
        "started_at": _time(check.started_at),
        "completed_at": _time(check.completed_at),
    }
    return body | {name: value for name, value in optional.items() if value is not None}


def _annotation(one: Annotation) -> dict[str, object]:
    body: dict[str, object] = {
        "path": one.path,
        "start_line": one.line,
        "end_line": one.line,
        "annotation_level": one.level,
        "message": one.message,
    }
    return body | ({"title": one.title} if one.title else {})


def _time(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None
