"""`setup` by a layer, which lies in a volume: taken from one that the bot knows, or carried out and kept as one."""

from __future__ import annotations

import os
import time

from gpurun_agent import layer as layers
from gpurun_agent import protocol
from gpurun_agent.ending import End, Ended
from gpurun_agent.wire import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.run import Run
    from gpurun_agent.spec import Layer, Spec
    from gpurun_agent.surroundings import Surroundings

FILE = "layer.tar"

_SKIPPED = (b"proc", b"sys", b"dev", b"run", b"tmp", b"var/tmp", b"var/cache/apt/archives", b"root/.cache/pip")
"""What is of this container alone, or a cache that nobody misses."""

_DEAF_S = 0.05
"""Between two looks at the loop. A step may be a small file or a MiB of a large one, on whatever disk."""


def carry_out(run: Run, spec: Spec, around: Surroundings, command: Callable[[], End]) -> End:
    """The end of `setup`; a pass without an exit code when it was taken. Raises Stopped, Unwanted, Ended."""
    found = spec.layer
    assert found is not None
    place = _place(spec, around)
    if found.sha256:
        if _take(run, place, found, os.path.join(around.layer, FILE)):
            return End(protocol.PASSED, protocol.EXIT, "", 0)
        return command()
    try:
        before = place.look(_pausing(run))
    except layers.NotKept as exc:
        run.say("setup: not kept as a layer: %s" % exc)
        return command()
    began = time.monotonic()
    end = command()
    if end.result == protocol.PASSED:
        _keep(run, place, before, around.layer, found.most_bytes, time.monotonic() - began)
    return end


def _place(spec: Spec, around: Surroundings) -> layers.Place:
    root = os.fsencode(os.path.realpath(around.files))
    top = root.rstrip(b"/") + b"/"
    skip = set(_SKIPPED)
    if root == b"/":
        skip |= _mounts()
    home = os.fsencode(around.image_env.get("HOME", "")).strip(b"/")
    skip.add(home + b"/.cache/pip")
    ours = os.path.realpath(os.fsencode(around.root))[len(top) :]
    skip |= {ours + b"/" + name for name in _names(top + ours) if name not in (b"work", b"home")}
    skip |= {ours + b"/work/.git", ours + b"/home/.cache/pip"}
    return layers.Place(root, ours + b"/work", skip=skip, inputs=[os.fsencode(path) for path in spec.layer_inputs])


def _names(folder: bytes) -> list[bytes]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _mounts() -> set[bytes]:
    """Where something else is mounted: not of the container's own files."""
    with open("/proc/self/mountinfo", "rb") as file:
        places = [line.split(b" ")[4] for line in file]
    return {_unescaped(place).strip(b"/") for place in places} - {b""}


def _unescaped(place: bytes) -> bytes:
    first, *rest = place.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def _pausing(run: Run) -> Callable[[], None]:
    due = time.monotonic() + _DEAF_S

    def pause() -> None:
        nonlocal due
        if time.monotonic() >= due:
            run.breathe()
            due = time.monotonic() + _DEAF_S

    return pause


def _take(run: Run, place: layers.Place, found: Layer, path: str) -> bool:
    """False when it cannot be had, with nothing written. Raises Ended when it was had in part."""
    began = time.monotonic()
    try:
        with open(path, "rb", 1 << 20) as file:
            layers.verify(file, found.sha256, found.size, _pausing(run))
            try:
                layers.require_fits(place, file)
            except layers.NotTaken as exc:  # this commit's fault: it may fit the next one
                run.say("setup: the layer of %s is not taken: %s" % (found.day, exc))
                _tell(run, [("state", "misfit"), ("detail", str(exc))])
                return False
            layers.unpack(place, file, _pausing(run))
    except OSError as exc:
        _throw_away(run, found, "it cannot be read: %s" % (exc.strerror or exc))
        return False
    except layers.NotTaken as exc:
        _throw_away(run, found, str(exc))
        return False
    except layers.Broken as exc:
        _tell(run, [("state", "spoilt"), ("detail", str(exc))])
        raise Ended(
            End(protocol.LOST, protocol.AGENT, "The layer of setup could not be put in its place (%s)." % exc)
        ) from exc
    saved = max(found.setup_s - (time.monotonic() - began), 0.0)
    run.say("setup: taken from the layer of %s (%.1f s saved), %s" % (found.day, saved, _size(found.size)))
    return True


def _throw_away(run: Run, found: Layer, why: str) -> None:
    run.say("setup: the layer of %s is not taken and thrown away: %s" % (found.day, why))
    _tell(run, [("state", "spoilt"), ("detail", why)])


def _keep(
    run: Run, place: layers.Place, before: dict[bytes, layers.State], folder: str, most: int, setup_s: float
) -> None:
    """Whatever goes wrong here, `setup` has passed."""
    path = os.path.join(folder, FILE)
    began = time.monotonic()
    try:
        _remove(path)
        with open(path, "wb", 1 << 20) as file:
            sha256, size = layers.pack(place, before, file, most, _pausing(run))
    except layers.NotKept as exc:
        why = str(exc)
    except OSError as exc:
        why = "it cannot be written: %s" % (exc.strerror or exc)
    else:
        fields: list[tuple[str, object]] = [
            ("state", "made"),
            ("sha256", sha256),
            ("size", size),
            ("setup_ms", int(setup_s * 1000)),
        ]
        why = _tell(run, fields)
        if not why:
            told = (_size(size), time.monotonic() - began)
            run.say("setup: kept as a layer, %s in %.1f s" % told)
            return
    _remove(path)
    run.say("setup: not kept as a layer: %s" % why)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _tell(run: Run, fields: list[tuple[str, object]]) -> str:
    """What the bot has against it; empty when nothing."""
    answer = run.ask(Request("POST", protocol.PREFIX + "layer", protocol.encode(fields)))
    return "" if answer.status == 200 else answer.text()


def _size(size: int) -> str:
    from gpurun_agent.collect import size_text

    return size_text(size)
