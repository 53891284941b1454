"""`gpurun init`: a first `.gpurun.yml` from what lies in the checkout."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from gpurun.adapters.local.checkout import Checkout
from gpurun.cli.trouble import tell
from gpurun.domain.errors import GpurunError, UserError
from gpurun.domain.folder import CONFIG_NAME
from gpurun.plan.starter import Guess, doubts, guess, rows, whole_file

DOTENV = ".env"
_NEXT = (
    ("gpurun validate", "says whether the file can be used"),
    ("gpurun lock", "pins image and models; commit .gpurun.yml and .gpurun.lock"),
    ("gpurun plan smoke", "prints what would run"),
    ("gpurun run smoke", "runs it in a container on this machine"),
)


def show_starter(folder: Path) -> int:
    """The file on stdout; nothing is written."""
    try:
        found, _ = anyio.run(_look, folder)
    except GpurunError as error:
        tell("gpurun init", error)
        return 2
    click.echo(whole_file(found), nl=False)
    return 0


def write_starter(folder: Path) -> int:
    """Exit code 2, and nothing is touched, when there is such a file already or no checkout."""
    try:
        found, checkout = anyio.run(_look, folder)
        top = anyio.run(checkout.top)
        _write(top / CONFIG_NAME, whole_file(found))
        is_ignored = anyio.run(checkout.ignores, DOTENV)
    except GpurunError as error:
        tell("gpurun init", error)
        return 2
    click.echo(_summary(found, top, ignores_dotenv=is_ignored))
    return 0


async def _look(folder: Path) -> tuple[Guess, Checkout]:
    checkout = Checkout(folder)
    return guess(await checkout.look()), checkout


def _write(path: Path, text: str) -> None:
    """Never over anything, also not through a link."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(
            f"{path} is there already; it stays as it is.",
            hint="`gpurun validate` checks it; `gpurun init --print` shows what a new one would say.",
        ) from None
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", hint="`gpurun init --print` shows it."
        ) from error


def _summary(found: Guess, top: Path, *, ignores_dotenv: bool) -> str:
    lines = [f"Wrote {top / CONFIG_NAME} with the job `smoke`:", ""]
    before = ""
    for name, value in rows(found):
        lines.append(f"  {'' if name == before else name:<10}{value}")
        before = name
    lines += ["", "Guessed from the files, so look at it:", *(f"- {doubt}" for doubt in doubts(found))]
    if not ignores_dotenv:
        lines.append(f"- {DOTENV} is not ignored by git: add it to .gitignore before you write secrets into it.")
    width = max(len(command) for command, _ in _NEXT) + 2
    lines += ["", "Next:", *(f"  {command:<{width}}{what}" for command, what in _NEXT)]
    return "\n".join(lines)
