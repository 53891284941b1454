"""What a delivery asks for, before anybody is asked, and whether the comment behind it is what it says. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpurun.command.parse import parse
from gpurun.domain.command import Command
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import CommandError
from gpurun.domain.forge import Comment, RepoRef
from gpurun.domain.ids import RepoName
from gpurun.flow.events import CommentCreated, comment_created

PREFIX = "/gpurun"
OLDEST = timedelta(days=7)
"""GitHub keeps deliveries, to send them again, for a few days. Whoever has the webhook's secret could send the word of
years ago, on which nobody acted, for the commit of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody wants of a pull request: a comment with at least one command line, or the press of a button."""

    repo: RepoRef
    pr: int
    parsed: tuple[Command | CommandError, ...]
    comment_id: int = 0
    """0 for a button."""
    author: str = ""
    """Of the comment, as the webhook told it; empty when the account was deleted."""
    body: str = ""
    """Of the comment, as the webhook told it."""
    unpaid: int = 0
    """Reads that were not booked before."""


@dataclass(frozen=True, slots=True)
class NotForUs:
    """Why a delivery is ignored."""

    note: str


def understand(delivery: Delivery) -> Asked | NotForUs:
    """Pure: is there anything to do, before anybody is asked?"""
    if (delivery.event, delivery.action) != ("issue_comment", "created"):
        return NotForUs(f"{delivery.event}.{delivery.action} starts nothing")
    event = comment_created(delivery.body)
    if event is None or event.installation is None:
        return NotForUs("not a comment of an installation")
    if event.issue.pull_request is None:
        return NotForUs("a comment on an issue")
    if event.by_bot:
        return NotForUs("written by a bot")
    parsed = parse(event.comment.body or "")
    if not parsed:
        return NotForUs("no command")
    return _asked(event, event.installation.id, parsed)


def addressed(delivery: Delivery) -> Asked | None:
    """Who to answer when nothing could be done, without understanding a word; None when nobody waits for one."""
    event = comment_created(delivery.body) if delivery.event == "issue_comment" else None
    if event is None or event.installation is None or event.by_bot or PREFIX not in (event.comment.body or ""):
        return None
    return _asked(event, event.installation.id, ())


def _asked(event: CommentCreated, installation_id: int, parsed: tuple[Command | CommandError, ...]) -> Asked:
    repo = event.repository
    return Asked(
        repo=RepoRef(installation_id=installation_id, name=RepoName(repo.full_name), id=repo.id),
        pr=event.issue.number,
        parsed=parsed,
        comment_id=event.comment.id,
        author=event.author,
        body=event.comment.body or "",
    )


def forged(asked: Asked, comment: Comment) -> str:
    """How the comment as the API gives it contradicts what the webhook told of it; empty when it does not.

    A stolen webhook secret alone must not spend money: not in somebody's name, and not with a comment that somebody
    wrote elsewhere.
    """
    if comment.author != asked.author or comment.author_is_bot:
        return f"the comment is by @{comment.author}"
    if comment.number != asked.pr:
        return f"the comment stands on #{comment.number}"
    if not was_edited(comment) and comment.body != asked.body:
        return "the comment has another text"
    return ""


def outdated(delivery: Delivery, comment: Comment) -> str:
    """Why what was written does not count any more; empty when it does."""
    if was_edited(comment):
        return "the comment was edited before it was read"
    if delivery.received_at - comment.created_at > OLDEST:
        return "the comment is too old"
    return ""


def was_edited(comment: Comment) -> bool:
    """An edited comment never starts anything."""
    return comment.updated_at != comment.created_at
