"""Which files of a commit the patterns of `setup_inputs` mean."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gpurun.adapters.git.tree import AskGit, must, read_entries
from gpurun.domain.errors import NoSuchInput, PinNotFound
from gpurun.domain.ids import CommitSha
from gpurun.domain.plan import SetupInput
from gpurun.domain.quantity import quoted
from gpurun_agent.globs import Globs

MAX_INPUTS = 1000


async def find_inputs(git: AskGit, sha: CommitSha, folder: str, patterns: Sequence[str]) -> tuple[SetupInput, ...]:
    """Files and submodules below `folder`, with paths from the top.

    Raises: NoSuchInput, PinNotFound, SourceUnavailable.
    """
    listed = (await must(git, "ls-tree", "-r", "-z", "-l", "--full-tree", sha)).stdout
    top = f"{folder}/" if folder else ""
    inside = [entry for entry in read_entries(listed) if entry.path.startswith(top)]
    found: dict[str, SetupInput] = {}
    for pattern in patterns:
        globs = Globs([os.fsencode(pattern)])
        meant = [entry for entry in inside if globs.match(os.fsencode(entry.path[len(top) :])) == 0]
        if not meant:
            raise NoSuchInput(
                f"{quoted(pattern)} means no file of the commit.",
                pattern=pattern,
                hint="Paths are relative to the folder of this file; delete what setup does not read.",
            )
        for entry in meant:
            blob = entry.blob.decode("ascii")
            found[entry.path] = SetupInput(path=entry.path, mode=entry.mode.decode("ascii"), blob=blob)
    if len(found) > MAX_INPUTS:
        raise PinNotFound(
            f"`setup_inputs` mean {len(found):,} files of the commit, more than the {MAX_INPUTS:,} there may be."
        )
    return tuple(found[path] for path in sorted(found))
