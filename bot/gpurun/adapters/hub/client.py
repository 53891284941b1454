"""The Hugging Face Hub: file lists with hashes, and bytes that match them.

Requests are our own, one try each: huggingface_hub 2.4's listing has no timeout and sleeps through retries, for as long
as a 429 asks. Its error classes tell refusals apart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import anyio
from pydantic import SecretStr

from gpurun.adapters.hub.cache import RepoCache, git_blob_id, unreadable
from gpurun.adapters.hub.download import LFS_POINTER, Downloads, read
from gpurun.adapters.hub.layouts import Layouts
from gpurun.adapters.hub.listing import Entry, Listing, is_ref, read_page, read_revision
from gpurun.adapters.hub.pauses import Pauses
from gpurun.adapters.hub.prefetch import Prefetches, Wanted
from gpurun.adapters.hub.refusals import Asked, is_start_of_commit
from gpurun.adapters.hub.remembered import recall, remember
from gpurun.adapters.hub.shelf import Shelf, touch
from gpurun.adapters.hub.threads import finished
from gpurun.adapters.hub.wire import HubWire, whole
from gpurun.domain.errors import GpurunError, HubSilent, HubUnavailable, PinNotFound
from gpurun.domain.ids import Revision
from gpurun.domain.plan import HubKind, ModelFile, ModelPin, ModelSpec, hub_path
from gpurun.ports.bytes import Preparation, SaidBefore
from gpurun.ports.clock import Clock

_MAX_PAGES = 100
_MAX_PAGE_BYTES = 16 * 1024 * 1024
_PARALLEL = 8


class HuggingFaceHub:
    """`ports.bytes.Hub`. `close` lets its connections go.

    What the hub says of its limits is kept by all calls: while a kind of request must wait, none of it is sent, and
    HubUnavailable says for how long.

    `max_cache_bytes` is what the cache may grow to, as far as what runs use allows; None: no limit.

    `resolve_timeout_s` bounds one `resolve`; small files that it got before stay in the cache, so that a try again gets
    further. `idle_timeout_s` bounds the silence of any answer. The token goes to `endpoint` and nowhere else.

    Of several `open` calls for the same cold file the first writes the cache; the others stream beside it, verified
    alike, and wait for nobody.
    """

    def __init__(
        self,
        endpoint: str,
        token: SecretStr,
        cache_folder: Path,
        clock: Clock,
        *,
        max_cache_bytes: int | None = None,
        resolve_timeout_s: float = 25.0,
        idle_timeout_s: float = 20.0,
        at_terminal: bool = False,
    ) -> None:
        """`at_terminal`: refusals speak to whoever sets the token, and not to those who use a bot."""
        self._wire = HubWire(endpoint, token, Pauses(clock), idle_timeout_s=idle_timeout_s, at_terminal=at_terminal)
        self._anonymous = HubWire(
            endpoint, SecretStr(""), Pauses(clock), idle_timeout_s=idle_timeout_s, at_terminal=at_terminal
        )
        self._downloads = Downloads(self._wire)
        self._resolve_timeout_s = resolve_timeout_s
        self._clock = clock
        self._cache_folder = cache_folder
        self._caches: dict[str, RepoCache] = {}
        self._prefetches = Prefetches(self._wire, self._downloads, clock, idle_timeout_s=idle_timeout_s)
        self._shelf = Shelf(cache_folder)
        self._layouts = Layouts(self._shelf, self._prefetches, clock, max_bytes=max_cache_bytes)

    async def close(self) -> None:
        """Lets connections go; the next call opens new ones."""
        await self._layouts.close()
        await self._wire.close()
        await self._anonymous.close()

    async def require_open(self, spec: ModelSpec, *, gated_too: bool) -> None:
        """The hub shows the list of a gated model to everybody, and its files only to who has access."""
        _check_id(spec.id)
        try:
            with anyio.fail_after(self._resolve_timeout_s):
                entries = await self._list(spec, self._anonymous)
                if not gated_too:
                    await self._probe(spec, entries, self._anonymous)
        except TimeoutError as exc:
            raise HubUnavailable(f"The hub took longer than {self._resolve_timeout_s:g} s for {spec.id}.") from exc

    async def resolve(self, spec: ModelSpec) -> ModelPin:
        _check_id(spec.id)
        try:
            with anyio.fail_after(self._resolve_timeout_s):
                entries = await self._list(spec, self._wire)
                await self._probe(spec, entries, self._wire)
                small = await self._small_hashes(spec, [entry for entry in entries if entry.lfs is None])
        except TimeoutError as exc:
            raise HubUnavailable(
                f"The file list of {spec.id} took longer than {self._resolve_timeout_s:g} s; what came so far is kept."
            ) from exc
        pin = spec.with_files(tuple(_pinned(entry, small) for entry in entries))
        with contextlib.suppress(OSError):  # a help for worse times and no more
            await asyncio.to_thread(remember, self._cache(spec).folder, spec, pin, self._clock.now())
        return pin

    async def resolve_or_recall(self, spec: ModelSpec) -> SaidBefore:
        try:
            return SaidBefore(await self.resolve(spec), "")
        except HubSilent:
            before = await asyncio.to_thread(recall, self._cache(spec).folder, spec)
            if before is None:
                raise
            return before

    async def revision_of(self, model_id: str, ref: str, *, kind: HubKind = "model") -> Revision:
        _check_id(model_id)
        if not is_ref(ref):
            raise PinNotFound(f"{ref[:80]!r} cannot be the name of a branch or tag.")
        asked = self._wire.asked(kind, model_id, ref)
        try:
            with anyio.fail_after(self._resolve_timeout_s):
                async with self._wire.get(self._wire.revision_url(asked), asked) as response:
                    revision = read_revision(await whole(response, asked, max_bytes=_MAX_PAGE_BYTES))
        except TimeoutError as exc:
            raise HubUnavailable(f"The hub took longer than {self._resolve_timeout_s:g} s to find {asked}.") from exc
        if is_start_of_commit(ref) and not revision.startswith(ref):  # a branch may be named like a commit
            raise PinNotFound(f"Asked for {asked}, the hub answered for commit {revision}.", pin=asked.pin)
        return revision

    async def known(self, spec: ModelSpec, blobs: Mapping[str, int]) -> dict[str, str]:
        """SHA-256 by git blob id, of small files (id and size) that were fetched before. Asks nobody."""
        _check_id(spec.id)
        cache = self._cache(spec)
        found = {blob: await asyncio.to_thread(cache.sha256_of_blob, blob, size) for blob, size in blobs.items()}
        return {blob: sha256 for blob, sha256 in found.items() if sha256 is not None}

    async def open(self, pin: ModelPin, file: ModelFile, *, offset: int = 0) -> AsyncIterator[bytes]:
        """Pieces of at most 256 KiB.

        A cached file is hashed once per process before its first byte is served. A cold one is streamed while it is
        downloaded; with an `offset` the bytes before it are downloaded and hashed too, but not given.
        """
        _check_id(pin.id)
        cache = self._cache(pin)
        path = await asyncio.to_thread(cache.find, file.sha256, file.size)  # which may hash for minutes
        found = None if path is None else await finished(self._open_cached, path)
        asked = self._asked(pin, file.path)
        stream = read(found, offset) if found is not None else self._downloads.stream(cache, asked, file, offset)
        async with contextlib.aclosing(stream):
            async for piece in stream:
                yield piece

    def _open_cached(self, path: Path) -> BinaryIO | None:
        """In a thread. What is removed from the cache meanwhile stays readable for who has it open."""
        try:
            opened = path.open("rb")
            touch(path, self._clock.now())
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise unreadable(path, exc) from exc
        return opened

    async def signed_url(self, pin: ModelPin, file: ModelFile) -> SecretStr | None:
        """Asks the hub with the bot's token, which goes nowhere else."""
        _check_id(pin.id)
        if await asyncio.to_thread(self._cache(pin).find, file.sha256, file.size) is not None:
            return None
        url = await self._wire.store_url(self._asked(pin, file.path))
        return None if url is None else SecretStr(str(url))

    async def prefetch(self, pins: Sequence[ModelPin], wait_s: float) -> Preparation:
        """Large files come in ranges over several connections. What came stays, however the call ends."""
        return await self._prefetches.bring(self._wanted(pins), wait_s)

    async def lay_out(self, pins: Sequence[ModelPin], *, user: str, until: datetime, wait_s: float) -> Preparation:
        """Nothing is asked of the hub when all bytes are there; which pins a job may have was asked in `resolve`."""
        wanted = self._wanted(pins)
        try:
            key = await asyncio.to_thread(lambda: self._shelf.use(pins, user=user, until=until))
        except OSError as exc:
            raise HubUnavailable(f"The bot cannot write to {self._cache_folder} ({exc.strerror}).") from exc
        return await self._layouts.lay_out(key, pins, wanted, wait_s)

    async def unuse(self, user: str) -> None:
        await asyncio.to_thread(self._shelf.let_go, user)

    async def users(self) -> frozenset[str]:
        return await asyncio.to_thread(self._shelf.users)

    async def tidy(self, over: Collection[str] = ()) -> None:
        for user in over:
            await self.unuse(user)
        await self._layouts.tidy()

    def _wanted(self, pins: Sequence[ModelPin]) -> tuple[Wanted, ...]:
        for pin in pins:
            _check_id(pin.id)
        return tuple(
            Wanted(cache=self._cache(pin), asked=self._asked(pin, file.path), file=file)
            for pin in pins
            for file in pin.files
        )

    # --- the list

    async def _list(self, spec: ModelSpec, wire: HubWire) -> tuple[Entry, ...]:
        """The wanted files of all pages.

        The address of the next page is ours with the hub's cursor: mirrors point to the original hub.
        """
        asked = _asked(wire, spec)
        url = wire.tree_url(asked)
        listing = Listing(spec)
        for _ in range(_MAX_PAGES):
            async with wire.get(url, asked) as response:
                listing.add(read_page(await whole(response, asked, max_bytes=_MAX_PAGE_BYTES)))
                following = response.links.get("next", {}).get("url")
            if following is None:
                return listing.files()
            url = url.copy_with(query=response.url.join(following).query)
        raise PinNotFound(f"{spec.id} has more than {_MAX_PAGES} pages of files at that commit.")

    async def _probe(self, spec: ModelSpec, entries: tuple[Entry, ...], wire: HubWire) -> None:
        """Asks for one file, as a download would: a gated model shows its list to everybody, but not its files.

        The answer also says which commit it is from: a branch may be named like a commit.
        """
        path = next((entry.path for entry in entries if entry.lfs is not None), entries[0].path)
        commit = await wire.commit_of(_asked(wire, spec, path))
        if commit != spec.revision:
            came = f"commit {commit}" if commit else "no commit"
            raise PinNotFound(
                f"Asked for {spec.id} at {spec.revision}, the hub answered for {came}.",
                pin=f"{spec.id} at {spec.revision}",
            )

    async def _small_hashes(self, spec: ModelSpec, entries: list[Entry]) -> dict[str, str]:
        """Git blob id -> SHA-256 of files for which the hub has no SHA-256; their bytes are cached afterwards."""
        cache = self._cache(spec)
        found: dict[str, str] = {}
        failures: list[GpurunError] = []
        limit = anyio.CapacityLimiter(_PARALLEL)

        async def hash_one(entry: Entry) -> None:
            async with limit:
                try:
                    known = await asyncio.to_thread(cache.sha256_of_blob, entry.oid, entry.size)
                    found[entry.oid] = known or await self._fetch_small(spec, entry, cache)
                except GpurunError as exc:
                    failures.append(exc)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for entry in {entry.oid: entry for entry in entries}.values():
                tasks.start_soon(hash_one, entry)
        if failures:
            raise failures[0]
        return found

    async def _fetch_small(self, spec: ModelSpec, entry: Entry, cache: RepoCache) -> str:
        asked = self._asked(spec, entry.path)
        async with self._wire.get(self._wire.file_url(asked), asked) as response:
            data = await whole(response, asked, max_bytes=entry.size)
        if len(data) < entry.size:
            raise HubUnavailable(f"{asked}: only {len(data)} of {entry.size} bytes came.")
        if data.startswith(LFS_POINTER):
            raise PinNotFound(
                f"{asked} is an LFS pointer, not the file: the hub has lost or hides its LFS content.", pin=asked.pin
            )
        if git_blob_id(data) != entry.oid:
            raise PinNotFound(f"{asked}: the list says git blob {entry.oid}, the bytes are {git_blob_id(data)}.")
        try:
            return await asyncio.to_thread(cache.put_blob, entry.oid, data)
        except OSError as exc:
            raise HubUnavailable(f"{asked}: the bot cannot keep it ({exc.strerror}).") from exc

    def _asked(self, of: ModelSpec | ModelPin, path: str = "") -> Asked:
        return _asked(self._wire, of, path)

    def _cache(self, of: ModelSpec | ModelPin) -> RepoCache:
        name = hub_path(of.kind, of.id).replace("/", "--")
        if name not in self._caches:
            self._caches[name] = RepoCache(self._cache_folder / name)
        return self._caches[name]


def _asked(wire: HubWire, of: ModelSpec | ModelPin, path: str = "") -> Asked:
    return wire.asked(of.kind, of.id, of.revision, path)


def _check_id(model_id: str) -> None:
    """Raises PinNotFound. A valid id has no `--` and no `..`, so that its folder is its own."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # re-exported without __all__

    try:
        validate_repo_id(model_id)
    except HFValidationError as exc:
        raise PinNotFound(f"{model_id!r} is not the id of a model or data set (organisation/name).") from exc


def _pinned(entry: Entry, small: dict[str, str]) -> ModelFile:
    if entry.lfs is not None:
        return ModelFile(path=entry.path, size=entry.lfs.size, sha256=entry.lfs.oid, etag=entry.lfs.oid)
    return ModelFile(path=entry.path, size=entry.size, sha256=small[entry.oid], etag=entry.oid)
