"""Starts the host watchdog (`watchdog_program.py`): one for each state folder and engine, while it is needed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from gpurun.providers.docker import watchdog_program as program

GRACE_S = 30.0
"""After the deadline: the agent's, the boot script's and the engine's own ends come first."""
IDLE_S = 120.0
LOG_BYTES = 256 * 1024
"""A log that has grown longer is begun anew at the next start."""
_SPARE_FD = 10
"""Descriptors from here on are none of the child's."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Other times than the real ones are for tests."""

    grace_s: float = GRACE_S
    idle_s: float = IDLE_S


class HostWatchdog:
    """That of one folder. Any thread may call it, and trouble never gets in the way of a run."""

    def __init__(self, folder: Path, pace: Pace | None = None) -> None:
        self._folder = folder
        self._pace = pace or Pace()
        self._mark = ""
        self._guard = threading.Lock()
        self._children: set[int] = set()
        self._warned = False

    @property
    def mark(self) -> str:
        """What containers are labelled with, so that this folder's watchdog knows them. Empty before `ensure`."""
        return self._mark

    def ensure(self, socket_path: str) -> None:
        """One is running, or about to. Waits for nothing; with none running it starts a process."""
        try:
            with self._guard:
                self._mark = self._mark or _mark_of(self._folder)
                self._reap()
                self._start_unless_held(self._mark, socket_path)
        except (OSError, ValueError, NotImplementedError) as error:
            if not self._warned:
                self._warned = True
                log.warning("host_watchdog_not_started", folder=str(self._folder), error=str(error))

    def lock_path(self, socket_path: str) -> Path:
        """The file that its process holds locked, and where version and process id stand."""
        return self._folder / f"{hashlib.sha256(socket_path.encode()).hexdigest()[:12]}.lock"

    def _start_unless_held(self, mark: str, socket_path: str) -> None:
        lock_path = self.lock_path(socket_path)
        opened = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.utime(opened)  # before the look at the lock: see `watchdog_program.Lock.leave`
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if _version_of(opened) < program.VERSION:
                    command = _command(mark, lock_path, socket_path, self._pace)
                    _write_whole(Path(f"{lock_path}.next"), "\0".join(command).encode())
                return
            Path(f"{lock_path}.next").unlink(missing_ok=True)
            os.ftruncate(opened, 0)
            os.pwrite(opened, b"%d\n" % program.VERSION, 0)
            command = _command(mark, lock_path, socket_path, self._pace)
            self._children.add(_spawn(command, opened, lock_path.with_suffix(".log")))
        finally:
            os.close(opened)

    def _reap(self) -> None:
        for pid in tuple(self._children):
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid
            if ended:
                self._children.discard(pid)


def _mark_of(folder: Path) -> str:
    """Made once, by whoever comes first."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / "mark"
    if not file.exists():
        mine = folder / f"mark.{secrets.token_hex(8)}"
        mine.write_text(secrets.token_hex(8), "ascii")
        with suppress(FileExistsError):
            os.link(mine, file)
        mine.unlink()
    return file.read_text("ascii").strip()


def _command(mark: str, lock_path: Path, socket_path: str, pace: Pace) -> list[str]:
    interpreter = [sys.executable, "-I", "-S", str(Path(program.__file__).resolve()), "gpurun-watchdog"]
    return [*interpreter, mark, str(lock_path.resolve()), socket_path, f"{pace.grace_s:g}", f"{pace.idle_s:g}"]


def _version_of(lock: int) -> int:
    """Of the process that holds it. One that has not signed yet was started by a bot that wrote it."""
    said = os.pread(lock, 64, 0).split()
    return int(said[0]) if said and said[0].isdigit() else program.VERSION


def _spawn(command: list[str], lock: int, log_path: Path) -> int:
    """Without our environment, which holds secrets, and with no open file of ours but the lock.

    The lock belongs to the open file, not to a process: it stays held when ours is closed.
    """
    with suppress(OSError):
        if log_path.stat().st_size > LOG_BYTES:
            log_path.unlink()
    spare = fcntl.fcntl(lock, fcntl.F_DUPFD_CLOEXEC, _SPARE_FD)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(log_path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, spare, program.LOCK_FD),
    ]
    try:
        try:
            return os.posix_spawn(command[0], command, {}, file_actions=actions, setsid=True)
        except NotImplementedError:  # a C library without it: the program does it itself, a moment later
            return os.posix_spawn(command[0], command, {}, file_actions=actions)
    finally:
        os.close(spare)


def _write_whole(path: Path, content: bytes) -> None:
    mine = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    mine.write_bytes(content)
    mine.replace(path)
