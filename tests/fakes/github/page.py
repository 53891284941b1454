"""The page of a pull request, to look at while the bot works."""

from __future__ import annotations

from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.fakes.github.answers import not_found
from tests.fakes.github.markdown import to_html
from tests.fakes.github.state import Account, CheckRun, Comment, Pull

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

REFRESH_S = 2
"""While a check is running."""
EMOJI = {
    "+1": "👍", "-1": "👎", "laugh": "😄", "confused": "😕", "heart": "❤️", "hooray": "🎉", "rocket": "🚀", "eyes": "👀",
}  # fmt: skip
COLOURS = ("#8250df", "#0969da", "#bf3989", "#1a7f37", "#9a6700")

# (sign, colour, words) of a check
LOOKS = {
    "success": ("✓", "#1a7f37", "Successful"),
    "failure": ("✕", "#cf222e", "Failing"),
    "timed_out": ("✕", "#cf222e", "Timed out"),
    "cancelled": ("⊘", "#59636e", "Cancelled"),
    "action_required": ("!", "#9a6700", "Action required"),
    "queued": ("●", "#9a6700", "Queued"),
    "in_progress": ("●", "#9a6700", "In progress"),
}

STYLE = Path(__file__).with_name("page.css").read_text()


def routes(github: FakeGitHub) -> list[Route]:
    """One page."""

    async def pull(request: Request) -> Response:
        repo = github.repos.get("{owner}/{repo}".format(**request.path_params).lower())
        found = repo.pulls.get(request.path_params["number"]) if repo else None
        if found is None:
            raise not_found()
        # nothing that a comment smuggles in may run or load
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:"
        return HTMLResponse(render(github, found), headers={"content-security-policy": policy})

    return [Route("/{owner}/{repo}/pull/{number:int}", pull, methods=["GET"])]


def render(github: FakeGitHub, pull: Pull) -> str:
    """The conversation, and the checks of the head commit."""
    checks = github.checks(pull.repo, sha=pull.head_sha)
    now = github.clock.now()
    running = any(check.status != "completed" for check in checks)
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_S}">' if running else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{refresh}'
        f"<title>{escape(pull.title)} · Pull Request #{pull.number} · {escape(pull.repo.name)}</title>"
        f"<style>{STYLE}</style><main>{_head(pull)}"
        + "".join(_comment(comment, now) for comment in github.comments(pull))
        + _checks(checks)
        + "</main></html>"
    )


def _head(pull: Pull) -> str:
    state = "merged" if pull.merged_at else pull.state
    return (
        f"<h1>{escape(pull.title)} <span>#{pull.number}</span></h1>"
        f'<p class="meta"><span class="state {state}">{state.capitalize()}</span>'
        f"<b>{escape(pull.author.login)}</b> wants to merge <code>{escape(pull.head_label)}</code> "
        f"into <code>{escape(pull.base_branch)}</code> · head <code>{pull.head_sha[:7]}</code></p>"
    )


def _comment(comment: Comment, now: datetime) -> str:
    name = comment.author.login.removesuffix("[bot]")
    label = '<span class="label">bot</span>' if comment.author.kind == "Bot" else ""
    edited = " · edited" if comment.history else ""
    counts = {one.content: 0 for one in comment.reactions}
    for one in comment.reactions:
        counts[one.content] += 1
    reactions = "".join(f"<span>{EMOJI[content]} {count}</span> " for content, count in counts.items())
    return (
        f'<div class="item" id="issuecomment-{comment.id}">{_avatar(comment.author)}<div class="box">'
        f'<div class="bar"><b>{escape(name)}</b>{label} commented {_ago(now - comment.created_at)}{edited}</div>'
        f'<div class="body">{to_html(comment.body)}</div>'
        + (f'<div class="reactions">{reactions}</div>' if reactions else "")
        + "</div></div>"
    )


def _avatar(account: Account) -> str:
    colour = "#1f2328" if account.kind == "Bot" else COLOURS[sum(account.login.encode()) % len(COLOURS)]
    shape = "avatar bot" if account.kind == "Bot" else "avatar"
    return f'<div class="{shape}" style="background:{colour}">{escape(account.login[:1].upper())}</div>'


def _checks(checks: list[CheckRun]) -> str:
    if not checks:
        return ""
    bad = [check for check in checks if check.conclusion not in (None, "success")]
    open_ = [check for check in checks if check.status != "completed"]
    words = "Some checks haven't completed yet" if open_ else "All checks have passed"
    words = "Some checks were not successful" if bad else words
    return f'<div class="checks"><div class="head">{words}</div>{"".join(_check(check) for check in checks)}</div>'


def _check(check: CheckRun) -> str:
    sign, colour, words = LOOKS[check.conclusion or check.status]
    buttons = "".join(f'<span class="button">{escape(one.label)}</span>' for one in check.actions)
    return (
        f'<div class="check"><span class="sign" style="color:{colour}">{sign}</span>'
        f'<span class="name">{escape(check.name)}</span>'
        f'<span class="title">{words} — {escape(check.title)}</span>{buttons}'
        f'<a href="{escape(check.details_url)}">Details</a></div>'
    )


def _ago(age: timedelta) -> str:
    minutes = int(age.total_seconds() // 60)
    if minutes < 1:
        return "now"
    return f"{minutes} minute{'s' if minutes > 1 else ''} ago" if minutes < 60 else f"{minutes // 60} hours ago"
