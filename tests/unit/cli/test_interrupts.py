from __future__ import annotations

import os
import signal

import anyio
import pytest

from gpurun.cli.interrupts import Interrupted, Interrupts, listening


async def test_a_block_that_nobody_interrupts_goes_on():
    async with Interrupts().ending_at(1, "cut off"):
        await anyio.lowlevel.checkpoint()


async def test_the_block_is_cut_off_at_its_count():
    interrupts, reached = Interrupts(), []

    async def block() -> None:
        async with interrupts.ending_at(2, "cut off"):
            interrupts.add()
            await interrupts.reach(1)
            reached.append("one is not enough")
            interrupts.add()
            await anyio.sleep_forever()

    with pytest.raises(Interrupted, match="cut off"):
        await block()
    assert reached == ["one is not enough"]


async def test_a_block_is_cut_off_by_what_came_before_it():
    interrupts = Interrupts()
    interrupts.add()

    async def block() -> None:
        async with interrupts.ending_at(1, "cut off"):
            await anyio.sleep_forever()

    with pytest.raises(Interrupted):
        await block()


async def test_the_blocks_own_error_passes():
    async def block() -> None:
        async with Interrupts().ending_at(1, "cut off"):
            raise ValueError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert caught.group_contains(ValueError, match="mine")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_each_signal_counts(number):
    async with listening() as interrupts:
        os.kill(os.getpid(), number)
        with anyio.fail_after(5):
            await interrupts.reach(1)
        os.kill(os.getpid(), number)
        with anyio.fail_after(5):
            await interrupts.reach(2)


async def test_a_signal_that_was_switched_off_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with listening() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            with anyio.fail_after(5):
                await interrupts.reach(1)
            with anyio.move_on_after(0.05) as waited:
                await interrupts.reach(2)
        assert waited.cancelled_caught
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "a closed terminal")]
)
async def test_the_first_one_is_kept_for_people(number, told):
    async with listening() as interrupts:
        os.kill(os.getpid(), number)
        await interrupts.reach(1)
        interrupts.add("output that nobody reads")
        assert interrupts.first == told
