"""What is allowed in a file and most likely not meant. Costs nothing where there is nothing to tell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpurun.domain.config import Config, PolicyKeys
from gpurun.domain.errors import NotByPolicy
from gpurun.plan.load import tree
from gpurun.plan.nodes import Table, Text
from gpurun.plan.placeholder import PLACEHOLDER
from gpurun.plan.source import readable

_SHELL_KEYS = ("setup", "run")
_COMMENT = re.compile(r"[ \t]+(#\S*)")
_NO_REMARK = re.compile(r"#[^\s#!]")
"""People put a space between `#` and what they remark."""


def notes(config: Config, file: str | bytes) -> Iterator[str]:
    """Each to stand behind the name of the file that gave this config: `: …`, or `:<line>: …`."""
    yield from _refused_by_itself(config)
    for name, job in config.jobs.items():
        if PLACEHOLDER in job.run:
            yield f": the job {name} still runs the placeholder of `gpurun init`, which fails. Write its command."
    lines = readable(file).split("\n")
    if any(_may_be_cut(line) for line in lines):
        yield from _cut_off(tree(file), lines)


def _refused_by_itself(config: Config) -> Iterator[str]:
    """The policy counts once it is merged, and then for the jobs that stand beside it first of all."""
    if config.policy == PolicyKeys():
        return
    from gpurun.plan.policy import require_allowed  # most files have none

    for name, job in config.jobs.items():
        try:
            require_allowed(job, name, config.policy)
        except NotByPolicy as refused:
            yield f": on the default branch the `policy` of this file would refuse its own job {name}. {refused}"


def _may_be_cut(line: str) -> bool:
    """Whether it is worth reading the file once more."""
    return (
        "#" in line
        and any(key in line for key in _SHELL_KEYS)
        and ("'" in line or '"' in line or _NO_REMARK.search(line) is not None)
    )


def _cut_off(root: Table, lines: list[str]) -> Iterator[str]:
    """Commands that a comment ends inside a shell's quote: YAML knows no quote in the middle of a text."""
    for key, value in _commands(root):
        behind = lines[value.line - 1][value.column - 1 :].removeprefix(value.value)
        comment = _COMMENT.match(behind)
        if comment is None:
            continue
        if _has_open_quote(value.value):
            yield (
                f":{value.line}: ` #` ends `{key.value}` here, inside a quote of the shell, because YAML reads a "
                f"comment. Write the command below `{key.value}: |`."
            )
        elif _NO_REMARK.match(comment[1]):
            yield (
                f":{value.line}: ` #` ends `{key.value}` here, because YAML reads a comment, and so would the shell. "
                f"If it belongs to the command, write that below `{key.value}: |` with `{comment[1][:20]}` in quotes."
            )


def _commands(root: Table) -> Iterator[tuple[Text, Text]]:
    """Key and text of each command, from top to bottom."""
    jobs = root.find("jobs")
    tables = [value for _, value in jobs[1].entries] if jobs is not None and isinstance(jobs[1], Table) else []
    defaults = root.find("defaults")
    for table in (defaults[1] if defaults is not None else root, *tables):
        for key, value in table.entries if isinstance(table, Table) else ():
            if key.value in _SHELL_KEYS and isinstance(value, Text):
                yield key, value


def _has_open_quote(command: str) -> bool:
    import shlex  # only for a line that may have one

    try:
        shlex.split(command)
    except ValueError as fault:
        return "quotation" in str(fault)
    return False
