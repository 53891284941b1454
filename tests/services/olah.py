"""olah, a mirror of the Hugging Face Hub that is not ours, over git repositories on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ops.local_services import CACHE, Missing, answers, free_port

PROGRAM = CACHE / "olah" / "bin" / "olah-cli"
_START_TIMEOUT_S = 60.0
_CONFIG = """\
[basic]
host = "127.0.0.1"
port = {port}
repos-path = "{folder}/repos"
mirrors-path = ["{folder}/mirrors"]

[accessibility]
offline = true
"""


class Olah:
    """Serves what is under `folder/mirrors`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def commit(self, name: str, files: Mapping[str, bytes], *, tag: str = "") -> str:
        """One more commit on `main` of the model with these files and no others; its id."""
        repo = self._folder / "mirrors" / "models" / name
        if not repo.exists():
            repo.mkdir(parents=True)
            self._git(repo, "init", "-q", "-b", "main")
        for old in self._git(repo, "ls-files", "-z").split("\0"):
            (repo / old).unlink() if old else None
        for path, content in files.items():
            (repo / path).parent.mkdir(parents=True, exist_ok=True)
            (repo / path).write_bytes(content)
        self._git(repo, "add", "-A")
        self._git(repo, "commit", "-q", "-m", "weights")
        if tag:
            self._git(repo, "tag", tag)
        return self._git(repo, "rev-parse", "HEAD").strip()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Until the block ends. Raises: Missing."""
        if not PROGRAM.exists():
            raise Missing("olah is not installed; `make setup` does that.")
        config = self._folder / "olah.toml"
        config.write_text(_CONFIG.format(port=self._port, folder=self._folder))
        env = {"PATH": os.defpath, "HOME": str(self._folder), "HF_HUB_DISABLE_TELEMETRY": "1"}
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen([PROGRAM, "-c", config], stdout=log, stderr=log, cwd=self._folder, env=env)
        try:
            if not answers(self._port, wait_s=_START_TIMEOUT_S):
                raise Missing(f"olah did not start:\n{(self._folder / 'log').read_text(errors='replace')[-2000:]}")
            yield
        finally:
            process.terminate()
            process.wait(timeout=20)

    @staticmethod
    def _git(repo: Path, *words: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *who, *words], cwd=repo, check=True, capture_output=True, text=True).stdout
