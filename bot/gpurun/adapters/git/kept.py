"""Tars that take long to make: made once, at one time for all who ask, and kept for who asks again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import BinaryIO

from gpurun.adapters.git.process import PIECE_BYTES
from gpurun.adapters.git.turns import only_writer
from gpurun.domain.errors import SourceUnavailable

_KEPT = 2
"""In each folder; the oldest go. Whoever is reading one reads on."""
_SUFFIX = ".tar"

Make = Callable[[Path, int], AsyncGenerator[bytes, None]]
"""Given an empty folder to work in, and a locked descriptor for its children to hold: the tar in pieces."""


class KeptTars:
    """One is made in a folder at a time, over all processes, within `limit_s` and `max_bytes`."""

    def __init__(self, *, limit_s: float, max_bytes: int) -> None:
        self._limit_s = limit_s
        self._max_bytes = max_bytes
        self._locks: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, folder: Path, name: str, make: Make) -> AsyncGenerator[bytes, None]:
        """Its pieces. `name` says everything that decides its bytes. Raises: SourceUnavailable, what `make` raises."""
        try:
            with await self._opened(folder / f"{name}{_SUFFIX}", make) as opened:
                while piece := await asyncio.to_thread(opened.read, PIECE_BYTES):
                    yield piece
        except OSError as exc:
            raise SourceUnavailable(f"A tar in {folder} cannot be kept or read: {exc.strerror}.") from exc

    async def _opened(self, path: Path, make: Make) -> BinaryIO:
        if (file := _found(path)) is not None:
            return file
        async with self._locks[path.parent]:
            if (file := _found(path)) is not None:  # who waited wanted it, too
                return file
            with only_writer(path.parent) as lock_fd:
                await self._make(path, make, lock_fd)
        return path.open("rb")

    async def _make(self, path: Path, make: Make, lock_fd: int) -> None:
        folder = path.parent
        await asyncio.to_thread(_sweep, folder)
        made = await asyncio.to_thread(tempfile.mkdtemp, dir=folder)
        try:
            async with asyncio.timeout(self._limit_s):
                await self._write(path, Path(made), make, lock_fd)
        except TimeoutError as exc:
            raise SourceUnavailable(f"Making a tar in {folder} took longer than {self._limit_s:g} s.") from exc
        finally:  # a pack of up to 2 GiB; what a cancelled caller leaves is swept with the next build
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
        await asyncio.to_thread(_evict, folder)

    async def _write(self, path: Path, made: Path, make: Make, lock_fd: int) -> None:
        (made / "work").mkdir()
        n_bytes = 0
        with (made / "tar").open("wb") as file:
            async with contextlib.aclosing(make(made / "work", lock_fd)) as pieces:
                async for piece in pieces:
                    n_bytes += len(piece)
                    if n_bytes > self._max_bytes:
                        raise SourceUnavailable(f"A tar in {path.parent} would be larger than was counted.")
                    await asyncio.to_thread(file.write, piece)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        (made / "tar").rename(path)


def _found(path: Path) -> BinaryIO | None:
    with contextlib.suppress(FileNotFoundError):
        return path.open("rb")
    return None


def _sweep(folder: Path) -> None:
    """What killed processes left; the lock of the folder is held."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        if left.suffix != _SUFFIX:
            shutil.rmtree(left, ignore_errors=True)


def _evict(folder: Path) -> None:
    tars = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda tar: tar.stat().st_mtime_ns, reverse=True)
    for old in tars[_KEPT:]:
        old.unlink(missing_ok=True)
