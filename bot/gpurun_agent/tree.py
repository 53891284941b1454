"""Files below a folder, and never outside it, also while somebody swaps folders for links.

Everything is opened from the folder's own descriptor, name by name, and no name is followed that is a link: what a link
says is read and walked in the same way.
"""

from __future__ import annotations

import errno
import os
import stat

from gpurun_agent.globs import Globs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Callable

    from gpurun_agent.globs import State

MAX_PATH = 512
"""Bytes of a path. It bounds how deep a walk goes, too."""

MAX_LINKS = 40
"""On the way to one file, as in the kernel."""

TOO_LONG = "path of more than %d bytes" % MAX_PATH
NO_FILE = "pipe, socket or device"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Who puts a pipe in the place of a file must not make the agent wait."""


class Outside(Exception):
    """A link on the way leads out of the folder."""


class NoFile(Exception):
    """What is there is a folder, a pipe, a device, or no more a file."""


class Found:
    """What a pattern means. `trouble` says why it cannot be taken, and is empty for a file."""

    __slots__ = ("meant_by", "path", "pattern", "size", "trouble")

    def __init__(self, meant_by: list[int], path: bytes, size: int, trouble: str = "") -> None:
        self.meant_by = meant_by
        """All patterns that do; of a folder that cannot be read, all that may mean something in it."""
        self.pattern = meant_by[0]
        """The first of them."""
        self.path = path
        self.size = size
        self.trouble = trouble


class Tree:
    """A folder that is open. `place` is its path without links: absolute links that start with it stay inside."""

    def __init__(self, top: int, place: bytes) -> None:
        self._top = top
        self._place = place.rstrip(b"/")

    @classmethod
    def of(cls, folder: str) -> Tree:
        """Raises OSError, also when `folder` itself is a link."""
        place = os.path.realpath(os.path.dirname(folder))
        return cls(os.open(folder, _FOLDER), os.fsencode(os.path.join(place, os.path.basename(folder))))

    def close(self) -> None:
        """Nothing is opened below it any more."""
        os.close(self._top)

    def below(self, path: str) -> Tree:
        """The tree of a folder in it. Raises OSError, Outside, NoFile."""
        place = os.path.realpath(os.path.join(self._place, os.fsencode(path)))
        return Tree(self._open(os.fsencode(path), _FOLDER), place)

    def open(self, path: bytes) -> int:
        """A descriptor of the regular file at `path`. Raises OSError, Outside, NoFile."""
        return self._open(path, _FILE)

    def files(self, globs: Globs, pause: Callable[[], None]) -> Iterator[Found]:
        """Everything that is meant, by name, folder after folder. `pause` is called now and then."""
        opened = [os.open(b".", _FOLDER, dir_fd=self._top)]
        try:
            waiting = [self._names(opened[0], b"", globs.top(), globs)]
            while waiting:
                pause()
                step = next(waiting[-1], None)
                if step is None:
                    waiting.pop()
                    os.close(opened.pop())
                elif isinstance(step, Found):
                    yield step
                else:
                    name, path, states = step
                    try:
                        opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
                    except OSError as exc:
                        yield Found(_patterns(states), path, 0, trouble(exc))
                    else:
                        waiting.append(self._names(opened[-1], path + b"/", states, globs))
        finally:
            for folder in opened:
                os.close(folder)

    def _names(
        self, folder: int, prefix: bytes, states: list[State], globs: Globs
    ) -> Iterator[Found | tuple[bytes, bytes, list[State]]]:
        try:
            names = sorted(map(os.fsencode, os.listdir(folder)))
        except OSError as exc:
            yield Found(_patterns(states), prefix.rstrip(b"/"), 0, trouble(exc))
            return
        for name in names:
            below = globs.below(states, name)
            if not below:
                continue
            path = prefix + name
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue  # gone
            is_folder = stat.S_ISDIR(status.st_mode)
            meant_by = _patterns(below) if is_folder else sorted(globs.all_meant(states, name))
            if len(path) > MAX_PATH - is_folder:
                if meant_by:
                    yield Found(meant_by, path, 0 if is_folder else status.st_size, TOO_LONG)
            elif is_folder:
                yield name, path, below
            elif meant_by:
                yield self._look(meant_by, path, status)

    def _look(self, meant_by: list[int], path: bytes, status: os.stat_result) -> Found:
        if stat.S_ISREG(status.st_mode):
            return Found(meant_by, path, status.st_size)
        if not stat.S_ISLNK(status.st_mode):
            return Found(meant_by, path, 0, NO_FILE)
        try:
            file = self.open(path)
        except Outside:
            return Found(meant_by, path, 0, "link that leads out of the work folder")
        except NoFile as exc:
            return Found(meant_by, path, 0, str(exc))
        except OSError as exc:
            return Found(meant_by, path, 0, "link that leads to nothing" if exc.errno == errno.ENOENT else trouble(exc))
        try:
            return Found(meant_by, path, os.fstat(file).st_size)
        finally:
            os.close(file)

    def _open(self, path: bytes, flags: int) -> int:
        todo = path.split(b"/")[::-1]
        links = 0
        way: list[int] = []
        try:
            while todo:
                name = todo.pop()
                if name in (b"", b"."):
                    continue
                if name == b"..":
                    if not way:
                        raise Outside
                    os.close(way.pop())
                    continue
                here = way[-1] if way else self._top
                mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    todo += self._target(os.readlink(name, dir_fd=here), way)[::-1]
                elif stat.S_ISDIR(mode):
                    way.append(os.open(name, _FOLDER, dir_fd=here))
                elif not stat.S_ISREG(mode):
                    raise NoFile(NO_FILE)
                elif any(part not in (b"", b".") for part in todo):
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                elif flags == _FOLDER:
                    raise NoFile("no folder")
                else:
                    return _regular(os.open(name, _FILE, dir_fd=here))
            if flags == _FOLDER:
                return os.dup(way[-1]) if way else os.dup(self._top)
            raise NoFile("link to a folder")
        finally:
            for folder in way:
                os.close(folder)

    def _target(self, target: bytes, way: list[int]) -> list[bytes]:
        """The parts of what a link says; an absolute one starts again at the top."""
        if not target.startswith(b"/"):
            return target.split(b"/")
        if target != self._place and not target.startswith(self._place + b"/"):
            raise Outside
        while way:
            os.close(way.pop())
        return target[len(self._place) :].split(b"/")


def _patterns(states: list[State]) -> list[int]:
    return sorted({number for number, _ in states})


def trouble(exc: OSError) -> str:
    """For people."""
    return "cannot be read: %s" % (exc.strerror or exc)


def _regular(file: int) -> int:
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NoFile(NO_FILE)
