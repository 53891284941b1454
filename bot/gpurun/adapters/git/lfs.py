"""Files of git LFS, by the batch API of a repository's own host; every one is its SHA-256 and its size.

Source: https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md, read 2026-12.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from gpurun.adapters.git.missing import LfsFile
from gpurun.adapters.git.process import PIECE_BYTES
from gpurun.domain.errors import PinNotFound, SourceUnavailable
from gpurun.domain.forge import GitSource
from gpurun.domain.quantity import quoted

if TYPE_CHECKING:
    import httpx

_AT_ONCE = 4
"""Downloads beside each other."""
_BATCH = 100
"""Objects in one question; GitHub takes 100."""
_MEDIA_TYPE = "application/vnd.git-lfs+json"
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MISSING = frozenset({404, 410})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


class _Action(Struct):
    href: str
    header: dict[str, str] = field(default_factory=dict)


class _Actions(Struct):
    download: _Action | None = None


class _Fault(Struct):
    code: int = 0
    message: str = ""


class _Object(Struct):
    oid: str
    actions: _Actions | None = None
    error: _Fault | None = None


class _Batch(Struct):
    objects: list[_Object]


_BATCH_ANSWER = msgspec.json.Decoder(_Batch)


class LfsStore:
    """Contents by SHA-256 of one repository, in `folder`.

    Not shared between repositories: whoever may push to one could name what only another one's readers may see.
    """

    def __init__(self, folder: Path, *, idle_timeout_s: float = 20.0) -> None:
        self._folder = folder
        self._idle_timeout_s = idle_timeout_s
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def fetch(
        self, source: GitSource, files: Sequence[LfsFile], *, given: Path | None = None, asks_for_all: bool = False
    ) -> None:
        """All of them are in the store afterwards. What came before a failure stays, so that a try again gets further.

        `given`: the `lfs/objects` folder of a checkout, which is asked instead of a host. `asks_for_all`: the host is
        also asked for those that are here, because who shares the store may not share the right to them. Raises:
        PinNotFound naming the file, SourceUnavailable.
        """
        by_oid = _by_oid(files)
        wanted = [file for file in by_oid.values() if not await asyncio.to_thread(self.has, file)]
        if given is not None:
            for file in wanted:
                await asyncio.to_thread(self._take, given, file)
            return
        asked = tuple(by_oid.values()) if asks_for_all else wanted
        if asked:
            await self._download(source, asked)

    def has(self, file: LfsFile) -> bool:
        """Whether a file of that size is there. Raises PinNotFound for a pointer that cannot be read."""
        if not file.oid:
            raise PinNotFound(f"The pointer {quoted(file.path)} of git LFS cannot be read.")
        try:
            return self._path(file.oid).stat().st_size == file.size
        except OSError:
            return False

    async def open(self, file: LfsFile) -> AsyncIterator[bytes]:
        """Pieces of at most 256 KiB, hashed on the way.

        Raises SourceUnavailable at the end when they are not the file, which is then fetched anew the next time.
        """
        path = self._path(file.oid)
        digest, n_bytes = hashlib.sha256(), 0
        try:
            with path.open("rb") as opened:
                while piece := await asyncio.to_thread(opened.read, PIECE_BYTES):
                    digest.update(piece)
                    n_bytes += len(piece)
                    if n_bytes > file.size:
                        break
                    yield piece
        except OSError as exc:
            raise SourceUnavailable(f"The content of {quoted(file.path)} is not in the cache of git LFS.") from exc
        if (digest.hexdigest(), n_bytes) != (file.oid, file.size):
            path.unlink(missing_ok=True)
            raise SourceUnavailable(f"The content of {quoted(file.path)} was spoilt in the cache of git LFS.")

    def _path(self, oid: str) -> Path:
        return self._folder / oid[:2] / oid

    # --- from a checkout

    def _take(self, given: Path, file: LfsFile) -> None:
        theirs = given / file.oid[:2] / file.oid[2:4] / file.oid
        try:
            with theirs.open("rb") as source, self._only_writer(file) as part:
                if self._came_meanwhile(file):
                    return
                part.truncate(0)
                while piece := source.read(1024 * 1024):
                    part.write(piece)
                self._finish(file, part, f"of this checkout's own {theirs}")
        except FileNotFoundError:
            raise PinNotFound(
                f"The content of {quoted(file.path)} of git LFS is not in this checkout.",
                hint="`git lfs pull` gets it.",
            ) from None
        except OSError as exc:
            raise SourceUnavailable(f"The content of {quoted(file.path)} cannot be copied: {exc.strerror}.") from exc

    # --- from a host

    async def _download(self, source: GitSource, wanted: Sequence[LfsFile]) -> None:
        import httpx

        base = source.url if source.url.endswith(".git") else f"{source.url}.git"
        limits = httpx.Limits(max_connections=_AT_ONCE)
        async with httpx.AsyncClient(
            timeout=self._idle_timeout_s, limits=limits, follow_redirects=False, trust_env=True
        ) as client:
            for start in range(0, len(wanted), _BATCH):
                some = wanted[start : start + _BATCH]
                actions = await self._ask(client, base, source, some)
                await self._all(client, base, [(file, actions[file.oid]) for file in some])

    async def _ask(
        self, client: httpx.AsyncClient, base: str, source: GitSource, files: Sequence[LfsFile]
    ) -> Mapping[str, _Action]:
        """Where each is downloaded. The addresses are signed: they are in no message."""
        import httpx

        headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if source.authorization is not None:
            headers["Authorization"] = source.authorization.get_secret_value()
        body = msgspec.json.encode(
            {
                "operation": "download",
                "transfers": ["basic"],
                "hash_algo": "sha256",
                "objects": [{"oid": file.oid, "size": file.size} for file in files],
            }
        )
        try:
            async with client.stream("POST", f"{base}/info/lfs/objects/batch", content=body, headers=headers) as answer:
                text = b"".join([piece async for piece in _bounded(answer, base)])
        except httpx.HTTPError as exc:
            raise SourceUnavailable(f"{base} does not answer for git LFS ({type(exc).__name__}).") from exc
        _require_good(answer.status_code, answer.headers, f"{base} for files of git LFS", files[0])
        try:
            found = _BATCH_ANSWER.decode(text)
        except msgspec.MsgspecError as exc:
            raise SourceUnavailable(f"{base} answers for git LFS with something else.") from exc
        return _actions(found, files, base)

    async def _all(self, client: httpx.AsyncClient, base: str, wanted: Sequence[tuple[LfsFile, _Action]]) -> None:
        """Each gets its chance: what comes is kept, then the first trouble is told."""
        turns = asyncio.Semaphore(_AT_ONCE)
        troubles: list[Exception] = []

        async def one(file: LfsFile, action: _Action) -> None:
            async with turns, self._locks[file.oid]:
                try:
                    if not await asyncio.to_thread(self.has, file):
                        await self._get(client, base, file, action)
                except (PinNotFound, SourceUnavailable) as error:
                    troubles.append(error)

        async with asyncio.TaskGroup() as tasks:
            for file, action in wanted:
                tasks.create_task(one(file, action))
        for trouble in sorted(troubles, key=lambda error: not isinstance(error, PinNotFound)):
            raise trouble

    async def _get(self, client: httpx.AsyncClient, base: str, file: LfsFile, action: _Action) -> None:
        """Only with the headers that the batch named: our own token is for the batch alone."""
        _require_safe(action.href, base, file)
        try:
            with self._only_writer(file) as part:
                if not self._came_meanwhile(file):
                    await self._continue(client, file, action, part)
        except OSError as exc:
            raise SourceUnavailable(f"The content of {quoted(file.path)} cannot be kept: {exc.strerror}.") from exc

    async def _continue(self, client: httpx.AsyncClient, file: LfsFile, action: _Action, part: BinaryIO) -> None:
        """What is missing behind what a call before left."""
        import httpx

        host = urlsplit(action.href).hostname
        there = part.seek(0, os.SEEK_END)
        if there > file.size:
            there = part.truncate(0)
        headers = {**action.header, "Accept-Encoding": "identity"}
        if 0 < there < file.size:
            headers["Range"] = f"bytes={there}-"
        try:
            if there < file.size:
                async with client.stream("GET", action.href, headers=headers) as answer:
                    _require_good(answer.status_code, answer.headers, f"{host} for a file of git LFS", file)
                    if there and answer.status_code != 206:  # from the beginning
                        part.seek(0)
                        part.truncate(0)
                    await _pour(answer, part, file)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise SourceUnavailable(
                f"{host} broke off while {quoted(file.path)} came ({type(exc).__name__}); what came is kept."
            ) from None  # its cause may hold the signed address
        try:
            await asyncio.to_thread(self._finish, file, part, f"that {host} gave")
        except PinNotFound:
            if not there:
                raise
            raise SourceUnavailable(f"What was kept of {quoted(file.path)} was spoilt; it comes anew.") from None

    # --- files

    @contextlib.contextmanager
    def _only_writer(self, file: LfsFile) -> Iterator[BinaryIO]:
        """The unfinished file, held against other processes. Raises: SourceUnavailable, OSError."""
        path = Path(f"{self._path(file.oid)}.part")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "r+b") as part:
                try:
                    fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise SourceUnavailable(
                        f"Another process is fetching {quoted(file.path)} of git LFS.", retry_after_s=2.0
                    ) from None
                if _is_at(part, path):  # else who held it has just finished it, and it is no part any more
                    yield part
                    return

    def _came_meanwhile(self, file: LfsFile) -> bool:
        """Whether another process finished it before the lock was ours, which must be held."""
        if not self.has(file):
            return False
        Path(f"{self._path(file.oid)}.part").unlink(missing_ok=True)
        return True

    def _finish(self, file: LfsFile, part: BinaryIO, whose: str) -> None:
        """The file gets its name when it is what the pointer says. Raises PinNotFound."""
        part.flush()
        part.seek(0)
        digest = hashlib.sha256()
        while piece := part.read(1024 * 1024):
            digest.update(piece)
        path = self._path(file.oid)
        if (digest.hexdigest(), part.tell()) != (file.oid, file.size):
            Path(f"{path}.part").unlink(missing_ok=True)
            raise PinNotFound(
                f"The content of {quoted(file.path)} {whose} has the SHA-256 {digest.hexdigest()}, its pointer says "
                f"{file.oid}."
            )
        os.fsync(part.fileno())
        Path(f"{path}.part").rename(path)


def _by_oid(files: Sequence[LfsFile]) -> Mapping[str, LfsFile]:
    """The first of each content. Raises PinNotFound for pointers of which one must be wrong."""
    found: dict[str, LfsFile] = {}
    for file in files:
        first = found.setdefault(file.oid, file)
        if first.size != file.size:
            raise PinNotFound(
                f"The pointers {quoted(first.path)} and {quoted(file.path)} of git LFS name the same content with "
                f"{first.size:,} and with {file.size:,} bytes."
            )
    return found


def _is_at(part: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(part.fileno()), path.lstat())
    except FileNotFoundError:
        return False


async def _bounded(answer: httpx.Response, base: str) -> AsyncIterator[bytes]:
    n_bytes = 0
    async for piece in answer.aiter_bytes():
        n_bytes += len(piece)
        if n_bytes > _MAX_ANSWER_BYTES:
            raise SourceUnavailable(f"{base} answers for git LFS without an end.")
        yield piece


async def _pour(answer: httpx.Response, part: BinaryIO, file: LfsFile) -> None:
    n_bytes = part.seek(0, os.SEEK_END)
    async for piece in answer.aiter_raw(PIECE_BYTES):
        n_bytes += len(piece)
        if n_bytes > file.size:
            part.truncate(0)
            raise PinNotFound(f"More bytes came for {quoted(file.path)} than the {file.size:,} that its pointer says.")
        await asyncio.to_thread(part.write, piece)
    if n_bytes < file.size:
        part.flush()
        raise SourceUnavailable(f"Only {n_bytes:,} of {file.size:,} bytes of {quoted(file.path)} came; they are kept.")


def _actions(found: _Batch, files: Sequence[LfsFile], base: str) -> Mapping[str, _Action]:
    """One for each file. Raises PinNotFound naming the first without."""
    objects = {one.oid: one for one in found.objects}
    actions = {}
    for file in files:
        one = objects.get(file.oid)
        if one is None or one.actions is None or one.actions.download is None:
            why = f" ({one.error.code}: {quoted(one.error.message)})" if one is not None and one.error else ""
            raise PinNotFound(
                f"{base} does not have the content of {quoted(file.path)} of git LFS{why}.",
                hint="`git lfs push --all` uploads what is missing there.",
            )
        actions[file.oid] = one.actions.download
    return actions


def _require_safe(href: str, base: str, file: LfsFile) -> None:
    """https, or the very host that named it as it was asked. Raises PinNotFound, without the address: it is signed."""
    try:
        there, ours = urlsplit(href), urlsplit(base)
        good = bool(there.hostname) and (
            there.scheme == "https" or (there.scheme, there.netloc) == (ours.scheme, ours.netloc)
        )
    except ValueError:
        good = False
    if not good:
        raise PinNotFound(f"{base} names no https address for the content of {quoted(file.path)} of git LFS.")


def _require_good(status: int, headers: httpx.Headers, whose: str, file: LfsFile) -> None:
    if status in {200, 206}:
        return
    if status in _LATER:
        told = headers.get("retry-after", "")
        raise SourceUnavailable(
            f"{whose}: it answered {status}.", retry_after_s=float(told) if told.isdecimal() else None
        )
    if status in _MISSING:
        raise PinNotFound(f"{whose}: it has none such as {quoted(file.path)} (it answered {status}).")
    raise PinNotFound(f"{whose}: it does not give {quoted(file.path)} (it answered {status}).")
