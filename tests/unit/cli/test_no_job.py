"""Commands without their argument say what could stand there."""

from __future__ import annotations

import pytest

from gpurun.cli.main import cli

ONE = f"version: 1\njobs:\n  smoke:\n    image: registry.example/app@sha256:{'a' * 64}\n    run: echo hi\n"
TWO = ONE + f"  train: {{image: 'registry.example/app@sha256:{'a' * 64}', run: a}}\n"
COMMANDS = [("plan",), ("run",), ("config", "show")]


def told(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli(list(words), prog_name="gpurun")
    assert ended.value.code == 2
    return str(capsys.readouterr().err).rpartition("Error: ")[2]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_jobs_of_the_file_that_is_meant(checkout, monkeypatch, capsys, words):
    monkeypatch.chdir(checkout({".gpurun.yml": TWO, "a b/.gpurun.yml": ONE, "pkg/.gpurun.yml": ONE}))
    command = " ".join(words)
    assert told(capsys, *words) == "Missing argument 'JOB'. Jobs: smoke, train.\n"
    said = told(capsys, *words, "--path", "pkg")
    assert said == f"Missing argument 'JOB'. There is one job: `gpurun {command} smoke --path pkg`.\n"
    monkeypatch.chdir("a b")
    assert told(capsys, *words) == f"Missing argument 'JOB'. There is one job: `gpurun {command} smoke`.\n"


def test_of_the_checkout_that_was_named(checkout, tmp_path, monkeypatch, capsys):
    folder = checkout({".gpurun.yml": ONE})
    monkeypatch.chdir(tmp_path)
    assert f"`gpurun run smoke --checkout {folder}`." in told(capsys, "run", "--checkout", str(folder))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_file_or_with_a_broken_one(checkout, monkeypatch, capsys, words):
    folder = checkout({"a.py": ""})
    monkeypatch.chdir(folder)
    assert ".gpurun.yml cannot be read: No such file or directory. `gpurun init` writes" in told(capsys, *words)
    (folder / ".gpurun.yml").write_text("jobs: 5\n")
    assert "`gpurun validate .gpurun.yml` says what is wrong" in told(capsys, *words)
    assert "is no folder inside the repository" in told(capsys, *words, "--path", "..")


def test_two_commits_are_compared(capsys):
    assert told(capsys, "diff").startswith("Missing argument 'A'. Two commits, branches or tags are compared: `gpurun ")
    assert told(capsys, "diff", "main").startswith("Missing argument 'B'. Two commits")
