"""The `target` of a model or data set: a folder of the image's, where its files lie under plain paths."""

from __future__ import annotations

import errno
import os

from gpurun_agent import protocol
from gpurun_agent.ending import End, Ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.spec import File, Model


def make_folders(models: list[Model]) -> None:
    """Of all files, before the first byte is fetched for them. Raises Ended (failed) where one cannot be had."""
    for model in models:
        if model.target:
            for folder in sorted({os.path.dirname(_path(model, file)) for file in model.files}):
                try:
                    os.makedirs(folder, exist_ok=True)
                    if not os.access(folder, os.W_OK | os.X_OK):
                        raise OSError(errno.EACCES, os.strerror(errno.EACCES), folder)
                except OSError as exc:
                    raise _ended(model, folder, exc) from exc


def place(model: Model, file: File, put: Callable[[str], None]) -> None:
    """Lets `put` make the file, in a folder that is there, where nothing is any more. Raises Ended (failed)."""
    path = _path(model, file)
    try:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        put(path)
    except OSError as exc:
        raise _ended(model, path, exc) from exc


def _path(model: Model, file: File) -> str:
    return os.path.join(model.target, file.path)


def _ended(model: Model, path: str, exc: OSError) -> Ended:
    at = exc.filename if isinstance(exc.filename, str) else path
    detail = (
        "The `target` %s of %s cannot be filled: uid %d of the image cannot write to %s (%s). Name a folder below "
        "one that this user may write to, such as /tmp, or let the image have %s and give it to the user."
        % (model.target, model.id, os.getuid(), at, exc.strerror, model.target)
    )
    return Ended(End(protocol.FAILED, protocol.WEIGHTS, detail))
