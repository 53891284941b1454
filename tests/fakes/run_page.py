"""The pages of one run as a gpurun server gives them, with faults as settings, behind httpx."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

from gpurun.domain.manifest import write_manifest
from gpurun.domain.stream import Artifact

RUN = "01kdxq4c00000000000000000r"
KEY = "k" * 26
ADDRESS = f"https://gpurun.example/base/runs/{RUN}?key={KEY}"


@dataclass
class FakeRunPage:
    """Everything public is state that a test reads or sets."""

    files: dict[str, bytes] = field(default_factory=dict)
    served: dict[str, bytes] = field(default_factory=dict)
    """Other bytes than the manifest promises."""
    gone: set[str] = field(default_factory=set)
    complete: bool = True
    cut_after: list[int] = field(default_factory=list)
    """The next answers with bytes break off after so many."""
    statuses: list[int] = field(default_factory=list)
    """The next answers; 0 is a refused connection."""
    cut_lists_after: list[int] = field(default_factory=list)
    """The same for lists."""
    number: str = "2"
    """Of the attempt, as the answer says it."""
    no_ranges: bool = False
    manifest: str = ""
    """Instead of the right one."""
    requests: list[str] = field(default_factory=list)
    """Paths below the run's page, with the range that was asked for."""

    @property
    def transport(self) -> httpx.BaseTransport:
        """For a client."""
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.url.host.encode("idna")  # as the resolver does it, or does not
        place = request.url.path.removeprefix(f"/base/runs/{RUN}/")
        asked = request.headers.get("range", "")
        self.requests.append(f"{place} {asked}".strip())
        if self.statuses:
            status = self.statuses.pop(0)
            if not status:
                raise httpx.ConnectError("refused", request=request)
            return httpx.Response(status)
        if request.url.params.get("key") != KEY:
            return httpx.Response(404)
        if place in {"artifacts.json", "artifacts/2.json"}:
            rows = [
                Artifact(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), blob="x")
                for path, data in self.files.items()
            ]
            headers = [(b"x-gpurun-attempt", self.number.encode("latin-1"))]
            headers += [(b"x-gpurun-complete", b"yes" if self.complete else b"no")]
            text = (self.manifest or write_manifest(rows)).encode()
            return httpx.Response(200, headers=headers, content=self._cut(text, self.cut_lists_after))
        return self._file(place.removeprefix("artifacts/2/"), asked)

    def _file(self, path: str, asked: str) -> httpx.Response:
        if path in self.gone:
            return httpx.Response(410)
        if path not in self.files:
            return httpx.Response(404)
        data = self.served.get(path, self.files[path])
        match = None if self.no_ranges else re.fullmatch(r"bytes=(\d+)-", asked)
        start = int(match[1]) if match else 0
        headers = {"content-range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if match else {}
        return httpx.Response(206 if match else 200, headers=headers, content=self._body(data[start:]))

    def _body(self, data: bytes) -> Iterator[bytes]:
        return self._cut(data, self.cut_after)

    def _cut(self, data: bytes, cuts: list[int]) -> Iterator[bytes]:
        cut = cuts.pop(0) if cuts else len(data)
        for at in range(0, min(cut, len(data)), 1000):
            yield data[at : min(at + 1000, cut)]
        if cut < len(data):
            raise httpx.ReadError("cut")
