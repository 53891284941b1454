"""Secrets leave with the claim and nowhere else; whichever process hears of the attempt afterwards masks them."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

import gpurun_agent
from gpurun.adapters.blobs import FolderBlobs
from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.vault import KeyFile, StoredVault
from gpurun.domain.run import AttemptState, ResultKind, Untrusted
from gpurun.http.agent_api import AgentApi
from gpurun.http.server import build_app
from gpurun.http.uplink import UnixUplinks
from gpurun.ports.store import Tx
from gpurun.run import tokens
from gpurun_agent import protocol
from tests.fakes.desk import at_the_desk
from tests.unit.http.world import (
    ATTEMPT_ID,
    INSTALL_SECRET,
    PLAN,
    REPO,
    World,
    a_run,
    all_records,
    records,
    services_over,
)

VALUE, NEWER = "hf_swordfish/9+key", "newer-value-of-it"
STARS = b"*" * len(VALUE)
NEEDY = a_run(plan=replace(PLAN, secrets=("HF_TOKEN",)))


@pytest.fixture
def keys(tmp_path):
    return KeyFile(tmp_path / "secrets.key")


@pytest.fixture
def process(store, clock, tmp_path, keys):
    """`process()` is one more server on the same database and the same files."""
    clients = []

    def make():
        registry = MemorySecrets()
        vault = StoredVault(store, KeyFile(keys.path), registry)
        services = services_over(store, clock, FolderBlobs(tmp_path / "blobs"), secrets=registry, vault=vault)
        transport = httpx.ASGITransport(build_app(services), raise_app_exceptions=True)
        client = httpx.AsyncClient(transport=transport, base_url="http://gpurun.test")
        clients.append(client)
        return World(services=services, client=client)

    return make


@pytest.fixture
def set_secret(store, keys, chance):
    """As `gpurun secret set` does it."""

    async def set_it(value=VALUE, name="HF_TOKEN"):
        def do(desk):
            desk.set(REPO.name, name, SecretStr(value), who="ada")

        await at_the_desk(do, store, keys.path, chance)

    return set_it


@pytest.fixture
async def one(process, set_secret):
    await set_secret()
    one = process()
    await one.add(NEEDY)
    return one


def given(answer):
    return [value for name, value in all_records(answer) if name == "secret"]


async def test_the_claim_gives_values_and_masks_and_nothing_else_does(one):
    answer = await one.claim()
    assert given(answer) == [f"HF_TOKEN={VALUE}"]
    masks = {value for name, value in all_records(answer) if name == "mask"}
    assert {VALUE, base64.b64encode(VALUE.encode()).decode(), VALUE.encode().hex()} <= masks
    for other in (await one.get("masks"), await one.post("phase", [("phase", "running")]), await one.append(0, b"x")):
        assert given(other) == []


async def test_the_other_process_masks_what_it_did_not_give(one, process):
    """Its log, its artifacts, its end, its pages."""
    await one.claim()
    two = process()
    two.token = one.token
    line = f"plain {VALUE}, base64 {base64.b64encode(VALUE.encode()).decode()}, json {json.dumps(VALUE + chr(34))}\n"
    await two.append(0, line.encode())
    log = await two.log()
    assert log.startswith(b"plain " + STARS + b", base64 **")
    assert VALUE.encode() not in log
    three = process()
    three.token = one.token
    await three.collect(f"out/{VALUE.replace('/', '_')}.json", b"{}")
    four = process()
    four.token = one.token
    await four.post("finish", [("result", "failed"), ("exit_code", 1), ("detail", f"it said {VALUE}")])
    assert (await two.attempt()).result.detail == f"it said {STARS.decode()}"
    five = process()
    page = await five.page()
    assert page.status_code == 200
    assert VALUE not in page.text
    assert VALUE in [value.get_secret_value() for value in five.services.maskers._secrets.of_attempt(ATTEMPT_ID)]


async def test_processes_agree_on_the_masks_that_an_agent_was_told(one, process):
    told = records(await one.claim())["masks"]
    two = process()
    two.token = one.token
    assert records(await two.append(0, b"x"))["masks"] == told
    assert records(await two.get("masks"))["masks"] == told


async def test_a_value_that_changes_after_the_claim_is_masked_as_it_was(one, process, set_secret):
    await one.claim()
    await set_secret(NEWER)
    later = process()
    again = await later.claim()
    assert given(again) == [f"HF_TOKEN={VALUE}"]
    restarted = process()
    restarted.token = one.token
    await restarted.append(0, f"<{VALUE}>\n".encode(), end=True)
    assert await restarted.log() == b"<" + STARS + b">\n"


async def test_without_the_key_what_the_attempt_says_is_starred_and_its_end_is_taken(one, process, keys):
    await one.claim()
    keys.path.unlink()
    two = process()
    two.token = one.token
    await two.append(0, f"so {VALUE}\nand more\n".encode())
    assert await two.log() == b"*" * (3 + len(VALUE)) + b"\n" + b"*" * 8 + b"\n"
    finished = await two.post("finish", [("result", "passed"), ("exit_code", 0), ("detail", VALUE)])
    assert finished.status_code == 200
    assert VALUE not in f"{await two.attempt()}"


async def test_a_key_that_is_put_back_is_used_with_the_next_append(one, process, keys):
    await one.claim()
    saved = keys.path.read_bytes()
    keys.path.unlink()
    two = process()
    two.token = one.token
    await two.append(0, b"hidden\n")
    keys.path.write_bytes(saved)
    await two.append(7, f"so {VALUE}\n".encode())
    assert await two.log() == b"*" * 6 + b"\nso " + STARS + b"\n"


async def test_the_same_boot_asks_again_when_the_key_is_away(one, process, keys):
    await one.claim()
    saved = keys.path.read_bytes()
    keys.path.unlink()
    assert (await process().claim()).status_code == 503
    keys.path.write_bytes(saved)
    assert given(await process().claim()) == [f"HF_TOKEN={VALUE}"]


async def refused(one: World, told: str) -> None:
    answer = await one.claim()
    assert answer.status_code == 410
    attempt = await one.attempt()
    assert attempt.claimed_at is None
    assert (attempt.result.kind, attempt.result.reason) == (ResultKind.REFUSED, "secret")
    assert told in attempt.result.detail
    assert "attempt_result_set" in await one.audited()
    assert (await one.claim()).status_code == 410


async def test_a_secret_that_was_removed_since_planning_ends_the_run(process):
    one = process()
    await one.add(NEEDY)
    await refused(one, "The secret HF_TOKEN is not set for octo/app. On the server: `gpurun secret set HF_TOKEN")


async def test_a_key_that_was_lost_since_planning_ends_the_run(one, keys):
    keys.path.unlink()
    await refused(one, "HF_TOKEN of octo/app cannot be read any more: its key")


async def test_code_that_had_to_be_approved_gets_none(process, set_secret):
    await set_secret()
    one = process()
    await one.add(replace(NEEDY, untrusted=Untrusted.FORK))
    await refused(one, "gets no secrets")


async def test_a_ghost_gets_nothing_and_ends_nothing(one, keys):
    await one.claim()
    assert (await one.claim(boot_id="boot-2")).status_code == 410
    keys.path.unlink()
    assert (await one.claim(boot_id="boot-3")).status_code == 410
    attempt = await one.attempt()
    assert attempt.result is None
    assert attempt.state is AttemptState.BOOTING


async def test_a_secret_that_goes_between_look_and_claim_is_asked_for_again(one, store, monkeypatch):
    vault, values = one.services.vault, one.services.vault.values

    async def slow(*asked):
        found = await values(*asked)
        await store.write(lambda tx: tx.remove_secret(REPO.name, "HF_TOKEN") and forget(tx))
        return found

    def forget(tx: Tx):
        return tx.forget_replaced(unused_since=tx.now())

    monkeypatch.setattr(vault, "values", slow)
    assert (await one.claim()).status_code == 503
    assert (await one.attempt()).claimed_at is None
    monkeypatch.setattr(vault, "values", values)
    await refused(one, "is not set")


async def test_a_job_without_secrets_gets_none(process, set_secret):
    await set_secret()
    one = process()
    await one.add()
    assert given(await one.claim()) == []


async def test_the_audit_log_names_what_was_given(one, store):
    await one.claim()
    (entry,) = [
        entry
        for entry in await store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))
        if entry.kind == "attempt_claimed"
    ]
    assert entry.data["secrets"] == "HF_TOKEN"
    assert VALUE not in f"{entry}"


ASK = """
import sys
from gpurun_agent import protocol
from gpurun_agent.loop import Loop
from gpurun_agent.wire import Address, Line, Request
loop, heard = Loop(), []
line = Line(loop, Address(sys.argv[1]))
line.token = sys.argv[2]
body = protocol.encode([("boot_id", "boot-1")])
line.send(Request("POST", "/agent/v1/claim", body), lambda answer, why: heard.append((answer, why)))
while not heard:
    loop.tick()
answer, why = heard[0]
sys.stdout.buffer.write(answer.body if answer else b"broken: " + why.encode())
"""


@pytest.fixture
def short_folder():
    """The path of a socket has 107 characters."""
    with tempfile.TemporaryDirectory(prefix="up-", dir="/tmp") as folder:
        yield Path(folder)


async def test_an_agent_can_read_the_answer_with_the_largest_value(process, set_secret, chance, short_folder):
    """31 KiB in lines of 76 columns have 2,029 KiB of spellings; 32 KiB have too many."""
    value = base64.encodebytes(random.Random(1).randbytes(31 * 1024)).decode()[: 31 * 1024]
    await set_secret(value)
    one = process()
    await one.add(NEEDY)
    uplinks = UnixUplinks(AgentApi(one.services), folder=short_folder, chance=chance)
    try:
        uplink = await uplinks.open(ATTEMPT_ID, "docker")
        token = tokens.claim_token(INSTALL_SECRET, ATTEMPT_ID)
        asked = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASK, f"unix:{uplink.address}/bot.sock", token,
            cwd=Path(gpurun_agent.__file__).parent.parent, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await asked.communicate()
    finally:
        await uplinks.aclose()
    assert not said.startswith(b"broken"), said
    assert ("secret", f"HF_TOKEN={value}".encode()) in protocol.decode(said)


async def test_values_that_are_too_much_together_end_the_run(process, set_secret):
    plenty = [base64.b64encode(random.Random(number).randbytes(30 * 1024)).decode() for number in range(3)]
    names = tuple(f"S{number}" for number in range(3))
    for name, value in zip(names, plenty, strict=True):
        await set_secret(value, name)
    one = process()
    await one.add(a_run(plan=replace(PLAN, secrets=names)))
    await refused(one, "The job names too much under `secrets`. What must be masked has")
