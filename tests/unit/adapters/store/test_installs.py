"""The pace of an installation: shared by all who write, kept over restarts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from gpurun.domain.pace import Pace, Urgency, have_read, turn

HOUR = timedelta(hours=1)


def book(tx):
    """A final word's slot."""
    mine = turn(tx.pace_to_change(7), Urgency.VERDICT, tx.now())
    tx.save_pace(7, mine.pace)
    return mine.slot


async def test_many_who_book_at_once_get_a_slot_each(store):
    slots = await asyncio.gather(*(store.write(book) for _ in range(60)))

    at_once = [slot for slot in slots if slot == min(slots)]
    assert len(at_once) == 40
    assert len(set(slots)) == 21


async def test_what_was_booked_is_there_for_the_next_process(store, clock):
    assert await store.read(lambda tx: tx.pace(7)) == Pace()
    slot = await store.write(book)
    pace = await store.read(lambda tx: tx.pace(7))
    assert pace == turn(Pace(), Urgency.VERDICT, slot).pace
    assert await store.read(lambda tx: tx.pace(8)) == Pace()
    read = have_read(pace, clock.now(), 5)
    await store.write(lambda tx: tx.save_pace(7, read))
    assert await store.read(lambda tx: tx.pace(7)) == read


async def test_a_pause_never_gets_shorter_and_ends_when_told(store, clock):
    later = clock.now() + HOUR
    await store.write(lambda tx: tx.pause_install(7, later))
    await store.write(lambda tx: tx.pause_install(7, clock.now() + HOUR / 2))
    assert await store.read(lambda tx: tx.install_pause(7)) == later
    assert await store.read(lambda tx: tx.install_pause(8)) is None
    await store.write(lambda tx: tx.resume_install(7))
    assert await store.read(lambda tx: tx.install_pause(7)) is None


async def test_refusals_in_a_row_are_counted_until_one_is_forgiven(store):
    assert [await store.write(lambda tx: tx.strike(7)) for _ in range(3)] == [1, 2, 3]
    await store.write(lambda tx: tx.forgive(7))
    assert await store.write(lambda tx: tx.strike(7)) == 1


async def test_answers_are_counted_by_person_and_installation_in_a_window_that_the_first_opens(store, clock):
    def tell(login, installation=7):
        return store.write(lambda tx: tx.count_telling(installation, login, window=HOUR))

    assert [await tell("bob"), await tell("Bob"), await tell("carol"), await tell("bob", 8)] == [1, 2, 1, 1]
    clock.advance(minutes=59)
    assert await tell("bob") == 3
    clock.advance(minutes=1)
    assert [await tell("bob"), await tell("bob")] == [1, 2]
