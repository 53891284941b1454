"""Every recorded payload of `tests/data/github`, and what can be done to it: answered, and handled to its end."""

from __future__ import annotations

import copy
import json

import httpx
import pytest
import structlog

from gpurun.domain.delivery import InboxState
from gpurun.http.webhook import ACTIONS
from ops.github_contract import WEBHOOKS, text_of
from tests.fakes.github import webhooks
from tests.unit.flow.town import open_town

EXAMPLES = [(event["name"], payload) for event in json.loads(text_of(WEBHOOKS)) for payload in event["examples"]]
TROUBLE = {"step_failed", "step_outcome_lost", "webhook_not_stored", "delivery_poisoned", "row_not_understood"}
"""What the log says when something went wrong on our side."""


def without(payload, key):
    return {name: value for name, value in payload.items() if name != key}


def changed(payload, *path, to):
    """With the value there replaced; as it is where there is no such place."""
    made = copy.deepcopy(payload)
    place = made
    for name in path[:-1]:
        place = place.get(name)
        if not isinstance(place, dict):
            return made
    if path[-1] in place:
        place[path[-1]] = to
    return made


def command(payload):
    """As if somebody had written a command on a pull request, with the App installed."""
    made = changed(payload, "comment", "body", to="/gpurun smoke")
    if isinstance(made.get("issue"), dict):
        made["issue"]["pull_request"] = {"url": "https://api.github.com/x", "merged_at": None}
    return made | {"installation": {"id": 7}}


MUTATIONS = {
    "as it is": lambda payload: payload,
    "a command": command,
    "no installation": lambda payload: without(payload, "installation"),
    "no repository": lambda payload: without(payload, "repository"),
    "no action": lambda payload: without(payload, "action"),
    "action null": lambda payload: payload | {"action": None},
    "sender null": lambda payload: payload | {"sender": None},
    "comment's user null": lambda payload: changed(command(payload), "comment", "user", to=None),
    "issue's user null": lambda payload: changed(command(payload), "issue", "user", to=None),
    "comment's body null": lambda payload: changed(command(payload), "comment", "body", to=None),
    "pull request's user null": lambda payload: changed(payload, "pull_request", "user", to=None),
    "head.repo null": lambda payload: changed(payload, "pull_request", "head", "repo", to=None),
    "ids above 2^53": lambda payload: changed(command(payload), "comment", "id", to=2**53 + 1),
    "ids above 2^64": lambda payload: changed(command(payload), "comment", "id", to=2**64 + 1),
    "an installation above 2^53": lambda payload: payload | {"installation": {"id": 2**53 + 1}},
    "a number above 2^53": lambda payload: changed(payload, "pull_request", "number", to=2**53 + 1),
    "a title of an object": lambda payload: changed(payload, "pull_request", "title", to={"a": [1]}),
    "a lone surrogate": lambda payload: changed(command(payload), "comment", "body", to="/gpurun smoke \ud800"),
    "NUL": lambda payload: changed(command(payload), "comment", "body", to="/gpurun smoke \x00"),
    "a repository of a strange name": lambda payload: changed(payload, "repository", "full_name", to="a/../b"),
}
BYTES = {
    "duplicate keys": lambda body: body[:-1] + b', "action": "created", "action": null}',
    "100,000 deep": lambda body: body[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "cut": lambda body: body[: len(body) // 2],
    "an invalid byte": lambda body: body.replace(b'"', b'"\xff', 1),
}


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        await town.settle()
        yield town


class Hooks:
    """Signed deliveries to the real route."""

    def __init__(self, town):
        self._town = town
        self._http = httpx.AsyncClient(transport=town.github.hook_transport, base_url="http://bot.test")
        self.sent = 0

    async def post(self, event, body):
        self.sent += 1
        headers = {
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": f"guid-{self.sent}",
            "X-Hub-Signature-256": webhooks.signature(self._town.github.app.webhook_secret.get_secret_value(), body),
            "Content-Type": "application/json",
        }
        return (await self._http.post("/github", content=body, headers=headers)).status_code

    async def close(self):
        await self._http.aclose()


@pytest.fixture
async def hooks(town):
    made = Hooks(town)
    yield made
    await made.close()


async def undone(town):
    """Deliveries that were not handled to a good end."""
    states = await town.inbox_states()
    return {row: state for row, state in states.items() if state.split(":")[0] in (InboxState.NEW, InboxState.POISON)}


def as_bytes(payload):
    return json.dumps(payload).encode()


def test_the_examples_are_those_that_we_know():
    assert len(EXAMPLES) == 329
    assert {name for name, _ in EXAMPLES} >= {*ACTIONS, "check_run", "merge_group", "push", "ping", "status"}


async def test_every_recorded_payload_is_accepted_and_handled(town, hooks):
    with structlog.testing.capture_logs() as logs:
        statuses = [await hooks.post(event, as_bytes(payload)) for event, payload in EXAMPLES]
        await town.settle()
    assert {status // 100 for status in statuses} == {2}
    assert await undone(town) == {}
    assert not [line for line in logs if line["event"] in TROUBLE]
    assert await town.runs() == ()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_nothing_that_is_done_to_a_payload_is_an_error_of_ours(town, hooks):
    """Every mutation of what becomes rows, and all of one example of everything else."""
    seen = set()
    with structlog.testing.capture_logs() as logs:
        for event, payload in EXAMPLES:
            if event not in ACTIONS and event in seen:
                continue
            seen.add(event)
            for name, mutate in MUTATIONS.items():
                status = await hooks.post(event, as_bytes(mutate(payload)))
                assert status in (200, 202, 400), (event, name, status)
            for name, garble in BYTES.items():
                status = await hooks.post(event, garble(as_bytes(payload)))
                assert status in (200, 202, 400), (event, name, status)
        for _ in range(3):
            await town.later(minutes=20)
    assert await undone(town) == {}
    assert not [line for line in logs if line["event"] in TROUBLE]
    assert await town.runs() == ()
