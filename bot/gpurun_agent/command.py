"""A shell command in a session of its own: its output, its end, and the end of what it left behind.

The end is the end of the main process, never that of its output: a background child may hold the pipe for ever.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see loop
import os
import time

from gpurun_agent.loop import READ, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.log import Log

LINGER_S = 0.3
"""Left to the session after its main process ended, to finish by itself."""

DRAIN_S = 1.0
"""Of output after the session was killed."""

_READ_SIZE = 256 * 1024

_RESET = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ", "SIGUSR1", "SIGUSR2")
"""Python ignores two of them, and `sh` ignores two more for what it starts in the background."""


class Command:
    """`sh -c <text>` in `folder`, output (both kinds, in order) to `log`."""

    def __init__(self, loop: Loop, log: Log, text: str, *, folder: str, env: dict[str, str]) -> None:
        self.code: int | None = None
        """Exit code, 128 + n for signal n; None while the main process runs."""
        self.signal = 0
        """What ended the main process; 0: it left by itself, with whatever code."""
        self._loop = loop
        self._log = log
        self._pipe, write_end = os.pipe()
        self._pid = _spawn(text, folder, env, write_end)
        os.close(write_end)
        os.set_blocking(self._pipe, False)
        self._reading = True
        self._paused = False
        loop.watch(self._pipe, READ, self._read)

    def poll(self) -> bool:
        """True when the main process has ended. To be called after every tick."""
        if self._paused and self._reading and not self._log.full:
            self._paused = False
            self._loop.watch(self._pipe, READ, self._read)
        if self.code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                self.code = 128 + self.signal if self.signal else os.WEXITSTATUS(status)
        return self.code is not None

    def is_over(self) -> bool:
        """True when the main process and everybody else of its session have ended."""
        return self.poll() and not session_members(self._pid)

    def terminate(self) -> None:
        """Asks the whole session to end, each of its processes once: a handler that saves a checkpoint must not run
        twice.
        """
        _signal_group(self._pid, _signal.SIGTERM)
        _signal_each([pid for pid, _, group, session in _processes() if session == self._pid != group], _signal.SIGTERM)

    def kill(self) -> None:
        """Ends the whole session, and whoever left it."""
        kill_all_of(self._pid)

    def finish(self) -> int:
        """After the end of the main process: ends the session, reads the last output. Returns the exit code."""
        assert self.code is not None
        self._resume()
        self._wait_for_end_of_output(LINGER_S)
        if self._reading or left_behind(self._pid):
            kill_all_of(self._pid)
            self._wait_for_end_of_output(DRAIN_S)
        self._stop_reading()
        self._log.flush()
        return self.code

    def _wait_for_end_of_output(self, longest_s: float) -> None:
        until = time.monotonic() + longest_s
        while self._reading and time.monotonic() < until:
            self._loop.tick(until - time.monotonic())

    def _resume(self) -> None:
        """The pipe holds little; the rest of it is taken even when the backlog is full."""
        if self._paused and self._reading:
            self._loop.watch(self._pipe, READ, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, _READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self._stop_reading()
            return
        self._log.feed(data)
        if self._log.full and self.code is None:
            self._paused = True
            self._loop.unwatch(self._pipe)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.unwatch(self._pipe)
            os.close(self._pipe)


def _spawn(text: str, folder: str, env: dict[str, str], output: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        _be_killed_first()
        for name in _RESET:
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        os.execve("/bin/sh", ["sh", "-c", text], env)
    except OSError as exc:
        os.write(2, b"sh: cannot start: %s\n" % str(exc).encode("utf-8", "replace"))
    finally:
        os._exit(126)


def _be_killed_first() -> None:
    """When memory runs out the kernel takes the command and leaves the agent, who can tell. Needs no privilege."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"1000")
        os.close(fd)
    except OSError:
        pass


def kill_all_of(sid: int) -> None:
    """Ends the session and whoever left it: the process group at once, then whoever left the group."""
    _signal_group(sid, _signal.SIGKILL)
    _kill_until_none(lambda: session_members(sid))
    _kill_until_none(lambda: left_behind(sid))


def _kill_until_none(members: Callable[[], list[int]]) -> None:
    """Again and again, because they may fork meanwhile."""
    for _ in range(20):
        found = members()
        _signal_each(found, _signal.SIGKILL)
        if not found:
            return


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        pass


def _signal_each(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def session_members(sid: int) -> list[int]:
    """Process ids of the session, without those that ended and wait for their parent."""
    return [pid for pid, _, _, session in _processes() if session == sid]


def left_behind(sid: int) -> list[int]:
    """The session's, and in a container of our own everybody else who is not ours: a daemon has a session of its own.

    Ours are boot script and agent, what the agent started, and what people start from outside (`docker exec`).
    """
    found = _processes()
    if not _container_is_ours():
        return [pid for pid, _, _, session in found if session == sid]
    me, ours = os.getpid(), os.getsid(0)
    leaders = {pid for pid, parent, _, session in found if pid == session and parent in (0, me)}
    return [pid for pid, _, _, session in found if session != ours and session not in leaders]


def _container_is_ours() -> bool:
    """The boot script is its first process, so that all the others came from us."""
    if os.getppid() != 1:
        return False
    try:
        with open("/proc/1/environ", "rb") as file:
            return b"GPURUN_CLAIM=" in file.read()
    except OSError:
        return False


def _processes() -> list[tuple[int, int, int, int]]:
    """(pid, parent, group, session) of all that have not ended."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fd = os.open("/proc/%s/stat" % name, os.O_RDONLY)
            except OSError:
                continue
            try:
                # "pid (name) state ppid pgrp session …"; the name may hold anything.
                words = os.read(fd, 1024).rpartition(b")")[2].split()
            except OSError:
                continue
            finally:
                os.close(fd)
            if len(words) > 3 and words[0] not in (b"Z", b"X"):
                found.append((int(name), int(words[1]), int(words[2]), int(words[3])))
    return found


def oom_kills(cgroup: str) -> int | None:
    """Processes that the kernel killed for memory in this container so far; None when it does not say.

    `cgroup` is where the container's control groups are mounted: version 2 (`memory.events`) or 1
    (`memory.oom_control`).
    """
    for name in ("memory.events", "memory/memory.oom_control"):
        try:
            fd = os.open(os.path.join(cgroup, name), os.O_RDONLY)
        except OSError:
            continue
        try:
            lines = os.read(fd, 4096).split(b"\n")
        finally:
            os.close(fd)
        for line in lines:
            key, _, value = line.partition(b" ")
            if key == b"oom_kill" and value.isdigit():
                return int(value)
    return None


def memory_limit_mib(cgroup: str) -> int | None:
    """Of this container; None when there is none or the kernel does not say."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            fd = os.open(os.path.join(cgroup, name), os.O_RDONLY)
        except OSError:
            continue
        try:
            word = os.read(fd, 64).strip()
        finally:
            os.close(fd)
        if word.isdigit() and len(word) < 18:  # version 1 writes "none" as a number near 2^63
            return int(word) >> 20 or None
    return None
