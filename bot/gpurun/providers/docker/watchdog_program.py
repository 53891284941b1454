"""The host watchdog: a process of its own that ends containers at their deadline, whatever became of the bot.

`python -I -S watchdog_program.py gpurun-watchdog <mark> <lock> <socket> <grace_s> <idle_s>`, with the lock held on file
descriptor 3. It needs the standard library only, holds some 10 MiB, and looks at the engine a few times a minute.
`watchdog.py` starts it; docs/decisions/0005-a-watchdog-of-its-own.md says why it is there.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
"""Raise it with every change: a newer one takes over from an older one that runs."""
LABEL_WATCH = "gpurun.watch"
LABEL_NAME = "gpurun.name"
LABEL_DEADLINE = "gpurun.deadline"
LOCK_FD = 3

FIRST_LOOK_S = 2.0
"""It is started right before a create, which needs the machine more."""
LOOK_EVERY_S = 15.0
SOONEST_S = 0.5
KEEP_REMAINS_S = 3600.0
"""How long a container stays after we killed it, so that the bot can still read what the engine kept of its output."""
SILENCE_S = 24 * 3600.0
"""An engine that gives no answer for so long, and past the last known end, is not waited for any longer."""
ANSWER_TIMEOUT_S = 20.0
MAX_ANSWER_BYTES = 32 << 20


class EngineTrouble(Exception):
    """No answer, or none that can be believed. Says nothing about any container."""


class Watched:
    """One container that carries our mark."""

    __slots__ = ("deadline", "id", "name", "running")

    def __init__(self, id: str, name: str, *, deadline: float, running: bool) -> None:
        self.id = id
        self.name = name
        self.deadline = deadline
        self.running = running


class Clock:
    """`wall` is compared with deadlines once; everything after that is counted on `boot`, which nobody can set."""

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def boot(self) -> float:
        """Seconds that only go forward, also while the machine sleeps."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def sleep(self, seconds: float) -> None:
        """Blocks."""
        time.sleep(seconds)  # noqa: TID251 - a process that does nothing else


class Engine:
    """The three requests, over the engine's socket, each on a connection of its own. All raise EngineTrouble."""

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path

    def watched(self, mark: str) -> list[Watched]:
        """All containers with that mark, whatever their state; whole or an exception."""
        filters = "%7B%22label%22%3A%5B%22" + LABEL_WATCH + "%3D" + mark + "%22%5D%7D"
        status, body = self._ask("GET", "/containers/json?all=1&filters=" + filters)
        if status != 200:
            raise EngineTrouble(f"it answered {status} to a list")
        import json  # late: the start need not wait for it

        try:
            return [one for item in json.loads(body) if (one := _watched(item, mark)) is not None]
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as exc:
            raise EngineTrouble(f"its list is odd ({type(exc).__name__})") from exc

    def kill(self, id: str) -> bool:
        """True when it was running until now."""
        status, _ = self._ask("POST", "/containers/" + id + "/kill")
        if status in (404, 409):  # gone, or not running
            return False
        if status != 204:
            raise EngineTrouble(f"it answered {status} to a kill")
        return True

    def remove(self, id: str) -> None:
        """Gone afterwards, or soon."""
        status, _ = self._ask("DELETE", "/containers/" + id + "?force=1&v=1")
        if status not in (204, 404, 409):
            raise EngineTrouble(f"it answered {status} to a removal")

    def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        """HTTP/1.0, so that nothing is chunked and the end of the answer is the end of the connection."""
        line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            line.settimeout(ANSWER_TIMEOUT_S)
            line.connect(self._path)
            _send(line, (method + " " + path + " HTTP/1.0\r\nHost: docker\r\nContent-Length: 0\r\n\r\n").encode())
            return _parsed(_read_all(line))
        except OSError as exc:
            raise EngineTrouble(exc.strerror or str(exc) or "no answer in time") from exc
        finally:
            line.close()


def _send(line: _socket.socket, request: bytes) -> None:
    while request:
        request = request[line.send(request) :]


def _read_all(line: _socket.socket) -> bytes:
    until, said = time.monotonic() + 3 * ANSWER_TIMEOUT_S, b""
    while piece := line.recv(65536):
        said += piece
        if len(said) > MAX_ANSWER_BYTES or time.monotonic() > until:
            raise EngineTrouble("its answer has no end")
    return said


def _parsed(said: bytes) -> tuple[int, bytes]:
    """Status and body; a body that is shorter than announced is none."""
    head, _, body = said.partition(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    words = first.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise EngineTrouble("its answer is not HTTP")
    for field in fields:
        name, _, value = field.partition(b":")
        if name.lower() == b"content-length" and value.strip() != b"%d" % len(body):
            raise EngineTrouble("its answer is cut off")
    return int(words[1]), body


def _watched(item: dict[str, object], mark: str) -> Watched | None:
    """None for what is not ours, whatever the filter let through. `docker commit` keeps labels, but not the name."""
    labels, ref, names = item["Labels"] or {}, item["Id"], item["Names"] or ["/"]
    if not isinstance(labels, dict) or not isinstance(ref, str) or not isinstance(names, list):
        raise TypeError("a container with odd fields")
    name, deadline = str(names[0]).lstrip("/"), str(labels.get(LABEL_DEADLINE))
    if labels.get(LABEL_WATCH) != mark or labels.get(LABEL_NAME) != name or not (ref.isalnum() and deadline.isdigit()):
        return None
    running = item["State"] in ("running", "paused", "restarting")
    return Watched(ref, name, deadline=float(deadline), running=running)


class Watchdog:
    """What it knows, and one look. The end of a container is fixed when it is first seen."""

    def __init__(
        self, mark: str, engine: Engine, clock: Clock, say: Callable[[str], None], *, grace_s: float, idle_s: float
    ) -> None:
        self._mark = mark
        self._engine = engine
        self._clock = clock
        self._say = say
        self._grace_s = grace_s
        self._idle_s = idle_s
        self._ends: dict[str, float] = {}
        self._touched = 0
        self._busy_at = self._answered_at = clock.boot()
        self._trouble = ""
        self._not_ended = ""

    def look(self, touched: int) -> float | None:
        """Seconds until the next look; None: nothing of ours is left, or the engine is. `touched` changes when a bot
        asks for a watchdog.
        """
        now = self._clock.boot()
        if touched != self._touched:
            self._touched, self._busy_at = touched, now
        try:
            found = self._engine.watched(self._mark)
        except EngineTrouble as trouble:
            return self._without_engine(trouble, now)
        self._answered(now)
        self._note_ends(found, now)
        if found:
            self._busy_at = now
        for one in found:
            self._attend(one, now)
        if now - self._busy_at >= self._idle_s:
            return None
        coming = [at - now for at in (*self._ends.values(), self._busy_at + self._idle_s) if at > now]
        return max(SOONEST_S, min([LOOK_EVERY_S, *coming]))

    def _note_ends(self, found: list[Watched], now: float) -> None:
        wall = self._clock.wall()
        left = {one.id: max(0.0, one.deadline - wall + self._grace_s) for one in found}
        self._ends = {ref: self._ends.get(ref, now + seconds) for ref, seconds in left.items()}

    def _attend(self, one: Watched, now: float) -> None:
        if now < self._ends[one.id]:
            return
        try:
            if one.running and self._engine.kill(one.id):
                self._ends[one.id] = now
                self._say(f"killed {one.name}, which was past its deadline")
            elif now - self._ends[one.id] >= KEEP_REMAINS_S:
                self._engine.remove(one.id)
                self._say(f"removed {one.name}, which nobody had removed")
        except EngineTrouble as trouble:
            sentence = f"could not end {one.name}: {trouble}"
            if sentence != self._not_ended:
                self._not_ended = sentence
                self._say(sentence)

    def _without_engine(self, trouble: EngineTrouble, now: float) -> float | None:
        if str(trouble) != self._trouble:
            self._trouble = str(trouble)
            self._say("the engine cannot be asked: " + self._trouble)
        known = max([self._answered_at, *self._ends.values()])
        return LOOK_EVERY_S if now - known < SILENCE_S else None

    def _answered(self, now: float) -> None:
        self._answered_at = now
        if self._trouble:
            self._trouble = ""
            self._say("the engine answers again")


class Lock:
    """The file that one watchdog at a time holds. Its time of change says when a bot last asked for one."""

    def __init__(self, path: str, fd: int = LOCK_FD) -> None:
        self._path = path
        self._fd = fd

    def is_ours(self) -> bool:
        """We hold it; asking again is harmless."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def sign(self) -> None:
        """Version and process id, for people and for the next version."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d %d\n" % (VERSION, os.getpid()), 0)

    def touched(self) -> int:
        """Changes whenever a bot asks."""
        return os.fstat(self._fd).st_mtime_ns

    def leave(self, touched: int) -> bool:
        """False: a bot asked at the last moment, so we stay. Who asks touches first and looks at the lock then; we let
        go first and look at the touch then.
        """
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return self.touched() == touched or not self.is_ours()

    def successor(self) -> list[str]:
        """The command of a newer version that a bot left here for us to become; empty without one."""
        try:
            with open(self._path + ".next", "rb") as file:
                words = file.read().decode().split("\0")
            os.unlink(self._path + ".next")
        except (OSError, UnicodeDecodeError):
            return []
        return words if len(words) > 1 else []


def watch(dog: Watchdog, lock: Lock, clock: Clock, say: Callable[[str], None], become: Callable[..., None]) -> None:
    """Until nothing of ours is left."""
    clock.sleep(FIRST_LOOK_S)
    while True:
        command = lock.successor()
        if command:
            say("a newer version takes over")
            try:
                become(command[0], command)
            except OSError as exc:
                say(f"it cannot be started: {exc}")
        touched = lock.touched()
        pause = dog.look(touched)
        if pause is None and lock.leave(touched):
            return
        clock.sleep(SOONEST_S if pause is None else pause)


def say(sentence: str) -> None:
    """A line in our log, which is standard error."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    os.write(2, f"{stamp} {sentence}\n".encode(errors="replace"))


def detach() -> None:
    """Nobody's child, terminal or folder, and a name in `ps`."""
    try:
        os.setsid()
    except OSError:  # the start has done it
        pass
    os.chdir("/")
    os.umask(0o077)
    os.closerange(LOCK_FD + 1, 1024)
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write("gpurun-watchdog")
    except OSError:  # not Linux
        pass


def main(words: list[str]) -> int:
    """0: nothing was left to watch, or another one watches."""
    mark, lock_path, socket_path, grace_s, idle_s = words
    detach()
    lock, clock = Lock(lock_path), Clock()
    if not lock.is_ours():
        return 0
    lock.sign()
    say(f"watching {mark} on {socket_path}")
    dog = Watchdog(mark, Engine(socket_path), clock, say, grace_s=float(grace_s), idle_s=float(idle_s))
    os.set_inheritable(LOCK_FD, True)  # noqa: FBT003 - it stays open over `become`
    watch(dog, lock, clock, say, os.execv)
    say("nothing is left to watch")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
