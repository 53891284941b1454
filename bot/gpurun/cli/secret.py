"""`gpurun secret`: what an operator keeps for the jobs of a repository."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import click
from pydantic import SecretStr

from gpurun.adapters import store
from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.vault import KeyFile, SecretDesk, SecretLine
from gpurun.cli.database import existing, refused
from gpurun.cli.environment import read_settings
from gpurun.cli.output import say
from gpurun.cli.who import who
from gpurun.domain.environment import name_fault
from gpurun.domain.errors import GpurunError, PinNotFound, SecretRefused, UserError
from gpurun.domain.ids import RepoName
from gpurun.domain.secret import MAX_SECRET_BYTES
from gpurun.wiring import key_file, server_folders


def set_secret(name: str, repo: str) -> int:
    """Asks for the value, or reads it from a pipe. 0 when the next run of a job that names it will get it."""
    try:
        place, keys = _repo(repo), _keys()
        if told := name_fault(name):  # before a person types the value
            raise SecretRefused(told)
        desk = _desk(keys)
        had = desk.set(place, name, read_value(name, place), who=who())
    except GpurunError as error:
        return refused("gpurun secret set", error)
    done = "has a new value" if had else "is set"
    say(f"{name} {done} for {place}. Jobs that say `secrets: [{name}]` get it from their next run on.")
    return 0


def list_secrets(repo: str) -> int:
    """0, also when there is none; 1 when one cannot be read any more."""
    try:
        place, keys = _repo(repo), _keys()
        lines = _desk(keys).lines(place)
    except GpurunError as error:
        return refused("gpurun secret list", error)
    if not lines:
        say(f"No secret is set for {place}. To set one: gpurun secret set NAME --repo {place}")
    for text in _table(lines):
        say(text)
    lost = [line for line in lines if line.fault]
    if lost:
        say(f"Set again what cannot be read: {_commands([line.name for line in lost], place)}", err=True)
    return int(bool(lost))


def remove_secret(name: str, repo: str) -> int:
    """0 when it is not there any more, 2 when it never was."""
    try:
        place = _repo(repo)
        if not _desk(_keys()).remove(place, name, who=who()):
            hint = f"`gpurun secret list --repo {place}` shows what is."
            raise UserError(f"No secret {name[:80]} is set for {place}.", hint=hint)
    except GpurunError as error:
        return refused("gpurun secret rm", error)
    say(f"{name} is removed from {place}. Runs that have it keep it until they end.")
    return 0


def rotate() -> int:
    """0 when everything is sealed with a new key; 1 when something could not be."""
    try:
        keys = _keys()
        done = _desk(keys).rotate(who=who())
    except GpurunError as error:
        return refused("gpurun secret rotate", error)
    gone = f"; {done.dropped} older key{'s are' if done.dropped > 1 else ' is'} gone from it" if done.dropped else ""
    say(f"{keys.path} has the new key {done.key_id}{gone}. Sealed with it: {done.resealed}.")
    for repo, name in done.lost:
        say(f"{name} of {repo} cannot be read. Set it again: {_commands([name], repo)}", err=True)
    return int(bool(done.lost))


def read_value(name: str, repo: RepoName) -> SecretStr:
    """From a prompt without echo, else all of stdin without its last line end. What is no UTF-8 stays in it as
    surrogates, for `require_settable` to refuse. Raises SecretRefused.
    """
    if sys.stdin.isatty():
        return SecretStr(click.prompt(f"Value of {name} (is not shown)", hide_input=True, default="", err=True))
    data = sys.stdin.buffer.read(MAX_SECRET_BYTES + 4)
    text = data.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
    if not text:
        how = f"`gpurun secret set {name} --repo {repo} < file`"
        raise SecretRefused("No value came on stdin.", hint=f"Write it there: {how}.")
    return SecretStr(text)


def _repo(text: str) -> RepoName:
    try:
        return RepoName(text)
    except PinNotFound as error:
        raise UserError(f"{text[:80]!r} is no repository.", hint="Write --repo owner/name.") from error


def _keys() -> KeyFile:
    settings = read_settings()
    return KeyFile(key_file(settings, server_folders(settings)))


def _desk(keys: KeyFile) -> SecretDesk:
    try:
        place: str | Path = existing()
    except UserError as error:
        error.hint = f"{error.hint}\nFor `gpurun run` on this machine, write NAME=value into .env instead."
        raise
    return SecretDesk(partial(store.change, place, clock=SystemClock()), keys, SystemChance())


def _table(lines: Sequence[SecretLine]) -> list[str]:
    rows = [
        (line.name, _when(line.set_at), line.set_by, line.fault and f"CANNOT BE READ: {line.fault}") for line in lines
    ]
    widths = [max(len(row[column]) for row in rows) if rows else 0 for column in range(3)]
    return ["  ".join((*(row[at].ljust(widths[at]) for at in range(3)), row[3])).rstrip() for row in rows]


def _when(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


def _commands(names: Sequence[str], repo: str) -> str:
    return ", ".join(f"gpurun secret set {name} --repo {repo}" for name in names)
