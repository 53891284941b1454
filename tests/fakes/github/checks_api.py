"""Check runs, validated as strictly as GitHub does.

Source: https://docs.github.com/en/rest/checks/runs
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tests.fakes.github import payloads
from tests.fakes.github.answers import Json, invalid, not_in_schema, objects, one_of, text, whole
from tests.fakes.github.state import CheckAnnotation, CheckButton, CheckRun, Repo

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

STATUSES = ("queued", "in_progress", "completed")
CONCLUSIONS = ("action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out")
TEXT_MAX = 65_535
ANNOTATIONS_MAX = 50
MESSAGE_MAX_BYTES = 64 * 1024
TITLE_MAX = 255


def create(github: FakeGitHub, repo: Repo, body: Json) -> CheckRun:
    """A new check run on a commit that exists."""
    name = text(body, "name", required=True, least=1)
    sha = text(body, "head_sha", required=True)
    if not sha or repo.git.resolve(sha) != sha:
        raise invalid("CheckRun", "head_sha", f"No commit found for SHA: {sha}")
    check = CheckRun(id=github.new_check_id(), repo=repo, app_id=github.app.id, name=name or "", head_sha=sha)
    check.started_at = github.clock.now()
    _apply(github, check, body)
    repo.checks[check.id] = check
    _hook(github, "created", check)
    if check.status == "completed":
        _hook(github, "completed", check)
    return check


def update(github: FakeGitHub, check: CheckRun, body: Json) -> None:
    """Only what the body names changes; annotations are added."""
    before, ended = check.status, (check.conclusion, check.completed_at)
    _apply(github, check, body)
    if before == "completed" and check.status != "completed":  # stays so, and nobody is told
        check.status, (check.conclusion, check.completed_at) = "completed", ended
    if check.status == "completed" and before != "completed":
        _hook(github, "completed", check)


def _apply(github: FakeGitHub, check: CheckRun, body: Json) -> None:
    # everything is validated before anything changes
    status = one_of(body, "status", STATUSES)
    conclusion = one_of(body, "conclusion", CONCLUSIONS)
    name = text(body, "name", least=1)
    external_id = text(body, "external_id")
    details_url = text(body, "details_url")
    times = {field: _time(body, field) for field in ("started_at", "completed_at")}
    actions = _actions(body)
    output = _output(body)
    if status == "completed" and conclusion is None:
        raise invalid("CheckRun", "conclusion", "is missing: a completed check run needs one")
    if details_url is not None and not details_url.startswith(("https://", "http://")):
        raise invalid("CheckRun", "details_url", "must use http or https scheme")

    check.name = name or check.name
    check.external_id = external_id if external_id is not None else check.external_id
    check.details_url = details_url if details_url is not None else check.details_url
    check.started_at = times["started_at"] or check.started_at
    if conclusion is not None:
        check.status, check.conclusion = "completed", conclusion
        check.completed_at = times["completed_at"] or github.clock.now()
    elif status is not None:
        check.status, check.conclusion, check.completed_at = status, None, None
    if actions is not None:
        check.actions = actions
    if output is not None:
        check.title, check.summary, check.text = output[0], output[1], output[2]
        check.titles.append(check.title)
        check.annotations.extend(output[3])


def _output(body: Json) -> tuple[str, str, str, list[CheckAnnotation]] | None:
    output = body.get("output")
    if output is None:
        return None
    if not isinstance(output, dict):
        raise not_in_schema("For 'properties/output', it is not an object.")
    title = text(output, "title", required=True, most=TITLE_MAX)
    summary = text(output, "summary", required=True, most=TEXT_MAX)
    long = text(output, "text", most=TEXT_MAX)
    annotations = objects(output, "annotations", most=ANNOTATIONS_MAX) or []
    return title or "", summary or "", long or "", [_annotation(item) for item in annotations]


def _annotation(item: Json) -> CheckAnnotation:
    message = text(item, "message", required=True, least=1) or ""
    if len(message.encode()) > MESSAGE_MAX_BYTES:
        raise not_in_schema("annotation message is larger than 64 KB")
    return CheckAnnotation(
        path=text(item, "path", required=True, least=1) or "",
        start_line=whole(item, "start_line"),
        end_line=whole(item, "end_line"),
        level=one_of(item, "annotation_level", ("notice", "warning", "failure"), required=True) or "",
        message=message,
        title=text(item, "title", most=TITLE_MAX) or "",
    )


def _actions(body: Json) -> list[CheckButton] | None:
    actions = objects(body, "actions", most=3)
    if actions is None:
        return None
    return [
        CheckButton(
            label=text(item, "label", required=True, most=20, least=1) or "",
            description=text(item, "description", required=True, most=40, least=1) or "",
            identifier=text(item, "identifier", required=True, most=20, least=1) or "",
        )
        for item in actions
    ]


def _time(body: Json, field: str) -> datetime | None:
    value = text(body, field)
    if value is None:
        return None
    try:
        return datetime.strptime(value, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        raise not_in_schema(f"For 'properties/{field}', {value!r} is not a valid date-time.") from None


def _hook(github: FakeGitHub, action: str, check: CheckRun) -> None:
    github.touch()
    github.queue("check_run", action, check.repo, payloads.check_event(github, action, check, sender=github.bot))
