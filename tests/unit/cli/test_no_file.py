"""What stands in the place of `.gpurun.yml` and is no file that can be read: every command says the same."""

from __future__ import annotations

import pytest

from gpurun.cli.main import cli

GOOD = f"version: 1\njobs:\n  smoke:\n    image: registry.example/app@sha256:{'a' * 64}\n    run: echo hi\n"
COMMANDS = [
    ("validate",),
    ("lock",),
    ("lock", "--check"),
    ("plan", "smoke"),
    ("run", "smoke"),
    ("config", "show", "smoke"),
    ("init",),
]


def told(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli(list(words))
    assert ended.value.code == 2
    return str(capsys.readouterr().err)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("leads_to", ["real.yml", "nowhere", ".gpurun.yml"])
def test_a_link(checkout, monkeypatch, capsys, words, leads_to):
    folder = checkout({"real.yml": GOOD})
    (folder / ".gpurun.yml").symlink_to(leads_to)
    monkeypatch.chdir(folder)
    said = told(capsys, *words)
    assert ".gpurun.yml is a symbolic link; put the file itself there.\nLinks are not followed" in said
    assert "`gpurun init`" not in said


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_link_that_is_nearer_than_a_file(checkout, monkeypatch, capsys, words):
    folder = checkout({".gpurun.yml": GOOD, "sub/x": ""})
    (folder / "sub/.gpurun.yml").symlink_to("../.gpurun.yml")
    monkeypatch.chdir(folder / "sub")
    assert ".gpurun.yml is a symbolic link" in told(capsys, *words)


@pytest.mark.parametrize("words", [("plan", "smoke"), ("diff", "HEAD", "HEAD")], ids=" ".join)
def test_a_link_in_the_place_of_the_lock(checkout, monkeypatch, capsys, words):
    folder = checkout({".gpurun.yml": GOOD.replace(f"@sha256:{'a' * 64}", ":1"), "real.lock": '{"gpurun_lock": 1}\n'})
    (folder / ".gpurun.lock").symlink_to("real.lock")
    checkout({"more": ""})
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        cli(list(words))
    assert ended.value.code == 2
    assert ".gpurun.lock is a symbolic link; put the file itself there." in "".join(capsys.readouterr())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("inside", ["", "x.txt"])
def test_a_folder(checkout, monkeypatch, capsys, words, inside):
    folder = checkout({"a.py": ""})
    (folder / ".gpurun.yml").mkdir()
    if inside:
        (folder / ".gpurun.yml" / inside).touch()
    monkeypatch.chdir(folder)
    assert ".gpurun.yml is a folder; a file belongs there.\nMove the folder away.\n" in told(capsys, *words)
