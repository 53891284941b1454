from __future__ import annotations

import io
import sys

import pytest

from gpurun.cli.main import cli
from gpurun.cli.validate import STDIN, validate_file
from gpurun.domain.repository import RepoFacts
from gpurun.plan.starter import guess, whole_file

GOOD = f"version: 1\njobs:\n  smoke:\n    image: registry.example/app@sha256:{'a' * 64}\n    run: echo hi\n"
TWO_FAULTS = GOOD + "    imag: x\n  other: {rnu: 1}\n"


def test_a_good_file_names_its_jobs(tmp_path, capsys):
    (tmp_path / "f.yml").write_text(GOOD)
    assert validate_file(tmp_path / "f.yml") == 0
    assert capsys.readouterr().out == f"{tmp_path}/f.yml is fine. Jobs: smoke.\n"


def test_every_fault_with_line_column_and_caret(tmp_path, capsys):
    (tmp_path / "f.yml").write_text(TWO_FAULTS)
    assert validate_file(tmp_path / "f.yml") == 2
    told = capsys.readouterr().err
    assert f"{tmp_path}/f.yml:6:5: unknown key `imag`" in told
    assert "6 |     imag: x\n  |     ^" in told
    assert f"{tmp_path}/f.yml:7:" in told


def test_stdin(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TWO_FAULTS.encode())))
    assert validate_file(STDIN) == 2
    assert "stdin:6:5: unknown key `imag`" in capsys.readouterr().err


def test_a_path_without_a_file(tmp_path, capsys):
    assert validate_file(tmp_path / "none.yml") == 2
    told = capsys.readouterr().err
    assert f"{tmp_path}/none.yml cannot be read: No such file or directory." in told
    assert told.count("gpurun validate FILE") == 1


@pytest.mark.parametrize("words", [("pkg/tts",), ("pkg/tts/",), ("--path", "pkg/tts"), ("./pkg/tts/.gpurun.yml",)])
@pytest.mark.parametrize("command", [("validate",), ("lock", "--check"), ("lock",)])
def test_a_folder_means_its_file(checkout, monkeypatch, capsys, command, words):
    monkeypatch.chdir(checkout({"pkg/tts/.gpurun.yml": GOOD}))
    with pytest.raises(SystemExit) as ended:
        cli([*command, *words])
    assert ended.value.code == 0
    assert "pkg/tts/.gpurun.yml" in capsys.readouterr().out


@pytest.mark.parametrize("command", [("validate",), ("lock", "--check"), ("lock",)])
def test_a_folder_without_a_file_and_one_too_much(checkout, monkeypatch, capsys, command):
    monkeypatch.chdir(checkout({".gpurun.yml": GOOD, "pkg/x": ""}))
    for words, says in (
        (("pkg",), "pkg/.gpurun.yml cannot be read: No such file or directory."),
        (("--path", "pkg"), "pkg/.gpurun.yml cannot be read: No such file or directory."),
        (("--path", "../x"), "--path ../x is no folder inside the repository."),
        (("pkg", "--path", "pkg"), "--path names a folder, and FILES name files. Use one of them."),
    ):
        with pytest.raises(SystemExit) as ended:
            cli([*command, *words])
        assert ended.value.code == 2
        assert says in capsys.readouterr().err


def validate(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli(["validate", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_several_files_are_each_checked(tmp_path, capsys):
    (tmp_path / "good.yml").write_text(GOOD)
    (tmp_path / "bad.yml").write_text(TWO_FAULTS)
    assert validate(*(str(tmp_path / name) for name in ("bad.yml", "good.yml"))) == 2
    told = capsys.readouterr()
    assert f"{tmp_path}/bad.yml:6:5:" in told.err
    assert f"{tmp_path}/good.yml is fine." in told.out


def test_in_a_subfolder_the_nearest_file_up_to_the_top_of_the_checkout_is_meant(checkout, monkeypatch, capsys):
    files = {".gpurun.yml": GOOD, "src/app/a.py": "", "pkg/.gpurun.yml": GOOD, "pkg/deep/a.py": ""}
    folder = checkout(files)
    (folder.parent / ".gpurun.yml").write_text("jobs: 5")
    places = {"": ".gpurun.yml", "src/app": "../../.gpurun.yml", "pkg": ".gpurun.yml", "pkg/deep": "../.gpurun.yml"}
    for place, name in places.items():
        monkeypatch.chdir(folder / place)
        assert validate() == 0
        assert capsys.readouterr().out == f"{name} is fine. Jobs: smoke.\n"
    assert validate("../../../.gpurun.yml") == 2  # a named file is the one that is named
    (folder / ".gpurun.yml").unlink()
    monkeypatch.chdir(folder / "src/app")
    assert validate() == 2  # not the one above the checkout
    assert "../../.gpurun.yml cannot be read" in capsys.readouterr().err


def test_without_a_checkout_the_file_of_this_folder_is_meant(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert validate() == 2
    told = capsys.readouterr().err
    assert told.startswith("gpurun validate: .gpurun.yml cannot be read: No such file or directory.\n`gpurun init`")
    (tmp_path / ".gpurun.yml").write_text(GOOD)
    assert validate() == 0


def test_in_a_folder_that_is_gone(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert validate() == 2
    assert ".gpurun.yml cannot be read: No such file or directory." in capsys.readouterr().err


def test_a_policy_that_would_refuse_its_own_jobs_is_noted(tmp_path, capsys):
    """On the default branch it is the one that counts."""
    policy = "policy: {images: ['ghcr.io/*'], secrets: {}, max: {duration: 10m}, providers: [docker]}\n"
    (tmp_path / "f.yml").write_text(GOOD + "    secrets: [A]\n" + policy)
    assert validate_file(tmp_path / "f.yml") == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/f.yml is fine. Jobs: smoke.\n"
    start = f"{tmp_path}/f.yml: on the default branch the `policy` of this file would refuse its own job smoke. "
    assert told.err.startswith(start + "The image registry.example/app is not allowed here: ghcr.io/*.")
    assert "The job smoke may not use the secret A." in told.err
    assert "`max_duration` is 1800 s, and 600 s is the most here." in told.err
    assert told.err.count("\n") == 1


def test_a_policy_that_lets_its_jobs_run_is_no_word(tmp_path, capsys):
    policy = "policy: {images: ['registry.example/*'], max: {duration: 1h}}\n"
    (tmp_path / "f.yml").write_text(GOOD + policy)
    assert validate_file(tmp_path / "f.yml") == 0
    assert capsys.readouterr().err == ""


def test_what_init_left_to_be_written_is_noted(tmp_path, capsys):
    (tmp_path / "f.yml").write_text(whole_file(guess(RepoFacts())))
    assert validate_file(tmp_path / "f.yml") == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/f.yml is fine. Jobs: smoke.\n"
    assert told.err == (
        f"{tmp_path}/f.yml: the job smoke still runs the placeholder of `gpurun init`, which fails. "
        "Write its command.\n"
    )


@pytest.mark.parametrize(
    ("run", "is_noted"),
    [
        ('echo "issue #5"', True),
        ("grep 'a # b' c", True),
        ('python x.py "a"  # fast', False),
        ("\"echo 'issue #5'\"", False),
        ('|\n      echo "issue #5"', False),
        ("echo hi  # don't", False),
        ('echo "issue#5"', False),
    ],
)
def test_a_comment_that_ends_a_command_inside_a_quote_is_noted(tmp_path, capsys, run, is_noted):
    (tmp_path / "f.yml").write_text(GOOD.replace("run: echo hi", f"run: {run}"))
    assert validate_file(tmp_path / "f.yml") == 0
    told = capsys.readouterr().err
    assert told.startswith(f"{tmp_path}/f.yml:5: ` #` ends `run` here, inside a quote of the shell") == is_noted
    assert is_noted or told == ""


@pytest.mark.parametrize(
    ("run", "is_noted"),
    [
        ("echo a #1", True),
        ("python x.py  #fast --all", True),
        ("echo a # 1", False),
        ("echo a ## 1", False),
        ("echo a#1", False),
        ("'echo a' #1", False),
        ("|\n      echo a #1", False),
        ("|  #1\n      echo a", False),
    ],
)
def test_a_comment_that_looks_like_a_part_of_the_command_is_noted(tmp_path, capsys, run, is_noted):
    (tmp_path / "f.yml").write_text(GOOD.replace("run: echo hi", f"run: {run}"))
    assert validate_file(tmp_path / "f.yml") == 0
    told = capsys.readouterr().err
    start = f"{tmp_path}/f.yml:5: ` #` ends `run` here, because YAML reads a comment, and so would the shell. If it"
    assert told.startswith(start) == is_noted
    assert is_noted or told == ""
