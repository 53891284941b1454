"""Weights that the bot has verified and mounted read-only: nothing to fetch and nothing to hash."""

from __future__ import annotations

import os

from gpurun_agent import protocol
from gpurun_agent.ending import End, Ended
from gpurun_agent.target import make_folders, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.run import Run
    from gpurun_agent.spec import File, Model

_MIB = 1024 * 1024


def use(run: Run, models: list[Model], hub: str) -> bool:
    """False when nothing is mounted read-only there: what can be written to counts for nothing, and is fetched.

    Raises Ended (failed) when a file is missing in the mount, or a target cannot be made.
    """
    cache = os.path.join(hub, "hub")
    if not _is_read_only(cache):
        return False
    make_folders(models)
    total = 0
    for model in models:
        repo = os.path.join(cache, "--".join([model.kind + "s", *model.id.split("/")]))
        snapshot = os.path.join(repo, "snapshots", model.revision)
        for file in model.files:
            path = os.path.join(snapshot, file.path)
            _require(path, model, file)
            if model.target:
                place(model, file, _linked_to(path))
            total += file.size
    run.say("weights mounted (%d MiB)" % -(-total // _MIB))
    return True


def _is_read_only(folder: str) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _require(path: str, model: Model, file: File) -> None:
    try:
        size = os.stat(path).st_size
    except OSError as exc:
        size = -1
        told = "is not in the mounted cache (%s)" % exc.strerror
    else:
        told = "has %d bytes in the mounted cache, expected %d" % (size, file.size)
    if size != file.size:
        raise Ended(End(protocol.FAILED, protocol.WEIGHTS, "%s of %s %s." % (file.path, model.id, told)))


def _linked_to(mounted: str) -> Callable[[str], None]:
    """The folder around it can be written to, the bytes cannot."""
    return lambda path: os.symlink(mounted, path)
