"""The narrow view of a webhook body: only the fields that intake acts on.

githubkit's full models reject about a third of real payloads and cost 1.4 ms each; these structs ignore what they
do not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class _User(msgspec.Struct):
    login: str = ""
    type: str = ""


class _Comment(msgspec.Struct):
    id: int
    user: _User | None = None
    body: str | None = None


class _Issue(msgspec.Struct):
    number: int
    pull_request: dict[str, Any] | None = None


class _Repository(msgspec.Struct):
    id: int
    full_name: str


class _Installation(msgspec.Struct):
    id: int


class CommentCreated(msgspec.Struct):
    """`issue_comment` with action `created`."""

    comment: _Comment
    issue: _Issue
    repository: _Repository
    installation: _Installation | None = None

    @property
    def author(self) -> str:
        """Empty when the account was deleted."""
        return self.comment.user.login if self.comment.user else ""

    @property
    def by_bot(self) -> bool:
        """Also true when nobody can be named."""
        return self.comment.user is None or self.comment.user.type == "Bot"


class _Head(msgspec.Struct):
    sha: str


class _Base(msgspec.Struct):
    ref: str = ""


class _Pull(msgspec.Struct):
    number: int
    head: _Head
    updated_at: datetime
    base: _Base = msgspec.field(default_factory=_Base)


class _Changes(msgspec.Struct):
    base: dict[str, Any] | None = None


class PullChanged(msgspec.Struct):
    """`pull_request` of any action."""

    action: str
    pull_request: _Pull
    repository: _Repository
    installation: _Installation | None = None
    changes: _Changes | None = None
    """What an edit changed."""
    sender: _User | None = None

    @property
    def other_base(self) -> bool:
        """It goes to another branch than before."""
        return self.action == "edited" and self.changes is not None and self.changes.base is not None


_decoder = msgspec.json.Decoder(CommentCreated)
_pull_decoder = msgspec.json.Decoder(PullChanged)


def comment_created(body: bytes) -> CommentCreated | None:
    """None when the body is not of that shape."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def pull_changed(body: bytes) -> PullChanged | None:
    """None when the body is not of that shape."""
    try:
        return _pull_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class _App(msgspec.Struct):
    id: int = 0


class _CheckRun(msgspec.Struct):
    id: int
    name: str = ""
    head_sha: str = ""
    external_id: str | None = None
    app: _App | None = None


class _CheckSuite(msgspec.Struct):
    id: int
    head_sha: str = ""
    app: _App | None = None


class _RequestedAction(msgspec.Struct):
    identifier: str = ""


class Pressed(msgspec.Struct):
    """`check_run` or `check_suite` of any action. The pull requests that it names are not read: a fork has none."""

    action: str
    repository: _Repository
    check_run: _CheckRun | None = None
    check_suite: _CheckSuite | None = None
    requested_action: _RequestedAction | None = None
    installation: _Installation | None = None
    sender: _User | None = None


_pressed_decoder = msgspec.json.Decoder(Pressed)


def pressed(body: bytes) -> Pressed | None:
    """None when the body is not of that shape."""
    try:
        return _pressed_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
