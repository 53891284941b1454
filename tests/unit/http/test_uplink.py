from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from gpurun.domain.errors import Bug
from gpurun.domain.run import AttemptState, Result, ResultKind
from gpurun.http.agent_api import AgentApi
from gpurun.http.server import build_app
from gpurun.http.uplink import MAX_CONNECTIONS, UnixUplinks
from gpurun.run import tokens
from gpurun_agent import protocol
from tests.unit.http.world import ATTEMPT_ID, INSTALL_SECRET, a_run, an_attempt, services_over

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@pytest.fixture
async def services(store, clock):
    return services_over(store, clock, None)


@pytest.fixture
async def make_uplinks(services, chance, tmp_path):
    """Each call is another process over the same folder."""
    made = []

    def make():
        api = AgentApi(services)
        uplinks = UnixUplinks(api, folder=tmp_path / "up", chance=chance, take=api.appends.at_once)
        made.append(uplinks)
        return uplinks

    yield make
    for uplinks in made:
        await uplinks.aclose()


async def add(store, **changes):
    def write(tx):
        tx.add_run(a_run())
        tx.add_attempt(an_attempt(**changes))

    await store.write(write)


async def talk(address, *requests):
    """Raw requests over one connection, as the agent sends them; (status, body) of each."""
    reader, writer = await _connected(Path(address) / "bot.sock")
    answers = []
    try:
        for method, path, token, body in requests:
            target = path if path.startswith("/") else f"/agent/v1/{path}"
            head = (
                f"{method} {target} HTTP/1.1\r\nHost: bot\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            answers.append(await _answer(reader))
    finally:
        writer.close()
    return answers


async def _connected(path):
    """Also for a path that is longer than a socket's name may be: through the folder, as a mount is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


async def _answer(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    return int(head.split(b" ")[1]), await reader.readexactly(length)


def inode(uplink):
    return (Path(uplink.address) / "bot.sock").stat().st_ino


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def claim(attempt_id=ATTEMPT_ID):
    return "POST", "claim", tokens.claim_token(INSTALL_SECRET, attempt_id), protocol.encode([("boot_id", "boot-1")])


async def test_an_agent_talks_over_one_connection(store, make_uplinks):
    await add(store)
    uplink = await make_uplinks().open(ATTEMPT_ID, "docker")
    assert uplink.kind == "unix"
    token = tokens.run_token(INSTALL_SECRET, ATTEMPT_ID, "boot-1")
    (status, spec), (appended, _), (nowhere, _) = await talk(
        uplink.address, claim(), ("PUT", "streams/log?offset=0", token, b"hello\n"), ("GET", "../../github", token, b"")
    )
    assert (status, dict(protocol.decode(spec))["token"]) == (200, token.encode())
    assert appended == 200
    assert nowhere == 404
    log = await store.read(lambda tx: tx.read_stream(ATTEMPT_ID, "log", offset=0, max_bytes=100))
    assert log == b"hello\n"


async def test_a_job_reaches_nothing_but_the_agent_api(store, services, chance, tmp_path):
    await add(store)
    uplinks = UnixUplinks(build_app(services), folder=tmp_path / "up", chance=chance)
    uplink = await uplinks.open(ATTEMPT_ID, "docker")
    (claimed, *others) = await talk(
        uplink.address,
        claim(),
        *(("GET", path, "", b"") for path in ("/", "/healthz", "/github", "/runs/x", "/agent/v1/../../healthz")),
    )
    assert claimed[0] == 200
    assert {status for status, _ in others} == {404}
    await uplinks.aclose()


async def test_any_user_of_the_container_gets_in_and_no_other_user_of_the_host(make_uplinks):
    inner = Path((await make_uplinks().open(ATTEMPT_ID, "docker")).address)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (inner.parent, inner, inner / "bot.sock")]
    assert modes == [0o700, 0o755, 0o666]
    assert names(inner) == ["bot.sock"]


async def test_a_socket_is_for_its_attempt(store, make_uplinks):
    await add(store)
    uplink = await make_uplinks().open("0" * 26, "docker")
    ((status, _),) = await talk(uplink.address, claim())
    assert status == 401


async def test_open_is_idempotent_and_close_leaves_nothing(store, make_uplinks, tmp_path):
    await add(store)
    uplinks = make_uplinks()
    first = await uplinks.open(ATTEMPT_ID, "docker")
    before = inode(first)
    assert await uplinks.open(ATTEMPT_ID, "docker") == first
    assert inode(first) == before
    await uplinks.close(ATTEMPT_ID)
    await uplinks.close(ATTEMPT_ID)
    assert names(tmp_path / "up") == []


async def test_two_opens_at_once_make_one_socket(store, make_uplinks):
    await add(store)
    uplinks = make_uplinks()
    one, two = await asyncio.gather(uplinks.open(ATTEMPT_ID, "docker"), uplinks.open(ATTEMPT_ID, "docker"))
    assert one == two
    ((status, _),) = await talk(one.address, claim())
    assert status == 200


async def test_the_next_process_answers_through_the_folder_that_is_mounted(store, make_uplinks):
    await add(store)
    before = make_uplinks()
    uplink = await before.open(ATTEMPT_ID, "docker")
    mounted = Path(uplink.address).stat().st_ino
    await before.aclose()
    with pytest.raises(ConnectionRefusedError):
        await talk(uplink.address, claim())
    await make_uplinks().reopen([ATTEMPT_ID, "1" * 26])
    ((status, _),) = await talk(uplink.address, claim())
    assert status == 200
    assert Path(uplink.address).stat().st_ino == mounted
    assert names(Path(uplink.address).parent.parent) == [ATTEMPT_ID]


async def test_another_process_takes_over_and_lets_go(store, make_uplinks, tmp_path):
    await add(store)
    first, second = make_uplinks(), make_uplinks()
    uplink = await first.open(ATTEMPT_ID, "docker")
    before = inode(uplink)
    await second.look(store)
    assert inode(uplink) == before, "it is answered, so it stays"

    await first.aclose()
    await second.look(store)
    assert inode(uplink) != before
    ((status, _),) = await talk(uplink.address, claim())
    assert status == 200


async def test_looking_lets_ended_attempts_go_and_leaves_what_it_does_not_know(store, make_uplinks, tmp_path):
    await add(store, state=AttemptState.GONE, result=Result(kind=ResultKind.PASSED, exit_code=0))
    uplinks = make_uplinks()
    await uplinks.open(ATTEMPT_ID, "docker")
    await uplinks.open("0" * 26, "docker")
    (tmp_path / "up" / "notes.txt").touch()
    await uplinks.look(store)
    assert names(tmp_path / "up") == ["0" * 26, "notes.txt"]


async def test_keeping_looks_every_two_seconds(store, make_uplinks, clock):
    await add(store)
    first, second = make_uplinks(), make_uplinks()
    uplink = await first.open(ATTEMPT_ID, "docker")
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(second.keep(store, clock))
        await first.aclose()
        for _ in range(200):
            clock.advance(seconds=2)
            await asyncio.sleep(0.005)
            if second._served:
                break
        ((status, _),) = await talk(uplink.address, claim())
        keeper.cancel()
    assert status == 200


async def test_a_folder_with_a_long_name_works_too(store, services, chance, tmp_path):
    await add(store)
    uplinks = UnixUplinks(AgentApi(services), folder=tmp_path / ("long" * 50) / "up", chance=chance)
    uplink = await uplinks.open(ATTEMPT_ID, "docker")
    assert len(uplink.address) > 200
    ((status, _),) = await talk(uplink.address, claim())
    assert status == 200
    await uplinks.close(ATTEMPT_ID)


async def test_a_job_cannot_use_up_the_file_descriptors(store, make_uplinks):
    await add(store)
    uplink = await make_uplinks().open(ATTEMPT_ID, "docker")
    folder = os.open(uplink.address, os.O_RDONLY | os.O_DIRECTORY)  # the path itself may be too long for a socket
    path = f"/proc/self/fd/{folder}/bot.sock"
    taken = [await asyncio.open_unix_connection(path) for _ in range(MAX_CONNECTIONS)]
    await asyncio.sleep(0)
    reader, writer = await asyncio.open_unix_connection(path)
    os.close(folder)
    assert await _end(reader) == b""
    for _, each in [*taken, (reader, writer)]:
        each.close()


async def _end(reader):
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        return b""


async def test_only_attempt_ids_become_folders(make_uplinks):
    for name in ("../../etc", "", "a" * 25, "A" * 26, "x/" + "0" * 24):
        with pytest.raises(Bug):
            await make_uplinks().open(name, "docker")
