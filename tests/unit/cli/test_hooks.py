"""`.pre-commit-hooks.yaml` by pre-commit itself, without a package index: `gpurun` is the one beside this Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
PINNED = f"version: 1\njobs:\n  smoke: {{image: 'x@sha256:{'a' * 64}', run: 'true'}}\n"
BY_TAG = "version: 1\njobs:\n  smoke: {image: 'x:1', run: 'true'}\n"
LOCK = f'{{"gpurun_lock": 1}}\n{{"image": "x:1", "digest": "sha256:{"b" * 64}", "locked_on": "2026-12-01"}}\n'


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.strip()


@pytest.fixture
def user(tmp_path):
    """A repository that uses the hooks of another one; `language` is what a user may write over it."""
    hooks = tmp_path / "gpurun"
    hooks.mkdir()
    shutil.copy(TOP / ".pre-commit-hooks.yaml", hooks)
    git(hooks, "init", "-q")
    git(hooks, "add", "-A")
    git(hooks, "commit", "-q", "-m", "hooks")
    folder = tmp_path / "user"
    folder.mkdir()
    git(folder, "init", "-q")
    ids = [f"      - {{id: {hook}, language: system}}\n" for hook in ("gpurun-validate", "gpurun-lock-check")]
    text = f"repos:\n  - repo: {hooks}\n    rev: {git(hooks, 'rev-parse', 'HEAD')}\n    hooks:\n{''.join(ids)}"
    (folder / ".pre-commit-config.yaml").write_text(text)
    return folder


def commit_check(folder: Path, files: dict[str, str]) -> tuple[int, str]:
    """What `git commit` of those files would be told."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    inherited = os.environ  # noqa: TID251
    home = str(folder.parent / "cache")
    environment = {**inherited, "PRE_COMMIT_HOME": home, "PATH": f"{BIN}:{inherited['PATH']}"}
    done = subprocess.run(
        [BIN / "pre-commit", "run", "--color=never"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    return done.returncode, done.stdout


def test_good_files_pass_in_every_folder(user):
    code, told = commit_check(
        user, {".gpurun.yml": PINNED, "sub/.gpurun.yml": BY_TAG, "sub/.gpurun.lock": LOCK, "my.gpurun.yml": "rubbish"}
    )
    assert code == 0, told
    assert told.count("Passed") == 2


def test_faults_and_missing_pins_stop_the_commit(user):
    code, told = commit_check(user, {".gpurun.yml": BY_TAG, "sub/.gpurun.yml": "version: 1\njobs: {a: {imag: x}}\n"})
    assert code == 1
    assert "sub/.gpurun.yml:2:" in told
    (user / "sub/.gpurun.yml").unlink()
    code, told = commit_check(user, {".gpurun.yml": BY_TAG})
    assert code == 1
    assert "gpurun validate..." in told
    assert ".gpurun.lock does not pin x:1, which smoke needs.\nRun `gpurun lock` and commit the file." in told


def test_other_commits_are_not_looked_at(user):
    code, told = commit_check(user, {"a.py": "1"})
    assert code == 0
    assert told.count("(no files to check)Skipped") == 2
