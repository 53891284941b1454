"""The `.git` of a work folder: the newest commits without their contents, the one that runs with all of it, and tags.

It has no remote, no hooks and no credential. Everything in it that decides something is in the plan.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from gpurun.adapters.git.archive import BLOCK, END, file_head
from gpurun.adapters.git.process import PIECE_BYTES
from gpurun.adapters.git.tree import GITLINK, AskGit, must, read_entries
from gpurun.domain.errors import SourceUnavailable
from gpurun.domain.ids import CommitSha
from gpurun.domain.source import GitTag

MAX_COMMITS = 5_000
"""That are there; about 1.5 MB."""
MAX_TAGS = 100
"""The nearest."""
_PEELED = "^{}"

_CONFIG = """[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = false
[gc]
	auto = 0
[maintenance]
	auto = false
"""


def nearest_tags(listed: bytes, history: Sequence[str]) -> tuple[GitTag, ...]:
    """Of `git ls-remote --tags`: those of commits in `history`, which is newest first. Sorted by name."""
    objects: dict[str, str] = {}
    commits: dict[str, str] = {}
    for line in listed.decode("utf-8", "surrogateescape").split("\n"):  # other ends of a line may be in a name
        sha, _, ref = line.partition("\t")
        name = ref.removeprefix("refs/tags/")
        if name == ref or len(sha) != len(history[0]):
            continue
        if name.endswith(_PEELED):
            commits[name.removesuffix(_PEELED)] = sha
        else:
            objects[name] = sha
    place = {sha: number for number, sha in enumerate(history)}
    found = [
        GitTag(name=name, object=CommitSha(sha), commit=CommitSha(commits.get(name, sha)))
        for name, sha in objects.items()
        if commits.get(name, sha) in place and name.isprintable()
    ]
    found.sort(key=lambda tag: (place[tag.commit], tag.name))
    return tuple(sorted(found[:MAX_TAGS], key=lambda tag: tag.name))


async def read_history(git: AskGit, sha: CommitSha) -> tuple[str, ...]:
    """The newest commits that the commit has behind it, itself first. Raises SourceUnavailable."""
    listed = await must(git, "rev-list", f"--max-count={MAX_COMMITS}", sha, "--")
    return tuple(listed.stdout.decode().split())


async def boundary(git: AskGit, sha: CommitSha) -> tuple[str, ...]:
    """Commits of the history whose parents are not in it."""
    listed = await must(git, "rev-list", "--parents", f"--max-count={MAX_COMMITS}", sha, "--")
    lines = [line.split() for line in listed.stdout.decode().splitlines()]
    there = {line[0] for line in lines}
    return tuple(commit for commit, *parents in lines if any(parent not in there for parent in parents))


async def write_git_folder(
    git: AskGit, folder: Path, sha: CommitSha, *, history: Iterable[str], cut: Collection[str], tags: Sequence[GitTag]
) -> None:
    """Everything but the index. `git` finds the objects of the history, too. Raises SourceUnavailable.

    What git holds compressed stays so; nothing is compressed for one use.
    """
    (folder / "objects/pack").mkdir(parents=True)
    (folder / "objects/info").mkdir()
    (folder / "refs/tags").mkdir(parents=True)
    (folder / "refs/heads").mkdir()
    (folder / "info").mkdir()
    (folder / "HEAD").write_text(f"{sha}\n")
    (folder / "config").write_text(_CONFIG)
    if cut:
        (folder / "shallow").write_text("".join(f"{one}\n" for one in sorted(cut)))
    (folder / "packed-refs").write_bytes(packed_refs(tags))
    contents = (await must(git, "ls-tree", "-r", "-t", "-z", "-l", "--full-tree", sha)).stdout
    root = (await must(git, "rev-parse", "--verify", f"{sha}^{{tree}}")).stdout.decode().strip()
    entries = [entry.blob.decode() for entry in read_entries(contents) if entry.mode != GITLINK]
    wanted = {*history, root, *entries, *(tag.object for tag in tags)}
    given = "".join(f"{one}\n" for one in sorted(wanted)).encode()
    argv = ("pack-objects", "--quiet", "--window=0", "--compression=0", "--delta-base-offset")
    await must(git, *argv, str(folder / "objects/pack/pack"), given=given)


def packed_refs(tags: Sequence[GitTag]) -> bytes:
    """As the file of that name."""
    lines = ["# pack-refs with: peeled fully-peeled sorted \n"]
    for tag in sorted(tags, key=lambda tag: os.fsencode(tag.name)):
        lines.append(f"{tag.object} refs/tags/{tag.name}\n")
        lines += [f"^{tag.commit}\n"] if tag.commit != tag.object else []
    return "".join(lines).encode("utf-8", "surrogateescape")


async def tar_of(folder: Path) -> AsyncGenerator[bytes, None]:
    """Its files and folders. Raises SourceUnavailable when one cannot be read."""
    pieces = _pieces(folder)
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece


def _pieces(folder: Path) -> Iterator[bytes]:
    """None of them is empty."""
    try:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_dir():
                yield file_head(f"{name}/", 0, is_program=False)
                continue
            size = path.stat().st_size
            yield file_head(name, size, is_program=False)
            with path.open("rb") as opened:
                while piece := opened.read(PIECE_BYTES):
                    yield piece
            if size % BLOCK:
                yield bytes(-size % BLOCK)
    except OSError as exc:
        raise SourceUnavailable(f"The git folder of a run cannot be read: {exc.strerror}.") from exc
    yield END
