"""GitHub's limits. Bytes are counted where GitHub counts characters: never more, sometimes less than allowed."""

from __future__ import annotations

from dataclasses import replace

from gpurun.domain.forge import Annotation, Check, CheckAction
from gpurun.report.text import cut

COMMENT_BYTES = 65_000
"""GitHub refuses a comment of more than 65,536 characters; the marker needs some of them."""
CHECK_BYTES = 65_000
"""GitHub refuses more than 65,535 characters of summary, and of text."""
TITLE_BYTES = 255
MESSAGE_BYTES = 60_000
"""GitHub allows 64 KiB."""
ANNOTATIONS_PER_CALL = 50
ACTIONS = 3


def within(check: Check) -> Check:
    """The check with every field within its limit. More than 50 annotations are the adapter's several calls."""
    return replace(
        check,
        title=cut(check.title, TITLE_BYTES),
        summary=cut(check.summary, CHECK_BYTES),
        text=cut(check.text, CHECK_BYTES),
        annotations=tuple(_annotation(one) for one in check.annotations),
        actions=tuple(_action(one) for one in check.actions[:ACTIONS]),
    )


def _annotation(one: Annotation) -> Annotation:
    return replace(one, message=cut(one.message, MESSAGE_BYTES), title=cut(one.title, TITLE_BYTES))


def _action(one: CheckAction) -> CheckAction:
    return replace(
        one, label=cut(one.label, 20), description=cut(one.description, 40), identifier=cut(one.identifier, 20)
    )
