from __future__ import annotations

import asyncio
import hashlib
import hmac
import json

import httpx
import pytest
import structlog
from pydantic import SecretStr

from gpurun.http.webhook import ACTIONS, MAX_BODY, Webhook, sign
from tests.unit.http.world import WEBHOOK_SECRET

# What never reaches a row need not be tried on both databases.
one_database = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)

REPOSITORY = {"id": 9, "full_name": "octo/app", "private": False, "owner": {"login": "octo", "id": 1}}
COMMENT = {
    "action": "created",
    "issue": {"number": 5, "title": "Faster", "pull_request": {"url": "https://api.github.com/x"}, "user": None},
    "comment": {"id": 3, "user": {"login": "alice", "type": "User"}, "body": "/gpurun smoke"},
    "repository": REPOSITORY,
    "sender": {"login": "alice", "id": 2},
    "installation": {"id": 7, "node_id": "MDIz"},
}
PULL_REQUEST = {
    "action": "synchronize",
    "number": 5,
    "before": "0" * 40,
    "after": "1" * 40,
    "pull_request": {"number": 5, "head": {"sha": "1" * 40}, "base": {"ref": "main"}, "body": None},
    "repository": REPOSITORY,
    "installation": {"id": 7},
}


def body_of(event: dict[str, object], **changes: object) -> bytes:
    return json.dumps({**event, **changes}).encode()


def without(event: dict[str, object], key: str) -> bytes:
    return json.dumps({name: value for name, value in event.items() if name != key}).encode()


def test_the_published_vector():
    assert sign(b"It's a Secret to Everybody", b"Hello, World!") == (
        b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    )


async def test_a_comment_becomes_one_durable_row(world):
    body = body_of(COMMENT)
    answer = await world.deliver(body)
    assert answer.status_code == 202
    (delivery,) = await world.inbox()
    assert delivery.body == body
    assert (delivery.guid, delivery.event, delivery.action) == (
        "7b1e0000-0000-4000-8000-000000000001", "issue_comment", "created",
    )  # fmt: skip
    assert (delivery.installation_id, delivery.repo, delivery.number) == (7, "octo/app", 5)


async def test_a_push_to_a_pull_request_becomes_a_row(world):
    assert (await world.deliver(body_of(PULL_REQUEST), event="pull_request")).status_code == 202
    (delivery,) = await world.inbox()
    assert (delivery.event, delivery.action, delivery.number) == ("pull_request", "synchronize", 5)


CHECK = {"id": 48_000_000_001, "pull_requests": [{"number": 5}]}


@pytest.mark.parametrize(
    ("event", "action"),
    [("check_run", "requested_action"), ("check_run", "rerequested"), ("check_suite", "rerequested")],
)
async def test_a_button_becomes_a_row_that_is_in_order_with_its_check_alone(world, event, action):
    pressed = {"repository": REPOSITORY, "installation": {"id": 7}, event: CHECK}
    assert (await world.deliver(body_of(pressed, action=action), event=event)).status_code == 202
    (delivery,) = await world.inbox()
    assert (delivery.event, delivery.action, delivery.number) == (event, action, -48_000_000_001)


@pytest.mark.parametrize("second", [body_of(COMMENT), body_of(COMMENT, other=1)], ids=["same body", "other body"])
async def test_b001_a_delivery_id_acts_once(world, second):
    answers = await asyncio.gather(world.deliver(body_of(COMMENT)), world.deliver(second))
    assert [answer.status_code for answer in answers] == [202, 202]
    assert len(await world.inbox()) == 1


@pytest.mark.parametrize("escaped", [True, False])
async def test_b010_the_signature_is_over_raw_bytes(world, escaped):
    event = COMMENT | {"comment": {"id": 3, "body": "/gpurun smoke 🚀 ä"}}
    body = json.dumps(event, ensure_ascii=escaped).encode()
    flipped = bytes([*body[:-2], body[-2] ^ 1, body[-1]])
    signature = sign(WEBHOOK_SECRET.encode(), body).decode()
    assert (await world.deliver(flipped, X_Hub_Signature_256=signature)).status_code == 401
    assert (await world.deliver(body)).status_code == 202


def _hexdigest(secret: str, body: bytes, name: str = "sha256") -> str:
    return hmac.new(secret.encode(), body, getattr(hashlib, name)).hexdigest()


BODY = body_of(COMMENT)


@one_database
@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "sha1=" + _hexdigest(WEBHOOK_SECRET, BODY, "sha1"),
        "sha256=" + _hexdigest(WEBHOOK_SECRET, BODY).upper(),
        "sha256=" + _hexdigest(WEBHOOK_SECRET, BODY)[:-2],
        "sha256=" + "z" * 64,
        _hexdigest(WEBHOOK_SECRET, BODY),
        "sha256=" + _hexdigest("another secret", BODY),
        "sha256=" + _hexdigest("", BODY),
        "sha256=" + _hexdigest(WEBHOOK_SECRET, json.dumps(COMMENT, indent=1).encode()),
    ],
)
async def test_what_is_not_signed_gets_one_answer(world, signature):
    answer = await world.deliver(BODY, X_Hub_Signature_256=signature)
    assert (answer.status_code, answer.text) == (401, "A valid X-Hub-Signature-256 is needed.\n")
    assert await world.inbox() == []


@one_database
async def test_unsigned_deliveries_are_told_once_a_minute_and_counted(world):
    async def unsigned(times: int) -> None:
        for number in range(times):
            await world.deliver(b"canary", X_Hub_Signature_256=None if number % 2 else "sha256=" + "c" * 64)

    with structlog.testing.capture_logs() as logs:
        await world.deliver(BODY)
        assert logs == []
        await unsigned(4)
        world.services.clock.advance(seconds=59)
        await unsigned(2)
        world.services.clock.advance(seconds=1)
        await unsigned(1)
        world.services.clock.advance(seconds=60)
        await unsigned(1)
    assert [(line["log_level"], line["event"], line["suppressed"]) for line in logs] == [
        ("warning", "delivery_unsigned", 0), ("warning", "delivery_unsigned", 5), ("warning", "delivery_unsigned", 0),
    ]  # fmt: skip
    assert "GPURUN_WEBHOOK_SECRET" in logs[0]["hint"]
    assert not any(word in str(logs) for word in ("canary", "c" * 8))


@one_database
async def test_two_signatures_are_none(world):
    good = sign(WEBHOOK_SECRET.encode(), BODY).decode()
    headers = [("X-Hub-Signature-256", good), ("X-Hub-Signature-256", good), ("X-GitHub-Event", "issue_comment")]
    assert (await world.client.post("/github", content=BODY, headers=headers)).status_code == 401


@one_database
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"{not json", {}),
        (b"payload=%7B%7D", {"Content_Type": "application/x-www-form-urlencoded"}),
        (BODY, {"X_GitHub_Event": None}),
        (BODY, {"X_GitHub_Delivery": None}),
        (b"\xff\xfe", {}),
        (b"[" * 100_000, {}),
    ],
)
async def test_b011_an_unsigned_request_never_meets_a_parser(world, body, headers):
    """Whatever else is wrong with it, the answer is the same."""
    answer = await world.deliver(body, X_Hub_Signature_256="sha256=" + "0" * 64, **headers)
    assert (answer.status_code, answer.text) == (401, "A valid X-Hub-Signature-256 is needed.\n")


@one_database
@pytest.mark.parametrize(
    "headers",
    [
        {"X_GitHub_Delivery": None},
        {"X_GitHub_Delivery": "a b"},
        {"X_GitHub_Delivery": "x" * 65},
        {"X_GitHub_Event": None},
        {"Content_Type": None},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Content_Type": "text/plain"},
    ],
)
async def test_a_signed_request_needs_its_headers(world, headers):
    assert (await world.deliver(BODY, **headers)).status_code == 400
    assert await world.inbox() == []


@one_database
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        BODY[:-1],
        b"\x1f\x8b\x08\x00gzip",
        b'{"action":"created"\x00}',
        BODY.replace(b"/gpurun", b"\xff\xfe"),
        BODY.replace(b"octo/app", b"octo\\ud800/app"),
        BODY.replace(b"octo/app", b"octo\\u0000/app"),
        b"[" * 100_000,
        b'{"action":"created","x":' + b"[" * 100_000,
        b'{"action":"created","x":' + b'{"a":' * 100_000,
        body_of(COMMENT, extra="\ud800"),
        body_of(COMMENT, action=5),
        body_of(COMMENT, action=["created"]),
        body_of(COMMENT, installation={"id": 2**53 + 1}),
        body_of(COMMENT, installation={"id": 10**400}),
        body_of(COMMENT, installation={"id": -1}),
        body_of(COMMENT, installation={"id": "7"}),
        body_of(COMMENT, installation={"id": 7.5}),
        body_of(COMMENT, installation={}),
        body_of(COMMENT, installation=[7]),
        body_of(COMMENT, issue={"number": 2**31}),
        body_of(COMMENT, issue={"number": True}),
        body_of(COMMENT, repository=None),
        body_of(COMMENT, repository={"full_name": "no-slash"}),
        body_of(COMMENT, repository={"full_name": "a/b/c"}),
        body_of(COMMENT, repository={"full_name": 5}),
        without(COMMENT, "repository"),
    ],
)
async def test_signed_nonsense_is_refused_and_never_an_error(world, body):
    assert (await world.deliver(body)).status_code == 400
    assert await world.inbox() == []


@one_database
@pytest.mark.parametrize(
    ("event", "body"),
    [
        ("push", b"{not even json"),
        ("check_run", body_of(COMMENT)),
        ("check_run", body_of(COMMENT, action="completed")),
        ("check_suite", body_of(COMMENT, action="requested")),
        ("Issue_Comment", body_of(COMMENT)),
        ("issue_comment", body_of(COMMENT, action="edited")),
        ("issue_comment", body_of(COMMENT, action="deleted")),
        ("issue_comment", body_of(COMMENT, action=None)),
        ("issue_comment", body_of(COMMENT, action="created\u0000")),
        ("issue_comment", without(COMMENT, "installation")),
        ("issue_comment", b"{}"),
        ("pull_request", body_of(PULL_REQUEST, action="labeled")),
    ],
)
async def test_b029_what_is_not_used_is_answered_and_forgotten(world, event, body):
    assert (await world.deliver(body, event=event)).status_code == 202
    assert await world.inbox() == []


@one_database
async def test_b029_ping_is_answered(world):
    assert (await world.deliver(b'{"zen":"x","hook_id":1}', event="ping")).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        body_of(COMMENT, extra="\x00"),
        BODY.replace(b'"sender"', b'"action": "created", "sender"'),
        body_of(COMMENT, big=2**80, nested=[[[[{}]]]]),
    ],
    ids=["NUL in a field nobody reads", "duplicate key", "large number"],
)
async def test_odd_but_whole_payloads_are_accepted(world, body):
    assert (await world.deliver(body)).status_code == 202
    assert len(await world.inbox()) == 1


@pytest.mark.parametrize("n_bytes", [600_000, 24_000_000])
async def test_b030_large_payloads_are_accepted(world, n_bytes):
    body = body_of(PULL_REQUEST, padding="x" * n_bytes)
    assert (await world.deliver(body, event="pull_request")).status_code == 202


@one_database
async def test_b011_b030_a_body_that_is_too_large_is_refused_before_it_is_read(world):
    class Unread(httpx.AsyncByteStream):
        async def __aiter__(self):
            raise AssertionError("read")
            yield b""

    answer = await world.client.post("/github", content=Unread(), headers={"Content-Length": str(MAX_BODY + 1)})
    assert answer.status_code == 413


async def test_b011_b030_a_body_without_a_length_is_refused_while_it_streams():
    """Also when its sender never stops."""
    read = 0

    async def receive():
        nonlocal read
        read += 1024 * 1024
        return {"type": "http.request", "body": bytes(1024 * 1024), "more_body": True}

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/github", "headers": [
        (b"x-hub-signature-256", b"sha256=" + b"0" * 64)]}  # fmt: skip
    await Webhook(store=None, clock=None, secrets=[SecretStr("x" * 20)])(scope, receive, send)
    assert sent[0]["status"] == 413
    assert read <= MAX_BODY + 2 * 1024 * 1024


async def test_both_secrets_are_good_while_one_is_changed(world):
    webhook = Webhook(
        store=world.store, clock=world.services.clock, secrets=[SecretStr("new secret"), SecretStr(WEBHOOK_SECRET)]
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(webhook), base_url="http://gpurun.test") as client:
        for number, secret in enumerate(["new secret", WEBHOOK_SECRET, "third secret"]):
            answer = await client.post("/github", content=BODY, headers={
                "X-Hub-Signature-256": sign(secret.encode(), BODY).decode(), "X-GitHub-Event": "issue_comment",
                "X-GitHub-Delivery": f"guid-{number}", "Content-Type": "application/json; charset=utf-8",
            })  # fmt: skip
            assert answer.status_code == (401 if secret == "third secret" else 202)
    assert len(await world.inbox()) == 1  # the second waits for the first of its pull request


@pytest.mark.parametrize("secrets", [[], [SecretStr("")], [SecretStr(""), SecretStr("")]])
async def test_without_a_secret_everything_is_refused(secrets):
    webhook = Webhook(store=None, clock=None, secrets=secrets)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(webhook), base_url="http://gpurun.test") as client:
        answer = await client.post("/github", content=b"{}", headers={"X-Hub-Signature-256": sign(b"", b"{}").decode()})
    assert answer.status_code == 503
    assert "GPURUN_WEBHOOK_SECRET" in answer.text


@one_database
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_only_post(world, method):
    answer = await world.client.request(method, "/github")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_a_row_that_cannot_be_stored_is_not_acknowledged(world):
    class Broken:
        async def accept(self, _):
            raise OSError("disk full")

    webhook = Webhook(store=Broken(), clock=world.services.clock, secrets=[SecretStr(WEBHOOK_SECRET)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(webhook), base_url="http://gpurun.test") as client:
        answer = await client.post("/github", content=BODY, headers={
            "X-Hub-Signature-256": sign(WEBHOOK_SECRET.encode(), BODY).decode(), "X-GitHub-Event": "issue_comment",
            "X-GitHub-Delivery": "guid", "Content-Type": "application/json",
        })  # fmt: skip
    assert answer.status_code == 503
    assert "disk" not in answer.text


def test_the_table_is_closed():
    assert set(ACTIONS) == {"issue_comment", "pull_request", "check_run", "check_suite", "installation"}
    assert ACTIONS["issue_comment"] == {"created"}
    assert "completed" not in ACTIONS["check_run"], "what the bot writes itself would come back"


@one_database
async def test_announced_bodies_that_never_come_keep_nobody_out(world):
    """Ten unsigned requests that announce the longest body must not use up the room for those of GitHub."""
    webhook = Webhook(store=world.services.store, clock=world.services.clock, secrets=[SecretStr(WEBHOOK_SECRET)])
    waiting = asyncio.Event()

    async def never():
        await waiting.wait()
        return {"type": "http.disconnect"}

    said: list[int] = []

    async def send(message):
        if message["type"] == "http.response.start":
            said.append(message["status"])

    def scope(body: bytes | None) -> dict[str, object]:
        headers = [(b"x-hub-signature-256", sign(WEBHOOK_SECRET.encode(), body or b""))]
        headers += [(b"x-github-delivery", b"g1"), (b"x-github-event", b"ping"), (b"content-type", b"application/json")]
        length = MAX_BODY if body is None else len(body)
        return {"type": "http", "method": "POST", "headers": [*headers, (b"content-length", b"%d" % length)]}

    async def whole():
        return {"type": "http.request", "body": b"{}"}

    async with asyncio.TaskGroup() as tasks:
        for _ in range(30):
            tasks.create_task(webhook(scope(None), never, send))
        await asyncio.sleep(0)
        await webhook(scope(b"{}"), whole, send)
        waiting.set()
    assert said == [200]


@one_database
async def test_room_that_was_used_is_free_again(world, monkeypatch):
    monkeypatch.setattr("gpurun.http.webhook.MAX_BUFFERED", 1000)
    assert (await world.deliver(b"x" * 1001)).status_code == 503
    assert (await world.deliver(body_of(COMMENT))).status_code == 202
