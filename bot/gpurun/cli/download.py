"""`gpurun artifacts`: what a run left, from the page of its server into a folder."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from gpurun.adapters.run_page import Listing, RunPage
from gpurun.cli.download_folder import Draft, Folder
from gpurun.cli.output import say
from gpurun.cli.trouble import tell
from gpurun.domain.errors import GpurunError, PinNotFound, ServerUnavailable, UserError
from gpurun.domain.manifest import Entry
from gpurun.report.text import one_line, size
from gpurun_agent.globs import Globs

TRIES = 5
"""In a row that broke off; but for the first of them without a byte more."""
FIRST_PAUSE_S = 0.5
"""Doubled after each further one of them: 7.5 s in all."""
NAMED = 10

THERE, GOT, REPLACED, FAILED = "there", "downloaded", "replaced", "failed"


_sleep = time.sleep  # noqa: TID251 - this command does nothing else meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was typed."""

    address: str
    """`-`: the first line of stdin."""
    patterns: tuple[str, ...] = ()
    folder: Path | None = None
    list_only: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A file and what became of it."""

    path: str
    size: int
    sha256: str
    state: str
    """`there`, `downloaded`, `replaced`, `failed`; empty when it was only listed."""
    detail: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What `--json` prints. Keys are only ever added."""

    run: str = ""
    attempt: int = 0
    complete: bool = False
    manifest: str = ""
    folder: str = ""
    files: tuple[Kept, ...] = ()
    error: str = ""


def download(wish: Wish, *, as_json: bool, sleep: Callable[[float], None] = _sleep) -> int:
    """The exit code."""
    outcome = Outcome()
    code = 0
    try:
        address = sys.stdin.readline() if wish.address == "-" else wish.address
        page = RunPage(address)
        try:
            for outcome in _steps(wish, page, sleep):
                if not as_json and outcome.files and not wish.list_only:
                    _show(outcome.files[-1])
        finally:
            page.close()
    except GpurunError as error:
        code = 3 if isinstance(error, ServerUnavailable) else 2
        tell("gpurun artifacts", error)
        outcome = replace(outcome, error=str(error))
    if any(file.state == FAILED for file in outcome.files):
        code = code or 1
    if as_json:
        click.echo(json.dumps(asdict(outcome), ensure_ascii=False))
    elif not code or code == 1:
        _sum_up(outcome, wish)
    return code


def _steps(wish: Wish, page: RunPage, sleep: Callable[[float], None]) -> Iterator[Outcome]:
    """The outcome so far, after each file. Raises GpurunError."""
    listing = _again(page.listing, sleep)
    entries = _meant(listing, wish.patterns)
    top = wish.folder or Path(f"{listing.run}-{listing.attempt}")
    outcome = Outcome(
        run=listing.run,
        attempt=listing.attempt,
        complete=listing.complete,
        manifest=listing.digest,
        folder="" if wish.list_only else os.path.realpath(top),
    )
    if wish.list_only:
        yield replace(outcome, files=tuple(_kept(entry, "") for entry in entries))
        return
    folder = Folder(top)
    states = {entry.path: folder.state_of(entry) for entry in entries}
    differ = [path for path, same in states.items() if same is False]
    if differ and not wish.force:
        raise UserError(
            f"{_names(differ)} in {top} would be replaced by other bytes.",
            hint="Nothing was written. --force replaces, --to takes another folder.",
        )
    yield outcome
    try:
        for entry in entries:
            kept = _get(page, listing.attempt, entry, folder, states[entry.path], sleep, force=wish.force)
            outcome = replace(outcome, files=(*outcome.files, kept))
            yield outcome
    finally:
        folder.close()


def _meant(listing: Listing, patterns: tuple[str, ...]) -> tuple[Entry, ...]:
    if not patterns:
        return listing.entries
    globs = Globs([os.fsencode(pattern) for pattern in patterns])
    meant = tuple(entry for entry in listing.entries if globs.match(entry.path.encode()) >= 0)
    if not meant:
        there = _names([entry.path for entry in listing.entries]) or "none"
        raise UserError(f"No artifact is meant by {' '.join(patterns)}.", hint=f"There is: {there}")
    return meant


def _get(
    page: RunPage,
    attempt: int,
    entry: Entry,
    folder: Folder,
    same: bool | None,  # noqa: FBT001
    sleep: Callable[[float], None],
    *,
    force: bool,
) -> Kept:
    if same:
        return _kept(entry, THERE)
    with folder.draft(entry) as draft:
        try:
            for _ in range(2):  # a draft of before may be what is wrong
                _fetch(page, attempt, entry, draft, sleep)
                if draft.is_whole():
                    draft.put(replace_other=force)
                    return _kept(entry, GOT if same is None else REPLACED)
                draft.drop()
        except PinNotFound as error:
            draft.drop()
            return _kept(entry, FAILED, str(error))
    return _kept(entry, FAILED, "what came is not what its sha256 says")


def _fetch(page: RunPage, attempt: int, entry: Entry, draft: Draft, sleep: Callable[[float], None]) -> None:
    """Until the draft is as long as the file."""

    def more() -> None:
        with page.bytes_of(attempt, entry, draft.size) as (start, pieces):
            draft.go_to(start)
            for piece in pieces:
                draft.write(piece)

    tries = 0
    while draft.size < entry.size:
        before = draft.size
        try:
            more()
        except ServerUnavailable:
            tries = 1 if draft.size > before else tries + 1
            if tries >= TRIES:
                raise
            sleep(FIRST_PAUSE_S * 2 ** (tries - 1))
        else:
            if draft.size <= before:
                raise PinNotFound("the server sent no more of it")


def _again(call: Callable[[], Listing], sleep: Callable[[float], None]) -> Listing:
    for tries in range(TRIES - 1):
        try:
            return call()
        except ServerUnavailable:
            sleep(FIRST_PAUSE_S * 2**tries)
    return call()


def _kept(entry: Entry, state: str, detail: str = "") -> Kept:
    return Kept(path=entry.path, size=entry.size, sha256=entry.sha256, state=state, detail=detail)


def _show(file: Kept) -> None:
    say(f"{file.state:<10}  {one_line(file.path)}  {size(file.size)}{': ' if file.detail else ''}{file.detail}")


def _sum_up(outcome: Outcome, wish: Wish) -> None:
    if wish.list_only:
        for file in outcome.files:
            say(f"{file.sha256}  {size(file.size):>10}  {one_line(file.path)}")
    good = [file for file in outcome.files if file.state != FAILED]
    told = f"{len(good)} of {len(outcome.files)} files, {size(sum(file.size for file in good))}"
    where = "" if wish.list_only else f" in {outcome.folder}, each verified by its sha256"
    say(f"{told}{where}; manifest {outcome.manifest}", err=True)
    if not outcome.complete:
        say("The run has not ended: there may be more of it later.", err=True)


def _names(paths: list[str]) -> str:
    more = len(paths) - NAMED
    return ", ".join(one_line(path) for path in paths[:NAMED]) + (f" and {more} more" if more > 0 else "")
