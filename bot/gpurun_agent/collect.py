"""Files that the job left, to the bot. Not masked: they are bytes of any kind.

What a pattern means and is not sent is told: why, how much of it, and the first names.
"""

from __future__ import annotations

import hashlib
import os

from gpurun_agent import protocol
from gpurun_agent.globs import Globs
from gpurun_agent.log import in_one_line
from gpurun_agent.tree import NoFile, Outside, Tree, trouble
from gpurun_agent.wire import Request, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.run import Run
    from gpurun_agent.spec import Spec
    from gpurun_agent.tree import Found

_READ_SIZE = 1024 * 1024
_OK = (200, 409)
_SMALL = 256 * 1024
"""Files up to so large are sent together."""
_TOGETHER_BYTES = 2 * 1024 * 1024
"""Of one request."""
_MOST_REMEMBERED = 10_000
"""Files of one pattern among which those that fit are chosen; the rest is counted."""
_NAMED = 5
"""Of each kind of what was left out."""
_LONGEST_NAME = 100
_GONE = "file that changed or vanished meanwhile"


class LeftOut:
    """What was not sent, by reason."""

    def __init__(self) -> None:
        self._kinds: dict[str, list[int]] = {}
        self._names: dict[str, list[str]] = {}

    def add(self, why: str, path: bytes, size: int) -> None:
        """`why` stands after the number: `2 of more than 1.0 GiB each`."""
        count = self._kinds.setdefault(why, [0, 0])
        count[0] += 1
        count[1] += size
        names = self._names.setdefault(why, [])
        if len(names) < _NAMED:
            shown = in_one_line(path.decode("utf-8", "backslashreplace"))
            shown = shown if len(shown) <= _LONGEST_NAME else "…" + shown[-_LONGEST_NAME:]
            names.append("%s, %s" % (shown, size_text(size)) if size else shown)

    def sentences(self) -> list[str]:
        """One a reason: `3 (12.0 GiB together), larger than 1.0 GiB: out/a, 10.0 GiB; …`. Between the names are line
        ends, which nothing in them is.
        """
        told = []
        for why, (number, size) in self._kinds.items():
            names = ";\n".join(self._names[why])
            more = number - len(self._names[why])
            together = " (%s together)" % size_text(size) if size else ""
            rest = ";\nand %d more" % more if more else ""
            told.append("%d%s, %s:\n%s%s." % (number, together, in_one_line(why), names, rest))
        return told


def size_text(size: float) -> str:
    """`12 B`, `3.4 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return "%d B" % size if unit == "B" else "%.1f %s" % (size, unit)
        size /= 1024
    return "%.1f GiB" % size


def collect(run: Run, spec: Spec, tree: Tree, left_out: LeftOut) -> None:
    """Sends every regular file of `tree` that a pattern means, once, as far as the limits go.

    Patterns that were written first come first. Raises Stopped, Unwanted.
    """
    waiting = _chosen(run, spec, tree, left_out)
    number = 0
    while number < len(waiting):
        try:
            if waiting[number].size <= _SMALL:
                number += _send_together(run, tree, waiting[number : number + protocol.MAX_TOGETHER], left_out)
            else:
                _send(run, tree, waiting[number], left_out)
                number += 1
        except BaseException:
            for rest in waiting[number:]:
                left_out.add("not sent before the end", rest.path, rest.size)
            raise


def _chosen(run: Run, spec: Spec, tree: Tree, left_out: LeftOut) -> list[Found]:
    """What is to be sent."""
    globs = Globs([os.fsencode(pattern) for pattern in spec.artifacts])
    found: list[list[Found]] = [[] for _ in spec.artifacts]
    matched = [False] * len(found)
    too_large = "larger than the %s that one file may have" % size_text(spec.artifact_file_bytes)
    too_many = "more than the %d files that are kept" % spec.artifact_files
    for one in tree.files(globs, run.breathe):
        for number in one.meant_by:
            matched[number] = True
        why = one.trouble or _unsayable(one.path)
        if why:
            left_out.add(why, one.path, one.size)
        elif one.size > spec.artifact_file_bytes:
            left_out.add(too_large, one.path, one.size)
        elif len(found[one.pattern]) < _MOST_REMEMBERED:
            found[one.pattern].append(one)
        else:
            left_out.add(too_many, one.path, one.size)
    for number, pattern in enumerate(spec.artifacts):
        if not matched[number]:
            run.say("artifacts: nothing matches %s" % pattern)
    chosen: list[Found] = []
    room = spec.artifact_bytes
    too_much = "more than the %s that all files may have together" % size_text(spec.artifact_bytes)
    for one in (one for some in found for one in some):
        if len(chosen) >= spec.artifact_files:
            left_out.add(too_many, one.path, one.size)
        elif one.size > room:
            left_out.add(too_much, one.path, one.size)
        else:
            room -= one.size
            chosen.append(one)
    return chosen


def _unsayable(path: bytes) -> str:
    """What is wrong with a name, as the bot sees it (`http.agent_files.artifact_path`); empty when nothing is."""
    try:
        text = path.decode("utf-8")
    except UnicodeDecodeError:
        return "name that is not UTF-8"
    if not text.isprintable():
        return "name with a character that is not printable"
    return "name with a backslash" if "\\" in text else ""


def _send_together(run: Run, tree: Tree, waiting: list[Found], left_out: LeftOut) -> int:
    """The small files at the beginning of `waiting`, in one request: each costs the bot a write that lasts. How many
    of `waiting` that were; of them those that are left out are told only when there is an answer.
    """
    fields: list[tuple[str, object]] = []
    sent, out, grown = [], [], []
    taken, room = 0, _TOGETHER_BYTES
    for found in waiting:
        if found.size > min(_SMALL, room):
            break
        run.breathe()
        data, why = _read(tree, found)
        if len(data) > _SMALL:
            grown.append(found)
        elif why:
            out.append((why, found))
        else:
            fields += [("path", found.path), ("sha256", hashlib.sha256(data).hexdigest()), ("data", data)]
            sent.append(found)
        taken += 1
        room -= max(len(data), found.size)
    if sent:
        answer = run.ask(Request("PUT", protocol.PREFIX + "artifacts", protocol.encode(fields)))
        if answer.status != 200:
            out += [("refused (%d): %s" % (answer.status, answer.text()), found) for found in sent]
        for name, value in answer.fields() if answer.status == 200 else ():
            if name == "refused":
                index, status, text = value.decode("utf-8", "replace").split(" ", 2)
                out.append(("refused (%s): %s" % (status, text), sent[int(index)]))
    for why, found in out:
        left_out.add(why, found.path, found.size)
    for found in grown:
        _send(run, tree, found, left_out)
    return taken


def _read(tree: Tree, found: Found) -> tuple[bytes, str]:
    """What a small file holds, and a byte more of one that is not small any more; why there is nothing."""
    try:
        with open(tree.open(found.path), "rb") as file:
            return file.read(_SMALL + 1), ""
    except (Outside, NoFile):
        return b"", _GONE
    except OSError as exc:
        return b"", trouble(exc)


def _send(run: Run, tree: Tree, found: Found, left_out: LeftOut) -> None:
    try:
        with open(tree.open(found.path), "rb") as file:
            why = _put(run, found.path, file)
    except (Outside, NoFile):
        why = _GONE
    except OSError as exc:
        why = trouble(exc)
    if why:
        left_out.add(why, found.path, found.size)


def _put(run: Run, path: bytes, file: object) -> str:
    """Why it was not kept; empty when it was."""
    size, sha256 = _measure(run, file)
    name = quote(path, b"/").decode("ascii")
    target = "%sartifacts/%s?size=%d&sha256=%s&offset=" % (protocol.PREFIX, name, size, sha256)
    offset, tries = 0, 0
    while True:
        file.seek(offset)  # type: ignore[attr-defined]  # a binary file
        # A file that shrinks meanwhile sends what it has; the bot then sees the wrong hash.
        data = file.read(min(protocol.MAX_APPEND, size - offset))  # type: ignore[attr-defined]
        answer = run.ask(Request("PUT", "%s%d" % (target, offset), data))
        if answer.status not in _OK:
            return "refused (%d): %s" % (answer.status, answer.text())
        before, offset = offset, answer.number("next", -1)
        if offset == size and answer.status == 200:
            return ""
        tries = 0 if offset > before else tries + 1
        if not 0 <= offset <= size or tries > 5:
            return _GONE


def _measure(run: Run, file: object) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    while True:
        data = file.read(_READ_SIZE)  # type: ignore[attr-defined]  # a binary file
        if not data:
            return size, digest.hexdigest()
        digest.update(data)
        size += len(data)
        run.breathe()
