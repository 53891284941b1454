"""Deliveries while the server is killed: what was answered is a row, once."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing

import anyio
import httpx
import pytest

from gpurun.http.webhook import sign
from tests.world import World, open_world
from tests.world.nursery import Nursery

pytestmark = pytest.mark.docker

SENDERS = 6
KILLS = 3
ANSWERS_BETWEEN_KILLS = 120
PAUSE_S = 0.02


@pytest.fixture
async def world(tmp_path):
    with Nursery() as nursery:
        async with open_world(tmp_path, image="none", nursery=nursery) as world:
            world.jobs(smoke={"run": "true"})
            yield world


class Senders:
    """Each has one delivery under way, and delivers it again until it is answered."""

    def __init__(self, world: World) -> None:
        self._url = world.github.hook_url
        self._secret = world.github.app.webhook_secret.get_secret_value().encode()
        self._numbers = itertools.count()
        self._heard = anyio.Event()
        self.answers: dict[str, str] = {}
        self.tries: dict[str, int] = {}

    async def send_for_ever(self) -> None:
        async with httpx.AsyncClient(timeout=5) as client:
            while True:
                guid = f"00000000-0000-4000-8000-{next(self._numbers):012}"
                while guid not in self.answers:
                    await self.send(client, guid)
                self._heard.set()
                self._heard = anyio.Event()

    async def send(self, client: httpx.AsyncClient, guid: str) -> None:
        """Once; an answer is noted."""
        self.tries[guid] = self.tries.get(guid, 0) + 1
        body = comment(guid)
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Delivery": guid,
            "X-GitHub-Event": "issue_comment",
            "X-Hub-Signature-256": sign(self._secret, body).decode(),
        }
        try:
            answer = await client.post(self._url, content=body, headers=headers)
        except httpx.TransportError:
            await anyio.sleep(PAUSE_S)
            return
        assert answer.status_code == 202, answer.text
        self.answers[guid] = answer.text.strip()

    async def more_answers(self, count: int) -> None:
        wanted = len(self.answers) + count
        while len(self.answers) < wanted:
            await self._heard.wait()


def comment(guid: str) -> bytes:
    """Of the size of GitHub's, without a command."""
    event = {
        "action": "created",
        "issue": {"number": 1 + int(guid[-12:]), "pull_request": {"url": "https://api.github.com/x"}},
        "comment": {"id": 3, "user": {"login": "alice", "type": "User"}, "body": f"{guid} " + "." * 13_000},
        "repository": {"id": 9, "full_name": "octo/app"},
        "installation": {"id": 7},
    }
    return json.dumps(event).encode()


async def test_what_was_answered_is_kept_once_through_every_kill(world: World):
    senders = Senders(world)
    async with anyio.create_task_group() as tasks:
        for _ in range(SENDERS):
            tasks.start_soon(senders.send_for_ever)
        for _ in range(KILLS):
            await senders.more_answers(ANSWERS_BETWEEN_KILLS)
            world.bot.kill()  # in the middle of the load
            await world.bot.start()
        await senders.more_answers(SENDERS * 2)
        tasks.cancel_scope.cancel()
    assert any(tries > 1 for tries in senders.tries.values()), "no kill came between a delivery and its answer"
    for guid, answer in senders.answers.items():
        known = "Accepted before." if senders.tries[guid] > 1 else "Accepted."
        assert answer in {"Accepted.", known}, guid
    async with httpx.AsyncClient(timeout=5) as client:
        for guid in list(senders.answers)[:: ANSWERS_BETWEEN_KILLS // 10]:
            await senders.send(client, guid)
            assert senders.answers[guid] == "Accepted before."
    rows = guids_of_rows(world)
    assert len(rows) == len(set(rows)), "a delivery is there twice"
    assert set(senders.answers) <= set(rows), "an answered delivery was lost"
    assert set(rows) <= set(senders.tries)


def guids_of_rows(world: World) -> list[str]:
    with closing(sqlite3.connect(world.database)) as database:
        return [guid for (guid,) in database.execute("SELECT guid FROM inbox WHERE event = 'issue_comment'")]
