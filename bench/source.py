"""The source of a repository of 10,000 files: from the bot's warm mirror to a work folder, by the agent's own reader.

The anchor is `git archive | tar x` of the same mirror. Both write to the same disk, and both trees are compared once.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.harness import Figure, compare, seconds
from gpurun.adapters.git import GitMirrors
from gpurun.domain.forge import GitSource
from gpurun.domain.ids import CommitSha, RepoName
from gpurun_agent.source import BUFFER
from gpurun_agent.tar import Unpacking

REPO = RepoName("bench/files")
FILES = 10_000
GOAL = 1.5
ROUNDS = 7


def main() -> list[Figure]:
    """One figure."""
    with tempfile.TemporaryDirectory(prefix="gpurun-bench-") as made, asyncio.Runner() as runner:
        top = Path(made)
        sha = make_repository(top / "origin")
        mirrors = GitMirrors(top / "mirrors")
        source = GitSource(url=str(top / "origin"))
        runner.run(mirrors.fetch(source, REPO, sha))
        mirror = top / "mirrors" / f"{REPO}.git"

        def ours() -> float:
            return timed(top / "ours", lambda folder: runner.run(unpack(mirrors, sha, folder)))

        def theirs() -> float:
            return timed(top / "theirs", lambda folder: archive(mirror, sha, folder))

        unpack_both(top, lambda folder: runner.run(unpack(mirrors, sha, folder)), lambda f: archive(mirror, sha, f))
        return [
            compare(
                "source of 10,000 files vs git archive | tar x", subject=ours, anchor=theirs, goal=GOAL, rounds=ROUNDS
            )
        ]


async def unpack(mirrors: GitMirrors, sha: CommitSha, folder: Path) -> None:
    """As bot and agent do it: into a file first, then member by member."""
    with tempfile.TemporaryFile(dir=folder.parent, buffering=BUFFER) as file:
        async for piece in mirrors.archive(REPO, sha):
            file.write(piece)
        file.seek(0)
        unpacking = Unpacking(file, str(folder))
        for _ in unpacking:
            pass
    assert unpacking.commit == sha


def archive(mirror: Path, sha: CommitSha, folder: Path) -> None:
    """The anchor."""
    with subprocess.Popen(["git", "--git-dir", mirror, "archive", "--format=tar", sha], stdout=subprocess.PIPE) as git:
        subprocess.run(["tar", "x", "-C", folder], stdin=git.stdout, check=True)
    assert git.returncode == 0


def timed(folder: Path, fill) -> float:  # type: ignore[no-untyped-def]
    """Seconds for the filling alone."""
    folder.mkdir()
    took = seconds(lambda: fill(folder))
    shutil.rmtree(folder)
    return took


def unpack_both(top: Path, ours, theirs) -> None:  # type: ignore[no-untyped-def]
    """Both make the same tree."""
    for name, fill in (("a", ours), ("b", theirs)):
        (top / name).mkdir()
        fill(top / name)
    subprocess.run(["diff", "-r", "--no-dereference", top / "a", top / "b"], check=True)
    for name in "ab":
        shutil.rmtree(top / name)


def make_repository(folder: Path) -> CommitSha:
    """Files of 100 bytes to 20 KB, 3 KB in the middle, in 250 folders, three deep; about 30 MB."""
    chance = random.Random(1)
    lines = io.BytesIO()
    lines.write(b"commit refs/heads/main\ncommitter b <b@localhost> 1700000000 +0000\ndata 1\nx\n")
    for number in range(FILES):
        content = chance.randbytes(int(chance.expovariate(1 / 1500)) % 10_000 + 50).hex().encode()
        path = f"src/{number % 10}/{number % 250}/file_{number}.py"
        lines.write(b"M 100644 inline %b\ndata %d\n%b\n" % (path.encode(), len(content), content))
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    environment = {"PATH": os.defpath, "HOME": str(folder)}
    git = ["git", "-C", folder]
    subprocess.run([*git, "fast-import", "--quiet"], input=lines.getvalue(), check=True, env=environment)
    found = subprocess.run([*git, "rev-parse", "refs/heads/main"], check=True, capture_output=True, text=True)
    return CommitSha(found.stdout.strip())
