"""One file over one connection, hashed while it comes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from gpurun.adapters.hub.cache import RepoCache, unreadable
from gpurun.adapters.hub.part import PIECE_BYTES, Part
from gpurun.adapters.hub.refusals import Asked
from gpurun.adapters.hub.threads import finished
from gpurun.adapters.hub.wire import HubWire, pieces, whole
from gpurun.domain.errors import HubUnavailable, PinNotFound
from gpurun.domain.plan import ModelFile

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES = 1024


class Downloads:
    """Raises PinNotFound and HubUnavailable."""

    def __init__(self, wire: HubWire) -> None:
        self._wire = wire

    async def stream(self, cache: RepoCache, asked: Asked, file: ModelFile, offset: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `offset`, which go into the cache unless somebody else is writing them there."""
        part = await take_part(cache, file, asked)
        hasher, at = hashlib.sha256(), 0
        try:
            if part is not None and (came := await asyncio.to_thread(cache.find, file.sha256, file.size)) is not None:
                await on_disk(asked, part.discard)  # it came between the look and the lock
                async with contextlib.aclosing(read(await on_disk(asked, came.open, "rb"), offset)) as kept:
                    async for piece in kept:
                        yield piece
                return
            async with contextlib.aclosing(self._all_bytes(asked, file, part)) as stream:
                async for piece in stream:
                    hasher.update(piece)
                    at += len(piece)
                    if at > offset:
                        yield piece[-(at - offset) :]
            await _settle(cache, part, asked, file, hasher.hexdigest())
        finally:
            if part is not None:
                part.close()

    async def fill(self, asked: Asked, file: ModelFile, part: Part) -> str:
        """The SHA-256 of the whole part, once it is whole."""
        hasher = hashlib.sha256()
        async with contextlib.aclosing(self._all_bytes(asked, file, part)) as stream:
            async for piece in stream:
                hasher.update(piece)
        return hasher.hexdigest()

    async def _all_bytes(self, asked: Asked, file: ModelFile, part: Part | None) -> AsyncGenerator[bytes, None]:
        """What a broken download left, then the rest from the hub, which goes into `part`."""
        start = part.found if part is not None else 0
        if part is not None:
            left = part.pieces()
            while piece := await on_disk(asked, next, left, b""):
                yield piece
        if start == file.size:
            return
        async with self._wire.get(self._wire.file_url(asked), asked, start=start) as response:
            async for piece in _exactly(response, asked, file, start):
                if part is not None:
                    await on_disk(asked, part.write, piece)
                yield piece


async def take_part(cache: RepoCache, file: ModelFile, asked: Asked) -> Part | None:
    """The unfinished file; None while somebody else has it."""
    return await on_disk(asked, cache.part, file.sha256, file.size)


async def on_disk(asked: Asked, act: Callable[..., T], *args: object) -> T:
    """What it gives in a thread. Raises HubUnavailable when the disk refuses it."""
    try:
        return await finished(act, *args)
    except OSError as exc:
        raise not_kept(asked, exc) from exc


def not_kept(asked: Asked, exc: OSError) -> HubUnavailable:
    """The disk refuses it."""
    return HubUnavailable(f"{asked}: the bot cannot keep it ({exc.strerror or type(exc).__name__}).")


def wrong_bytes(asked: Asked, file: ModelFile, sha256: str) -> PinNotFound:
    """As the hub told, and as they came."""
    return PinNotFound(
        f"{asked}: the hub's list says sha256 {file.sha256}, the bytes have {sha256}.",
        hint=f"They were not kept. The file there is broken: tell its owner at {asked.page}, or pin another revision.",
    )


async def read(file: BinaryIO, offset: int) -> AsyncGenerator[bytes, None]:
    """A file of the cache, which it closes. Raises HubUnavailable when the disk refuses it."""
    try:
        with file:
            await finished(file.seek, offset)
            while piece := await finished(file.read, PIECE_BYTES):
                yield piece
    except OSError as exc:
        raise unreadable(Path(file.name), exc) from exc


async def _exactly(response: httpx2.Response, asked: Asked, file: ModelFile, start: int) -> AsyncGenerator[bytes, None]:
    """The file's bytes from `start` to its end, not one more or less, whether the hub went there or began anew."""
    skip = start if response.status_code == 200 else 0
    missing = file.size - start
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length) != missing + skip:
        if int(length) <= _MAX_POINTER_BYTES:
            await _refuse_pointer(response, asked)
        raise PinNotFound(f"{asked}: the hub offers {int(length)} bytes where its list says {missing + skip}.")
    async for piece in pieces(response, asked):
        rest, skip = piece[skip:], max(0, skip - len(piece))
        if len(rest) > missing:
            raise PinNotFound(f"{asked}: more came than the {file.size} bytes of the hub's list.")
        missing -= len(rest)
        if rest:
            yield rest
    if missing:
        raise HubUnavailable(f"{asked}: the connection broke {missing} bytes before the end.")


async def _refuse_pointer(response: httpx2.Response, asked: Asked) -> None:
    if (await whole(response, asked, max_bytes=_MAX_POINTER_BYTES)).startswith(LFS_POINTER):
        raise PinNotFound(
            f"{asked} is an LFS pointer, not the file: the hub has lost or hides its LFS content.", pin=asked.pin
        )


async def _settle(cache: RepoCache, part: Part | None, asked: Asked, file: ModelFile, sha256: str) -> None:
    """Right bytes are kept, wrong ones are not."""
    if sha256 == file.sha256:
        if part is not None:
            await on_disk(asked, cache.keep, part, sha256)
        return
    if part is not None:
        await on_disk(asked, part.discard)
        if part.found:
            # What the broken download left may be at fault, not the hub.
            raise HubUnavailable(f"{asked}: a continued download came out wrong; the next one starts from nothing.")
    raise wrong_bytes(asked, file, sha256)
