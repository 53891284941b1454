"""A look at the tree of a commit: its paths, and the text of the few files that say what it needs."""

from __future__ import annotations

from gpurun.adapters.git.tree import FILES, AskGit, Entry, read_contents, read_entries
from gpurun.domain.repository import Listed, RepoFacts, nearest, worth_reading

MAX_LISTED_BYTES = 4 * 1024 * 1024
"""Of `git ls-tree`: about 40,000 paths. Whoever may push decides how many there are."""


async def look_at(git: AskGit, top: bytes, whole: bytes) -> RepoFacts:
    """From `git ls-tree -z -l` of the top folder and, recursively, of everything. Raises SourceUnavailable."""
    entries: dict[str, Entry] = {}
    for entry in (*read_entries(top), *read_entries(whole)):
        if entry.mode in FILES:
            entries.setdefault(entry.path, entry)
    near, is_cut = nearest(Listed(entry.path, entry.size) for entry in entries.values())
    wanted = [entries[one.path] for one in worth_reading(near)]
    texts = {entry.path: content.decode("utf-8", "replace") async for entry, content in read_contents(git, wanted)}
    return RepoFacts(
        paths=tuple(one.path for one in near), texts=texts, is_cut=is_cut or len(whole) >= MAX_LISTED_BYTES
    )
