"""The commands set up logging for the whole process; a test must not leave that to others."""

from __future__ import annotations

import subprocess

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before():
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def own_settings(monkeypatch, tmp_path):
    """Nothing of the machine's: state in a folder of the test, no engine, an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPURUN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")


@pytest.fixture
def checkout(tmp_path):
    """`commit(files)` in a git checkout; it returns the folder."""
    folder = tmp_path / "train"

    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    def commit(files: dict[str, str]):
        if not folder.exists():
            folder.mkdir()
            git("init", "-q")
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if files:
            git("add", "-A")
            git("commit", "-q", "-m", "more")
        return folder

    return commit
