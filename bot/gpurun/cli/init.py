"""`gpurun init`: a first `.gpurun.yml` from what lies in the checkout."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import click

from gpurun.adapters.local.checkout import Checkout
from gpurun.cli.output import say
from gpurun.cli.the_file import named_folder
from gpurun.cli.tracked_dotenv import WHAT_TO_DO
from gpurun.cli.trouble import tell
from gpurun.domain.errors import GpurunError, UserError
from gpurun.domain.folder import A_FOLDER, A_LINK, CONFIG_NAME, config_path, not_a_file
from gpurun.domain.repository import DOTENV
from gpurun.plan.lock import LOCK_NAME
from gpurun.plan.starter import Guess, doubts, guess, rows, whole_file


def show_starter(start: Path, typed: str | None = None) -> int:
    """The file on stdout; nothing is written. `typed`: the folder from the top; None: `start`."""
    try:
        found = anyio.run(_look, start, typed).guess
    except GpurunError as error:
        tell("gpurun init", error)
        return 2
    click.echo(whole_file(found), nl=False)
    return 0


def write_starter(start: Path, typed: str | None = None) -> int:
    """Exit code 2, and nothing is touched, when there is such a file already or no checkout."""
    try:
        looked = anyio.run(_look, start, typed)
        _write(looked.file, whole_file(looked.guess))
        about_dotenv = anyio.run(_about_dotenv, looked.checkout)
    except GpurunError as error:
        tell("gpurun init", error)
        return 2
    say(_summary(looked, start, about_dotenv))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What is known before anything is written."""

    guess: Guess
    checkout: Checkout
    top: Path
    folder: str
    """That gets the file, from the top; empty for the top."""

    @property
    def file(self) -> Path:
        return self.top / config_path(self.folder)


async def _look(start: Path, typed: str | None) -> _Looked:
    """Raises UserError for a folder that is not there."""
    checkout = Checkout(start)
    top = await checkout.top()
    folder = named_folder(typed) if typed is not None else _from_top(top, start)
    if not (top / folder).is_dir():
        raise UserError(f"There is no folder {folder} in {top}.", hint="`--path` starts at that top.")
    if link := next((one for one in _down(folder) if (top / one).is_symlink()), None):
        raise UserError(f"{link} is a symbolic link, and git keeps no files behind it.", hint="Name the folder itself.")
    found = guess(await checkout.look(folder))
    return _Looked(guess=found, checkout=checkout, top=top, folder=folder)


def _from_top(top: Path, start: Path) -> str:
    here = Path(os.path.relpath(start.resolve(), top.resolve())).as_posix()
    return "" if here == "." or here.startswith("../") else here


def _down(folder: str) -> Iterator[str]:
    """The folder and those above it, from the top."""
    parts = folder.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1) if folder)


def _write(path: Path, text: str) -> None:
    """Never over anything, also not through a link."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if path.is_dir() or path.is_symlink():
            raise not_a_file(path, A_LINK if path.is_symlink() else A_FOLDER) from None
        raise UserError(
            f"{path} is there already; it stays as it is.",
            hint="`gpurun validate` checks it; `gpurun init --print` shows what a new one would say.",
        ) from None
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", hint="`gpurun init --print` shows it."
        ) from error


async def _about_dotenv(checkout: Checkout) -> str:
    """Empty when nobody will commit it by mistake."""
    if await checkout.tracks(DOTENV):
        return f"{DOTENV} is tracked by git, and goes into the container of each run. {WHAT_TO_DO}"
    if await checkout.ignores(DOTENV):
        return ""
    return f"{DOTENV} is not ignored by git: add it to .gitignore before you write secrets into it."


def _summary(looked: _Looked, start: Path, about_dotenv: str) -> str:
    found = looked.guess
    lines = [f"Wrote {looked.file} with the job `smoke`:", ""]
    before = ""
    for name, value in rows(found):
        lines.append(f"  {'' if name == before else name:<10}{value}")
        before = name
    lines += ["", "Guessed from the files, so look at it:", *(f"- {doubt}" for doubt in doubts(found))]
    if looked.folder and not (looked.top / CONFIG_NAME).exists():
        lines.append("- The file is for this folder alone; `gpurun init --path .` writes one for the whole repository.")
    if about_dotenv:
        lines.append(f"- {about_dotenv}")
    steps = _next(looked, start)
    width = max(len(command) for command, _ in steps) + 2
    lines += ["", "Next:", *(f"  {command:<{width}}{what}" for command, what in steps)]
    return "\n".join(lines)


def _next(looked: _Looked, start: Path) -> tuple[tuple[str, str], ...]:
    """Commands that work where `gpurun init` was typed, and what each does."""
    file = by_path = ""
    if _from_top(looked.top, start) != looked.folder:  # one that lies nearer may be found instead
        file = f" {shlex.quote(os.path.relpath(looked.file, start))}"
        by_path = f" --path {shlex.quote(looked.folder or '.')}"
    return (
        (f"gpurun validate{file}", "says whether the file can be used"),
        (f"gpurun lock{file}", f"pins image and models; commit {CONFIG_NAME} and {LOCK_NAME}"),
        (f"gpurun plan smoke{by_path}", "prints what would run"),
        (f"gpurun run smoke{by_path}", "runs it in a container on this machine"),
    )
