"""A Docker Engine that has images, pulls and builds, over a socket, so that the SDK and our own request are real."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

VERSION = "1.41"


@dataclass
class FakeEngine:
    """Everything is set and read by tests. An event that is an `Event` of threading is waited for."""

    socket: Path
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each image that it has, by name."""
    pull_events: list[Any] = field(default_factory=list)
    """Of each pull. Without an error among them the image is there afterwards."""
    build_events: list[Any] = field(default_factory=lambda: [{"stream": "Step 1/1 : FROM a\n"}])
    pulls: list[dict[str, str]] = field(default_factory=list)
    builds: list[dict[str, str]] = field(default_factory=list)
    """The queries of both."""
    triggers: list[str] = field(default_factory=list)
    """`ONBUILD` of every image."""
    refuses: Callable[[str, str], tuple[int, str] | None] = lambda method, path: None
    """Status and message of a request that is not answered as usual."""

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """What does not come in events."""
        if path == "/version":
            return 200, {"ApiVersion": VERSION}
        if path == "/images/json":
            return 200, self._list(json.loads(query["filters"]))
        name = path.removeprefix("/images/").removesuffix("/json").removesuffix("/tag")
        if name not in self.labels:
            return 404, {"message": f"No such image: {name}"}
        if path.endswith("/tag"):
            self.labels[f"{query['repo']}:{query['tag']}"] = self.labels[name]
        elif method == "DELETE":
            del self.labels[name]
        config = {"Labels": self.labels.get(name), "OnBuild": self.triggers or None}
        return 200, {"Id": name, "Os": "linux", "Architecture": "amd64", "Config": config}

    def _list(self, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        wanted = [mark.partition("=")[::2] for mark in filters.get("label", ())]
        return [
            {"Id": name, "RepoTags": [name], "Created": 0}
            for name, labels in self.labels.items()
            if name.partition(":")[0] in filters["reference"] and all(labels.get(key) == value for key, value in wanted)
        ]

    def events(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        """Of a pull or a build that begins now."""
        events = [*(self.build_events if path == "/build" else self.pull_events)]
        (self.builds if path == "/build" else self.pulls).append(query)
        return self._told(path, query, events)

    def _told(self, path: str, query: dict[str, str], events: list[Any]) -> Iterator[bytes]:
        for event in events:
            if isinstance(event, threading.Event):
                event.wait(30)
            else:
                yield json.dumps(event).encode() + b"\n"
        if any(isinstance(event, dict) and "error" in event for event in events):
            return
        if path == "/build":
            self.labels[query["t"]] = json.loads(query["labels"])
        else:
            self.labels[f"{query['fromImage']}@{query['tag']}"] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeEngine

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path).removeprefix(f"/v{VERSION}")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self._read_body()
        if (refusal := self.fake.refuses(self.command, path)) is not None:
            self._say(refusal[0], {"message": refusal[1]})
        elif path in {"/build", "/images/create"}:
            events = self.fake.events(path, query)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(OSError):
                for line in itertools.chain(events, (b"",)):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        else:
            self._say(*self.fake.answer(self.command, path, query))

    do_POST = do_GET  # noqa: N815 - the name that the server looks for
    do_DELETE = do_GET  # noqa: N815

    def address_string(self) -> str:
        return "a test"

    def log_message(self, format: str, *args: object) -> None:
        return None

    def _read_body(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _say(self, status: int, body: Any) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


@contextlib.contextmanager
def fake_engine(folder: Path) -> Iterator[FakeEngine]:
    """Listens while it is open."""
    fake = FakeEngine(folder / "engine.sock")
    server = _Server(os.fspath(fake.socket), type("Handler", (_Handler,), {"fake": fake}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        for event in (*fake.pull_events, *fake.build_events):
            if isinstance(event, threading.Event):
                event.set()
        server.shutdown()
        thread.join()
        server.server_close()
