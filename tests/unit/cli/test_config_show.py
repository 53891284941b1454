"""`gpurun config show`: a table for people, an object for scripts."""

from __future__ import annotations

import json

import pytest

from gpurun.cli.main import cli

FILE = """\
version: 1
defaults: {kind: train, image: "ghcr.io/org/app:1.2", env: {SEED: "0"}}
jobs:
  smoke:
    run: |
      python a.py
      python b.py
    setup: ""
    artifacts: ["out/**", report.json]
"""


def show(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli(["config", "show", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def here(checkout, monkeypatch):
    folder = checkout(
        {".gpurun.yml": FILE, "sub/.gpurun.yml": FILE.replace("train", "batch"), "bad/.gpurun.yml": f"{FILE}x: 1\n"}
    )
    monkeypatch.chdir(folder)
    return folder


def test_each_value_stands_beside_its_place(here, capsys):
    assert show("smoke") == 0
    head, columns, *rows = capsys.readouterr().out.splitlines()
    assert (head, columns.split()) == ("smoke · .gpurun.yml", ["Key", "Value", "From"])
    words = [row.split(maxsplit=2) for row in rows]
    assert ["kind", "train", "defaults, line 2"] in words
    assert ["env.SEED", "0", "defaults, line 2"] in words
    assert ["setup", '""', "jobs.smoke, line 8"] in words
    assert ["limits.max_duration", "24h", "preset of kind train"] in words
    assert ["trigger.comment", "true", "built-in"] in words
    assert ["workdir", "–", "not set"] in words
    run = next(number for number, row in enumerate(rows) if row.startswith("run "))
    assert " ".join(rows[run].split()) == "run python a.py jobs.smoke, line 5"
    assert rows[run + 1].strip() == "python b.py"
    assert all(row == row.rstrip() for row in rows)


def test_the_object_has_values_as_they_were_written(here, capsys):
    assert show("smoke", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["job"], told["file"]) == ("smoke", ".gpurun.yml")
    by_key = {one.pop("key"): one for one in told["settings"]}
    assert by_key["run"] == {"value": "python a.py\npython b.py\n", "source": "job", "line": 5}
    assert by_key["artifacts"] == {"value": ["out/**", "report.json"], "source": "job", "line": 9}
    assert by_key["retry.attempts"] == {"value": "3", "source": "preset", "line": 0}


def test_another_folder(here, capsys, monkeypatch):
    assert show("smoke", "--path", "sub") == 0
    assert "smoke · sub/.gpurun.yml" in capsys.readouterr().out
    monkeypatch.chdir(here / "bad")
    assert show("smoke", "--path", "./sub/") == 0
    assert "smoke · sub/.gpurun.yml" in capsys.readouterr().out
    monkeypatch.chdir(here / "sub")
    assert show("smoke") == 0
    assert "smoke · sub/.gpurun.yml" in capsys.readouterr().out
    monkeypatch.chdir(here)
    assert show("smoke", "--path", "bad") == 2
    told = capsys.readouterr()
    assert "bad/.gpurun.yml:10:1: unknown key `x`" in told.err
    assert told.out == ""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_unknown_job(here, capsys, more):
    assert show("smok", *more) == 2
    told = capsys.readouterr()
    assert told.err == (
        "gpurun config show: There is no job 'smok' in .gpurun.yml. Did you mean 'smoke'?\nJobs: smoke.\n"
    )
    assert told.out == ""


def test_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert show("smoke") == 2
    assert ".gpurun.yml cannot be read: No such file or directory." in capsys.readouterr().err
