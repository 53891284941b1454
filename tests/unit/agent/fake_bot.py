"""A bot that holds state and answers the agent's protocol, with faults as settings. Blocking, on threads."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from gpurun_agent import protocol

CLAIM = "claim-token-0123456789"
TOKEN = "run-token-abcdefghij"
ATTEMPT = "01kdxq4c00000000000000000a"


def pause(seconds: float) -> None:
    """The agent is a process of its own, on the real clock."""
    threading.Event().wait(seconds)


@dataclass
class Model:
    """A model as the hub has it; `served` may differ from what the spec promises."""

    id: str
    revision: str
    files: dict[str, bytes]
    target: str = ""
    served: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    kind: str = "model"
    refs: list[str] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Addresses of files that the bot passes on only when it is asked to."""


class FakeBot:
    """One attempt. Everything public is state that a test reads or sets."""

    def __init__(self, scheme: str = "unix", tls: ssl.SSLContext | None = None) -> None:
        self.scheme = scheme
        self.tls = tls
        self.address = ""
        """What the agent gets as its uplink."""
        self.folder = Path(tempfile.mkdtemp(prefix="gpurun-bot-"))
        self.socket_path = str(self.folder / "bot.sock")
        self.lock = threading.RLock()
        self.streams = {"log": bytearray(), "metrics": bytearray()}
        self.artifacts: dict[str, bytes] = {}
        self.artifact_parts: dict[str, bytearray] = {}
        self.installed: bytes | None = None
        self.no_installed = False
        self.layer = ""
        """As the spec has it."""
        self.layer_inputs: list[str] = []
        self.layers: list[dict[str, str]] = []
        """What was told of them."""
        self.no_layer = ""
        """Why none is kept."""
        self.phases: list[str] = []
        self.claims: list[dict[str, bytes]] = []
        self.finished: list[dict[str, bytes]] = []
        self.requests: list[str] = []
        self.model_queries: list[tuple[str, str]] = []
        """Paths that were asked for, and how."""
        self.run = ""
        self.setup = ""
        self.source = ""
        self.workdir = ""
        self.source_tar = b""
        self.git_tar = b""
        self.models: list[Model] = []
        self.weights = ""
        self.env: list[str] = []
        self.mask: list[bytes] = []
        self.later: list[bytes] = []
        """More of them, which the bot learned after the claim."""
        self.no_masks = False
        self.later_elsewhere = False
        """The process that is asked for them knows of none."""
        """It has no route to ask for them."""
        self.artifact_globs: list[str] = []
        self.artifact_limits: dict[str, int] = {}
        self.before_artifact = lambda path: None
        """Called with each request that brings a part of one."""
        self.log_quota = 1 << 30
        self.max_duration_s = 600
        self.deadline = int(time.time()) + 600
        self.cancel = False
        self.out_of_disk = False
        """Why it is cancelled."""
        self.revoked = False
        # faults
        self.drop_body_after: int | None = None
        """Once: the connection breaks after so many bytes of a log append, which is not taken."""
        self.cut_download_after: int | None = None
        """Once: the connection breaks after so many bytes of a model file."""
        self.lose_answers = 0
        """So many log appends are taken and not answered."""
        self.durable_lag = 0
        """So many bytes are not durable yet, and are gone after `restart`."""
        self.hold_back = 0
        """So many bytes at the end of an append are not taken, unless it is the last."""
        self.slow_s = 0.0
        self.busy_with_phases = False
        """Phases are answered 503."""
        self.fail_next = 0
        """So many requests are answered 503."""
        self.durable = {"log": 0, "metrics": 0}
        self.arrivals: list[tuple[float, int]] = []
        self._server: _Server | None = None
        self.up()

    # life

    def up(self) -> None:
        """Listens."""
        if self.scheme == "unix":
            Path(self.socket_path).unlink(missing_ok=True)
            self._server = _UnixServer(self.socket_path, _Handler)
            self.address = f"unix:{self.socket_path}"
        else:
            self._server = _TcpServer(("127.0.0.1", 0), _Handler)
            self.address = f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}/base/"
        self._server.bot = self
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def down(self) -> None:
        """Nobody listens and every connection is cut, as after kill -9; what was not durable is gone."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            with self.lock:
                connections, self._server.connections = self._server.connections, []
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._server = None
        with self.lock:
            for name, durable in self.durable.items():
                if self.durable_lag:
                    del self.streams[name][durable:]

    @property
    def log(self) -> bytes:
        return bytes(self.streams["log"])

    @property
    def output(self) -> bytes:
        """The log without the agent's own lines."""
        return b"".join(line for line in self.log.splitlines(keepends=True) if not line.startswith(b"::gpurun:: "))

    @property
    def end(self) -> dict[str, str]:
        assert self.finished, "the agent has not finished"
        return {name: value.decode() for name, value in self.finished[-1].items()}

    def wait(self, condition, timeout_s: float = 20.0) -> None:
        until = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until, f"waited too long; log: {self.log[-500:]!r}"
            pause(0.005)

    def wait_for_log(self, text: bytes) -> None:
        self.wait(lambda: text in self.streams["log"])

    def set_source(self, members: dict[str, bytes], *, commit: str = "c" * 40) -> None:
        self.source = commit
        self.source_tar = make_tar(list(members.items()), commit=commit)

    # protocol

    def spec(self) -> bytes:
        fields: list[tuple[str, object]] = [
            ("token", TOKEN),
            ("attempt", ATTEMPT),
            ("number", 1),
            ("cancel", int(self.cancel)),
            ("deadline", self.deadline),
            ("max_duration_s", self.max_duration_s),
            ("log_quota", self.log_quota),
            ("source", self.source),
            *([("git", 1)] if self.git_tar else []),
            ("setup", self.setup),
            ("workdir", self.workdir),
            ("run", self.run),
        ]
        fields += [("env", item) for item in self.env]
        fields += [("mask", item) for item in self.mask]
        for index, model in enumerate(self.models):
            fields.append(("model", f"{index}\0{model.id}\0{model.revision}\0{model.target}"))
            fields.append(("layout", "\0".join((str(index), model.kind, *model.refs))))
            for path, content in model.files.items():
                sha256 = hashlib.sha256(content).hexdigest()
                etag = model.etags.get(path, sha256)
                fields.append(("file", f"{index}\0{len(content)}\0{sha256}\0{etag}\0{path}"))
        fields += [("weights", self.weights)] if self.weights else []
        fields += [("layer", self.layer)] if self.layer else []
        fields += [("layer_input", item) for item in self.layer_inputs]
        fields += [("artifact", item) for item in self.artifact_globs]
        fields += [(name, value) for name, value in self.artifact_limits.items()]
        return protocol.encode(fields)

    def common(self, *more: tuple[str, object]) -> bytes:
        masks = [("masks", len(self.later))] if self.later else []
        return protocol.encode([*more, ("cancel", int(self.cancel)), ("deadline", self.deadline), *masks])

    def append(self, name: str, offset: int, body: bytes, *, end: bool) -> tuple[int, bytes]:
        with self.lock:
            stream = self.streams[name]
            if offset != len(stream):
                return 409, self.common(("next", len(stream)))
            taken = body if end or not self.hold_back else body[: max(0, len(body) - self.hold_back)]
            stream += taken
            self.durable[name] = max(self.durable[name], len(stream) - (0 if end else self.durable_lag))
            if name == "log":
                self.arrivals.append((time.monotonic(), len(stream)))
            return 200, self.common(("next", len(stream)), ("durable", self.durable[name]))

    def add_artifacts(self, body: bytes) -> tuple[int, bytes]:
        values = [value for _, value in protocol.decode(body)]
        refused = []
        for index, (raw, sha256, data) in enumerate(zip(values[::3], values[1::3], values[2::3], strict=True)):
            path = raw.decode()
            self.before_artifact(path)
            query = {"offset": ["0"], "size": [str(len(data))], "sha256": [sha256.decode()]}
            status, text = (200, b"") if self.artifacts.get(path) == data else self.add_artifact(path, query, data)
            if status >= 500:
                return status, text
            if status != 200:
                refused.append(("refused", b"%d %d %s" % (index, status, text)))
        return 200, self.common(*refused)

    def add_artifact(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes]:
        offset, size, sha256 = int(query["offset"][0]), int(query["size"][0]), query["sha256"][0]
        with self.lock:
            part = self.artifact_parts.setdefault(path, bytearray())
            if offset != len(part):
                return 409, self.common(("next", len(part)))
            part += body
            if len(part) == size:
                if hashlib.sha256(part).hexdigest() != sha256:
                    return 422, b"wrong hash"
                self.artifacts[path] = bytes(part)
            return 200, self.common(("next", len(part)))


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    request_queue_size = 50
    bot: FakeBot

    def __init__(self, *args) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(*args)

    def get_request(self):
        request, address = super().get_request()
        if self.bot.tls is not None:
            request = self.bot.tls.wrap_socket(request, server_side=True)
        return request, address

    def process_request(self, request, client_address) -> None:
        with self.bot.lock:
            self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request, client_address) -> None:
        """Broken connections are what the tests are about."""
        if not isinstance(sys.exc_info()[1], (OSError, ValueError)):
            super().handle_error(request, client_address)


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)


class _TcpServer(_Server):
    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def address_string(self) -> str:
        return "agent"

    def log_message(self, *args) -> None:
        pass

    def do_POST(self) -> None:
        self.route()

    def do_PUT(self) -> None:
        self.route()

    def do_GET(self) -> None:
        self.route()

    def route(self) -> None:
        bot = self.server.bot
        body = self.body(bot)
        if body is None:
            return
        url = urlsplit(self.path)
        name = url.path.removeprefix("/base").removeprefix(protocol.PREFIX)
        bot.requests.append(f"{self.command} {name}")
        if bot.slow_s:
            pause(bot.slow_s)
        if bot.fail_next:
            bot.fail_next -= 1
            self.answer(503, b"not now")
        elif bot.revoked:
            self.answer(410, b"gone")
        elif self.headers["Authorization"] != f"Bearer {CLAIM if name == 'claim' else TOKEN}":
            self.answer(401, b"who?")
        else:
            self.dispatch(bot, name, parse_qs(url.query), body)

    def body(self, bot: FakeBot) -> bytes | None:
        length = int(self.headers["Content-Length"] or 0)
        if bot.drop_body_after is not None and self.path.startswith(protocol.PREFIX + "streams/log"):
            drop, bot.drop_body_after = bot.drop_body_after, None
            if length > drop:
                self.rfile.read(drop)
                self.cut()
                return None
            bot.drop_body_after = drop
        return self.rfile.read(length)

    def cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_chunked(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 1000):
            piece = body[at : at + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def dispatch(self, bot: FakeBot, name: str, query: dict[str, list[str]], body: bytes) -> None:
        kind, _, rest = name.partition("/")
        if kind == "claim":
            bot.claims.append(dict(protocol.decode(body)))
            self.answer(200, bot.spec())
        elif kind == "phase" and bot.busy_with_phases:
            self._answer(503, b"busy")
        elif kind == "phase":
            phase = dict(protocol.decode(body))["phase"].decode()
            if bot.phases[-1:] != [phase]:  # who is told to stop asks why
                bot.phases.append(phase)
            self.answer(200, bot.common(("out_of_disk", int(bot.out_of_disk))))
        elif kind == "streams":
            status, answer = bot.append(rest, int(query["offset"][0]), body, end="end" in query)
            if rest == "log" and bot.lose_answers:
                bot.lose_answers -= 1
                self.cut()
                return
            self.answer(status, answer)
        elif kind == "masks" and bot.no_masks:
            self.answer(404)
        elif kind == "masks" and bot.later_elsewhere:
            self.answer(200, protocol.encode([("cancel", 0), ("deadline", bot.deadline), ("masks", 0)]))
        elif kind == "masks":
            self.answer(200, bot.common(*(("mask", needle) for needle in (*bot.mask, *bot.later))))
        elif kind == "source":
            self.answer_chunked(bot.git_tar if rest else bot.source_tar)
        elif kind == "models":
            self.model_file(bot, rest, query)
        elif kind == "artifacts":
            if not rest:
                self.answer(*bot.add_artifacts(body))
                return
            bot.before_artifact(unquote(rest))
            self.answer(*bot.add_artifact(unquote(rest), query, body))
        elif kind == "installed" and bot.no_installed:
            self.answer(413, b"too much")
        elif kind == "installed":
            bot.installed = body
            self.answer(200, bot.common())
        elif kind == "layer":
            bot.layers.append({name: value.decode() for name, value in protocol.decode(body)})
            self.answer(409, bot.no_layer.encode()) if bot.no_layer else self.answer(200, bot.common())
        elif kind == "finish":
            bot.finished.append(dict(protocol.decode(body)))
            self.answer(200, bot.common())

    def model_file(self, bot: FakeBot, rest: str, query: dict[str, list[str]]) -> None:
        index, _, path = rest.partition("/")
        model, path = bot.models[int(index)], unquote(path)
        bot.model_queries.append((path, "".join(query)))
        if path in model.elsewhere and "from_bot" not in query:
            self.send_response(307)
            self.send_header("Location", model.elsewhere[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = model.served.get(path, model.files.get(path))
        if content is None:
            self.answer(422, b"no such file on the hub")
            return
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = bot.cut_download_after
        if cut is not None and len(content) - start > cut:
            bot.cut_download_after = None
            self.wfile.write(content[start : start + cut])
            self.wfile.flush()
            self.cut()
            return
        self.wfile.write(content[start:])


def make_tar(members: list[tuple[str, bytes | tuple[str, str]]], *, commit: str = "c" * 40) -> bytes:
    """A tar as git writes it; a member's content is bytes, or `("link", target)`, `("hard", target)`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": commit}) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type = tarfile.SYMTYPE if content[0] == "link" else tarfile.LNKTYPE
                info.linkname = content[1]
                archive.addfile(info)
            else:
                info.size = len(content)
                info.mode = 0o755 if name.endswith(".sh") else 0o644
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


START = """import sys
z = sys.argv[1]
sys.path[:0] = [z + "/" + sys.implementation.cache_tag, z]
%s
from gpurun_agent.main import main
main()"""


class Agent:
    """The real agent in a process of its own, without a container."""

    def __init__(
        self,
        bot: FakeBot,
        agent_path: Path,
        root: Path,
        *,
        first: str = "",
        python: str = "",
        programs: str = "",
        env: dict[str, str] | None = None,
    ) -> None:
        self.root = root
        full = {
            "PATH": f"{programs}:{os.defpath}" if programs else os.defpath,
            "HOME": str(root),
            "LANG": "C.UTF-8",
            "GPURUN_ATTEMPT": ATTEMPT,
            "GPURUN_ROOT": str(root),
            "GPURUN_UPLINK": bot.address,
            "GPURUN_CLAIM": CLAIM,
            "GPURUN_DEADLINE": str(bot.deadline),
            **(env or {}),
        }
        self.process = subprocess.Popen(
            [python or sys.executable, "-I", "-S", "-c", START % first, str(agent_path)],
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def wait(self, timeout_s: float = 30.0) -> int:
        """Exit code; what the agent itself printed must be nothing."""
        code, printed = self.leave(timeout_s)
        assert printed == b"", printed.decode()
        return code

    def leave(self, timeout_s: float = 30.0) -> tuple[int, bytes]:
        """Exit code and what the agent itself printed, for whoever could not be told."""
        printed, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, printed


def with_code(module: str, code: str) -> str:
    """Source that changes a module of the agent before it starts."""
    return f"import gpurun_agent.{module} as module\nexec({code!r}, vars(module))"
