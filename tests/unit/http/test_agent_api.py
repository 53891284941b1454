from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from datetime import timedelta
from functools import partial

import httpx
import pytest
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.store.attempts import AttemptTable
from gpurun.domain import stream
from gpurun.domain.errors import PinNotFound, SourceUnavailable
from gpurun.domain.offer import DiskUse
from gpurun.domain.run import AttemptState, Phase, Result, ResultKind
from gpurun.domain.secret import MAX_SECRET_BYTES, GivenSecret
from gpurun.domain.stream import ArtifactLimits
from gpurun.http import agent_files
from gpurun.http.agent_files import artifact_path, signatures
from gpurun.http.asgi import Refusal
from gpurun.http.callers import SCOPE_ATTEMPT
from gpurun.http.server import build_app
from gpurun.http.spec import build_spec
from gpurun.plan.resolve import _HASHES_BYTES, MAX_LISTED_BYTES
from gpurun.plan.source import MAX_BYTES as MAX_CONFIG_BYTES
from gpurun.run import tokens
from gpurun.telemetry.forms import MAX_TOLD_BYTES
from gpurun_agent import protocol
from gpurun_agent.wire import MAX_BODY
from tests.unit.http.world import (
    ATTEMPT_ID,
    CONFIG,
    FILE,
    INSTALL_SECRET,
    NOW,
    PLAN,
    RUN_ID,
    WEIGHTS,
    World,
    a_run,
    all_records,
    an_attempt,
    records,
    services_over,
)

DEADLINE = str(int((NOW + timedelta(hours=1)).timestamp()))
ORDERS = {"cancel": "0", "deadline": DEADLINE}
one_database = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


async def ask_to_stop(world):
    """What the engine does when somebody cancels."""
    await world.store.write(lambda tx: tx.ask_cancel(RUN_ID, "bob"))


def test_spec_says_the_whole_plan():
    spec = build_spec(
        PLAN, an_attempt(number=2), token=SecretStr("run-token"), cancel=False, log_quota_bytes=9,
        limits=ArtifactLimits(files=1, file_bytes=2, total_bytes=3),
        secrets=[GivenSecret(name="HF_TOKEN", value=SecretStr("a=b\nc"))],
        needles=[b"secret-2", b"secret-1"], masks_version=3,
    )  # fmt: skip
    assert [(name, value.decode()) for name, value in protocol.decode(spec)] == [
        ("token", "run-token"),
        ("attempt", ATTEMPT_ID),
        ("number", "2"),
        ("cancel", "0"),
        ("deadline", DEADLINE),
        ("max_duration_s", "1800"),
        ("log_quota", "9"),
        ("source", "a" * 40),
        ("setup", "pip install -e ."),
        ("run", "python -m app.smoke\necho done"),
        ("workdir", PLAN.workdir),
        ("env", "EMPTY="),
        ("env", "SEED=0"),
        ("secret", "HF_TOKEN=a=b\nc"),
        ("masks", "3"),
        ("mask", "secret-1"),
        ("mask", "secret-2"),
        ("model", f"0\0octo/tiny\0{'d' * 40}\0/weights"),
        ("layout", "0\0model\0main"),
        ("file", f"0\0{FILE.size}\0{FILE.sha256}\0e1\0sub/model.safetensors"),
        ("file", f"0\0002\0{CONFIG.sha256}\0e2\0config.json"),
        ("artifact", "out/*.json"),
        ("artifact_files", "1"),
        ("artifact_file_bytes", "2"),
        ("artifact_bytes", "3"),
    ]


def test_an_agent_reads_the_largest_spec():
    path = "weights/model-00001-of-{:05}.safetensors"
    one = len(path.format(0)) + _HASHES_BYTES
    files = tuple(replace(FILE, path=path.format(number), etag="e" * 64) for number in range(MAX_LISTED_BYTES // one))
    masks = [b"%012d" % number for number in range(MAX_TOLD_BYTES // len(protocol.encode([("mask", "0" * 12)])))]
    texts = (("A", "x" * MAX_CONFIG_BYTES),)
    plan = replace(PLAN, models=(replace(PLAN.models[0], files=files),), env=texts)
    values = [GivenSecret(name=f"S{number}", value=SecretStr("v" * MAX_SECRET_BYTES)) for number in range(10)]
    spec = build_spec(
        plan, an_attempt(), token=SecretStr("run-token"), cancel=False, log_quota_bytes=9,
        secrets=values, needles=masks, masks_version=1, limits=ArtifactLimits(),
    )  # fmt: skip
    assert 4 * 1024 * 1024 < len(spec) < MAX_BODY


@pytest.mark.parametrize(
    ("mounted", "models", "told"), [(True, True, ["mounted"]), (True, False, []), (False, True, [])]
)
def test_spec_says_where_weights_are_mounted(mounted, models, told):
    spec = build_spec(
        PLAN if models else replace(PLAN, models=()), an_attempt(), token=SecretStr("run-token"), cancel=False,
        log_quota_bytes=9, secrets=[], needles=[], masks_version=0, weights_mounted=mounted, limits=ArtifactLimits(),
    )  # fmt: skip
    assert [value.decode() for name, value in protocol.decode(spec) if name == "weights"] == told


@pytest.mark.parametrize(("mounting", "told"), [(("docker",), "mounted"), (("other",), None)])
async def test_only_a_provider_that_mounts_is_told_of(world, mounting, told):
    services = replace(world.services, mounting=frozenset(mounting))
    transport = httpx.ASGITransport(build_app(services), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpurun.test") as client:
        seen = World(services=services, client=client)
        await seen.add()
        assert records(await seen.claim()).get("weights") == told


async def test_a_whole_conversation(world, clock):
    await world.add()
    spec = records(await world.claim(agent="1.2", **{"landed.python": "3.11.2\n", "landed.gpu": "RTX\x1b[31m 4090"}))
    assert spec["run"] == PLAN.run
    attempt = await world.attempt()
    assert (attempt.claimed_at, attempt.boot_id, attempt.phase) == (clock.now(), "boot-1", Phase.SOURCE)
    assert list(attempt.phase_times) == [Phase.CLAIMED, Phase.SOURCE]
    assert attempt.landed == {"agent": "1.2", "python": "3.11.2", "gpu": "RTX 4090"}
    assert attempt.token_sha256 == hashlib.sha256(world.token.encode()).hexdigest()

    source = await world.get("source")
    assert source.content == b"".join(world.services.git.pieces)
    assert world.services.git.asked == [("octo/app", "a" * 40)]
    assert (await world.get("models/0/sub/model.safetensors")).content == WEIGHTS

    clock.advance(seconds=5)
    assert records(await world.post("phase", [("phase", "running")])) == {**ORDERS, "out_of_disk": "0"}
    assert (await world.attempt()).phase_times["running"] == clock.now()

    assert records(await world.append(0, b"hello\n")) == {"next": "6", "durable": "6", **ORDERS}
    assert records(await world.append(6, b"world\n", end=True)) == {"next": "12", "durable": "12", **ORDERS}
    assert records(await world.append(0, b'{"t":1}\n', name="metrics")) == {"next": "8", "durable": "8", **ORDERS}
    assert records(await world.collect("out/result.json", b"{}")) == {"next": "2", **ORDERS}

    finished = [("result", "failed"), ("exit_code", 3), ("reason", "exit"), ("detail", "exit code 3")]
    assert (await world.post("finish", finished)).status_code == 200
    attempt = await world.attempt()
    assert attempt.result == Result(kind=ResultKind.FAILED, exit_code=3, reason="exit", detail="exit code 3")
    assert await world.log() == b"hello\nworld\n"
    assert await world.audited() == ["attempt_claimed", "attempt_result_set"]


# who may talk


async def test_the_claim_is_for_one_boot(world, clock):
    await world.add()
    first = await world.claim("boot-1")
    clock.advance(seconds=60)
    again = await world.claim("boot-1")
    assert again.content == first.content
    assert (await world.claim("boot-2")).status_code == 410
    clock.advance(seconds=121)
    assert (await world.claim("boot-1")).status_code == 410
    assert await world.audited() == ["attempt_claimed", "attempt_claim_refused"]


@one_database
@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        ATTEMPT_ID,
        f"{ATTEMPT_ID}.",
        f"{ATTEMPT_ID}.wrong",
        "0" * 26 + ".wrong",
        tokens.run_token(INSTALL_SECRET, ATTEMPT_ID, "boot-1"),
        tokens.claim_token(b"another installation", ATTEMPT_ID),
        tokens.claim_token(INSTALL_SECRET, "0" * 26),
        "' OR 1=1 --.x",
        "é" * 26 + ".x",
    ],
)
async def test_only_the_claim_token_claims(world, token):
    await world.add()
    headers = {"Authorization": f"Bearer {token}".encode("latin-1", "replace")}
    answer = await world.client.post("/agent/v1/claim", content=protocol.encode([("boot_id", "b")]), headers=headers)
    assert (answer.status_code, answer.text) == (401, "This token opens nothing here.\n")
    assert (await world.attempt()).claimed_at is None


@one_database
async def test_other_forms_of_authorization_open_nothing(world):
    await world.add()
    token = tokens.claim_token(INSTALL_SECRET, ATTEMPT_ID)
    bodies = protocol.encode([("boot_id", "b")])
    for headers in ([], [("Authorization", f"Basic {token}")], [("Authorization", f"Bearer {token}")] * 2):
        assert (await world.client.post("/agent/v1/claim", content=bodies, headers=headers)).status_code == 401


EVERY_CALL = [
    ("POST", "phase", protocol.encode([("phase", "running")])),
    ("PUT", "streams/log?offset=0", b"x"),
    ("GET", "source", b""),
    ("GET", "models/0/config.json", b""),
    ("PUT", f"artifacts/a?offset=0&size=1&sha256={hashlib.sha256(b'x').hexdigest()}", b"x"),
    ("POST", "finish", protocol.encode([("result", "passed"), ("exit_code", 0)])),
]


@one_database
@pytest.mark.parametrize(("method", "path", "body"), EVERY_CALL)
async def test_the_claim_token_and_a_foreign_token_open_nothing_else(world, method, path, body):
    await world.add()
    await world.claim()
    for token in (
        tokens.claim_token(INSTALL_SECRET, ATTEMPT_ID),
        tokens.run_token(INSTALL_SECRET, ATTEMPT_ID, "boot-2"),
        tokens.run_token(INSTALL_SECRET, "0" * 26, "boot-1"),
    ):
        answer = await world.client.request(method, f"/agent/v1/{path}", content=body, headers=world.bearer(token))
        assert answer.status_code == 401
    assert (await world.attempt()).result is None


@one_database
@pytest.mark.parametrize(("method", "path", "body"), EVERY_CALL)
async def test_a_socket_is_for_one_attempt(world, method, path, body):
    """A good token through the socket of another attempt is no token."""
    await world.add()
    await world.claim()
    app = build_app(world.services)

    async def through(attempt_id, scope, receive, send):
        await app({**scope, SCOPE_ATTEMPT: attempt_id}, receive, send)

    for attempt_id, opened in ((ATTEMPT_ID, True), ("0" * 26, False)):
        transport = httpx.ASGITransport(partial(through, attempt_id))
        async with httpx.AsyncClient(transport=transport, base_url="http://gpurun.test") as client:
            answer = await client.request(method, f"/agent/v1/{path}", content=body, headers=world.bearer())
        assert (answer.status_code == 401) is not opened


@one_database
@pytest.mark.parametrize(("method", "path", "body"), EVERY_CALL)
@pytest.mark.parametrize("over", ["result", "revoked"])
async def test_an_attempt_that_is_over_is_told_so(world, method, path, body, over):
    if over == "revoked":
        await world.add(attempt=an_attempt(claim_revoked_at=NOW, **_claimed()))
    else:
        await world.add(attempt=an_attempt(result=Result(kind=ResultKind.LOST, reason="silent"), **_claimed()))
    world.token = tokens.run_token(INSTALL_SECRET, ATTEMPT_ID, "boot-1")
    answer = await world.client.request(method, f"/agent/v1/{path}", content=body, headers=world.bearer())
    late_finish = path == "finish" and over == "result"
    assert answer.status_code == (200 if late_finish else 410)
    assert await world.log() == b""
    assert (await world.claim()).status_code == 410


def _claimed():
    token = tokens.run_token(INSTALL_SECRET, ATTEMPT_ID, "boot-1")
    return {
        "claimed_at": NOW,
        "boot_id": "boot-1",
        "token_sha256": tokens.token_sha256(token),
        "state": AttemptState.LIVE,
    }


# orders


async def test_every_answer_carries_a_cancel(world):
    await world.add(run=a_run(cancel_at=NOW, cancel_by="bob"), attempt=an_attempt(stop_asked_at=NOW))
    assert records(await world.claim())["cancel"] == "1"
    for answer in (
        await world.post("phase", [("phase", "setup")]),
        await world.append(0, b"x"),
        await world.append(5, b"x"),
        await world.append(0, b"x", name="metrics"),
        await world.collect("a", b"x"),
    ):
        assert records(answer)["cancel"] == "1"


async def test_a_cancel_is_told_before_the_engine_has_looked(world):
    await world.add()
    await world.claim()
    await ask_to_stop(world)
    assert records(await world.post("phase", [("phase", "running")]))["cancel"] == "1"


# streams


async def test_appends_are_exactly_once(world):
    await world.add()
    await world.claim()
    await world.append(0, b"0123456789")
    for offset, data in ((0, b"0123456789"), (4, b"456789ab"), (20, b"later")):
        answer = await world.append(offset, data)
        assert (answer.status_code, records(answer)) == (409, {"next": "10", **ORDERS})
    await world.append(10, b"a\n")
    assert await world.log() == b"0123456789a\n"


async def test_an_append_of_nothing_is_a_sign_of_life(world, clock):
    await world.add()
    await world.claim()
    clock.advance(seconds=30)
    assert records(await world.append(0, b"")) == {"next": "0", "durable": "0", **ORDERS}
    assert (await world.attempt()).last_seen_at == clock.now()


async def test_tokens_are_masked_in_every_stream_across_appends(world):
    await world.add()
    await world.claim()
    attempt_id, tag = world.token.encode().split(b".")
    line = b"token=" + attempt_id + b"." + tag + b" bye\n"
    for name in ("log", "metrics"):
        sent = 0
        for end in (20, 50, len(line)):
            answer = records(await world.append(sent, line[sent:end], name=name))
            sent = int(answer["next"])
        stored = await world.store.read(lambda tx: tx.read_stream(ATTEMPT_ID, name, offset=0, max_bytes=1000))  # noqa: B023
        assert stored == b"token=" + attempt_id + b"." + b"*" * len(tag) + b" bye\n"


async def test_a_possible_start_of_a_secret_waits_until_the_end(world):
    await world.add()
    await world.claim()
    tail = world.token.partition(".")[2][:10].encode()
    assert records(await world.append(0, b"half: " + tail))["next"] == "6"
    assert records(await world.append(6, tail, end=True))["next"] == "16"
    assert await world.log() == b"half: " + tail


async def test_secrets_of_the_run_are_masked_and_told_to_the_agent(store, clock):
    secrets = MemorySecrets()
    secrets.register(SecretStr("hf_secretvalue"), attempt_id=ATTEMPT_ID)
    services = services_over(store, clock, None, secrets=secrets)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(build_app(services)), base_url="http://gpurun.test"
    ) as client:
        world = World(services=services, client=client)
        await world.add()
        told = [value for name, value in all_records(await world.claim()) if name == "mask"]
        assert "hf_secretvalue" in told
        assert tokens.claim_token(INSTALL_SECRET, ATTEMPT_ID).partition(".")[2] in told
        await world.append(0, b"got hf_secretvalue\n")
        assert await world.log() == b"got " + b"*" * 14 + b"\n"


async def test_the_log_has_a_quota_with_room_for_a_last_word(world):
    await world.add()
    await world.claim()
    await world.append(0, b"x" * 1_000_000)
    assert (await world.append(1_000_000, b"y" * 5000)).status_code == 413
    assert (await world.append(1_000_000, b"log quota is used up\n")).status_code == 200
    assert len(await world.log()) == 1_000_021


@one_database
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("streams/log?offset=-1", 400),
        ("streams/log?offset=x", 400),
        ("streams/log", 400),
        ("streams/log?offset=" + "9" * 30, 400),
        ("streams/log?" + "&".join(f"a{n}=1" for n in range(20)), 400),
        ("streams/stderr?offset=0", 404),
        ("streams/build?offset=0", 404),
        ("streams/log/x?offset=0", 404),
        ("nothing", 404),
        ("claim", 405),
    ],
)
async def test_bad_appends(world, path, status):
    await world.add()
    await world.claim()
    answer = await world.client.put(f"/agent/v1/{path}", content=b"x", headers=world.bearer())
    assert answer.status_code == status


@one_database
async def test_an_append_is_at_most_four_mebibytes(world):
    await world.add()
    await world.claim()
    assert (await world.append(0, b"x" * (4 * 1024 * 1024 + 1))).status_code == 413


# bodies


@one_database
@pytest.mark.parametrize("word", ["claim", "phase", "finish"])
@pytest.mark.parametrize("body", [b"nonsense", b"a 5\nx\n", b"a 99999999999\n", b"\xff" * 50, b"{}"])
async def test_bodies_that_are_no_records(world, word, body):
    await world.add()
    await world.claim()
    token = tokens.claim_token(INSTALL_SECRET, ATTEMPT_ID) if word == "claim" else world.token
    answer = await world.client.post(f"/agent/v1/{word}", content=body, headers=world.bearer(token))
    assert answer.status_code == 400
    assert (await world.attempt()).result is None


@one_database
@pytest.mark.parametrize("boot_id", ["", "x" * 129, "a b", "ä", "a\nb"])
async def test_a_claim_needs_a_boot_id(world, boot_id):
    await world.add()
    assert (await world.claim(boot_id)).status_code == 400


@one_database
async def test_phases_are_a_closed_list(world):
    await world.add()
    await world.claim()
    assert (await world.post("phase", [("phase", "dancing")])).status_code == 400


# source and weights


@one_database
@pytest.mark.parametrize(
    ("error", "status"), [(SourceUnavailable("The remote is away."), 503), (PinNotFound("No such commit."), 422)]
)
async def test_a_source_that_fails_at_once_is_an_ordinary_answer(world, error, status):
    await world.add()
    await world.claim()
    world.services.git.pieces, world.services.git.broken = [b"short"], error
    answer = await world.get("source")
    assert (answer.status_code, answer.text) == (status, f"{error}\n")


@one_database
async def test_a_source_that_fails_later_is_never_whole(world):
    await world.add()
    await world.claim()
    world.services.git.broken = SourceUnavailable("The disk is gone.")
    with pytest.raises(AssertionError):  # httpx's transport insists on a whole answer
        await world.get("source")


STORE = "https://store.example/blob?X-Amz-Date=20261201T000000Z&X-Amz-Signature=0123456789abcdef0123456789abcdef"
SIGNATURE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def large(monkeypatch):
    """The weights of the plan count as large."""
    monkeypatch.setattr(agent_files, "REDIRECTED_BYTES", FILE.size)


@one_database
async def test_a_large_file_is_where_its_signed_address_says_which_is_a_secret_from_then_on(world, large):
    await world.add()
    await world.claim()
    world.services.hub.url = STORE
    answer = await world.get("models/0/sub/model.safetensors")
    assert (answer.status_code, answer.headers["location"], answer.content) == (307, STORE, b"")
    assert answer.headers["cache-control"] == "no-store"
    masker = await world.services.masker(await world.attempt())
    assert SIGNATURE not in masker.text(f"from {STORE}")
    assert SIGNATURE in (await world.get("masks")).text


@one_database
@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("models/0/sub/model.safetensors?from_bot=1", STORE),
        ("models/0/sub/model.safetensors", ""),
        ("models/0/sub/model.safetensors", "https://store.example/blob?sig=short"),  # nobody could mask that
        ("models/0/config.json", STORE),
    ],
    ids=["asked for", "no address", "not maskable", "small"],
)
async def test_everything_else_comes_through_the_bot(world, large, path, url):
    await world.add()
    await world.claim()
    world.services.hub.url = url
    answer = await world.get(path)
    assert (answer.status_code, answer.content) == (200, b"{}" if "config" in path else WEIGHTS)


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        (STORE, SIGNATURE),
        ("https://c/x?Expires=1&Policy=abc&Signature=a~b-c_d&Key-Pair-Id=K", "a~b-c_d"),
        ("https://b/x?se=2026&sig=a%2Bb%3D", "a+b="),
        ("https://c/x/opens-by-its-path", "https://c/x/opens-by-its-path"),
    ],
)
def test_what_opens_a_file_is_its_signature(url, secret):
    assert [part.get_secret_value() for part in signatures(SecretStr(url))] == [secret]


async def test_the_rest_of_a_file(world):
    await world.add()
    await world.claim()
    answer = await world.get("models/0/sub/model.safetensors", Range="bytes=1000000-")
    assert answer.status_code == 206
    assert answer.content == WEIGHTS[1_000_000:]
    assert answer.headers["content-range"] == f"bytes 1000000-{FILE.size - 1}/{FILE.size}"


@one_database
@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("models/0/other", {}, 404),
        ("models/1/config.json", {}, 404),
        ("models/-1/config.json", {}, 404),
        ("models/x/config.json", {}, 404),
        ("models/²/config.json", {}, 404),
        ("models/0", {}, 404),
        ("models/0/config.json", {"Range": "bytes=2-"}, 416),
        ("models/0/config.json", {"Range": "bytes=0-1"}, 416),
        ("models/0/config.json", {"Range": "lines=1-"}, 416),
    ],
)
async def test_files_that_the_plan_does_not_have(world, path, headers, status):
    await world.add()
    await world.claim()
    assert (await world.get(path, **headers)).status_code == status


async def test_a_small_file_with_wrong_bytes_is_named(world):
    await world.add()
    await world.claim()
    world.services.hub.files[CONFIG.path] = b"[]"
    answer = await world.get("models/0/config.json")
    assert answer.status_code == 422
    assert "config.json" in answer.text


async def test_the_end_of_a_large_file_with_wrong_bytes_never_leaves(world):
    await world.add()
    await world.claim()
    world.services.hub.files[FILE.path] = WEIGHTS[:-1] + b"!"
    received = bytearray()

    app = build_app(world.services)

    async def see_bytes(scope, receive, send):
        async def see(message):
            received.extend(message.get("body", b""))
            await send(message)

        await app(scope, receive, see)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(see_bytes), base_url="http://gpurun.test") as client:
        path = "/agent/v1/models/0/sub/model.safetensors"
        with pytest.raises(AssertionError):
            await client.get(path, headers=world.bearer())
        assert 0 < len(received) < FILE.size
        answer = await client.get(path, headers={**world.bearer(), "Range": f"bytes={len(received)}-"})
        assert answer.status_code == 422
        assert "sub/model.safetensors" in answer.text


# artifacts


async def test_a_file_in_pieces(world):
    await world.add()
    await world.claim()
    whole = b"abcdefghij"
    assert records(await world.collect("out/a.bin", whole[:4], whole=whole))["next"] == "4"
    answer = await world.collect("out/a.bin", whole[2:6], offset=2, whole=whole)
    assert (answer.status_code, records(answer)["next"]) == (409, "4")
    assert records(await world.collect("out/a.bin", whole[4:], offset=4, whole=whole))["next"] == "10"
    again = await world.collect("out/a.bin", whole[4:], offset=4, whole=whole)
    assert (again.status_code, records(again)["next"]) == (200, "10")
    (artifact,) = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    assert (artifact.path, artifact.size) == ("out/a.bin", 10)
    assert b"".join([piece async for piece in world.services.blobs.open(artifact.blob)]) == whole


async def test_several_files_and_an_empty_one(world):
    await world.add()
    await world.claim()
    for path, data in (("empty", b""), ("a/b", b"1"), ("c", b"22")):
        assert (await world.collect(path, data)).status_code == 200
    found = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    assert [(artifact.path, artifact.size) for artifact in found] == [("a/b", 1), ("c", 2), ("empty", 0)]


async def test_a_file_that_was_given_up_makes_room(world):
    await world.add()
    await world.claim()
    await world.collect("first", b"1234", whole=b"12345678")
    assert records(await world.collect("second", b"abc"))["next"] == "3"
    (artifact,) = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    assert artifact.path == "second"


async def test_a_file_that_changed_on_the_way_is_left_out(world):
    await world.add()
    await world.claim()
    answer = await world.collect("a", b"1234", whole=b"4321")
    assert answer.status_code == 422
    assert "'a'" in answer.text
    assert await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID)) == ()
    assert (await world.collect("a", b"4321")).status_code == 200
    assert (await world.collect("a", b"other")).status_code == 422


async def test_files_sent_at_the_same_time_do_not_share_bytes(world):
    """What the page offers under a hash has that hash, however a job sends it."""
    await world.add()
    await world.claim()
    files = {f"f{number}": bytes([number]) * 500 for number in range(8)}
    answers = await asyncio.gather(*(world.collect(name, data) for name, data in files.items()))
    assert {answer.status_code for answer in answers} == {200}
    for artifact in await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID)):
        stored = b"".join([piece async for piece in world.services.blobs.open(artifact.blob)])
        assert (hashlib.sha256(stored).hexdigest(), stored) == (artifact.sha256, files[artifact.path])


def several(*files: tuple[str, bytes], wrong: str = "") -> list[tuple[str, bytes]]:
    fields = []
    for path, data in files:
        sha256 = hashlib.sha256(data if path != wrong else b"other").hexdigest()
        fields += [("path", path.encode()), ("sha256", sha256.encode()), ("data", data)]
    return fields


async def collect_several(world, *files: tuple[str, bytes], wrong: str = ""):
    body = protocol.encode(several(*files, wrong=wrong))
    return await world.client.put("/agent/v1/artifacts", content=body, headers=world.bearer())


async def kept_bytes(world) -> dict[str, bytes]:
    """By path, each proved by its hash."""
    kept = {}
    for artifact in await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID)):
        kept[artifact.path] = b"".join([piece async for piece in world.services.blobs.open(artifact.blob)])
        assert (len(kept[artifact.path]), hashlib.sha256(kept[artifact.path]).hexdigest()) == (
            artifact.size, artifact.sha256,
        )  # fmt: skip
    return kept


async def test_several_whole_files_in_one_request(world):
    await world.add()
    await world.claim()
    await world.collect("first", b"1234", whole=b"12345678")  # never ends
    files = {"a": b"1", "out/ü b%c": b"22", "empty": b""}
    for _ in range(2):  # its answer may have been lost
        answer = await collect_several(world, *files.items())
        assert (answer.status_code, records(answer)["cancel"]) == (200, "0")
        assert "refused" not in records(answer)
        assert await kept_bytes(world) == files
    assert (await world.collect("z", b"333")).status_code == 200
    assert await kept_bytes(world) == files | {"z": b"333"}


async def test_of_several_files_those_that_are_refused_are_told_and_the_others_kept(world):
    await world.add()
    await world.claim()
    await world.collect("old", b"old")
    files = [("../up", b"1"), ("bad", b"22"), ("good", b"3"), ("old", b"new"), ("gpurun/installed.txt", b"4")]
    large, twice = ("large", b"x" * 8001), ("good", b"other")
    answer = await collect_several(world, *files, large, twice, ("last", b"5"), wrong="bad")
    told = [value.split(" ", 2) for name, value in all_records(answer) if name == "refused"]
    assert [(index, status) for index, status, _ in told] == [
        ("0", "422"), ("1", "422"), ("3", "422"), ("4", "422"), ("5", "413"), ("6", "422"),
    ]  # fmt: skip
    assert told[4][2] == "A file may have 8,000 bytes."
    assert await kept_bytes(world) == {"old": b"old", "good": b"3", "last": b"5"}


async def test_several_files_have_their_limits_together(world):
    await world.add()
    await world.claim()
    answer = await collect_several(world, *((f"f{number}", b"x" * 2000) for number in range(6)), ("g", b""))
    assert [value.partition(" ")[0] for name, value in all_records(answer) if name == "refused"] == ["5"]
    await collect_several(world, ("h", b""), ("i", b""), ("j", b""))
    assert set(await kept_bytes(world)) == {"f0", "f1", "f2", "f3", "f4", "g", "h", "i"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no records", 400),
        (protocol.encode([("path", "a"), ("data", "1")]), 400),
        (protocol.encode([("path", "a"), ("data", "1"), ("sha256", "2")]), 400),
        (protocol.encode(several(*((f"f{number}", b"") for number in range(101)))), 413),
    ],
)
async def test_several_files_that_cannot_be_read(world, body, status):
    await world.add()
    await world.claim()
    answer = await world.client.put("/agent/v1/artifacts", content=body, headers=world.bearer())
    assert answer.status_code == status
    assert await kept_bytes(world) == {}


async def test_artifacts_have_a_quota_together(world):
    await world.add()
    await world.claim()
    assert (await world.collect("a", b"x" * 6000)).status_code == 200
    assert (await world.collect("b", b"x" * 6000)).status_code == 413
    assert (await world.collect("c", b"x", whole=b"x" * 6000)).status_code == 413
    assert (await world.collect("d", b"x" * 4000)).status_code == 200


async def test_artifacts_have_a_limit_each_and_in_number(world):
    await world.add()
    await world.claim()
    large = await world.collect("large", b"x", whole=b"x" * 8001)
    assert (large.status_code, large.text) == (413, "A file may have 8,000 bytes.\n")
    for number in range(8):
        assert (await world.collect(f"f{number}", b"")).status_code == 200
    many = await world.collect("f8", b"")
    assert (many.status_code, many.text) == (413, "There may be 8 files.\n")


async def test_what_is_installed_is_kept_once_and_masked_and_takes_no_room(world):
    await world.add()
    await world.claim()
    for text in (b"numpy==2.1.0\nhf_" + b"a" * 30 + b"\n", b"other"):
        answer = await world.install(text)
        assert (answer.status_code, records(answer)["cancel"]) == (200, "0")
    (artifact,) = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    kept = b"numpy==2.1.0\n" + b"*" * 33 + b"\n"
    assert (artifact.path, artifact.size) == ("gpurun/installed.txt", len(kept))
    assert artifact.sha256 == hashlib.sha256(kept).hexdigest()
    assert b"".join([piece async for piece in world.services.blobs.open(artifact.blob)]) == kept
    assert (await world.collect("gpurun/installed.txt", b"mine")).status_code == 422
    for number in range(8):
        assert (await world.collect(f"f{number}", b"")).status_code == 200
    assert (await world.install(b"x" * (protocol.MAX_INSTALLED + 1))).status_code == 413
    assert protocol.INSTALLED == stream.INSTALLED


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../up", "a/../b", "a/./b", "a//b", "a/", "x" * 513, "a\nb", "a\0b", "a\\b", "a\u202eb", "."],
)
def test_paths_that_leave_the_folder_are_refused(path):
    with pytest.raises(Refusal) as refused:
        artifact_path(path)
    assert refused.value.status == 422


@one_database
async def test_a_path_with_escapes_is_read_once(world):
    await world.add()
    await world.claim()
    assert (await world.collect("out/%2e%2e/x", b"1")).status_code == 422
    assert (await world.collect("out/100%25 wahr ä.txt", b"1")).status_code == 200
    (artifact,) = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    assert artifact.path == "out/100% wahr ä.txt"


# finish


async def test_finish_may_be_repeated_and_the_first_counts(world):
    await world.add()
    await world.claim()
    first = [("result", "passed"), ("exit_code", 0), ("reason", "exit")]
    for _ in range(2):
        assert records(await world.post("finish", first)) == ORDERS
    for _ in range(3):
        assert (await world.post("finish", [("result", "failed"), ("exit_code", 1)])).status_code == 200
    attempt = await world.attempt()
    assert attempt.result is not None
    assert attempt.result.kind is ResultKind.PASSED
    assert await world.audited() == ["attempt_claimed", "attempt_result_set", "attempt_result_late"]
    assert (await world.append(0, b"after")).status_code == 410


TOO_MUCH = DiskUse(used_mib=2048, limit_mib=1024)


@pytest.mark.parametrize("told", [[("result", "failed"), ("reason", "disk")], [("result", "cancelled")]])
async def test_who_is_stopped_for_the_disk_hears_why_and_its_end_gets_our_figures(world, told):
    await world.add(attempt=an_attempt(disk=TOO_MUCH, stop_asked_at=NOW))
    await world.claim()
    heard = records(await world.post("phase", [("phase", "running")]))
    assert (heard["cancel"], heard["out_of_disk"]) == ("1", "1")
    for _ in range(2):
        assert (await world.post("finish", told)).status_code == 200
    result = (await world.attempt()).result
    assert (result.kind, result.reason) == (ResultKind.FAILED, "disk")
    assert result.detail.startswith("The job used 2GB of the 1GB")
    assert await world.audited() == ["attempt_claimed", "attempt_result_set"]


async def test_a_cancel_is_a_cancel_also_with_a_full_disk(world):
    await world.add(run=a_run(cancel_at=NOW), attempt=an_attempt(disk=TOO_MUCH, stop_asked_at=NOW))
    await world.claim()
    heard = records(await world.post("phase", [("phase", "running")]))
    assert (heard["cancel"], heard["out_of_disk"]) == ("1", "0")


@one_database
async def test_a_result_that_came_second_is_late(world, monkeypatch):
    """The engine's own is committed between our look and our word."""
    await world.add()
    await world.claim()
    monkeypatch.setattr(AttemptTable, "set_result", lambda *_: False)
    await world.post("finish", [("result", "failed"), ("exit_code", 1), ("reason", "exit")])
    assert await world.audited() == ["attempt_claimed", "attempt_result_late"]


@one_database
async def test_no_phase_is_stamped_after_the_end(world):
    await world.add()
    await world.claim()
    await world.store.write(lambda tx: tx.set_result(ATTEMPT_ID, Result(kind=ResultKind.LOST, reason="silent")))
    assert (await world.post("phase", [("phase", "running")])).status_code == 410
    assert (await world.attempt()).phase is Phase.SOURCE


async def test_no_answer_of_the_server_holds_the_install_secret(world):
    await world.add()
    answers = [await world.claim(), await world.append(0, b"x"), await world.post("finish", [("result", "lost")])]
    assert all(INSTALL_SECRET not in answer.content for answer in answers)
    assert INSTALL_SECRET.decode() not in repr(replace(world.services, public_url="x"))
