from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.publication import PublicationKind, PublicationState, next_edit
from gpurun.ports.store import Kind
from tests.fakes.clock import START
from tests.unit.adapters.store.samples import a_publication, a_run, claim, claim_one

SENT = {"state": PublicationState.IDLE, "due_at": None, "sent_rev": 1, "remote_id": 5000, "sent_at": START}


async def publish(store, *publications):
    await store.write(lambda tx: [tx.publish(publication) for publication in publications])


async def read(store, id="publication-1"):
    return await store.read(lambda tx: tx.publication(id))


async def raise_rev(store, *, final=False, urgent=False, run_id="run-1"):
    await store.write(lambda tx: tx.raise_rev(run_id, final=final, urgent=urgent))


def a_comment(id="comment-1", **changes):
    return a_publication(id, kind=PublicationKind.COMMENT, **changes)


@pytest.mark.parametrize(
    "publication",
    [
        a_publication(),
        a_publication(kind=PublicationKind.REPLY, run_id="", text="no such job"),
        a_publication(kind=PublicationKind.REACT, run_id="", text="eyes", comment_id=900),
        a_publication(**SENT, desired_rev=3, final=True, tries=2, last_error="502"),
    ],
)
async def test_a_publication_is_read_as_it_was_published(store, publication):
    await publish(store, publication)
    assert await read(store) == publication
    assert await read(store, "none") is None


async def test_publications_of_a_run(store):
    await publish(store, a_publication("a"), a_publication("b"), a_publication("c", run_id="run-2"))
    assert [row.id for row in await store.read(lambda tx: tx.publications("run-1"))] == ["a", "b"]


KINDS = {PublicationKind.COMMENT: 15, PublicationKind.CHECK: 600}
"""How long after the first text the first edit waits, in seconds."""


@pytest.mark.parametrize("kind", KINDS)
async def test_progress_waits_for_the_spacing(store, clock, kind):
    await publish(store, a_publication(kind=kind, **SENT))
    clock.advance(seconds=4)
    await raise_rev(store)
    row = await read(store)
    due_at = START + timedelta(seconds=KINDS[kind])
    assert (row.state, row.desired_rev, row.due_at) == (PublicationState.DUE, 2, due_at)
    clock.advance(seconds=4)
    await raise_rev(store)
    assert (await read(store)).due_at == due_at


async def test_progress_after_a_quiet_time_is_due_now(store, clock):
    await publish(store, a_publication(kind=PublicationKind.COMMENT, **SENT))
    clock.advance(seconds=20)
    await raise_rev(store)
    assert (await read(store)).due_at == START + timedelta(seconds=20)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("age_s", [-5, 0, 14.999, 15, 16, 90, 179, 300, 301, 1799, 1801, 90_000])
async def test_the_database_and_the_rule_agree_on_the_next_edit(store, clock, kind, age_s):
    await store.write(lambda tx: tx.add_run(a_run()))
    sent_at = START + timedelta(seconds=age_s)
    row = a_publication(kind=kind, **{**SENT, "sent_at": sent_at})
    await publish(store, row)
    await raise_rev(store)
    assert (await read(store)).due_at == max(next_edit(row, START), START)


def edits_of(kind, *, minutes):
    """How often a run of that length is edited at the most, when there is always news."""
    row, count = a_publication(kind=kind, **SENT), 0
    while (at := next_edit(row, START)) < START + timedelta(minutes=minutes):
        row, count = replace(row, sent_at=at), count + 1
    return count


def test_the_longer_a_run_goes_on_the_rarer_are_its_edits():
    comment, check = PublicationKind.COMMENT, PublicationKind.CHECK
    assert [edits_of(comment, minutes=minutes) for minutes in (3, 10, 60, 24 * 60)] == [1, 3, 4, 27]
    assert [edits_of(check, minutes=minutes) for minutes in (3, 10, 60, 24 * 60)] == [0, 0, 2, 25]


@pytest.mark.parametrize("how", ["final", "urgent"])
async def test_what_is_final_or_urgent_is_due_now(store, clock, how):
    await publish(store, a_publication(**SENT))
    clock.advance(seconds=4)
    await raise_rev(store, **{how: True})
    row = await read(store)
    assert (row.due_at, row.final) == (START + timedelta(seconds=4), how == "final")
    await raise_rev(store)
    assert (await read(store)).final == (how == "final")


async def test_progress_does_not_shorten_the_wait_of_a_failing_target(store, clock):
    await publish(store, a_publication(**SENT, desired_rev=2))
    await raise_rev(store, urgent=True)
    lease = await claim_one(store, Kind.PUBLICATION)
    later = START + timedelta(minutes=4)
    await store.write(lambda tx: tx.failed(lease, "502", due_at=later))
    clock.advance(seconds=60)
    await raise_rev(store)
    assert (await read(store)).due_at == later
    await raise_rev(store, final=True)
    assert (await read(store)).due_at == START + timedelta(seconds=60)


async def test_a_dead_target_is_not_raised(store):
    dead = a_publication(state=PublicationState.DEAD, due_at=None)
    await publish(store, dead)
    await raise_rev(store, final=True)
    assert await read(store) == dead


async def test_sending_is_noted_before_the_post_and_keeps_the_lease(store, clock):
    await publish(store, a_publication())
    lease = await claim_one(store, Kind.PUBLICATION)
    clock.advance(seconds=1)
    assert await store.write(lambda tx: tx.send_publication(lease))
    row = await read(store)
    assert (row.state, row.sent_at) == (PublicationState.SENDING, START + timedelta(seconds=1))
    clock.advance(seconds=80)
    other = await claim_one(store, Kind.PUBLICATION, token="token-2")
    assert not await store.write(lambda tx: tx.send_publication(lease))
    assert await store.write(lambda tx: tx.send_publication(other))


async def test_a_sent_publication_rests(store):
    await publish(store, a_publication())
    lease = await claim_one(store, Kind.PUBLICATION)
    sent = replace(a_publication(), **SENT)
    assert await store.write(lambda tx: tx.save_publication(sent, lease))
    assert not await store.write(lambda tx: tx.save_publication(sent, lease))
    assert await read(store) == sent
    assert await claim(store, Kind.PUBLICATION) == ()


@pytest.mark.parametrize(
    ("how", "due_after_s", "final"),
    [({}, 602, False), ({"urgent": True}, 2, False), ({"final": True}, 2, True)],
)
async def test_what_was_raised_while_it_was_sent_is_sent_next(store, clock, how, due_after_s, final):
    await publish(store, a_publication())
    lease = await claim_one(store, Kind.PUBLICATION)
    clock.advance(seconds=1)
    await store.write(lambda tx: tx.send_publication(lease))
    await raise_rev(store, **how)
    assert (await read(store)).state is PublicationState.SENDING
    clock.advance(seconds=1)
    saved = replace(a_publication(), **{**SENT, "sent_at": START + timedelta(seconds=2)})
    assert await store.write(lambda tx: tx.save_publication(saved, lease))
    row = await read(store)
    assert (row.state, row.desired_rev, row.sent_rev, row.final) == (PublicationState.DUE, 2, 1, final)
    assert row.due_at == START + timedelta(seconds=due_after_s)
    assert row.remote_id == 5000


async def test_a_retry_that_was_raised_meanwhile_keeps_its_state_and_time(store):
    await publish(store, a_publication())
    lease = await claim_one(store, Kind.PUBLICATION)
    await raise_rev(store)
    later = START + timedelta(seconds=30)
    retry = a_publication(state=PublicationState.RECONCILING, due_at=later, tries=1, last_error="timeout")
    assert await store.write(lambda tx: tx.save_publication(retry, lease))
    assert await read(store) == replace(retry, desired_rev=2)


async def two_runs(store, **changes):
    newer = a_run("run-2", created_at=START + timedelta(seconds=60), **changes)
    await store.write(lambda tx: (tx.add_run(a_run()), tx.add_run(newer)))


async def test_a_newer_run_takes_the_comment_and_nothing_else(store, clock):
    await two_runs(store)
    await publish(store, a_comment(**SENT, final=True), a_publication("check"))
    clock.advance(seconds=60)
    await publish(store, a_comment("comment-2", run_id="run-2", due_at=START + timedelta(seconds=60)))
    assert await read(store) is None
    expected = a_comment(
        run_id="run-2",
        state=PublicationState.DUE,
        due_at=START + timedelta(seconds=60),
        desired_rev=2,
        sent_rev=1,
        remote_id=5000,
        sent_at=START,
    )
    assert await store.read(lambda tx: tx.publications("run-2")) == (expected,)
    assert [row.id for row in await store.read(lambda tx: tx.publications("run-1"))] == ["check"]


async def test_an_older_run_does_not_take_the_comment_back(store):
    await two_runs(store)
    newer = a_comment("comment-2", run_id="run-2")
    await publish(store, newer)
    await publish(store, a_comment())
    assert await store.read(lambda tx: tx.publications("run-2")) == (newer,)
    assert await store.read(lambda tx: tx.publications("run-1")) == ()


async def test_each_job_has_its_own_comment(store):
    await two_runs(store, job="train")
    await publish(store, a_comment(), a_comment("comment-2", run_id="run-2"))
    assert len(await store.read(lambda tx: tx.publications("run-1"))) == 1
    assert len(await store.read(lambda tx: tx.publications("run-2"))) == 1


async def test_the_same_job_of_another_folder_has_its_own_comment(store):
    await two_runs(store, folder="a")
    third = a_run("run-3", created_at=START + timedelta(seconds=90), folder="a")
    await store.write(lambda tx: tx.add_run(third))
    await publish(store, a_comment(), a_comment("comment-2", run_id="run-2"))
    await publish(store, a_comment("comment-3", run_id="run-3"))
    kept = [await store.read(lambda tx, run=run: tx.publications(run)) for run in ("run-1", "run-2", "run-3")]
    assert [[row.id for row in rows] for rows in kept] == [["comment-1"], [], ["comment-2"]]


async def test_a_takeover_while_the_old_text_is_sent_keeps_the_remote_comment(store, clock):
    await two_runs(store)
    await publish(store, a_comment(final=True))
    lease = await claim_one(store, Kind.PUBLICATION)
    await store.write(lambda tx: tx.send_publication(lease))
    await publish(store, a_comment("comment-2", run_id="run-2"))
    clock.advance(seconds=1)
    sent = replace(a_comment(final=True), **SENT)
    assert await store.write(lambda tx: tx.save_publication(sent, lease))
    (row,) = await store.read(lambda tx: tx.publications("run-2"))
    assert (row.remote_id, row.nonce, row.final, row.state) == (5000, "nonce-comment-1", False, PublicationState.DUE)
    assert row.desired_rev > row.sent_rev
    assert row.due_at == START + timedelta(seconds=1)


async def test_a_dead_comment_lives_again_for_a_newer_run(store):
    await two_runs(store)
    await publish(store, a_comment(state=PublicationState.DEAD, due_at=None, tries=3, last_error="404"))
    await publish(store, a_comment("comment-2", run_id="run-2"))
    (row,) = await store.read(lambda tx: tx.publications("run-2"))
    assert (row.state, row.due_at, row.tries, row.last_error) == (PublicationState.DUE, START, 0, "")


async def test_an_installation_is_paused_until_the_later_time(store, clock):
    async def pause(seconds):
        await store.write(lambda tx: tx.pause_install(7, START + timedelta(seconds=seconds)))

    assert await store.read(lambda tx: tx.install_pause(7)) is None
    await pause(60)
    await pause(30)
    assert await store.read(lambda tx: tx.install_pause(7)) == START + timedelta(seconds=60)
    await pause(90)
    assert await store.read(lambda tx: tx.install_pause(7)) == START + timedelta(seconds=90)
    assert await store.read(lambda tx: tx.install_pause(8)) is None
    clock.advance(seconds=90)
    assert await store.read(lambda tx: tx.install_pause(7)) is None
