"""Gates, overrides, pauses and presses, on both databases."""

from dataclasses import replace

import pytest

from gpurun.domain.changed import Changed
from gpurun.domain.gate import Gate, GateLook, GateState, Needed, Override, Pause
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.publication import PublicationKind, PublicationState
from gpurun.ports.store import Kind
from tests.fakes.clock import START
from tests.unit.adapters.store.samples import LEASE, REPO, SHA, a_publication

OTHER = CommitSha("b" * 40)


def a_gate(id="gate-1", **changes):
    return replace(Gate(id=id, repo=REPO, pr=1, sha=SHA, base_ref="main", created_at=START, due_at=START), **changes)


def an_override(id="override-1", **changes):
    given = Override(
        id=id, repo=REPO, pr=1, sha=SHA, job=JobName("smoke"), folder="", reason="flaky", by="carol", at=START
    )
    return replace(given, **changes)


async def test_a_gate_is_read_as_it_was_opened_and_saved(store):
    await store.write(lambda tx: tx.open_gate(a_gate()))
    (lease,) = await store.write(lambda tx: tx.claim(Kind.GATE, limit=9, token="t", length=LEASE))
    look = GateLook(needed=(Needed(job=JobName("smoke"), changed=(Changed(key="run", diff=("-a", "+b")),)),))
    saved = a_gate(look=look, looked_at=START, due_at=None)
    assert await store.write(lambda tx: tx.save_gate(saved, lease))
    assert await store.read(lambda tx: tx.gate("gate-1")) == saved
    assert await store.read(lambda tx: tx.gates(REPO, 1)) == (saved,)
    assert not await store.write(lambda tx: tx.save_gate(a_gate(), lease))


async def test_the_gate_of_a_commit_is_opened_again(store):
    await store.write(lambda tx: tx.open_gate(a_gate(due_at=None)))
    await store.write(lambda tx: tx.end_gate("gate-1"))
    assert await store.read(lambda tx: tx.gates(REPO, 1)) == ()
    await store.write(lambda tx: tx.open_gate(a_gate("gate-2", base_ref="next")))
    (gate,) = await store.read(lambda tx: tx.gates(REPO, 1))
    assert (gate.id, gate.base_ref, gate.state) == ("gate-1", "next", GateState.OPEN)
    assert await store.write(lambda tx: tx.claim(Kind.GATE, limit=9, token="t", length=LEASE))


async def test_what_is_over_is_no_work(store):
    await store.write(lambda tx: tx.open_gate(a_gate()))
    await store.write(lambda tx: tx.end_gate("gate-1"))
    assert not await store.write(lambda tx: tx.claim(Kind.GATE, limit=9, token="t", length=LEASE))


async def test_the_check_of_an_open_gate_is_raised(store, clock):
    await store.write(lambda tx: tx.open_gate(a_gate()))
    shown = a_publication("p-1", kind=PublicationKind.GATE, run_id="", gate_id="gate-1", state=PublicationState.IDLE)
    shown = replace(shown, sent_rev=1, due_at=None)
    await store.write(lambda tx: tx.publish(shown))
    await store.write(lambda tx: tx.publish(replace(shown, id="p-2", gate_id="gate-9")))
    await store.write(lambda tx: tx.raise_gate(REPO, 1))
    first = await store.read(lambda tx: tx.publication("p-1"))
    other = await store.read(lambda tx: tx.publication("p-2"))
    assert (first.desired_rev, first.state, first.due_at) == (2, PublicationState.DUE, clock.now())
    assert (other.desired_rev, other.state, other.due_at) == (1, PublicationState.IDLE, None)
    await store.write(lambda tx: tx.end_gate("gate-1"))
    await store.write(lambda tx: tx.raise_gate(REPO, 1))
    assert await store.read(lambda tx: tx.publication("p-1").desired_rev) == 2


async def test_one_override_of_a_job_and_commit_holds(store):
    for one in (an_override(), an_override("override-2", reason="again"), an_override("override-3", sha=OTHER)):
        await store.write(lambda tx, one=one: tx.override(one))
    held = await store.read(lambda tx: tx.overrides(REPO, 1, SHA))
    assert [one.id for one in held] == ["override-2"]
    assert await store.write(lambda tx: tx.end_override("override-2", "dora"))
    assert not await store.write(lambda tx: tx.end_override("override-2", "dora"))
    assert await store.read(lambda tx: tx.overrides(REPO, 1, SHA)) == ()
    assert await store.read(lambda tx: len(tx.overrides(REPO, 1, OTHER))) == 1


async def test_one_pause_of_a_repository_holds(store):
    for number in (1, 2):
        pause = Pause(id=f"pause-{number}", repo=REPO, reason="maintenance", by="dora", at=START)
        await store.write(lambda tx, pause=pause: tx.pause(pause))
    held = await store.read(lambda tx: tx.pause_of(REPO))
    assert held.id == "pause-2"
    assert await store.read(lambda tx: tx.pause_of(replace(REPO, id=71))) is None
    assert await store.write(lambda tx: tx.end_pause("pause-2", "dora"))
    assert await store.read(lambda tx: tx.pause_of(REPO)) is None


@pytest.mark.parametrize(("inbox_id", "mine"), [("1", True), ("2", False)])
async def test_a_press_is_taken_once(store, inbox_id, mine):
    assert await store.write(lambda tx: tx.take_press(5, "retry", "ada", 100, "1"))
    assert await store.write(lambda tx: tx.take_press(5, "retry", "ada", 100, inbox_id)) is mine
    assert await store.write(lambda tx: tx.take_press(5, "retry", "ada", 101, "2"))
