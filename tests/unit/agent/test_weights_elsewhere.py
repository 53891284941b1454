"""Large files come from where the bot points to: bytes and nothing else, and from the bot when that fails."""

from __future__ import annotations

import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.unit.agent.fake_bot import Model

PATH = "model.safetensors"
CONTENT = random.Random(2).randbytes(3_000_000)


class Store(ThreadingHTTPServer):
    """A store of files behind signed addresses. It answers `statuses` first, breaks off at `cuts`, and then works."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = CONTENT
        self.statuses: list[int] = []
        self.cuts: list[int] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/blob?Signature=s3cr3t-s1gnature"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        store = self.server
        store.seen.append((self.path, dict(self.headers)))
        if store.statuses:
            self.send_response(store.statuses.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        rest = store.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if store.cuts:
            self.wfile.write(rest[: store.cuts.pop(0)])
            self.close_connection = True
            return
        self.wfile.write(rest)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def store():
    with Store() as store:
        threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield store
        store.shutdown()


@pytest.fixture
def model(bot, store):
    model = Model("org/large", "a" * 40, {PATH: CONTENT, "config.json": b"{}"}, elsewhere={PATH: store.url})
    bot.models = [model]
    return model


def asked_of_bot(bot):
    return [query for path, query in bot.model_queries if path == PATH]


def laid_out(agent):
    return (agent.root / "hub/hub/models--org--large/snapshots" / ("a" * 40) / PATH).read_bytes()


def test_the_bytes_come_from_there_and_nothing_of_ours_goes_there(bot, run, store, model):
    agent = run("true")
    assert bot.end["result"] == "passed"
    assert laid_out(agent) == CONTENT
    ((path, headers),) = store.seen
    assert path == "/blob?Signature=s3cr3t-s1gnature"
    assert "Authorization" not in headers
    assert asked_of_bot(bot) == [""]
    assert b"s3cr3t" not in bot.log


def test_a_broken_connection_goes_on_where_it_stopped(bot, run, store, model):
    store.cuts = [1_000_000, 500_000]
    agent = run("true")
    assert laid_out(agent) == CONTENT
    assert [headers.get("Range") for _, headers in store.seen] == [None, "bytes=1000000-", "bytes=1500000-"]
    assert asked_of_bot(bot) == [""] * 3  # each time for an address that is still good


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 302, 500])
def test_an_address_that_opens_nothing_any_more_is_asked_for_anew(bot, run, store, model, status):
    store.statuses = [status]
    agent = run("true")
    assert bot.end["result"] == "passed"
    assert laid_out(agent) == CONTENT
    assert len(store.seen) == 2


@pytest.mark.parametrize("trouble", ["refuses", "unreachable", "no address", "a socket"])
def test_what_cannot_be_had_there_comes_from_the_bot(bot, run, store, model, trouble):
    store.statuses = [403] * 10
    if trouble != "refuses":
        model.elsewhere[PATH] = {
            "unreachable": "http://127.0.0.1:9/x",
            "no address": "http://[",
            "a socket": "unix:/x",
        }[trouble]
    agent = run("true")
    assert bot.end["result"] == "passed"
    assert laid_out(agent) == CONTENT
    assert asked_of_bot(bot) == ["", "", "from_bot"]


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"!", CONTENT[:-1], CONTENT + b"!", b""])
def test_wrong_bytes_from_there_are_fetched_once_more_from_the_bot(bot, run, store, model, wrong):
    store.content = wrong
    agent = run("true")
    assert bot.end["result"] == "passed"
    assert laid_out(agent) == CONTENT
    assert asked_of_bot(bot)[-1] == "from_bot"


def test_wrong_bytes_from_both_fail_the_run(bot, run, store, model):
    store.content = model.served[PATH] = CONTENT[:-1] + b"!"
    run("echo never")
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "weights_mismatch")
    assert PATH in bot.end["detail"]
