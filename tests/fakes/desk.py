"""What an operator does to secrets while server processes run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpurun.adapters.vault import KeyFile, SecretDesk
from gpurun.ports.clock import Chance
from gpurun.ports.store import Store, Tx

Told = TypeVar("Told")
Written = TypeVar("Written")


async def at_the_desk(do: Callable[[SecretDesk], Told], store: Store, keys: Path, chance: Chance) -> Told:
    """What `do` returns. It blocks, as the command does, and reads the key file anew."""
    loop = asyncio.get_running_loop()

    def write(fn: Callable[[Tx], Written]) -> Written:
        return asyncio.run_coroutine_threadsafe(store.write(fn), loop).result()

    return await asyncio.to_thread(do, SecretDesk(write, KeyFile(keys), chance))
