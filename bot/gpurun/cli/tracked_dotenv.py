"""What to say of a `.env` that git tracks: it is no secret any more, and a part of what runs."""

from __future__ import annotations

from gpurun.adapters.local import LocalForge
from gpurun.adapters.local.checkout import LocalState
from gpurun.domain.ids import CommitSha
from gpurun.domain.repository import DOTENV

WHAT_TO_DO = f"`git rm --cached {DOTENV}`, add it to .gitignore, and change its secrets: the history has them."


async def dotenv_note(forge: LocalForge, state: LocalState, sha: CommitSha) -> str:
    """One sentence; empty when the commit has no such file. Its content is not read."""
    if not await forge.read_files(state.repo, sha, [DOTENV], max_bytes=0):
        return ""
    return f"{DOTENV} is tracked by git, so the container gets the file with its values. {WHAT_TO_DO}"
