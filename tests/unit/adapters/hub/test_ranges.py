"""Ranges over TLS, as the store gives them."""

from __future__ import annotations

import datetime as dt
import functools
import http.server
import ipaddress
import os
import select
import ssl
import threading

import anyio
import anyio.to_thread
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpurun.adapters.hub.part import Part
from gpurun.adapters.hub.ranges import Ranges

DATA = os.urandom(300_000)
HEAD = 50_000
"""What a thread gets before it is stopped."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Of 127.0.0.1, with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(pem) + private)
    return path


class Store(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(206)
        self.send_header("Content-Range", f"bytes 0-{len(DATA) - 1}/{len(DATA)}")
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        try:
            self.wfile.write(DATA)
        except OSError:
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def store(certificate, monkeypatch):
    """Its address."""
    trusting = functools.partial(ssl.create_default_context, cafile=certificate)
    monkeypatch.setattr(httpx2, "create_ssl_context", trusting)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield httpx2.URL(f"https://127.0.0.1:{server.server_port}/weights")
        server.shutdown()
        thread.join()


@pytest.fixture
def part(tmp_path):
    path = tmp_path / "x.part"
    made = Part(path, os.open(path, os.O_RDWR | os.O_CREAT, 0o600), len(DATA))
    made.by_ranges()
    yield made
    made.close()


class Held:
    """A thread that stands between two records, with the next one already in the kernel."""

    def __init__(self, monkeypatch):
        self.reached, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.version_after = None
        real_read, real_work = ssl.SSLSocket.recv_into, Ranges._work
        got = 0

        def recv_into(socket, *args):
            nonlocal got
            if got > HEAD and not self.reached.is_set():
                select.select([socket], [], [], 10)
                self.reached.set()
                self.go.wait(10)
                self.version_after = socket.version()
            n_bytes = real_read(socket, *args)
            got += n_bytes
            return n_bytes

        def work(ranges):
            try:
                real_work(ranges)
            finally:
                self.ended.set()

        monkeypatch.setattr(ssl.SSLSocket, "recv_into", recv_into)
        monkeypatch.setattr(Ranges, "_work", work)


async def test_what_comes_over_tls_is_right(store, part):
    await Ranges(store, part, len(DATA), idle_timeout_s=10).fetch(anyio.CapacityLimiter(4))
    assert part.path.read_bytes() == DATA


async def test_a_thread_that_is_stopped_counts_nothing_encrypted_as_good(store, part, monkeypatch):
    monkeypatch.setattr("gpurun.adapters.hub.ranges.PIECE_BYTES", 20_000)
    held = Held(monkeypatch)
    ranges = Ranges(store, part, len(DATA), idle_timeout_s=10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ranges.fetch, anyio.CapacityLimiter(4))
        assert await anyio.to_thread.run_sync(held.reached.wait, 10)
        tasks.cancel_scope.cancel()
    held.go.set()
    assert held.ended.wait(10)
    [(start, _)] = part.missing()
    assert 0 < start < len(DATA)
    assert part.path.read_bytes()[:start] == DATA[:start]
    assert held.version_after is not None  # its keys are still there
