"""The context of a build: which of a commit's files are in it, its digest, and the tar that an engine gets. Pure.

It is cut out of the archive of the source, which comes in pieces, so that neither ever lies in memory.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from gpurun.domain.build import DOCKERFILE, MAX_DOCKERFILE_BYTES, MAX_IGNORE_BYTES, BuildPlan
from gpurun.domain.errors import Bug
from gpurun.plan.dockerignore import Ignored

MTIME = 946_684_800
"""2000-01-01: times of a checkout say nothing, and zip files know none before 1980."""

_BLOCK = 512
_KINDS: dict[bytes, Literal["file", "link", "folder"]] = {
    b"0": "file", b"\0": "file", b"2": "link", b"5": "folder"
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What stands before the bytes of a file, or for a link or a folder."""

    path: str
    """Without a last slash."""
    kind: Literal["file", "link", "folder"]
    is_program: bool = False
    size: int = 0
    target: str = ""
    """Of a link."""


class Members:
    """Reads a tar as git makes them, in pieces: each member, and behind a file its bytes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._left = 0
        """Bytes of the current body."""
        self._padding = 0
        self._pax: bytearray | None = None
        """The header that is being collected, while it is one for the next member."""
        self._is_global = False
        self._names: dict[bytes, bytes] = {}

    def feed(self, piece: bytes) -> Iterator[Member | bytes]:
        """What it completes."""
        self._held += piece
        at = 0
        while True:
            ready = len(self._held) - at
            if self._left:
                if not ready:
                    break
                step = min(self._left, ready)
                body = bytes(self._held[at : at + step])
                self._left -= step
                at += step
                if self._pax is None:
                    yield body
                else:
                    self._pax += body
                    self._end_pax()
            elif self._padding:
                if not ready:
                    break
                step = min(self._padding, ready)
                self._padding -= step
                at += step
            elif ready < _BLOCK:
                break
            else:
                member = self._begin(bytes(self._held[at : at + _BLOCK]))
                at += _BLOCK
                if member is not None:
                    yield member
        del self._held[:at]

    def _begin(self, header: bytes) -> Member | None:
        if header.count(0) == _BLOCK:  # the end, or a half of it
            return None
        size = int(header[124:136].rstrip(b"\0 ") or b"0", 8)
        kind = header[156:157]
        self._left, self._padding = size, -size % _BLOCK
        if kind in (b"x", b"g"):
            self._pax, self._is_global = bytearray(), kind == b"g"
            return None
        name = header[:100].rstrip(b"\0")
        prefix = header[345:500].rstrip(b"\0")
        path = self._names.get(b"path", b"%b/%b" % (prefix, name) if prefix else name)
        target = self._names.get(b"linkpath", header[157:257].rstrip(b"\0"))
        self._names = {}
        if kind not in _KINDS:
            raise Bug(f"an archive of git has a member of the kind {kind!r}")
        return Member(
            path=_text(path).rstrip("/"),
            kind=_KINDS[kind],
            is_program=_KINDS[kind] == "file" and bool(int(header[100:108].rstrip(b"\0 ") or b"0", 8) & 0o100),
            size=size,
            target=_text(target) if _KINDS[kind] == "link" else "",
        )

    def _end_pax(self) -> None:
        if self._left or self._pax is None:
            return
        records, self._pax = bytes(self._pax), None
        while records and not self._is_global:
            length = int(records.partition(b" ")[0])
            key, _, value = records[:length].partition(b" ")[2].removesuffix(b"\n").partition(b"=")
            self._names[key] = value
            records = records[length:]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What the archive of a commit holds for a build."""

    dockerfile: bytes | None
    """None: there is no such file."""
    ignore: bytes
    """Empty when there is none."""
    context_sha256: str
    is_there: bool
    """The context has something in it."""


class ContextReader:
    """Takes the archive of a commit: `feed` its pieces, then ask for `contents`."""

    def __init__(self, *, dockerfile: str, context: str) -> None:
        """Both from the top of the commit."""
        self._members = Members()
        self._context = f"{context}/" if context else ""
        self._wanted = {
            dockerfile: MAX_DOCKERFILE_BYTES,
            f"{dockerfile}.dockerignore": MAX_IGNORE_BYTES,
            f"{self._context}.dockerignore": MAX_IGNORE_BYTES,
        }
        self._kept: dict[str, bytearray] = {}
        self._found: dict[str, tuple[str, bool, str]] = {}
        """By path in the context: kind, whether it is a program, and hash or target."""
        self._dockerfile = dockerfile
        self._now: Member | None = None
        self._hash = hashlib.sha256()
        self._to_come = 0

    def feed(self, piece: bytes) -> None:
        for part in self._members.feed(piece):
            if isinstance(part, Member):
                self._begin(part)
            else:
                self._go_on(part)

    def _begin(self, member: Member) -> None:
        self._now, self._hash, self._to_come = member, hashlib.sha256(), member.size
        if member.path in self._wanted:
            self._kept.pop(member.path, None)  # a later member takes the place of an earlier one
            if member.kind == "file":
                self._kept[member.path] = bytearray()
        if member.kind != "file" or not member.size:
            self._end(member, member.target if member.kind == "link" else self._hash.hexdigest())

    def _go_on(self, data: bytes) -> None:
        assert self._now is not None
        self._hash.update(data)
        self._to_come -= len(data)
        kept = self._kept.get(self._now.path)
        if kept is not None and len(kept) <= self._wanted[self._now.path]:
            kept += data
        if not self._to_come:
            self._end(self._now, self._hash.hexdigest())

    def _end(self, member: Member, what: str) -> None:
        inside = _inside(member.path, self._context)
        if inside:
            self._found[inside] = (member.kind, member.is_program, "" if member.kind == "folder" else what)

    def contents(self) -> Contents:
        """Of what was fed. Seconds for thousands of files. Raises ConfigError, without its line, for a `.dockerignore`
        that would take much longer.
        """
        own = self._kept.get(f"{self._dockerfile}.dockerignore")
        ignore = own if own is not None else self._kept.get(f"{self._context}.dockerignore", bytearray())
        ignored = Ignored(_text(bytes(ignore)))
        left = [(path, *what) for path, what in self._found.items() if not _is_out(path, ignored)]
        whole = self._kept.get(self._dockerfile)
        return Contents(
            dockerfile=None if whole is None else bytes(whole),
            ignore=bytes(ignore),
            context_sha256=_digest(left),
            is_there=bool(self._found) or not self._context,
        )


def _inside(path: str, context: str) -> str:
    """From the top of the context; empty for what is not below it."""
    return path.removeprefix(context) if path.startswith(context) else ""


def _is_out(path: str, ignored: Ignored) -> bool:
    """The engine takes `.dockerignore` for its own."""
    return path in {".dockerignore", DOCKERFILE} or ignored(path)


def _digest(entries: Iterable[tuple[str, str, bool, str]]) -> str:
    """One line of JSON for each member, in the order of their paths."""
    whole = hashlib.sha256()
    for entry in sorted(entries):
        whole.update(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
    return whole.hexdigest()


class ContextTar:
    """Makes the engine's tar of the archive of a commit: `feed` its pieces, and at last `end`."""

    def __init__(self, build: BuildPlan) -> None:
        self._members = Members()
        self._build = build
        self._context = f"{build.context}/" if build.context else ""
        self._ignored = Ignored(build.ignore)
        self._left: int | None = None
        """Bytes to come of a file that goes along; None while nothing does."""
        self._padding = 0

    def feed(self, piece: bytes) -> bytes:
        """What it becomes."""
        made: list[bytes] = []
        for part in self._members.feed(piece):
            if isinstance(part, Member):
                path = _inside(part.path, self._context)
                goes_along = bool(path) and not _is_out(path, self._ignored)
                self._left = part.size if goes_along and part.kind == "file" and part.size else None
                self._padding = -part.size % _BLOCK
                if goes_along:
                    made.append(_head(path, part))
            elif self._left is not None:
                made.append(part)
                self._left -= len(part)
                if not self._left:
                    made.append(bytes(self._padding))
        return b"".join(made)

    def end(self) -> bytes:
        """The Dockerfile, and what keeps it out of the image."""
        made = b""
        for path, data in ((DOCKERFILE, self._build.text), (".dockerignore", f".dockerignore\n{DOCKERFILE}\n")):
            body = data.encode("utf-8", "surrogateescape")
            made += _head(path, Member(path=path, kind="file", size=len(body))) + body + bytes(-len(body) % _BLOCK)
        return made + bytes(2 * _BLOCK)


def _head(path: str, member: Member) -> bytes:
    info = tarfile.TarInfo(path)
    info.mtime = MTIME
    info.size = member.size if member.kind == "file" else 0
    info.mode = 0o755 if member.is_program or member.kind == "folder" else 0o644
    if member.kind == "link":
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.target, 0o777
    elif member.kind == "folder":
        info.type = tarfile.DIRTYPE
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
