"""Files that the job left, to the bot. Not masked: they are bytes of any kind."""

from __future__ import annotations

import os
import stat

from gpurun_agent import protocol
from gpurun_agent.wire import Request, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpurun_agent.run import Run

_READ_SIZE = 1024 * 1024
_OK = (200, 409)


def collect(run: Run, patterns: list[str], folder: str) -> None:
    """Sends every regular file under `folder` that a pattern matches, once. Trouble with one is a line in the log."""
    sent: set[bytes] = set()
    for pattern in patterns:
        found = False
        for path in matches(folder, pattern):
            found = True
            if path not in sent:
                sent.add(path)
                if not _send(run, os.fsencode(folder), path):
                    return
        if not found:
            run.say("artifacts: nothing matches %s" % pattern)


def matches(folder: str, pattern: str) -> Iterator[bytes]:
    """Paths below `folder`, sorted, without those that lead out of it. `**` is any number of folders.

    A pattern that names a folder means everything in it.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        return
    root = os.fsencode(os.path.realpath(folder))
    yield from _walk(root, b"", [os.fsencode(part) for part in parts])


def _walk(root: bytes, below: bytes, parts: list[bytes]) -> Iterator[bytes]:
    here = os.path.join(root, below)
    try:
        names = sorted(os.listdir(here))
    except OSError:
        return
    for name in names:
        path = os.path.join(below, name)
        is_folder = _is_real_folder(os.path.join(root, path))
        if parts[0] == b"**":
            if is_folder:
                yield from _walk(root, path, parts)
            if len(parts) > 1 and parts[1] != b"**" and glob(name, parts[1]):
                yield from _found(root, path, parts[2:], is_folder)
            elif all(part == b"**" for part in parts) and not is_folder:
                yield from _found(root, path, [], is_folder)
        elif glob(name, parts[0]):
            yield from _found(root, path, parts[1:], is_folder)


def _found(root: bytes, path: bytes, rest: list[bytes], is_folder: bool) -> Iterator[bytes]:  # noqa: FBT001
    if is_folder:
        yield from _walk(root, path, rest or [b"**"])
    elif (not rest or rest == [b"**"]) and _is_inside(root, os.path.join(root, path)):
        yield path


def glob(name: bytes, pattern: bytes) -> bool:
    """`*`, `?` and `[…]` over one name. Time is the product of both lengths at most: after a mismatch only the last
    `*` takes one byte more.
    """
    at = part = resume = 0
    star = -1
    while at < len(name):
        if pattern[part : part + 1] == b"*":
            star, resume = part, at
            part += 1
            continue
        behind = _behind_item(name[at], pattern, part)
        if behind:
            at, part = at + 1, behind
        elif star >= 0:
            resume += 1
            at, part = resume, star + 1
        else:
            return False
    return not pattern[part:].strip(b"*")


def _behind_item(byte: int, pattern: bytes, part: int) -> int:
    """Where the pattern goes on when its item at `part` matches `byte`; 0 when it does not."""
    if part >= len(pattern):
        return 0
    if pattern[part : part + 1] == b"[":
        end = pattern.find(b"]", part + 2)
        if end > 0:
            return end + 1 if _in_class(byte, pattern[part + 1 : end]) else 0
    return part + 1 if pattern[part] in (byte, ord("?")) else 0


def _in_class(byte: int, members: bytes) -> bool:
    wanted = True
    if members[:1] in (b"!", b"^"):
        wanted, members = False, members[1:]
    at = 0
    found = False
    while at < len(members):
        if members[at + 1 : at + 2] == b"-" and at + 2 < len(members):
            found = found or members[at] <= byte <= members[at + 2]
            at += 3
        else:
            found = found or byte == members[at]
            at += 1
    return found == wanted


def _is_real_folder(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_inside(root: bytes, path: bytes) -> bool:
    """A regular file whose place, links followed, is below `root`."""
    real = os.path.realpath(path)
    try:
        return real.startswith(root + b"/") and stat.S_ISREG(os.stat(real).st_mode)
    except OSError:
        return False


def _send(run: Run, folder: bytes, path: bytes) -> bool:
    """False when the bot takes no more artifacts."""
    shown = path.decode("utf-8", "replace")
    try:
        with open(os.path.realpath(os.path.join(folder, path)), "rb") as file:
            size, sha256 = _measure(run, file)
            target = "%sartifacts/%s?size=%d&sha256=%s&offset=" % (
                protocol.PREFIX,
                quote(path, b"/").decode("ascii"),
                size,
                sha256,
            )
            offset, tries = 0, 0
            while True:
                file.seek(offset)
                # A file that shrinks meanwhile sends what it has; the bot then sees the wrong hash.
                data = file.read(min(protocol.MAX_APPEND, size - offset))
                answer = run.ask(Request("PUT", "%s%d" % (target, offset), data))
                if answer.status not in _OK:
                    run.say("artifacts: %s was refused (%d) %s" % (shown, answer.status, answer.text()))
                    return answer.status != 413
                before, offset = offset, answer.number("next", -1)
                if offset == size and answer.status == 200:
                    return True
                tries = 0 if offset > before else tries + 1
                if not 0 <= offset <= size or tries > 5:
                    run.say("artifacts: %s could not be sent" % shown)
                    return True
    except OSError as exc:
        run.say("artifacts: %s cannot be read: %s" % (shown, exc.strerror))
    return True


def _measure(run: Run, file: object) -> tuple[int, str]:
    import hashlib

    digest, size = hashlib.sha256(), 0
    while True:
        data = file.read(_READ_SIZE)  # type: ignore[attr-defined]  # a binary file
        if not data:
            return size, digest.hexdigest()
        digest.update(data)
        size += len(data)
        run.breathe()
