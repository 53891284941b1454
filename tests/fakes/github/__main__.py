"""`python -m tests.fakes.github [--port N]`: a small world to click through by hand. Ends with Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

from tests.fakes.github import FakeGitHub, serving


async def _serve(port: int, folder: Path) -> None:
    github = FakeGitHub(folder)
    repo = github.create_repo("acme/train")
    repo.grant("alice", "write")
    alice = github.user("alice")
    pull = alice.open_pull_request(repo, branch="smoke", files={"train.py": "print(1)\n"}, title="Train faster")
    alice.comment(pull, "/gpurun smoke")
    async with serving(github, port=port) as url:
        sys.stdout.write(f"{url}/acme/train/pull/{pull.number}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.github")
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(port, Path(folder)))


if __name__ == "__main__":
    main()
