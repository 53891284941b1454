"""The tree of a commit in a mirror: its entries, and the contents of many small files at once."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpurun.adapters.git.process import Ended
from gpurun.domain.errors import SourceUnavailable

GITLINK = b"160000"
LINK = b"120000"
FILES = frozenset({b"100644", b"100755"})
"""Modes of entries."""

_AT_ONCE = 4_000
_AT_ONCE_BYTES = 4 * 1024 * 1024
"""Objects in one question, and bytes in its answer, about: whoever may push decides how many and how large they are."""


class AskGit(Protocol):
    """Runs git in the mirror."""

    async def __call__(self, *argv: str, given: bytes = b"") -> Ended: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of `git ls-tree -l`."""

    mode: bytes
    blob: bytes
    size: int
    """0 for a submodule."""
    path: str


async def must(git: AskGit, *argv: str, given: bytes = b"") -> Ended:
    """Raises SourceUnavailable when git fails."""
    done = await git(*argv, given=given)
    if done.code != 0:
        raise SourceUnavailable(f"git {argv[0]} failed: {' '.join(done.stderr.split())[-300:]}")
    return done


def read_entries(listed: bytes) -> Iterator[Entry]:
    """From the output of `git ls-tree -z -l`; an entry that was cut off at its end is left out."""
    for line in listed.split(b"\0")[:-1]:
        meta, path = line.split(b"\t", 1)
        mode, _, blob, size = meta.split()
        yield Entry(mode, blob, int(size) if size.isdigit() else 0, os.fsdecode(path))


async def read_contents(git: AskGit, entries: Sequence[Entry]) -> AsyncIterator[tuple[Entry, bytes]]:
    """Of small files."""
    for some in _parts(entries):
        told = (await must(git, "cat-file", "--batch", given=b"\n".join(e.blob for e in some) + b"\n")).stdout
        at = 0
        for entry in some:
            at = told.index(b"\n", at) + 1  # behind "<id> blob <size>"
            yield entry, told[at : at + entry.size]
            at += entry.size + 1


def _parts(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Of which each can be asked for at once."""
    part: list[Entry] = []
    n_bytes = 0
    for entry in entries:
        if part and (len(part) == _AT_ONCE or n_bytes + entry.size > _AT_ONCE_BYTES):
            yield part
            part, n_bytes = [], 0
        part.append(entry)
        n_bytes += entry.size
    if part:
        yield part
