"""Files of the agent: source and weights go out, artifacts come in."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakValueDictionary

from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from gpurun.domain.errors import PinNotFound, SecretRefused, WrongOffset
from gpurun.domain.manifest import is_plain_path
from gpurun.domain.plan import ModelFile, ModelPin, Plan
from gpurun.domain.run import Attempt
from gpurun.domain.stream import Artifact, next_blob
from gpurun.http.agent_session import BODY_TIMEOUT_S, RECORDS
from gpurun.http.agent_streams import number, parameters
from gpurun.http.asgi import Refusal, answer, header, read_body
from gpurun.http.callers import Caller, require_wanted, running_caller
from gpurun.http.outflow import send_flow
from gpurun.http.services import HttpServices
from gpurun.http.spec import orders
from gpurun.ports.bytes import Blobs
from gpurun.ports.store import Tx
from gpurun_agent import protocol

MAX_REMEMBERED = 1024
REDIRECTED_BYTES = 8 * 1024 * 1024
"""Smaller files come through the bot: a connection more costs as much as their bytes."""

_SIGNATURES = frozenset({"Signature", "X-Amz-Signature", "X-Goog-Signature", "sig"})
"""Of CloudFront, S3, Google and Azure."""
_RANGE = re.compile(rb"bytes=([0-9]{1,15})-")
_SHA256 = re.compile(r"[0-9a-f]{64}")


async def serve_source(services: HttpServices, scope: Scope, receive: Receive, send: Send, rest: str = "") -> None:
    """The tar of the commit; of its `.git` when the path says so."""
    caller = await running_caller(services.store, scope)
    plan = caller.plan
    if rest == protocol.GIT_FOLDER:
        if not plan.git:
            raise Refusal(404, "The plan has no `.git`.")
        folder = services.git.git_folder(plan.repo, plan.commit, plan.tags, lfs=plan.lfs)
        await send_flow(folder, scope, receive, send, headers={"content-type": "application/x-tar"})
        return
    archive = services.git.archive(plan.repo, plan.commit, submodules=plan.submodules, lfs=plan.lfs)
    await send_flow(archive, scope, receive, send, headers={"content-type": "application/x-tar"})


class ModelFiles:
    """`GET /agent/v1/models/<index>/<path>`."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._mismatches: OrderedDict[tuple[str, str], str] = OrderedDict()
        """What was found wrong at the end of a stream, for the agent that asks again. Forgetting costs one more try."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, rest: str) -> None:
        """The file's bytes, or the rest from where `Range` says; of a large one the address, if it has one."""
        caller = await running_caller(self._services.store, scope)
        pin, file = _model_file(caller.plan, rest)
        known = self._mismatches.get((caller.attempt.id, rest))
        if known is not None:
            raise PinNotFound(known)
        offset = _range_start(scope, file)
        if file.size >= REDIRECTED_BYTES and protocol.FROM_BOT not in parameters(scope):
            url = await self._services.hub.signed_url(pin, file)
            if url is not None and self._kept_secret(url, caller.attempt):
                where = url.get_secret_value().encode("ascii")
                await answer(send, 307, b"", headers=[(b"location", where), (b"cache-control", b"no-store")])
                return
        chunks = self._services.hub.open(pin, file, offset=offset or 0)
        headers = {"content-type": "application/octet-stream", "content-length": str(file.size - (offset or 0))}
        status = 200
        if offset is not None:
            status = 206
            headers["content-range"] = f"bytes {offset}-{file.size - 1}/{file.size}"
        try:
            await send_flow(chunks, scope, receive, send, status=status, headers=headers)
        except PinNotFound as error:
            self._remember((caller.attempt.id, rest), str(error))
            raise

    def _kept_secret(self, url: SecretStr, attempt: Attempt) -> bool:
        """Before anybody has it. False for one that cannot be masked."""
        try:
            for part in signatures(url):
                self._services.maskers.register(part, attempt.id)
        except SecretRefused:
            return False
        return True

    def _remember(self, key: tuple[str, str], sentence: str) -> None:
        self._mismatches[key] = sentence
        if len(self._mismatches) > MAX_REMEMBERED:
            self._mismatches.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """A small file as it came."""

    path: str
    sha256: str
    data: bytes


class Artifacts:
    """`PUT /agent/v1/artifacts[/<path>]`: pieces of one file, or several whole ones, never both at a time."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send, rest: str) -> None:
        """Takes bytes at `offset`; the file is collected when its last byte is there and its hash is right."""
        caller = await running_caller(self._services.store, scope)
        if not rest:
            await self._several(caller, scope, receive, send)
            return
        # its name is shown
        path = (await self._services.masker(caller.attempt)).text(artifact_path(rest))
        query = parameters(scope)
        offset, size, sha256 = number(query, "offset"), number(query, "size"), query.get("sha256", "")
        if not _SHA256.fullmatch(sha256):
            raise Refusal(400, "`sha256` must be 64 lower-case hex digits.")
        data = await read_body(scope, receive, limit=protocol.MAX_APPEND, timeout_s=BODY_TIMEOUT_S)
        if offset + len(data) > size:
            raise Refusal(400, "These bytes are beyond `size`.")
        # One after the other: two files at once would share the blob, and the second change what the first had proved.
        async with self._turns.setdefault(caller.attempt.id, asyncio.Lock()):
            status, end = await self._take(caller, path, offset, data, size=size, sha256=sha256)
        await _answer(send, status, caller, end)

    async def installed(self, scope: Scope, receive: Receive, send: Send, rest: str) -> None:
        """Takes what is installed; the first that comes is kept, and none after the end."""
        caller = await running_caller(self._services.store, scope)
        if rest:
            raise Refusal(404, "There is nothing here.")
        text = await read_body(scope, receive, limit=protocol.MAX_INSTALLED, timeout_s=BODY_TIMEOUT_S)
        data = (await self._services.masker(caller.attempt)).mask(text)
        async with self._turns.setdefault(caller.attempt.id, asyncio.Lock()):
            collected = await self._services.store.read(lambda tx: tx.artifacts(caller.attempt.id))
            if all(artifact.path != protocol.INSTALLED for artifact in collected):
                blob, sha256 = next_blob(caller.attempt.id, collected), hashlib.sha256(data).hexdigest()
                artifact = Artifact(path=protocol.INSTALLED, size=len(data), sha256=sha256, blob=blob)
                await self._append(artifact, 0, data)
                await self._services.store.write(lambda tx: _add(tx, caller, artifact))
        await answer(send, 200, protocol.encode(orders(caller.attempt, cancel=caller.cancel)), content_type=RECORDS)

    async def _several(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Takes whole files: one wait for the disk and one commit for all of them."""
        body = await read_body(scope, receive, limit=protocol.MAX_APPEND, timeout_s=BODY_TIMEOUT_S)
        files = _whole_files(body)
        masker = await self._services.masker(caller.attempt)
        refused: list[tuple[str, str]] = []
        async with self._turns.setdefault(caller.attempt.id, asyncio.Lock()):
            known = list(await self._services.store.read(lambda tx: tx.artifacts(caller.attempt.id)))
            fresh: dict[Artifact, bytes] = {}
            for index, file in enumerate(files):
                try:
                    artifact = self._whole(caller, masker.text(artifact_path(file.path)), file, known)
                except Refusal as refusal:
                    refused.append(("refused", f"{index} {refusal.status} {refusal!s}"))
                    continue
                if artifact is not None:
                    known.append(artifact)
                    fresh[artifact] = file.data
            if fresh:
                await self._services.blobs.put({artifact.blob: data for artifact, data in fresh.items()})
                await self._services.store.write(lambda tx: _add(tx, caller, *fresh))
        fields = [*refused, *orders(caller.attempt, cancel=caller.cancel)]
        await answer(send, 200, protocol.encode(fields), content_type=RECORDS)

    def _whole(self, caller: Caller, path: str, file: _Whole, known: Sequence[Artifact]) -> Artifact | None:
        """None for one that is kept already. Raises Refusal."""
        if self._is_kept(path, file.sha256, known):
            return None
        self._require_room(known, len(file.data))
        found = hashlib.sha256(file.data).hexdigest()
        if found != file.sha256:
            raise _wrong_hash(path, found)
        return Artifact(path=path, size=len(file.data), sha256=found, blob=next_blob(caller.attempt.id, known))

    def _is_kept(self, path: str, sha256: str, known: Sequence[Artifact]) -> bool:
        """Raises Refusal 422 when another one has this path."""
        if path == protocol.INSTALLED:
            raise Refusal(422, "This name is kept for the list of what is installed.")
        before = next((artifact for artifact in known if artifact.path == path), None)
        if before is not None and before.sha256 != sha256:
            raise Refusal(422, f"{path!r} was collected with other bytes.")
        return before is not None

    async def _take(
        self, caller: Caller, path: str, offset: int, data: bytes, *, size: int, sha256: str
    ) -> tuple[int, int]:
        """Status and the end of the file now."""
        collected = await self._services.store.read(lambda tx: tx.artifacts(caller.attempt.id))
        if self._is_kept(path, sha256, collected):
            return 200, next(artifact.size for artifact in collected if artifact.path == path)
        self._require_room(collected, size)
        artifact = Artifact(path=path, size=size, sha256=sha256, blob=next_blob(caller.attempt.id, collected))
        status, end = await self._append(artifact, offset, data)
        if status == 200 and end == size:
            await self._collect(caller, artifact)
        return status, end

    def _require_room(self, known: Sequence[Artifact], size: int) -> None:
        limits = self._services.artifacts
        collected = [artifact for artifact in known if artifact.path != protocol.INSTALLED]
        if size > limits.file_bytes:
            raise Refusal(413, f"A file may have {limits.file_bytes:,} bytes.")
        if len(collected) >= limits.files:
            raise Refusal(413, f"There may be {limits.files:,} files.")
        if sum(artifact.size for artifact in collected) + size > limits.total_bytes:
            raise Refusal(413, f"All files together may have {limits.total_bytes:,} bytes.")

    async def _append(self, artifact: Artifact, offset: int, data: bytes) -> tuple[int, int]:
        """Status and the end of the file now."""
        blobs = self._services.blobs
        if offset == 0:
            await blobs.delete(artifact.blob)
        try:
            return 200, await blobs.append(artifact.blob, offset, data)
        except WrongOffset as wrong:
            # The last append may have been stored while its answer was lost.
            return (200 if wrong.next == artifact.size else 409), wrong.next

    async def _collect(self, caller: Caller, artifact: Artifact) -> None:
        found = await _sha256_of(self._services.blobs, artifact)
        if found != artifact.sha256:
            await self._services.blobs.delete(artifact.blob)
            raise _wrong_hash(artifact.path, found)
        await self._services.store.write(lambda tx: _add(tx, caller, artifact))


def _wrong_hash(path: str, found: str) -> Refusal:
    return Refusal(422, f"{path!r} arrived with the hash {found}; it was left out.")


def _whole_files(body: bytes) -> list[_Whole]:
    """Raises Refusal 400, 413."""
    try:
        fields = protocol.decode(body)
    except protocol.BadRecords as error:
        raise Refusal(400, f"The body is not records: {error}.") from None
    if [name for name, _ in fields] != ["path", "sha256", "data"] * (len(fields) // 3):
        raise Refusal(400, "`path`, `sha256` and `data` of each file are needed, in this order.")
    if len(fields) > 3 * protocol.MAX_TOGETHER:
        raise Refusal(413, f"{protocol.MAX_TOGETHER} files may come together.")
    values = [value for _, value in fields]
    return [
        _Whole(path=path.decode("utf-8", "surrogateescape"), sha256=sha256.decode("ascii", "replace"), data=data)
        for path, sha256, data in zip(values[::3], values[1::3], values[2::3], strict=True)
    ]


def _add(tx: Tx, caller: Caller, *artifacts: Artifact) -> None:
    tx.saw(caller.attempt.id)  # first: who sets a result meanwhile has either seen this file or waits for it
    attempt = tx.attempt(caller.attempt.id)
    assert attempt is not None
    require_wanted(attempt)
    known = tx.artifacts(attempt.id)
    paths, paths_of_blobs = {other.path for other in known}, {other.blob: other.path for other in known}
    for artifact in artifacts:
        if paths_of_blobs.get(artifact.blob, artifact.path) != artifact.path:
            raise Refusal(422, "Another process of the server collected another file meanwhile.")
        if artifact.path not in paths:
            tx.add_artifact(attempt.id, artifact)


def artifact_path(text: str) -> str:
    """A relative path that stays inside its folder. Raises Refusal 422."""
    if not is_plain_path(text):
        raise Refusal(422, "This is no relative path of at most 512 bytes of printable characters.")
    return text


def signatures(url: SecretStr) -> tuple[SecretStr, ...]:
    """What opens the file: the signatures in the query; where none has a known name, all of it."""
    text = url.get_secret_value()
    query = parse_qsl(urlsplit(text).query)
    found = [value for name, value in query if name in _SIGNATURES]
    return tuple(SecretStr(value) for value in found or [text])


def _model_file(plan: Plan, rest: str) -> tuple[ModelPin, ModelFile]:
    index, _, path = rest.partition("/")
    if index.isascii() and index.isdigit() and len(index) < 6 and int(index) < len(plan.models):
        pin = plan.models[int(index)]
        for file in pin.files:
            if file.path == path:
                return pin, file
    raise Refusal(404, "The plan has no such file.")


def _range_start(scope: Scope, file: ModelFile) -> int | None:
    values = header(scope, b"range")
    if not values:
        return None
    match = _RANGE.fullmatch(values[0])
    if match is None or int(match[1]) >= file.size:
        raise Refusal(416, "Only `bytes=N-` with N inside the file is served.")
    return int(match[1])


async def _sha256_of(blobs: Blobs, artifact: Artifact) -> str:
    digest = hashlib.sha256()
    if artifact.size:
        async for chunk in blobs.open(artifact.blob):
            digest.update(chunk)
    return digest.hexdigest()


async def _answer(send: Send, status: int, caller: Caller, end: int) -> None:
    fields = [("next", end), *orders(caller.attempt, cancel=caller.cancel)]
    await answer(send, status, protocol.encode(fields), content_type=RECORDS)
