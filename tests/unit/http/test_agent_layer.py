"""What an agent says of the volume of its setup: before `run`, and once."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from gpurun.domain.layer import Layer, LayerUse
from gpurun.domain.plan import SetupInput
from gpurun.domain.run import Phase
from gpurun_agent import protocol
from tests.unit.http.world import ATTEMPT_ID, PLAN, World, a_run, records

MADE = [("state", "made"), ("sha256", "5" * 64), ("size", 10), ("setup_ms", 1500)]
INPUTS = (SetupInput(path="pkg/r.txt", mode="100644", blob="e" * 40),)


async def tell(world: World, fields: list[tuple[str, object]]) -> httpx.Response:
    return await world.client.post("/agent/v1/layer", content=protocol.encode(fields), headers=world.bearer())


async def in_setup(world: World) -> None:
    await world.add()
    await world.claim()
    await world.store.write(lambda tx: tx.saw(ATTEMPT_ID, phase=Phase.SETUP))


async def test_a_layer_is_kept_and_audited(world):
    await in_setup(world)
    answer = await tell(world, MADE)
    assert (answer.status_code, records(answer)["cancel"]) == (200, "0")
    assert (await tell(world, [("state", "spoilt"), ("detail", "odd")])).status_code == 200
    assert world.services.layers.told == [("made", ATTEMPT_ID, "5" * 64, "10", "1500"), ("spoilt", ATTEMPT_ID)]
    kinds = [entry.kind for entry in await world.store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))]
    assert kinds[-2:] == ["setup_layer_made", "setup_layer_spoilt"]


async def test_what_is_said_again_is_audited_once(world):
    await in_setup(world)
    assert [(await tell(world, MADE)).status_code for _ in range(2)] == [200, 200]
    kinds = [entry.kind for entry in await world.store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))]
    assert kinds.count("setup_layer_made") == 1


async def test_what_is_not_kept_says_why(world):
    await in_setup(world)
    world.services.layers.refuse = "there is one already"
    answer = await tell(world, MADE)
    assert (answer.status_code, answer.text.strip()) == (409, "there is one already")


async def test_what_does_not_fit_is_audited_and_stays(world):
    await in_setup(world)
    assert (await tell(world, [("state", "misfit"), ("detail", "the commit has a.py")])).status_code == 200
    assert world.services.layers.told == []
    (*_, entry) = await world.store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))
    assert entry.kind == "setup_layer_misfit"


async def test_after_setup_nobody_is_heard(world):
    await in_setup(world)
    await world.store.write(lambda tx: tx.saw(ATTEMPT_ID, phase=Phase.RUNNING))
    assert (await tell(world, MADE)).status_code == 409
    assert world.services.layers.told == []


async def test_words_that_began_in_setup_and_end_in_run_are_not_heard(world):
    """What sends them is `run`, or what `setup` left in the background."""
    await in_setup(world)

    async def slowly():
        yield protocol.encode(MADE[:1])
        await world.store.write(lambda tx: tx.saw(ATTEMPT_ID, phase=Phase.RUNNING))
        yield protocol.encode(MADE[1:])

    answer = await world.client.post("/agent/v1/layer", content=slowly(), headers=world.bearer())
    assert (answer.status_code, answer.text.strip()) == (409, "setup is over")
    assert world.services.layers.told == []


@pytest.mark.parametrize("fields", [[("state", "new")], [], MADE[:2], [*MADE[:3], ("setup_ms", "-1")]])
async def test_odd_words_are_refused(world, fields):
    await in_setup(world)
    assert (await tell(world, fields)).status_code == 400
    assert world.services.layers.told == []


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (None, []),
        (LayerUse(volume="v", shelf="s", most_bytes=7), ["make\x007"]),
        (
            LayerUse(volume="v", shelf="s", layer=Layer(sha256="5" * 64, size=10, setup_ms=1500, day="2026-12-01")),
            ["take\0" + "5" * 64 + "\x0010\x002026-12-01\x001500"],
        ),
    ],
)
async def test_the_spec_says_what_is_in_the_volume(world, use, told):
    if use:
        world.services.layers.uses[ATTEMPT_ID] = use
    await world.add(run=a_run(plan=replace(PLAN, setup_inputs=INPUTS)))
    spec = protocol.decode((await world.claim()).content)
    assert [value.decode() for name, value in spec if name == "layer"] == told
    assert [value.decode() for name, value in spec if name == "layer_input"] == (["pkg/r.txt"] if use else [])
