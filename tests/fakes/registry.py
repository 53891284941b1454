"""An image registry that keeps state: tags that move, digests that are deleted, trouble. On loopback, plain HTTP.

with FakeRegistry().serving() as registry:
    digest = registry.push("org/app", "1.2", platforms=("linux/amd64", "linux/arm64"))
    registry.name("org/app")                  # 127.0.0.1:<port>/org/app
    registry.delete("org/app", "1.2")         # the tag; the digest stays, as in real ones
    registry.delete("org/app", digest)
    registry.status = 503                     # every answer
    registry.requests                         # `GET /v2/org/app/manifests/1.2`
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class FakeRegistry:
    """Everything public is read and set by tests."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.status = 0
        """Answered to everything; 0: nothing is wrong."""
        self.login = ""
        """`user:password`, without which nothing is shown; empty: everybody may look."""
        self.address = ""
        self._contents: dict[tuple[str, str], bytes] = {}
        """By repository and digest."""
        self._tags: dict[tuple[str, str], str] = {}
        self._pushed = 0

    def name(self, repository: str) -> str:
        """As a job writes it."""
        return f"{self.address}/{repository}"

    def push(self, repository: str, tag: str, *, platforms: Sequence[str] = ("linux/amd64",)) -> str:
        """A new image, which is like no other; its digest. For several platforms an index, as BuildKit writes it."""
        self._pushed += 1
        images = {platform: self._image(repository, platform) for platform in platforms}
        digest = next(iter(images.values())) if len(images) == 1 else self._index(repository, images)
        self._tags[repository, tag] = digest
        return digest

    def delete(self, repository: str, reference: str) -> None:
        """The tag, or the manifest."""
        if self._tags.pop((repository, reference), None) is None:
            del self._contents[repository, reference]

    def content(self, repository: str, reference: str) -> bytes | None:
        """A manifest or blob."""
        return self._contents.get((repository, self._tags.get((repository, reference), reference)))

    def has(self, repository: str) -> bool:
        """Whether anything was ever pushed there and is left."""
        return any(name == repository for name, _ in self._contents)

    @contextlib.contextmanager
    def serving(self) -> Iterator[FakeRegistry]:
        """Served from a thread of its own until the block ends."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="fake-registry")
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _image(self, repository: str, platform: str) -> str:
        os, _, architecture = platform.partition("/")
        config = {"os": os, "architecture": architecture, "config": {"Labels": {"push": str(self._pushed)}}}
        blob = self._keep(repository, config)
        described = {"mediaType": "application/vnd.oci.image.config.v1+json", "size": 1, "digest": blob}
        return self._keep(repository, {"mediaType": _MANIFEST, "schemaVersion": 2, "config": described, "layers": []})

    def _index(self, repository: str, images: dict[str, str]) -> str:
        manifests = [
            {
                "mediaType": _MANIFEST,
                "size": 1,
                "digest": digest,
                "platform": dict(zip(("os", "architecture"), platform.split("/"), strict=True)),
            }
            for platform, digest in {**images, "unknown/unknown": "sha256:" + "a" * 64}.items()
        ]
        return self._keep(repository, {"mediaType": _INDEX, "schemaVersion": 2, "manifests": manifests})

    def _keep(self, repository: str, document: object) -> str:
        content = json.dumps(document).encode()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._contents[repository, digest] = content
        return digest


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.requests.append(f"{self.command} {self.path}")
            repository, kind, reference = self.path.removeprefix("/v2/").rsplit("/", 2)
            content = registry.content(repository, reference)
            sent = self.headers.get("Authorization", "").removeprefix("Basic ")
            if registry.login and base64.b64decode(sent).decode() != registry.login:
                self._answer(401, b"", challenge='Basic realm="fake"')
            elif registry.status:
                self._answer(registry.status, b"")
            elif content is None:
                code = "MANIFEST_UNKNOWN" if registry.has(repository) else "NAME_UNKNOWN"
                self._answer(404, json.dumps({"errors": [{"code": code}]}).encode())
            else:
                self._answer(200, content, is_manifest=kind == "manifests")

        do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

        def _answer(self, status: int, body: bytes, *, is_manifest: bool = False, challenge: str = "") -> None:
            self.send_response(status)
            if challenge:
                self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Length", str(len(body)))
            if is_manifest:
                self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
                self.send_header("Content-Type", json.loads(body)["mediaType"])
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """No output of a test."""

    return Handler
