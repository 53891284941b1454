"""`gpurun cache`: what verified models and data sets, and layers of `setup`, take on this machine, and how they go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

import click

from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub.shelf import Cleared, Limits, RepoUse, Shelf
from gpurun.adapters.layers import ClearedLayers, KeptLayer
from gpurun.cli.cached_layers import CachedLayers, told, told_number
from gpurun.cli.database import refused
from gpurun.cli.environment import read_settings
from gpurun.cli.output import say
from gpurun.domain.errors import GpurunError, UserError
from gpurun.domain.quantity import quoted
from gpurun.report.text import size
from gpurun.settings import Settings
from gpurun.wiring import MIB, local_home, server_folders

_MOMENT = "%Y-%m-%d %H:%M UTC"
_AGE = re.compile(r"([1-9][0-9]{0,4})([hd])", re.ASCII)


class Output(Enum):
    """For whom."""

    PEOPLE = "people"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Prune:
    """What is to go."""

    everything: bool = False
    older_than: str = ""
    """`12h`, `7d`; empty: down to the limit of the settings."""


def list_cache(output: Output) -> int:
    """0, also when nothing is cached; 2 when a folder cannot be read."""
    try:
        settings = read_settings()
        now = SystemClock().now()
        found = [(folder, Shelf(folder).list(now)) for folder in _folders(settings)]
        layers = [(one, tuple(one.rows(now))) for one in _layers(settings)]
    except (GpurunError, OSError) as error:
        return _refused("gpurun cache list", error)
    limit = settings.weights_cache_mib * MIB
    if output is Output.JSON:
        caches = [{"folder": str(folder), "limit_bytes": limit or None, **_told(repos)} for folder, repos in found]
        rows = [{"folder": str(one.folder / "layers"), **told(*row)} for one, some in layers for row in some]
        click.echo(json.dumps({"caches": caches, "setup_layers": rows}, indent=2))
        return 0
    if not found and not any(some for _, some in layers):
        say("Nothing is cached yet: the first run with a model or data set does it.")
    parts = [[*_table(repos), _sum(folder, repos, limit)] for folder, repos in found]
    parts += [[*_layer_lines(one, some)] for one, some in layers if some]
    for number, lines in enumerate(parts):
        for line in ["", *lines] if number else lines:
            say(line)
    return 0


def _sum(folder: Path, repos: tuple[RepoUse, ...], limit: int) -> str:
    most = f" of at most {size(limit)}" if limit else ""
    return f"{size(sum(one.size + one.unfinished for one in repos))}{most} in {folder}"


def prune_cache(wish: Prune, output: Output) -> int:
    """0 when all that was to go is gone, 1 when some of it is in use and stays, 2 for usage or a folder that cannot be
    written to.
    """
    try:
        settings = read_settings()
        now = SystemClock().now()
        limits = _limits(wish, settings, now)
        done = [(folder, Shelf(folder).clear(limits, now)) for folder in _folders(settings)]
        layers = [(one.folder / "layers", one.clear(limits, now)) for one in _layers(settings)]
    except (GpurunError, OSError) as error:
        return _refused("gpurun cache prune", error)
    if output is Output.JSON:
        cleared = [_cleared(folder, one) for folder, one in done]
        click.echo(json.dumps({"caches": cleared, "setup_layers": [_gone(*one) for one in layers]}, indent=2))
    else:
        _tell(done, layers)
    in_use = [one.in_use_bytes for _, one in done] + [one.in_use_bytes for _, one in layers]
    return int(any(in_use))


def _folders(settings: Settings) -> list[Path]:
    """Of `gpurun run` and of a server here, as far as this user may look into them."""
    folders = dict.fromkeys((local_home(settings) / "hub", server_folders(settings).cache / "hub"))
    return [folder for folder in folders if _is_there(folder)]


def _layers(settings: Settings) -> list[CachedLayers]:
    folders = dict.fromkeys((local_home(settings), server_folders(settings).cache))
    return [CachedLayers(folder, settings) for folder in folders if _is_there(folder / "layers")]


def _layer_lines(one: CachedLayers, rows: tuple[tuple[KeptLayer, tuple[str, ...]], ...]) -> Iterator[str]:
    yield from _aligned(
        [("SETUP LAYER", "KEY", "SIZE", "SAVES", "LAST USED", "USED BY"), *(_layer(*it) for it in rows)]
    )
    limit = one.settings.setup_layers_mib * MIB
    most = f" of at most {size(limit)}" if limit else ""
    yield f"{size(sum(kept.size for kept, _ in rows))}{most} in volumes of the Docker Engine"


def _layer(kept: KeptLayer, users: tuple[str, ...]) -> tuple[str, ...]:
    """The key tells two of one repository apart; a scope is named where it is not this machine's only one."""
    scope = "" if kept.scope == "local" else f" ({kept.scope})"
    used = datetime.fromtimestamp(kept.used_at, UTC).strftime(_MOMENT)
    name = kept.repo.partition(":")[2] + scope
    return name, kept.key[:12], size(kept.size), f"{kept.setup_ms / 1000:.1f} s", used, _runs(len(users))


def _gone(folder: Path, one: ClearedLayers) -> dict[str, object]:
    return {
        "folder": str(folder),
        "removed_layers": one.layers,
        "freed_bytes": one.freed_bytes,
        "left_bytes": one.left_bytes,
        "in_use_bytes": one.in_use_bytes,
    }


def _is_there(folder: Path) -> bool:
    try:
        return folder.is_dir() and any(folder.iterdir())
    except PermissionError:
        return False


def _limits(wish: Prune, settings: Settings, now: datetime) -> Limits:
    if wish.everything:
        return Limits(max_bytes=0)
    if wish.older_than:
        return Limits(used_since=now - _age(wish.older_than))
    return Limits(max_bytes=settings.weights_cache_mib * MIB or None)


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise UserError(
            f"{quoted(text)} is no age.",
            hint="Write 1 to 99999 hours or days: 12h, 7d. `--all` removes everything that no live run uses.",
        )
    return timedelta(hours=int(found[1]) * (24 if found[2] == "d" else 1))


def _table(repos: tuple[RepoUse, ...]) -> Iterator[str]:
    return _aligned([("WHAT", "SIZE", "FILES", "LAST USED", "USED BY"), *(_row(one) for one in repos)])


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(one: RepoUse) -> tuple[str, ...]:
    rest = f" + {size(one.unfinished)} unfinished" if one.unfinished else ""
    used = one.used_at.strftime(_MOMENT)
    return one.repo, f"{size(one.size)}{rest}", str(one.files), used, _runs(len(one.users))


def _runs(number: int) -> str:
    return {0: "", 1: "1 run"}.get(number, f"{number} runs")


def _told(repos: tuple[RepoUse, ...]) -> dict[str, object]:
    return {
        "bytes": sum(one.size for one in repos),
        "unfinished_bytes": sum(one.unfinished for one in repos),
        "repositories": [
            {
                "repository": one.repo,
                "bytes": one.size,
                "files": one.files,
                "unfinished_bytes": one.unfinished,
                "last_used": one.used_at.astimezone(UTC).isoformat(timespec="seconds"),
                "attempts": list(one.users),
            }
            for one in repos
        ],
    }


def _cleared(folder: Path, one: Cleared) -> dict[str, object]:
    return {
        "folder": str(folder),
        "removed_files": one.files,
        "freed_bytes": one.freed_bytes,
        "left_bytes": one.left_bytes,
        "in_use_bytes": one.in_use_bytes,
    }


def _tell(done: list[tuple[Path, Cleared]], layers: list[tuple[Path, ClearedLayers]]) -> None:
    if not done and not layers:
        say("Nothing is cached.")
    for _, gone in layers:
        say(f"{told_number(gone.layers)} removed, {size(gone.freed_bytes)} freed, {size(gone.left_bytes)} left.")
        if gone.in_use_bytes:
            say(f"{size(gone.in_use_bytes)} of setup layers are used by live runs and stay.", err=True)
    for folder, one in done:
        files = f"{one.files} file{'' if one.files == 1 else 's'}"
        say(f"{folder}: {files} removed, {size(one.freed_bytes)} freed, {size(one.left_bytes)} left.")
        if one.in_use_bytes:
            say(f"{size(one.in_use_bytes)} of it are used by live runs and stay until those end.", err=True)


def _refused(command: str, error: GpurunError | OSError) -> int:
    if isinstance(error, OSError):
        error = UserError(f"{error.filename} cannot be used: {error.strerror}.", hint="Run it as the server's user.")
    return refused(command, error)
