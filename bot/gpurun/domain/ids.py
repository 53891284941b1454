"""Identifiers that are checked when they are made, so that nothing downstream checks them again."""

from __future__ import annotations

import re
from typing import Self

from gpurun.domain.errors import PinNotFound


class _Checked(str):
    """A string of one fixed shape. Subclasses set `_pattern`, which `re` compiles at first use, and `_what`."""

    __slots__ = ()
    _pattern: str
    _what: str

    def __new__(cls, value: str) -> Self:
        if not re.fullmatch(cls._pattern, value):
            raise PinNotFound(f"{value!r} is not {cls._what}")
        return super().__new__(cls, value)


class CommitSha(_Checked):
    """A git commit, 40 lower-case hex digits."""

    __slots__ = ()
    _pattern = r"[0-9a-f]{40}"
    _what = "a full commit id (40 hex digits)"


class TreeSha(_Checked):
    """A git tree, 40 lower-case hex digits."""

    __slots__ = ()
    _pattern = r"[0-9a-f]{40}"
    _what = "a git tree id (40 hex digits)"


class Revision(_Checked):
    """A Hugging Face revision, 40 lower-case hex digits."""

    __slots__ = ()
    _pattern = r"[0-9a-f]{40}"
    _what = "a Hugging Face revision (40 hex digits)"


class ImageRef(_Checked):
    """A container image by digest, `[registry/]repository[:tag]@sha256:<64 hex>`."""

    __slots__ = ()
    _pattern = r"[a-z0-9][a-z0-9._:/\-]*(?::[A-Za-z0-9_][A-Za-z0-9._\-]{0,127})?@sha256:[0-9a-f]{64}"
    _what = "an image by digest (name@sha256:<64 hex digits>)"

    @property
    def digest(self) -> str:
        """`sha256:<64 hex>`."""
        return self.split("@", 1)[1]

    @property
    def name(self) -> str:
        """What stands before the `@`, tag included."""
        return self.split("@", 1)[0]

    @property
    def without_tag(self) -> str:
        """`repository@sha256:…`: what the digest names, whatever the tag became meanwhile."""
        head, _, last = self.name.rpartition("/")
        repository = last.split(":", 1)[0]
        return f"{head}/{repository}@{self.digest}" if head else f"{repository}@{self.digest}"


class BuiltImage(_Checked):
    """An image that was built for us and lies on an engine only, `gpurun-build:<SHA-256 of its inputs>`."""

    __slots__ = ()
    _pattern = r"gpurun-build:[0-9a-f]{64}"
    _what = "an image that was built from a Dockerfile"

    @property
    def inputs_sha256(self) -> str:
        """64 hex digits."""
        return self.rpartition(":")[2]


class ImageTag(_Checked):
    """A container image by a name that can move, `[registry[:port]/]repository[:tag]`."""

    __slots__ = ()
    _pattern = (
        r"(?:[a-z0-9][a-z0-9.\-]{0,252}(?::[0-9]{1,5})?/)?"
        r"[a-z0-9][a-z0-9._\-/]{0,254}(?::[A-Za-z0-9_][A-Za-z0-9._\-]{0,127})?"
    )
    _what = "an image by name and tag (name:tag)"

    @property
    def name(self) -> str:
        """Without the tag."""
        return self[: -len(self.tag) - 1] if self._has_tag else str(self)

    @property
    def tag(self) -> str:
        """What registries and engines take when none is written: `latest`."""
        return self.rsplit(":", 1)[1] if self._has_tag else "latest"

    @property
    def _has_tag(self) -> bool:
        return ":" in self.rsplit("/", 1)[-1]


class HubRef(_Checked):
    """A branch or tag of a repository of the hub, which can move."""

    __slots__ = ()
    _pattern = r"(?!.*(?:\.\.|//|/$))[A-Za-z0-9][A-Za-z0-9._/\-]{0,199}"
    _what = "a branch or tag of the hub"

    @property
    def is_commit(self) -> bool:
        """It is the start of a commit's id, which cannot move."""
        return re.fullmatch(r"[0-9a-f]{7,40}", self) is not None


class BranchName(_Checked):
    """A branch of a git repository, without `refs/heads/`."""

    __slots__ = ()
    _pattern = r"[^\x00-\x20\x7f~^:?*\[\\]{1,255}"
    _what = "a branch"


class RepoName(_Checked):
    """`owner/name`. The local forge uses `local/<folder>`."""

    __slots__ = ()
    _pattern = r"(?!\.{1,2}/)[A-Za-z0-9._\-]{1,100}/(?!\.{1,2}$)[A-Za-z0-9._\-]{1,100}"
    _what = "a repository (owner/name)"


class JobName(_Checked):
    """A key under `jobs:`."""

    __slots__ = ()
    _pattern = r"[a-z0-9][a-z0-9._\-]{0,62}"
    _what = "a job name (lower-case letters, digits, '.', '_' and '-')"
