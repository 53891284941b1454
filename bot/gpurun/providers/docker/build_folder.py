"""Our own folder for builds: the locks between processes, and contexts on their way."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gpurun.domain.errors import ProviderRefused


@contextlib.contextmanager
def own_trouble(folder: Path | None) -> Iterator[None]:
    """Raises ProviderRefused for trouble that the engine has no part in, such as a full disk of ours."""
    try:
        yield
    except OSError as exc:
        said = f"gpurun cannot use its own folder for builds, {folder or tempfile.gettempdir()}: {exc.strerror or exc}."
        raise ProviderRefused(said, kind="capacity") from exc


def open_lock(folder: Path, inputs_sha256: str) -> IO[bytes]:
    """There are 256 of them, for ever. Raises ProviderRefused."""
    with own_trouble(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return (folder / f"{inputs_sha256[:2]}.lock").open("wb")


def is_ours(lock: IO[bytes]) -> bool:
    """Takes it when nobody has it; it goes with its file, or the process."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def nameless_file(folder: Path | None) -> Iterator[IO[bytes]]:
    """Raises ProviderRefused when it cannot be made."""
    with own_trouble(folder):
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closing it may fail once more
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()
