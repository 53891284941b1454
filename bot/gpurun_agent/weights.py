"""Model files from the bot, every hash verified, laid out as a Hugging Face cache.

`hub/models--<org>--<name>/blobs/<etag>` holds the bytes, `snapshots/<revision>/<path>` links to them, and `refs/<name>`
holds the revision of each name that the plan knows. A lookup by any other name fails.
"""

from __future__ import annotations

import os
import time

from gpurun_agent import protocol
from gpurun_agent.contact import Errand
from gpurun_agent.ending import End, Ended
from gpurun_agent.target import make_folders, place
from gpurun_agent.wire import Line, Request, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpurun_agent.run import Run
    from gpurun_agent.spec import File, Model

PARALLEL = 4
"""Downloads at a time."""

SAY_EVERY_S = 2.0

_READ_SIZE = 1024 * 1024
_MIB = 1024 * 1024


def fetch(run: Run, models: list[Model], hub: str) -> None:
    """Raises Ended (failed): `weights_mismatch` names the file, `weights` says why one cannot be had, or not be put
    into its `target`.
    """
    import hashlib  # noqa: F401  # an image without it is told so before the first byte

    blobs = _Blobs(run, hub)
    for model in models:
        _check_names(model)
    make_folders(models)
    blobs.fetch(models)
    for model in models:
        for name in model.refs:
            _name(name, model.revision, blobs.folder(model))
        for file in model.files:
            _link(model, file, blobs.folder(model))
            if model.target:
                place(model, file, _same_as(os.path.join(blobs.folder(model), "blobs", file.etag)))


class _Blobs:
    """All files of all models, some at a time."""

    def __init__(self, run: Run, hub: str) -> None:
        self._run = run
        self._hub = hub
        self._total = 0
        self._said_at = 0.0
        self._started_at = time.monotonic()
        self._complete = 0

    def folder(self, model: Model) -> str:
        return os.path.join(self._hub, "hub", "--".join([model.kind + "s", *model.id.split("/")]))

    def fetch(self, models: list[Model]) -> None:
        jobs = [(model, file) for model in models for file in model.files]
        self._total = sum(file.size for _, file in jobs)
        downloads = self._downloads(jobs)
        lines = [self._run.new_line() for _ in range(min(PARALLEL, len(jobs)))]
        live: list[_Download] = []
        try:
            while True:
                while lines:
                    download = next(downloads, None)
                    if download is None:
                        break
                    download.start(lines.pop())
                    live.append(download)
                if not live:
                    break
                self._run.breathe_until(lambda: any(one.over for one in live), self._say_progress(live))
                for one in [one for one in live if one.over]:
                    live.remove(one)
                    line = one.finish()
                    if line is None:  # it has begun again
                        live.append(one)
                        continue
                    lines.append(line)
                    self._complete += one.file.size
        finally:
            for one in live:
                one.drop()
        self._say(self._complete)

    def _downloads(self, jobs: list[tuple[Model, File]]) -> Iterator[_Download]:
        seen = set()
        for model, file in jobs:
            blob = os.path.join(self.folder(model), "blobs", file.etag)
            if blob in seen or _already_there(self._run, blob, file):
                self._complete += file.size
            else:
                seen.add(blob)
                yield _Download(self._run, model, file, blob)

    def _say_progress(self, live: list[_Download]) -> Callable[[], None]:
        def say() -> None:
            if time.monotonic() - max(self._said_at, self._started_at) >= SAY_EVERY_S:
                self._said_at = time.monotonic()
                self._say(self._complete + sum(one.size for one in live))

        return say

    def _say(self, done: int) -> None:
        percent = done * 100 // self._total if self._total else 100
        self._run.say("weights %d of %d MiB (%d %%)" % (done // _MIB, -(-self._total // _MIB), percent))


class _Download:
    """One file into its blob, going on where a broken connection stopped."""

    def __init__(self, run: Run, model: Model, file: File, blob: str) -> None:
        self.file = file
        self.size = 0
        self._run = run
        self._model = model
        self._blob = blob
        self._line: Line | None = None
        self._errand: Errand | None = None
        self._from_bot = False
        """No more from elsewhere: wrong bytes came from there, and the bot can tell why."""
        self._start_over()

    @property
    def over(self) -> bool:
        return self._errand is not None and self._errand.answer is not None

    def start(self, line: Line) -> None:
        self._line = line
        self._errand = self._run.errand_on(line, self._build)

    def drop(self) -> None:
        if self._errand is not None:
            self._errand.drop()
        os.close(self._fd)

    def finish(self) -> Line | None:
        """Checks the bytes and gives them their name. Returns the free connection; None: it has begun again."""
        assert self._line is not None
        assert self._errand is not None
        answer = self._errand.answer
        assert answer is not None
        name = "%s of %s" % (self.file.path, self._model.id)
        if answer.status not in (200, 206):
            # 422: the bot looked itself, and the hub does not have what the plan pins.
            reason = protocol.WEIGHTS_MISMATCH if answer.status == 422 else protocol.WEIGHTS
            raise Ended(End(protocol.FAILED, reason, "%s: %s" % (name, answer.text() or answer.status)))
        found = self._hash.hexdigest()
        if found != self.file.sha256 and self._errand.was_elsewhere:
            self._from_bot = True
            self._rewind()
            self.start(self._line)
            return None
        os.close(self._fd)
        if self.size != self.file.size or found != self.file.sha256:
            os.unlink(self._part)
            raise Ended(End(protocol.FAILED, protocol.WEIGHTS_MISMATCH, _mismatch(name, self.file, self.size, found)))
        os.replace(self._part, self._blob)
        return self._line

    def _start_over(self) -> None:
        import hashlib

        folder = os.path.dirname(self._blob)
        os.makedirs(folder, exist_ok=True)
        self._part = self._blob + ".incomplete"
        self._fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._hash = hashlib.sha256()
        self.size = 0

    def _build(self) -> Request:
        path = quote(os.fsencode(self.file.path), b"/").decode("ascii")
        target = "%smodels/%d/%s" % (protocol.PREFIX, self._model.index, path)
        # An open end, or nothing: a complete file asks again for nothing and would get 416.
        if self.size == self.file.size:
            self._rewind()
        headers = "Range: bytes=%d-\r\n" % self.size if self.size else ""
        if self._from_bot or (self._errand is not None and self._errand.stays):
            target += "?%s=1" % protocol.FROM_BOT
        self._first = True
        return Request("GET", target, headers=headers, sink=self._take)

    def _take(self, status: int, data: bytes) -> None:
        if self._first and status == 200 and self.size:
            self._rewind()
        self._first = False
        assert self._errand is not None
        self._errand.moved()
        self._hash.update(data)
        self.size += len(data)
        # More than was announced is counted, not kept.
        view = memoryview(data if self.size <= self.file.size else b"")
        while view:
            view = view[os.write(self._fd, view) :]

    def _rewind(self) -> None:
        os.close(self._fd)
        self._start_over()


def _check_names(model: Model) -> None:
    """The bot is trusted with bytes, not with places."""
    names = (
        [model.id, model.kind, model.revision]
        + model.refs
        + [file.etag for file in model.files]
        + [file.path for file in model.files]
    )
    flat = [model.kind, model.revision] + [file.etag for file in model.files]
    for name in names:
        parts = name.split("/")
        if not name or name.startswith("/") or ".." in parts or "." in parts or "" in parts or "\0" in name:
            raise Ended(End(protocol.FAILED, protocol.WEIGHTS, "%r is no name for a file of a model." % name))
    if any("/" in name for name in flat):
        raise Ended(End(protocol.FAILED, protocol.WEIGHTS, "An etag, a kind or a revision has a slash."))


def _already_there(run: Run, blob: str, file: File) -> bool:
    """A blob that was laid out before counts only when its bytes are right."""
    import hashlib

    try:
        if os.stat(blob).st_size != file.size:
            return False
        digest = hashlib.sha256()
        with open(blob, "rb") as content:
            while True:
                data = content.read(_READ_SIZE)
                if not data:
                    return digest.hexdigest() == file.sha256
                digest.update(data)
                run.breathe()
    except OSError:
        return False


def _mismatch(name: str, file: File, size: int, found: str) -> str:
    if size != file.size:
        return "%s has %d bytes, expected %d." % (name, size, file.size)
    return "%s has sha256 %s, expected %s." % (name, found, file.sha256)


def _name(name: str, revision: str, folder: str) -> None:
    """Without a line's end, as huggingface_hub writes it."""
    path = os.path.join(folder, "refs", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(revision)


def _link(model: Model, file: File, folder: str) -> None:
    link = os.path.join(folder, "snapshots", model.revision, file.path)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    up = "../" * (2 + file.path.count("/"))
    try:
        os.unlink(link)
    except FileNotFoundError:
        pass
    os.symlink("%sblobs/%s" % (up, file.etag), link)


def _same_as(blob: str) -> Callable[[str], None]:
    """A plain file: the same inode where that is possible, else a copy."""

    def put(path: str) -> None:
        try:
            os.link(blob, path)
        except OSError:
            with open(blob, "rb") as source, open(path, "wb") as copy:
                while True:
                    data = source.read(_READ_SIZE)
                    if not data:
                        break
                    copy.write(data)

    return put
