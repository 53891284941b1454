"""`gpurun diff`: the plans of two commits of a checkout."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from gpurun.cli.main import cli
from tests.fakes.hub import FakeHub

A, B = (f"registry.example/app@sha256:{digit * 64}" for digit in "ab")
ONE = f"""\
version: 1
jobs:
  smoke:
    image: {A}
    setup: make
    run: |
      python a.py
      python b.py --seed 0
      python c.py
    env: {{SEED: '0', OLD: x}}
    secrets: [HF_TOKEN]
    artifacts: ['out/**']
  gone: {{image: '{A}', run: ls}}
  same: {{image: '{A}', run: ls}}
"""
TWO = (
    ONE.replace(A, B, 1)
    .replace("--seed 0", "--seed 1")
    .replace("SEED: '0', OLD: x", "SEED: '1', NEW: y")
    .replace("[HF_TOKEN]", "[OTHER]")
    .replace("setup: make", "resources: {gpu: 1}\n    limits: {max_duration: 2h}")
    .replace("out/**", "report.json")
    .replace("  gone:", "  fresh:")
)
TAGGED = "version: 1\njobs:\n  smoke: {image: 'a/b:1', run: ls}\n  same: {image: 'x', run: ls}\n".replace(
    "'x'", f"'{A}'"
)
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def here(checkout, monkeypatch):
    monkeypatch.setenv("GPURUN_HUB_URL", NOWHERE)

    def commits(*texts: str):
        for number, text in enumerate(texts, 1):
            folder = checkout({".gpurun.yml": text, "n.txt": f"{number}\n"})
            subprocess.run(["git", "tag", f"v{number}"], cwd=folder, check=True)
        monkeypatch.chdir(folder)
        return folder

    return commits


def diff(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli(["diff", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_each_part_that_differs_is_shown(here, capsys):
    here(ONE, TWO)
    assert diff("v1", "v2") == 1
    head, *lines, end = capsys.readouterr().out.splitlines()
    assert head.startswith("v1 (")
    assert lines == [
        "~ smoke: 8 parts differ",
        f"  image      - {A}",
        f"             + {B}",
        "  setup      - make",
        "  run          python a.py",
        "             - python b.py --seed 0",
        "             + python b.py --seed 1",
        "               python c.py",
        "  env        + NEW=y",
        "             - OLD=x",
        "             - SEED=0",
        "             + SEED=1",
        "  secrets    - HF_TOKEN",
        "             + OTHER",
        "  needs      - no GPU",
        "             + 1 GPU",
        "  limits     - max_duration 30m",
        "             + max_duration 2h",
        "  artifacts  - out/**",
        "             + report.json",
        "- gone: only in v1",
        "= same: the same plan",
        "+ fresh: only in v2",
    ]
    assert end == "The files of the commits differ, too: `git diff` shows them."


def test_one_job_alone(here, capsys):
    here(ONE, TWO)
    assert diff("v1", "v2", "same") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == ["= same: the same plan", "No plan differs. The files of the commits do: `git diff` shows them."]
    assert diff("v1", "v2", "fresh") == 1
    assert diff("v1", "v2", "smok") == 2
    assert "There is no job 'smok' in .gpurun.yml. Did you mean 'smoke'?" in capsys.readouterr().err


def test_the_same_commit_and_the_same_files(here, capsys):
    folder = here(ONE)
    assert diff("v1", "HEAD", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["a"] == told["b"]
    assert {(one["same_digest"], one["same_result_key"]) for one in told["jobs"].values()} == {(True, True)}
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "x"], cwd=folder, check=True)
    assert diff("v1", "HEAD", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {(one["same_digest"], one["same_result_key"]) for one in told["jobs"].values()} == {(False, True)}
    assert diff("v1", "HEAD") == 0
    assert "Both commits have the same files: equal plans have equal result keys." in capsys.readouterr().out


def test_scripts_get_every_change(here, capsys):
    here(ONE, TWO)
    assert diff("v1", "v2", "--json") == 1
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert {name: (job["differs"], job["only_in"]) for name, job in jobs.items()} == {
        "smoke": (True, ""),
        "gone": (True, "a"),
        "same": (False, ""),
        "fresh": (True, "b"),
    }
    image = {"group": "image", "name": [], "before": A, "after": B, "size_before": None, "size_after": None}
    assert jobs["smoke"]["changes"][0] == image
    assert jobs["smoke"]["same_result_key"] is False


def test_a_name_that_nothing_pins_is_told_and_the_others_are_compared(here, capsys):
    here(TAGGED, ONE)
    assert diff("v1", "v2") == 2
    told = capsys.readouterr().out
    assert "! smoke: no plan at v1. The image a/b:1 is not pinned, and can move. Run `gpurun lock`" in told
    assert "= same: the same plan" in told
    assert diff("v1", "v2", "--json") == 2
    assert json.loads(capsys.readouterr().out)["jobs"]["smoke"]["differs"] is None


def test_a_job_on_one_side_that_nothing_pins_is_told_as_both(here, capsys):
    here(ONE, ONE + "  fresh: {image: 'a/b:1', run: x}\n")
    assert diff("v1", "v2", "fresh") == 1
    _, only, why, _ = capsys.readouterr().out.splitlines()
    assert only == "+ fresh: only in v2"
    assert why.startswith("! fresh: no plan at v2. The image a/b:1 is not pinned, and can move. Run `gpurun lock` and")
    assert diff("v1", "v2", "fresh", "--json") == 1
    fresh = json.loads(capsys.readouterr().out)["jobs"]["fresh"]
    assert (fresh["only_in"], fresh["differs"], fresh["trouble"]) == ("b", True, "")
    assert fresh["note"].startswith("no plan at v2. The image a/b:1 is not pinned")


def test_files_that_setup_reads_are_compared(here, checkout, capsys):
    """Equal plans of two commits take the same layer of setup; these do not."""
    text = f"version: 1\njobs: {{smoke: {{image: '{A}', setup: make, setup_inputs: [n.txt], run: ls}}}}\n"
    here(text, text, text.replace("n.txt", "gone.txt"))
    assert diff("v1", "v2") == 1
    _, headline, old, new, _ = capsys.readouterr().out.splitlines()
    assert headline == "~ smoke: 1 part differs"
    assert re.fullmatch("  source     - setup input n.txt=[0-9a-f]{12}", old)
    assert re.fullmatch("             [+] setup input n.txt=[0-9a-f]{12}", new)
    assert diff("v1", "v3") == 2
    assert "! smoke: no plan at v3. " in (told := capsys.readouterr().out)
    assert "'gone.txt' means no file of the commit" in told


def test_no_file_at_a_commit(here, capsys, checkout, monkeypatch):
    folder = checkout({"a.py": "pass\n"})
    here(ONE)
    first = subprocess.run(["git", "rev-parse", "v1~1"], cwd=folder, check=True, capture_output=True, text=True)
    sha = first.stdout.strip()
    assert diff(sha, "v1") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{sha[:12]} → v1 (")
    assert told[1] == f"There is no .gpurun.yml at {sha}."
    assert "+ smoke: only in v1" in told
    assert diff(sha, sha, "smoke") == 2
    assert f"Neither {sha} nor {sha} has a .gpurun.yml." in capsys.readouterr().err
    assert diff("v1", "v1", "--path", "typo") == 2
    assert "Neither v1 nor v1 has a typo/.gpurun.yml." in capsys.readouterr().err


def test_a_broken_file_is_shown_with_its_commit(here, capsys):
    here(ONE + "  bad: {rnu: 1}\n", ONE)
    assert diff("v1", "v2") == 2
    assert "v1:.gpurun.yml:15:9: unknown key `rnu`" in capsys.readouterr().err


def test_files_of_models_are_compared_when_the_hub_lists_them(here, capsys, monkeypatch):
    hub = FakeHub()
    old = hub.add_model("acme/tiny", {"config.json": b"{}", "model.safetensors": b"w" * 2000})
    new = hub.add_model("acme/tiny", {"config.json": b"{ }", "more.safetensors": b"m" * 3000})
    model = f"version: 1\njobs: {{smoke: {{image: '{A}', run: ls, models: [{{id: acme/tiny, revision: '%s'}}]}}}}\n"
    here(model % old, model % new, (model % new).replace("run: ls", "run: ls -l"))
    revisions = f"  model      ~ acme/tiny  {old[:12]} → {new[:12]}"
    assert diff("v1", "v2") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1:3] == ["~ smoke: 1 part differs", revisions]
    assert told[3].startswith("  Files of models are not compared. acme/tiny at ")
    assert "127.0.0.1 cannot be reached" in told[3]
    with hub.serving() as endpoint:
        monkeypatch.setenv("GPURUN_HUB_URL", endpoint)
        assert diff("v1", "v2") == 1
        assert capsys.readouterr().out.splitlines()[2:-1] == [
            revisions,
            "             ~   config.json  2 B → 3 B",
            "             -   model.safetensors  2.0 kB",
            "             +   more.safetensors  3.0 kB",
        ]
        asked = len(hub.requests)
        assert diff("v2", "v3") == 1  # the same model: nobody need be asked
        assert len(hub.requests) == asked
    told = capsys.readouterr().out.splitlines()
    assert told[1:-1] == ["~ smoke: 1 part differs", "  run        - ls", "             + ls -l"]


def test_a_file_that_is_not_committed_yet(checkout, monkeypatch, capsys):
    folder = checkout({"a.py": ""})
    (folder / ".gpurun.yml").write_text(ONE)
    monkeypatch.chdir(folder)
    assert diff("HEAD", "HEAD") == 2
    assert "It is here, and in neither of them: commit it, `git add .gpurun.yml`.\n" in capsys.readouterr().err
