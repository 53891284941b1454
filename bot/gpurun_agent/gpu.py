"""GPU figures from `nvidia-smi`, in a process of its own: it can take long or hang, and nothing waits for it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see loop
import os
import time

from gpurun_agent.loop import READ, Loop
from gpurun_agent.sample import number, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.loop import Timer

FIELDS = "index,uuid,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,clocks.current.sm"

TIMEOUT_S = 5.0

MAX_AGE_S = 6.0
"""Older figures are not shown as the present."""

SHARE = 4
"""The pause after a query is at least so many times what it took: a slow driver is not asked all the time."""

_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/bin", "/usr/lib/wsl/lib", "/opt/bin")


class Gpu:
    """One GPU at one moment; None is "the driver does not say" (`[N/A]`, MIG, passive cooling…)."""

    __slots__ = ("index", "name", "power_w", "sm_mhz", "temp_c", "util_pct", "uuid", "vram_mib", "vram_total_mib")

    def __init__(self, words: list[str]) -> None:
        index = _value(words[0])
        self.index = int(index) if index is not None else None
        self.uuid, self.name = words[1], words[2]
        values = [_value(word) for word in words[3:9]]
        self.util_pct, self.vram_mib, self.vram_total_mib, self.power_w, self.temp_c, self.sm_mhz = values

    def json(self) -> str:
        """A JSON object."""
        return (
            '{"index": %s, "uuid": %s, "name": %s, "util_pct": %s, "vram_mib": %s, "vram_total_mib": %s, '
            '"power_w": %s, "temp_c": %s, "sm_mhz": %s}'
        ) % (
            number(self.index),
            quoted(self.uuid),
            quoted(self.name),
            number(self.util_pct),
            number(self.vram_mib),
            number(self.vram_total_mib),
            number(self.power_w),
            number(self.temp_c),
            number(self.sm_mhz),
        )


def parse(text: str) -> list[Gpu]:
    """The rows of `--format=csv,noheader,nounits`; whatever else stands there is no GPU."""
    rows = ([word.strip() for word in line.split(",")] for line in text.splitlines())
    return [Gpu(words) for words in rows if len(words) == 9 and words[1].startswith(("GPU-", "MIG-"))]


def _value(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    # "nan" and "inf" are no JSON.
    return value if -1e15 < value < 1e15 else None


def find_program(path: str) -> str | None:
    """`nvidia-smi` on `path` (as in PATH) or in the places where container toolkits put it."""
    for folder in path.split(":") + list(_PLACES):
        name = os.path.join(folder, "nvidia-smi")
        if folder and os.access(name, os.X_OK):
            return name
    return None


class Gpus:
    """Asks again and again."""

    def __init__(self, loop: Loop, program: str, env: dict[str, str]) -> None:
        self._loop = loop
        self._program = program
        self._env = env
        self._latest: list[Gpu] = []
        self._latest_at = 0.0
        self._pid = 0
        self._pipe = -1
        self._text = b""
        self._started_at = 0.0
        self._timeout: Timer | None = None
        self._next: Timer | None = None
        self._ask()

    def latest(self) -> list[Gpu]:
        """What is known now; nothing when the last answer is old."""
        return self._latest if time.monotonic() - self._latest_at < MAX_AGE_S else []

    def stop(self) -> None:
        """No more questions."""
        self._loop.forget(self._next)
        if self._pid:
            self._end()
            self._loop.forget(self._next)

    def _ask(self) -> None:
        self._started_at = time.monotonic()
        self._text = b""
        self._pipe, write_end = os.pipe()
        os.set_blocking(self._pipe, False)
        nothing = os.open("/dev/null", os.O_RDWR)
        argv = ["nvidia-smi", "--query-gpu=" + FIELDS, "--format=csv,noheader,nounits"]
        redirected = [(os.POSIX_SPAWN_DUP2, old, new) for old, new in ((nothing, 0), (write_end, 1), (nothing, 2))]
        try:
            self._pid = os.posix_spawn(self._program, argv, self._env, file_actions=redirected)
        except OSError:
            os.close(self._pipe)
            return
        finally:
            os.close(nothing)
            os.close(write_end)
        self._timeout = self._loop.after(TIMEOUT_S, self._end)
        self._loop.watch(self._pipe, READ, self._read)

    def _read(self) -> None:
        data = os.read(self._pipe, 65536)
        self._text += data
        if not data or len(self._text) > 1 << 20:
            self._end()

    def _end(self) -> None:
        """The answer is complete, or never will be."""
        self._loop.forget(self._timeout)
        self._loop.unwatch(self._pipe)
        os.close(self._pipe)
        try:
            os.kill(self._pid, _signal.SIGKILL)
        except OSError:
            pass
        self._reap(self._pid)
        self._pid = 0
        rows = parse(self._text.decode("utf-8", "replace"))
        now = time.monotonic()
        took_s = now - self._started_at
        if rows and took_s < TIMEOUT_S:
            self._latest, self._latest_at = rows, now
        self._next = self._loop.after(max(1.0 - took_s, SHARE * took_s, 0.1), self._ask)

    def _reap(self, pid: int) -> None:
        """A process that hangs in the driver cannot even be killed: look again later instead of waiting."""
        try:
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                self._loop.after(0.2, lambda: self._reap(pid))
        except OSError:
            pass
