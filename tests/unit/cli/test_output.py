"""Commands whose output cannot be written end with a code and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.domain.test_text import commands

GOOD = f"version: 1\njobs:\n  smoke:\n    image: registry.example/app@sha256:{'a' * 64}\n    run: echo hi\n"
COMMANDS = (
    "--help",
    "--version",
    "completion bash",
    "validate",
    "lock --check",
    "init --print",
    "config show smoke",
    "plan smoke",
    "plan smoke --json",
    "diff HEAD HEAD",
)


@pytest.fixture
def here(checkout, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return checkout({".gpurun.yml": GOOD})


def gpurun(here, words: str, **streams) -> tuple[int, str]:
    argv = [sys.executable, "-m", "gpurun", *words.split()]
    streams = {"stderr": subprocess.PIPE, **streams}
    done = subprocess.run(argv, cwd=here, check=False, text=True, timeout=60, **streams)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk(here, words):
    with Path("/dev/full").open("w") as full:
        code, told = gpurun(here, words, stdout=full)
    assert (code, told) == (2, "gpurun: stdout cannot be written: No space left on device.\n")


def test_a_full_disk_without_buffers(here, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    test_a_full_disk(here, "--version")
    test_a_full_disk(here, "plan smoke")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_closed_pipe(here, words):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert gpurun(here, words, stdout=writer) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", ["--version", "plan smoke", "lock", "run smoke"])
def test_a_closed_stdout_is_told_before_anything_is_done(here, words):
    argv = ["sh", "-c", f'"{sys.executable}" -m gpurun {words} >&-']
    done = subprocess.run(argv, cwd=here, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpurun: stdout cannot be written: it is closed; use `>/dev/null` for no output.\n"
    assert not (here / ".gpurun.lock").exists()


def test_what_goes_to_stderr(here):
    (here / ".gpurun.yml").write_text("version: 2\n")
    with Path("/dev/full").open("w") as full:
        assert gpurun(here, "validate", stderr=full)[0] == 2
    reader, writer = os.pipe()
    os.close(reader)
    assert gpurun(here, "validate", stderr=writer)[0] == 141
    os.close(writer)
    closed = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m gpurun validate 2>&-'], cwd=here, check=False, timeout=60
    )
    assert closed.returncode == 2


@pytest.mark.parametrize("words", ["config show smoke", "plan smoke", "init --print"])
def test_b128_in_a_step_of_a_workflow_nothing_is_a_command_to_the_runner(checkout, monkeypatch, words):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = "run: |\n      echo hi\n      ::set-output name=result::success\n      ##[group]y\n"
    here = checkout({".gpurun.yml": GOOD.replace("run: echo hi\n", lines)})
    argv = [sys.executable, "-m", "gpurun", *words.split()]
    done = subprocess.run(argv, cwd=here, check=False, text=True, timeout=60, capture_output=True)
    assert commands(done.stdout + done.stderr) == []
    assert done.stdout + done.stderr
