"""`.env` for `gpurun run`: only what the job lists, sentences without values, and never in a snapshot."""

from __future__ import annotations

import contextlib
import json
import subprocess

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from gpurun.adapters.local import LocalForge
from gpurun.cli.envfile import given_secrets, ignored_note
from gpurun.cli.plan import Wish as PlanWish
from gpurun.cli.plan import plan_json
from gpurun.cli.run import Output, Wish, run_job
from gpurun.domain.errors import UserError

VALUE = "canary-value-91"


def given(file, names, *, must_exist=False):
    found = given_secrets("smoke", names, file, must_exist=must_exist)
    return {name: value.get_secret_value() for name, value in found.values.items()}, found.ignored


@pytest.fixture
def file(tmp_path):
    return tmp_path / ".env"


def test_only_the_names_of_the_job_are_taken(file):
    file.write_text(
        f'# mine\nexport HF_TOKEN={VALUE}\nQUOTED="with space and \'quote\'"\nMANY="one line\nand more"\n'
        "DOLLAR='literal ${HF_TOKEN} text'\nOTHER=x\nSHORT=a\n"
    )
    names = ["HF_TOKEN", "QUOTED", "MANY", "DOLLAR"]
    assert given(file, names) == (
        {
            "HF_TOKEN": VALUE,
            "QUOTED": "with space and 'quote'",
            "MANY": "one line\nand more",
            "DOLLAR": "literal ${HF_TOKEN} text",
        },
        2,
    )
    found = given_secrets("smoke", names, file, must_exist=False)
    assert ignored_note(found, "smoke") == (
        "Secrets: 2 names of the file are ignored, because the job smoke does not list them under `secrets`."
    )
    assert VALUE not in repr(found)


def test_what_is_not_utf_8_matters_in_what_the_job_gets_only(file):
    file.write_bytes(f"# caf\xe9\nOTHER=\xe9\nHF_TOKEN={VALUE}\n".encode("latin-1"))
    assert given(file, ["HF_TOKEN"]) == ({"HF_TOKEN": VALUE}, 1)


def test_a_value_is_not_put_together_from_others(file):
    file.write_text("HF_TOKEN=${HOME}/${OTHER}/x\nOTHER=abcdef\n")
    assert given(file, ["HF_TOKEN"])[0] == {"HF_TOKEN": "${HOME}/${OTHER}/x"}


def test_a_job_without_secrets_reads_nothing(file):
    file.write_text("this is ' no such file\n")
    assert given(file, []) == ({}, 0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "names under `secrets` what is not in"),
        ("OTHER=1\n", "HF_TOKEN."),
        ("HF_TOKEN=\n", "HF_TOKEN."),
        ("HF_TOKEN\n", "no `=` in line 1."),
        (f"A=1\n\n# PEM\r\nHF_TOKEN=-----BEGIN\n\n  {VALUE}\nB=1\n", "no `=` in line 6."),
        ("HF_TOKEN=abcde\n", "fewer than 6"),
        (f"A=1\nHF_TOKEN='{VALUE}\n", "line 2."),
        (f"A=1\n\n\nHF_TOKEN='{VALUE}\n", "line 4."),
        (f"HF_TOKEN={VALUE}\udce9\n", "UTF-8"),
        ("x" * 1_100_000, "1024 KiB"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(file, text, told):
    if text is not None:
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as caught:
        given(file, ["HF_TOKEN"])
    assert told in str(caught.value)
    assert str(file) in str(caught.value)
    assert "canary" not in f"{caught.value}{caught.value.hint}"
    assert "abcde" not in str(caught.value)


@drawn(st.binary(max_size=300))
def test_no_file_ends_in_anything_but_a_sentence(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("env") / ".env"
    file.write_bytes(data)
    with contextlib.suppress(UserError):
        assert len(given(file, ["A"])[0]["A"]) >= 6


CONFIG = json.dumps(
    {
        "version": 1,
        "jobs": {"smoke": {"image": "r.example/x@sha256:" + "0" * 64, "run": "true", "secrets": ["HF_TOKEN"]}},
    }
)


def test_what_is_missing_is_said_before_anything_runs(checkout, capsys):
    folder = checkout({".gpurun.yml": CONFIG})
    assert run_job(Wish(job="smoke", checkout=folder, artifacts_dir=None), Output.PEOPLE) == 2
    told = capsys.readouterr().err
    assert f"The job smoke names under `secrets` what is not in {folder}/.env: HF_TOKEN." in told
    assert "Write HF_TOKEN=… there, or name another file with --env-file." in told


def test_one_that_is_tracked_is_told(checkout, capsys, monkeypatch):
    folder = checkout({".gpurun.yml": CONFIG.replace('"secrets": ["HF_TOKEN"]', '"env": {}'), "sub/x": ""})
    monkeypatch.chdir(folder)
    note = ".env is tracked by git, so the container gets the file with its values. `git rm --cached .env`, add it"
    (folder / ".env").write_text(f"HF_TOKEN={VALUE}\n")
    for is_tracked in (False, True):
        if is_tracked:
            checkout({"y": ""})
            (folder / ".env").write_text("HF_TOKEN=other\n")
        run_job(Wish(job="smoke", checkout=folder, artifacts_dir=None), Output.PEOPLE)
        assert capsys.readouterr().out.count(note) == is_tracked
        assert plan_json(PlanWish(job="smoke")) == 0
        notes = json.loads(capsys.readouterr().out)["notes"]
        assert sum(one.startswith(note) for one in notes) == is_tracked
        assert "canary" not in str(notes)


def names_in(folder, sha):
    done = subprocess.run(["git", "ls-tree", "-r", "--name-only", sha], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().split()


async def test_a_file_of_secrets_is_no_part_of_a_snapshot(checkout):
    folder = checkout({"a.txt": "a"})
    (folder / ".env").write_text(f"HF_TOKEN={VALUE}\n")
    (folder / "dev.env").write_text(f"HF_TOKEN={VALUE}\n")
    assert (await LocalForge(folder, private=folder / "dev.env").checkout_state()).dirty == ()
    assert (await LocalForge(folder).checkout_state()).dirty == ("dev.env",)
    (folder / "b.txt").write_text("b")
    forge = LocalForge(folder, private=folder / "dev.env")
    assert names_in(folder, await forge.snapshot()) == ["a.txt", "b.txt"]
    (folder / "sub").mkdir()
    inner = LocalForge(folder / "sub", private=folder / "dev.env")
    assert names_in(folder, await inner.snapshot()) == ["a.txt", "b.txt"]
    subprocess.run(["git", "add", ".env"], cwd=folder, check=True)
    assert names_in(folder, await forge.snapshot()) == ["a.txt", "b.txt"]


async def test_one_that_is_committed_is_none(checkout):
    folder = checkout({".env": "MODE=test\n"})
    (folder / ".env").write_text("MODE=other\n")
    forge = LocalForge(folder)
    assert (await forge.checkout_state()).dirty == (".env",)
    assert names_in(folder, await forge.snapshot()) == [".env"]


def test_what_is_optional_is_taken_when_it_is_there(tmp_path):
    file = tmp_path / ".env"
    assert given_secrets("smoke", (), file, must_exist=False, optional=("LOGIN",)).values == {}
    file.write_text("LOGIN=a-long-word\nOTHER=x\n")
    given = given_secrets("smoke", (), file, must_exist=False, optional=("LOGIN",))
    assert (given.values["LOGIN"].get_secret_value(), given.ignored) == ("a-long-word", 1)
