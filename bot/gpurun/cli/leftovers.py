"""What earlier `gpurun run` left: containers of those that were killed, and old state folders.

`runs/<ulid>/` is the state of one `gpurun run`, which holds the lock of its database while it lives. When nothing of
the run is left it writes the file `ended` there. A folder without that file, whose lock nobody holds, is of a run
that was killed: the engine opens it once more, cancels the run and ends its instance, in the way it always does.
The newest `KEPT` ended folders stay, with the artifacts in them; older ones are removed.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from gpurun.adapters.local import LocalForge
from gpurun.domain.errors import StoreBusy
from gpurun.domain.run import RunState
from gpurun.flow.request import request_end
from gpurun.ports.store import Tx
from gpurun.settings import Settings
from gpurun.wiring import House, local_home, open_local

ENDED = "ended"
DATABASE = "gpurun.db"
KEPT = 20
NEVER_STARTED_S = 3600.0
"""A folder without a database is of a run that is just starting, or that never did."""
LOOK_EVERY_S = 0.1

log = structlog.get_logger()


def mark_ended(state: Path) -> None:
    """Nothing of this run is left anywhere."""
    (state / ENDED).touch()


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Folders of one user's local runs, sorted by age."""

    unended: tuple[Path, ...]
    """Alive or killed; their locks tell."""
    old: tuple[Path, ...]


def find_leftovers(settings: Settings) -> Leftovers:
    """A look at file names alone."""
    try:
        folders = sorted(folder for folder in (local_home(settings) / "runs").iterdir() if folder.is_dir())
    except OSError:
        return Leftovers((), ())
    ended = [folder for folder in folders if (folder / ENDED).exists()]
    unended = [folder for folder in folders if folder not in ended and (folder / DATABASE).exists()]
    empty = [folder for folder in folders if not (folder / DATABASE).exists() and _age_s(folder) > NEVER_STARTED_S]
    return Leftovers(tuple(unended), (*ended[:-KEPT], *empty))


async def clear_leftovers(settings: Settings, who: str) -> int:
    """How many killed runs were ended. Trouble is logged: it must not get in the way of the run that was asked for."""
    left = find_leftovers(settings)
    for folder in left.old:
        await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))
    ended = 0
    for folder in left.unended:
        try:
            ended += await _end(settings, folder, who)
        except StoreBusy:
            continue  # it is alive
        except Exception as error:  # noqa: BLE001 - rows of another version in an old folder are not this run's trouble
            log.warning("leftover_not_cleared", folder=str(folder), error=repr(error))
    return ended


async def _end(settings: Settings, folder: Path, who: str) -> bool:
    """True when there was an instance or a run to end."""
    async with open_local(settings, LocalForge(folder), state=folder) as house:
        run_ids = await house.store.read(_unfinished)
        for run_id in run_ids:
            await request_end(house.store, run_id, who)
        if run_ids:
            await _live_until_over(house)
        mark_ended(folder)
    return bool(run_ids)


async def _live_until_over(house: House) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.live, anyio.Event())
        while await house.store.read(_unfinished):
            await house.store.committed(timeout_s=LOOK_EVERY_S)
        tasks.cancel_scope.cancel()


def _unfinished(tx: Tx) -> list[str]:
    """Runs that have not ended, or of which something is left."""
    of_instances = {attempt.run_id for attempt in tx.live_attempts()}
    return [run.id for run in tx.latest_runs(limit=100) if run.state is not RunState.ENDED or run.id in of_instances]


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0
