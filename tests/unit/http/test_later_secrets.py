"""Secrets that are registered while a run goes on, and every door that a secret could leave by."""

from __future__ import annotations

import base64

import httpx
import pytest
from pydantic import SecretStr

from gpurun.adapters.blobs import FolderBlobs
from gpurun.adapters.secrets import MemorySecrets
from gpurun.domain.errors import SecretRefused
from gpurun.http.server import build_app
from tests.unit.http.world import ATTEMPT_ID, World, all_records, records, services_over

LATER = "later-secret-value"
STARS = b"*" * len(LATER)


@pytest.fixture
def store_url(tmp_path):
    """SQLite: nothing here depends on the database."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def secrets():
    return MemorySecrets()


@pytest.fixture
async def world(store, clock, tmp_path, secrets):
    services = services_over(store, clock, FolderBlobs(tmp_path / "blobs"), secrets=secrets)
    transport = httpx.ASGITransport(build_app(services), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpurun.test") as client:
        world = World(services=services, client=client)
        await world.add()
        await world.claim()
        yield world


def told(answer: httpx.Response) -> set[str]:
    return {value for name, value in all_records(answer) if name == "mask"}


async def test_it_is_masked_from_the_next_append_on_and_what_is_stored_stays(world, secrets):
    line = f"value {LATER}\n".encode()
    await world.append(0, line)
    secrets.register(SecretStr(LATER), attempt_id=ATTEMPT_ID)
    await world.append(len(line), line)
    assert await world.log() == line + b"value " + STARS + b"\n"


async def test_the_next_answer_tells_the_agent_to_ask(world, secrets):
    assert "masks" not in records(await world.append(0, b"a"))
    secrets.register(SecretStr(LATER), attempt_id=ATTEMPT_ID)
    secrets.register(SecretStr(LATER), attempt_id=ATTEMPT_ID)
    assert records(await world.append(1, b"b"))["masks"] == "1"
    answer = await world.get("masks")
    assert records(answer)["masks"] == "1"
    assert {LATER, LATER.encode().hex(), base64.b64encode(LATER.encode()).decode()} <= told(answer)
    assert world.token.partition(".")[2] in told(answer)  # what is secret of it


async def test_a_second_claim_of_the_same_boot_tells_all(world, secrets):
    secrets.register(SecretStr(LATER), attempt_id=ATTEMPT_ID)
    again = await world.claim()
    assert records(again)["masks"] == "1"
    assert LATER in told(again)


async def test_secrets_of_others_and_of_the_bot_are_told_to_no_agent(world, secrets):
    secrets.register(SecretStr("the bot's own key"))
    secrets.register(SecretStr(LATER), attempt_id="01kdxq4c00000000000000000b")
    assert "masks" not in records(await world.append(0, b"a"))
    answers = [await world.get("masks"), await world.claim()]
    assert not any({LATER, "the bot's own key"} & told(answer) for answer in answers)


async def test_masks_are_told_to_the_owner_of_the_run_token_only(world):
    answer = await world.client.get("/agent/v1/masks", headers=world.bearer("01kdxq4c00000000000000000a.wrong"))
    assert answer.status_code == 401


async def test_half_of_it_waits_in_the_stream_for_its_other_half(world, secrets):
    secrets.register(SecretStr(LATER), attempt_id=ATTEMPT_ID)
    taken = records(await world.append(0, f"x{LATER[:9]}".encode()))["next"]
    assert taken == "1"
    await world.append(1, f"{LATER}y".encode(), end=True)
    assert await world.log() == b"x" + STARS + b"y"


async def test_details_names_of_artifacts_and_what_landed_pass_the_same_door(world, secrets):
    secrets.register(SecretStr(LATER), attempt_id=ATTEMPT_ID)
    again = await world.claim(**{"landed.kernel": f"6.1-{LATER}", "agent": LATER})
    assert again.status_code == 200
    await world.collect(f"out/{LATER}.json", b"{}")
    await world.collect(f"out/{LATER}.json", b"{}")
    await world.post("phase", [("phase", LATER)])
    finished = [("result", "failed"), ("exit_code", 1), ("reason", LATER), ("detail", f"it said {LATER}")]
    await world.post("finish", finished)

    attempt = await world.attempt()
    artifacts = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    audit = await world.store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))
    assert [artifact.path for artifact in artifacts] == [f"out/{'*' * len(LATER)}.json"]
    assert attempt.result.detail == f"it said {'*' * len(LATER)}"
    assert LATER not in f"{attempt}{artifacts}{audit}"


async def test_a_boot_id_that_is_a_secret_is_not_audited(world, secrets):
    secrets.register(SecretStr(LATER), attempt_id=ATTEMPT_ID)
    assert (await world.claim(boot_id=LATER)).status_code == 410
    audit = await world.store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))
    assert LATER not in f"{audit}"


def test_a_short_value_is_refused_where_it_is_registered(secrets):
    with pytest.raises(SecretRefused):
        secrets.register(SecretStr("abcde"), attempt_id=ATTEMPT_ID)
    assert secrets.of_attempt(ATTEMPT_ID) == ()
    assert secrets.version(ATTEMPT_ID) == 0
