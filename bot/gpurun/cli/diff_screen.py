"""Two plans side by side for people: `-` was, `+` is, `~` is another."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from gpurun.cli.paper import paper
from gpurun.cli.plan_screen import INDENT, NAME_WIDTH, needs
from gpurun.domain.quantity import written_duration
from gpurun.domain.text import clean
from gpurun.plan.diff import Change, Group
from gpurun.report.text import one_line, size

if TYPE_CHECKING:
    from gpurun.cli.diff import Diff, JobDiff, Side

SHORT = 12
_STYLES = {"-": "red", "+": "green", "~": "yellow"}
_NAMES = {Group.MODELS: "model", Group.RESOURCES: "needs"}
FILES_SHOWN = 20
"""Of each model; `--json` has all."""


def show(diff: Diff) -> None:
    """On stdout."""
    console = paper()
    _say(console, f"{_name(diff.a)} → {_name(diff.b)}", "bold")
    for side in (diff.a, diff.b):
        if side.at.config_text is None:
            _say(console, f"There is no {side.at.file} at {side.typed}.", "yellow")
    for job in diff.jobs:
        _show_job(console, diff, job)
    _say(console, _end(diff), "bold")


def _name(side: Side) -> str:
    short = side.at.sha[:SHORT]
    return short if side.at.sha.startswith(side.typed) else f"{side.typed} ({short})"


def _end(diff: Diff) -> str:
    if diff.a.at.sha == diff.b.at.sha:
        return "Both are the same commit."
    same = [one.job for one in diff.jobs if not one.differs and not one.trouble]
    if diff.a.at.tree == diff.b.at.tree:
        return "Both commits have the same files: equal plans have equal result keys."
    if len(same) == len(diff.jobs):
        return "No plan differs. The files of the commits do: `git diff` shows them."
    return "The files of the commits differ, too: `git diff` shows them."


def _show_job(console: Console, diff: Diff, job: JobDiff) -> None:
    if job.only_in:
        gone = job.only_in == "a"
        _say(
            console,
            f"{'-' if gone else '+'} {job.job}: only in {(diff.a if gone else diff.b).typed}",
            _STYLES["-" if gone else "+"],
        )
        if job.note:
            _say(console, f"! {job.job}: {clean(job.note)}", "yellow")
        return
    if job.trouble:
        _say(console, f"! {job.job}: {clean(job.trouble)}", "bold red")
        return
    n_groups = len({change.group for change in job.changes})
    if not n_groups:
        _say(console, f"= {job.job}: the same plan", "dim")
    else:
        _say(
            console,
            f"~ {job.job}: {n_groups} part{'s' if n_groups > 1 else ''} differ{'' if n_groups > 1 else 's'}",
            "bold",
        )
    for group, found in groupby(job.changes, key=lambda change: change.group):
        name = _NAMES.get(group, group.value)
        for line in _lines(group, list(found), job):
            _say(console, f"{INDENT}{name:<{NAME_WIDTH}}{line}", _STYLES.get(line[:1], ""))
            name = ""
    if job.note:
        _say(console, f"{INDENT}{clean(job.note)}", "yellow")


def _lines(group: Group, found: list[Change], job: JobDiff) -> Iterator[str]:
    match group:
        case Group.SETUP | Group.RUN:
            yield from _text_diff(str(found[0].before or ""), str(found[0].after or ""))
        case Group.MODELS:
            yield from _models(found)
        case Group.RESOURCES:
            assert job.a is not None
            assert job.b is not None
            yield f"- {needs(job.a.plan.resources)}"
            yield f"+ {needs(job.b.plan.resources)}"
        case Group.LIMITS:
            yield f"- max_duration {written_duration(int(found[0].before or 0))}"
            yield f"+ max_duration {written_duration(int(found[0].after or 0))}"
        case Group.ENV | Group.SOURCE | Group.BUILD:
            for change in map(_short, found):
                yield from _both(change, one_line(change.name[0]) + (": " if group is Group.BUILD else "="))
        case Group.IMAGE | Group.WORKDIR | Group.SECRETS | Group.ARTIFACTS:
            for change in found:
                yield from _both(change, "order: " if change.name == ("order",) else "")


def _short(change: Change) -> Change:
    """Of a file that setup reads enough to see that it is another one; a mode only where it is no common file's."""
    if not change.name[0].startswith("setup input "):
        return change
    before, after = (
        None if value is None else re.sub(r"^(.{12})\S*", r"\1", str(value)).removesuffix(" 100644")
        for value in (change.before, change.after)
    )
    return replace(change, before=before, after=after) if before != after else change


def _both(change: Change, before_each: str) -> Iterator[str]:
    """A line for what was, and one for what is."""
    for sign, value in (("-", change.before), ("+", change.after)):
        if value is not None:
            yield f"{sign} {before_each}{one_line(str(value))}"


def _text_diff(before: str, after: str) -> Iterator[str]:
    """As `diff -u` shows it, with one line around each change."""
    old, new = (clean(text).rstrip("\n").split("\n") if text else [] for text in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
    for line in lines:
        if not line.startswith("@@"):
            yield f"{line[0]} {line[1:]}"
    if not lines:  # only the end of the last line differs
        yield "~ white space at the end"


def _models(found: list[Change]) -> Iterator[str]:
    for name, of_one in groupby(found, key=lambda change: change.name[0]):
        files = []
        for change in of_one:
            match change.name[1:]:
                case ("revision",):
                    yield _revision(name, change)
                case ("files", path):
                    files.append((path, change))
                case _:
                    yield from _both(change, f"{name} target " if change.name[1:] else "order: ")
        yield from (_file(path, change) for path, change in files[:FILES_SHOWN])
        if len(files) > FILES_SHOWN:
            yield f"  and {len(files) - FILES_SHOWN:,} more files"


def _revision(name: str, change: Change) -> str:
    before, after = (str(value)[:SHORT] if value is not None else "" for value in (change.before, change.after))
    if before and after:
        return f"~ {name}  {before} → {after}"
    return f"+ {name}@{after}" if after else f"- {name}@{before}"


def _file(path: str, change: Change) -> str:
    sign = "+" if change.before is None else "-" if change.after is None else "~"
    sizes = [size(one) for one in (change.size_before, change.size_after) if one is not None]
    told = " → ".join(dict.fromkeys(sizes))
    return f"{sign} {INDENT}{one_line(path)}  {told}"


def _say(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style), soft_wrap=True)
