"""GPU figures from `nvidia-smi`, in a process of its own: it can take long or hang, and nothing waits for it.

What it cannot say is None and never 0; what tells of a sick host is counted, so that the run can say so at its end.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see loop
import os
import time

from gpurun_agent.loop import READ, Loop
from gpurun_agent.sample import number, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.loop import Timer

_WHO = ("index", "uuid", "name")
FIGURES = (
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "power.draw",
    "temperature.gpu",
    "clocks.current.sm",
)
"""What is asked for each GPU, as `nvidia-smi --help-query-gpu` names it."""

_KEYS = ("util_pct", "vram_mib", "vram_total_mib", "power_w", "temp_c", "sm_mhz")

_EVERY_DRIVER = ("utilization.gpu", "memory.used", "memory.total")
"""Asked for when the driver refuses a field and does not say which."""

TIMEOUT_S = 5.0

MAX_AGE_S = 6.0
"""Older figures are not shown as the present."""

SHARE = 4
"""The pause after a query is at least so many times what it took: a slow driver is not asked all the time."""

LONGEST_PAUSE_S = 60.0
"""Between questions that all fail."""

MAX_GPUS = 1024
MAX_ANSWER = 1 << 20
"""Bytes. A thousand GPUs are about 120 KiB."""

_MAX_WORD = 64
_MAX_NOTES = 5

_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/bin", "/usr/lib/wsl/lib", "/opt/bin")

_SICK = ("err", "lost", "reset")
"""In a value that is no number: `[Unknown Error]`, `ERR!`, `[GPU is lost]`, `[GPU requires reset]`. Not in `[N/A]`,
`[Not Supported]`, `Unknown`, `[Insufficient Permissions]`, `[Requested functionality has been deprecated]`."""


class Gpu:
    """One GPU at one moment; a figure is None when the driver does not say (`[N/A]`, MIG, passive cooling…)."""

    __slots__ = ("figures", "index", "name", "uuid", "words")

    def __init__(self, words: list[str], figures: tuple[str, ...] = FIGURES) -> None:
        index = _value(words[0])
        self.index = int(index) if index is not None else None
        self.uuid = words[1][:_MAX_WORD]
        # A name may hold the separator; the figures stand at the end.
        first = len(words) - len(figures)
        self.name = ", ".join(words[2:first])[:_MAX_WORD]
        self.words = {name: words[first + number] for number, name in enumerate(figures)}
        self.figures = [_value(self.words.get(name, "")) for name in FIGURES]

    def json(self) -> str:
        """A JSON object."""
        figures = ", ".join('"%s": %s' % (key, number(self.figures[at])) for at, key in enumerate(_KEYS))
        return '{"index": %s, "uuid": %s, "name": %s, %s}' % (
            number(self.index),
            quoted(self.uuid),
            quoted(self.name),
            figures,
        )

    def sick(self) -> list[str]:
        """What the driver says instead of a figure when something is broken."""
        return [
            "nvidia-smi says %s for %s of GPU %s" % (word[:_MAX_WORD], name, number(self.index))
            for name, word in self.words.items()
            if _value(word) is None and any(sign in word.lower() for sign in _SICK)
        ]


def parse(text: str, figures: tuple[str, ...] = FIGURES) -> list[Gpu]:
    """The rows of `--format=csv,noheader,nounits`; whatever else stands there is no GPU."""
    rows = ([word.strip() for word in (line + " ").split(", ")] for line in text.split("\n"))
    least = len(_WHO) + len(figures)
    return [Gpu(words, figures) for words in rows if len(words) >= least and _is_row(words)][:MAX_GPUS]


def _is_row(words: list[str]) -> bool:
    """A GPU that is lost has no uuid, and one without an index may have one."""
    return words[1].startswith(("GPU-", "MIG-")) or (_value(words[0]) is not None and words[0].isdigit())


def _value(word: str) -> float | None:
    """`float` takes "nan", "1_000" and the digits of other scripts, too."""
    if not word or word.strip("-.0123456789") or len(word) > 15:
        return None
    try:
        return float(word)
    except ValueError:
        return None


def find_program(path: str) -> str | None:
    """`nvidia-smi` on `path` (as in PATH) or in the places where container toolkits put it."""
    for folder in path.split(":") + list(_PLACES):
        name = os.path.join(folder, "nvidia-smi")
        if folder and os.path.isfile(name) and os.access(name, os.X_OK):
            return name
    return None


def gpu_devices(folder: str = "/dev") -> bool:
    """Whether GPUs were given to this container."""
    try:
        return any(name.startswith("nvidia") and name[6:].isdigit() for name in os.listdir(folder))
    except OSError:
        return False


class Gpus:
    """Asks again and again: one question at a time, and none while a process that cannot be killed is left."""

    def __init__(self, loop: Loop, program: str, env: dict[str, str]) -> None:
        self._loop = loop
        self._program = program
        # A decimal comma would look like two figures.
        self._env = dict(env, LC_ALL="C")
        self._figures: tuple[str, ...] = FIGURES
        self._latest: list[Gpu] = []
        self._latest_at = 0.0
        self._ever = False
        self._failures = 0
        self._sick: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._pid = 0
        self._status: int | None = None
        self._pipe = -1
        self._text = b""
        self._whole = False
        self._started_at = 0.0
        self._timers: list[Timer] = []
        self._ask()

    def latest(self) -> list[Gpu]:
        """What is known now; nothing when the last answer is old."""
        return self._latest if time.monotonic() - self._latest_at < MAX_AGE_S else []

    def notes(self) -> list[str]:
        """Sentences about what was wrong, each told once with how often it was seen."""
        lead = "GPU trouble" if self._ever else "No GPU metrics"
        return ["GPU trouble: %s (%s)." % (what, _times(count)) for what, count in self._sick.items()] + [
            "%s: %s (%s)." % (lead, why, _times(count)) for why, count in self._failed.items()
        ]

    def stop(self) -> None:
        """No more questions; an answer that is still on its way is not waited for."""
        self._forget_timers()
        if self._pipe >= 0:
            self._close()
        if self._pid:
            self._kill()
            self._reap()

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(self._loop.after(seconds, call))

    def _forget_timers(self) -> None:
        timers, self._timers = self._timers, []
        for timer in timers:
            self._loop.forget(timer)

    # a question

    def _ask(self) -> None:
        self._forget_timers()
        self._started_at = time.monotonic()
        self._text, self._whole, self._status = b"", False, None
        try:
            self._pipe, write_end = os.pipe()
        except OSError as exc:
            self._fail("nvidia-smi cannot be started: %s" % exc.strerror)
            return
        os.set_blocking(self._pipe, False)
        try:
            self._pid = self._spawn(write_end)
        except OSError as exc:
            os.close(self._pipe)
            self._pipe = -1
            self._fail("%s cannot be started: %s" % (self._program, exc.strerror))
            return
        finally:
            os.close(write_end)
        self._later(TIMEOUT_S, self._give_up)
        self._loop.watch(self._pipe, READ, self._read)

    def _spawn(self, write_end: int) -> int:
        """Errors come on both outputs, depending on what fails."""
        argv = ["nvidia-smi", "--query-gpu=" + ",".join(_WHO + self._figures), "--format=csv,noheader,nounits"]
        nothing = os.open("/dev/null", os.O_RDONLY)
        redirected = [(os.POSIX_SPAWN_DUP2, old, new) for old, new in ((nothing, 0), (write_end, 1), (write_end, 2))]
        try:
            return os.posix_spawn(self._program, argv, self._env, file_actions=redirected)
        finally:
            os.close(nothing)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        self._text += data
        if not data:
            self._whole = True
            self._close()
            self._await_end()
        elif len(self._text) > MAX_ANSWER:
            self._close()
            self._kill()
            self._await_end()

    def _await_end(self) -> None:
        """Its exit code comes right behind the end of its output, as a rule."""
        if self._reap():
            self._answered()
        else:
            self._later(0.05, self._await_end)

    def _give_up(self) -> None:
        """Nothing it says now would be about the present."""
        self._forget_timers()
        if self._pipe >= 0:
            self._close()
        self._kill()
        self._fail("nvidia-smi did not answer within %g s" % TIMEOUT_S)

    # an answer

    def _answered(self) -> None:
        if time.monotonic() - self._started_at >= TIMEOUT_S:
            self._give_up()
            return
        self._forget_timers()
        text = self._text.decode("utf-8", "replace")
        # The last line of one that was killed may end in the middle of a figure.
        lines = text if self._status == 0 else text[: text.rfind("\n") + 1]
        rows = parse(lines, self._figures) if self._whole else []
        if rows:
            self._take(rows)
        elif not self._whole:
            self._fail("the answer of nvidia-smi is longer than %d bytes" % MAX_ANSWER)
        elif "not a valid field" in text and self._figures:
            self._figures = _fewer(self._figures, text)
            self._later(0.1, self._ask)
        else:
            self._fail(self._first_line(text))

    def _take(self, rows: list[Gpu]) -> None:
        now = time.monotonic()
        self._latest, self._latest_at, self._ever, self._failures = rows, now, True, 0
        for gpu in rows:
            for what in gpu.sick():
                _count(self._sick, what)
        took_s = now - self._started_at
        self._later(max(1.0 - took_s, SHARE * took_s, 0.1), self._ask)

    def _first_line(self, text: str) -> str:
        said = next((" ".join(line.split()) for line in text.split("\n") if line.strip()), "")
        return "nvidia-smi ended with code %d%s" % (_code(self._status), ", saying: %s" % said[:200] if said else "")

    def _fail(self, why: str) -> None:
        """Longer and longer pauses: each question starts a process, and a broken driver stays broken."""
        _count(self._failed, why)
        self._failures += 1
        took_s = time.monotonic() - self._started_at
        self._later(max(SHARE * took_s, min(LONGEST_PAUSE_S, 2.0 ** min(self._failures, 10))), self._ask_when_reaped)

    # the process

    def _ask_when_reaped(self) -> None:
        """A process that hangs in the driver cannot be killed; a second one would hang, too."""
        if self._reap():
            self._ask()
        else:
            self._later(1.0, self._ask_when_reaped)

    def _close(self) -> None:
        self._loop.unwatch(self._pipe)
        os.close(self._pipe)
        self._pipe = -1

    def _kill(self) -> None:
        if self._pid:
            try:
                os.kill(self._pid, _signal.SIGKILL)
            except OSError:
                pass

    def _reap(self) -> bool:
        """True when no process is left. Never waits."""
        if self._pid:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except OSError:
                pid, status = self._pid, -1
            if not pid:
                return False
            self._pid, self._status = 0, status
        return True


def _fewer(figures: tuple[str, ...], said: str) -> tuple[str, ...]:
    """Without the field that the driver does not know: `Field "power.draw" is not a valid field to query.`"""
    left = tuple(name for name in figures if '"%s"' % name not in said)
    if len(left) < len(figures):
        return left
    return _EVERY_DRIVER if len(figures) > len(_EVERY_DRIVER) else ()


def _count(counts: dict[str, int], what: str) -> None:
    if what in counts or len(counts) < _MAX_NOTES:
        counts[what] = counts.get(what, 0) + 1


def _times(count: int) -> str:
    return "once" if count == 1 else "%d times" % count


def _code(status: int | None) -> int:
    """As a shell tells it; -1 when nobody knows."""
    if status is None or status == -1:
        return -1
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
