"""Which files of a commit the patterns of `setup_inputs` mean."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpurun.adapters.git.tree import AskGit, Entry, must, read_entries
from gpurun.domain.errors import NoSuchInput, PinNotFound
from gpurun.domain.ids import CommitSha
from gpurun.domain.plan import SetupInput
from gpurun.domain.quantity import quoted
from gpurun_agent.globs import Globs

if TYPE_CHECKING:
    from gpurun_agent.globs import State

MAX_INPUTS = 1000
MAX_COMPARED = 300_000_000
"""Characters of names times those of the patterns that may mean them: two minutes of one core at the very worst."""
_A_COMPARISON = 3
"""What one costs beside its characters. With it none took more than 0.4 us a unit (2 cores of 2026, in use)."""

_LINK = b"120000"


async def find_inputs(git: AskGit, sha: CommitSha, folder: str, patterns: Sequence[str]) -> tuple[SetupInput, ...]:
    """Files and submodules below `folder`, with paths from the top.

    Raises: NoSuchInput, PinNotFound, SourceUnavailable.
    """
    listed = (await must(git, "ls-tree", "-r", "-z", "-l", "--full-tree", sha)).stdout
    return await asyncio.to_thread(_find, listed, f"{folder}/" if folder else "", patterns)


def _find(listed: bytes, top: str, patterns: Sequence[str]) -> tuple[SetupInput, ...]:
    meaning = _Meaning(patterns)
    found: dict[str, Entry] = {}
    for entry in read_entries(listed):
        if entry.path.startswith(top) and meaning.has(entry.path[len(top) :]):
            found[entry.path] = entry
            if len(found) > MAX_INPUTS:
                raise PinNotFound(f"`setup_inputs` mean more than the {MAX_INPUTS:,} files of the commit there may be.")
            if entry.mode == _LINK:
                raise meaning.refusal(
                    entry.path[len(top) :],
                    f"means the symbolic link {quoted(entry.path)}: what it leads to could change unseen.",
                    "Name the file itself instead.",
                )
    for number, pattern in enumerate(patterns):
        if number not in meaning.meant:
            raise NoSuchInput(
                f"{quoted(pattern)} means no file of the commit.",
                pattern=pattern,
                hint="Paths are relative to the folder of this file; delete what setup does not read.",
            )
    return tuple(
        SetupInput(path=path, mode=entry.mode.decode("ascii"), blob=entry.blob.decode("ascii"))
        for path, entry in sorted(found.items())
    )


class _Meaning:
    """Patterns that are carried down the folders, each of which is looked at once."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.meant: set[int] = set()
        """Numbers of the patterns that meant something."""
        self._patterns = patterns
        self._globs = Globs([os.fsencode(pattern) for pattern in patterns])
        self._below: dict[bytes, list[State]] = {b"": self._globs.top()}
        self._compared = 0

    def has(self, path: str) -> bool:
        folder, _, name = os.fsencode(path).rpartition(b"/")
        numbers = self._globs.all_meant(self._counted(self._states(folder), name), name)
        self.meant.update(numbers)
        return bool(numbers)

    def refusal(self, path: str, what: str, hint: str) -> NoSuchInput:
        folder, _, name = os.fsencode(path).rpartition(b"/")
        pattern = self._patterns[min(self._globs.all_meant(self._states(folder), name))]
        return NoSuchInput(f"{quoted(pattern)} {what}", pattern=pattern, hint=hint)

    def _states(self, folder: bytes) -> list[State]:
        """Of a folder, by way of those above it."""
        missing = []
        while folder not in self._below:
            missing.append(folder)
            folder = folder.rpartition(b"/")[0]
        for one in reversed(missing):
            above, _, name = one.rpartition(b"/")
            self._below[one] = self._globs.below(self._counted(self._below[above], name), name)
        return self._below[missing[0] if missing else folder]

    def _counted(self, states: list[State], name: bytes) -> list[State]:
        self._compared += sum(_A_COMPARISON + len(name) * len(self._patterns[number]) for number, _ in states)
        if self._compared > MAX_COMPARED:
            raise PinNotFound("`setup_inputs` have too many patterns for the files of this commit. Write fewer.")
        return states
