"""A registry with one image that nobody has ever seen, and the troubles of real registries."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import secrets
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LAYER_BYTES = 3 << 20
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar"


class SickRegistry(ThreadingHTTPServer):
    """Everything public is set and read by tests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuse_manifests: tuple[int, str, str] | None = None
        """Status, code and message."""
        self.refuse_blobs: tuple[int, str, str] | None = None
        self.cut_layers = 0
        """So many answers with the layer break in the middle."""
        self._blobs: dict[str, bytes] = {}
        layer = self._keep(_layer())
        machine = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["x"]}}
        config = self._keep(json.dumps({**machine, "rootfs": {"type": "layers", "diff_ids": [layer]}}).encode())
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._described(_CONFIG, config),
            "layers": [self._described(_LAYER, layer)],
        }
        self.image = f"127.0.0.1:{self.server_address[1]}/sick@{self._keep(json.dumps(manifest).encode())}"

    def content(self, path: str) -> bytes | None:
        """What the path names."""
        return self._blobs.get(path.rpartition("/")[2])

    def _keep(self, content: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self._blobs[digest] = content
        return digest

    def _described(self, kind: str, digest: str) -> dict[str, object]:
        return {"mediaType": kind, "size": len(self._blobs[digest]), "digest": digest}


def _layer() -> bytes:
    """A tar with bytes that do not compress and are new each time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        noise = tarfile.TarInfo("noise")
        noise.size = LAYER_BYTES
        tar.addfile(noise, io.BytesIO(secrets.token_bytes(LAYER_BYTES)))
    return out.getvalue()


class _Handler(BaseHTTPRequestHandler):
    server: SickRegistry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        registry = self.server
        manifests = "/manifests/" in self.path
        refusal = registry.refuse_manifests if manifests else registry.refuse_blobs if "/blobs/" in self.path else None
        if refusal is not None:
            status, code, message = refusal
            body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
            self._answer(status, "application/json", body)
        elif self.path == "/v2/":
            self._answer(200, "application/json", b"{}")
        elif (content := registry.content(self.path)) is None:
            self._answer(404, "application/json", b"{}")
        elif len(content) > LAYER_BYTES and registry.cut_layers:
            registry.cut_layers -= 1
            self._answer(200, _LAYER, content, send=LAYER_BYTES // 2)
        elif start := int(self.headers.get("Range", "bytes=0-")[len("bytes=") : -1]):
            said = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._answer(206, _LAYER, content[start:], more={"Content-Range": said})
        else:
            self._answer(200, _MANIFEST if manifests else "application/octet-stream", content)

    do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

    def log_message(self, format: str, *args: object) -> None:
        return None

    def _answer(
        self, status: int, kind: str, body: bytes, *, send: int | None = None, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            with contextlib.suppress(OSError):
                self.wfile.write(body[:send])
        self.close_connection = self.close_connection or send is not None


@contextlib.contextmanager
def sick_registry() -> Iterator[SickRegistry]:
    """Listens while it is open."""
    server = SickRegistry()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
