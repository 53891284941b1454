"""Without a file at the top, those of other folders are named."""

from __future__ import annotations

import pytest

from gpurun.cli.main import cli

GOOD = f"version: 1\njobs:\n  smoke:\n    image: registry.example/app@sha256:{'a' * 64}\n    run: echo hi\n"


def told(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli(list(words))
    assert ended.value.code == 2
    return str(capsys.readouterr().err)


@pytest.fixture
def here(checkout, monkeypatch):
    others = {f"{name}/.gpurun.yml": GOOD for name in ("pkg/a", "b", "c", "d", ".hidden", "node_modules/x", "un typed")}
    folder = checkout({**others, "empty/x.txt": ""})
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "words", [("plan", "smoke"), ("run", "smoke"), ("config", "show", "smoke"), ("diff", "HEAD", "HEAD")]
)
def test_commands_with_path(here, capsys, words):
    said = told(capsys, *words)
    assert "There are files in b, c, d and others. Type `--path b`, or go there." in said
    assert "gpurun init" not in said


@pytest.mark.parametrize("words", [("validate",), ("lock",), ("lock", "--check")])
def test_commands_with_files(here, capsys, monkeypatch, words):
    monkeypatch.chdir(here / "empty")
    said = told(capsys, *words)
    assert "There are files in b, c, d and others. Type `--path b`, or go there." in said


def test_one_file_and_none(checkout, monkeypatch, capsys):
    folder = checkout({"pkg/a/.gpurun.yml": GOOD})
    monkeypatch.chdir(folder)
    assert "There is one in pkg/a. Type `--path pkg/a`, or go there." in told(capsys, "run", "smoke")
    (folder / "pkg/a/.gpurun.yml").unlink()
    assert "`gpurun init` writes a first one" in told(capsys, "plan", "smoke")
    assert "`gpurun init` writes a first one" in told(capsys, "config", "show", "smoke")


def test_of_the_checkout_that_is_named(checkout, tmp_path, monkeypatch, capsys):
    folder = checkout({"pkg/a/.gpurun.yml": GOOD})
    monkeypatch.chdir(tmp_path)
    assert "There is one in pkg/a." in told(capsys, "run", "smoke", "--checkout", str(folder))
