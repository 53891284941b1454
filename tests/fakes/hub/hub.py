"""The hub as tests and the demo hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.fakes.hub.state import Model, SeenRequest, StoredFile, Trouble, commit_id, store


class FakeHub:
    """A Hugging Face Hub that keeps state; see the package for its language."""

    def __init__(self, *, page_size: int = 1000) -> None:
        self.models: dict[str, Model] = {}
        self.tokens: dict[str, set[str]] = {}
        """Token -> ids of models that let it in."""
        self.requests: list[SeenRequest] = []
        self.trouble: list[Trouble] = []
        self.limits: dict[str, str] = {}
        """`RateLimit` headers of answers that go well, by a part of the path."""
        self.page_size = page_size
        self.ignores_range = False
        self.has_xet = False
        """LFS files are in Xet, too: their answers tell clients that know it where."""
        self.redirects_small_files = False
        """The hub answers small files with a relative redirect to a cache of its own."""
        self.url = ""
        """Set while it is served."""
        self.cdn_url = ""
        """Another host and port; LFS content is there."""

    def clear(self) -> None:
        """As new, but still served."""
        url, cdn_url = self.url, self.cdn_url
        self.__init__()  # type: ignore[misc]  # the one list of defaults
        self.url, self.cdn_url = url, cdn_url

    def add_model(
        self,
        id: str,
        files: Mapping[str, bytes | Path],
        *,
        gated: Literal[False, "auto", "manual"] = False,
        private: bool = False,
    ) -> str:
        """Commits the files, as all there is, on `main`; the 40-hex commit. Equal files give an equal commit.

        A data set is `datasets/owner/name`, here and everywhere else.
        """
        stored = {path: store(path, source) for path, source in files.items()}
        revision = commit_id(stored)
        model = self.models.setdefault(id, Model(id))
        model.commits[revision] = stored
        model.main, model.gated, model.private = revision, gated, private
        return revision

    def file(self, id: str, path: str) -> StoredFile:
        """The file on `main`."""
        model = self.models[id]
        return model.commits[model.main][path]

    def corrupt(self, id: str, path: str) -> None:
        """From now on one bit of the file's bytes is wrong; size, hashes and headers stay."""
        self.file(id, path)
        self.models[id].damaged.add(path)

    def repair(self, id: str, path: str) -> None:
        """The bytes are right again."""
        self.models[id].damaged.discard(path)

    def cut(self, id: str, path: str, *, after: int) -> None:
        """The next answer with the file's bytes breaks off after so many."""
        self.models[id].cut_at[path] = after

    def stall(self, id: str, path: str, *, after: int) -> None:
        """Answers with the file's bytes fall silent after so many."""
        self.models[id].stalled_at[path] = after

    def add_token(self, token: str, *models: str) -> None:
        """A valid token that these private or gated models let in."""
        self.tokens[token] = set(models)

    def fail_next(
        self, status: int, *, part: str = "/", times: int = 1, headers: Mapping[str, str] | None = None
    ) -> None:
        """The next `times` requests whose path contains `part` are answered with `status`."""
        self.trouble.append(Trouble(status, part, times, dict(headers or {})))

    def seen(self, part: str, *, method: str = "GET") -> list[SeenRequest]:
        """Requests so far whose path contains `part`."""
        return [request for request in self.requests if part in request.path and request.method == method]

    @contextmanager
    def serving(self, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
        """Served from a thread of its own until the block ends; yields the endpoint."""
        from tests.fakes.hub.server import serve

        with serve(self, host=host, port=port) as (self.url, self.cdn_url):
            yield self.url
        self.url = self.cdn_url = ""
