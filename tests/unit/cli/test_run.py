"""What `gpurun run` says when there is nothing to run. With a container: tests/e2e/test_cli.py."""

from __future__ import annotations

import json
import re

import pytest

from gpurun.cli.run import EXIT_CODES, Output, Wish, exit_code, run_job
from gpurun.domain.run import Verdict
from gpurun.report.terminal import Places, RunResult

ULID = re.compile(r"[0-9a-z]{26}")
CONFIG = f"version: 1\njobs:\n  smoke:\n    image: registry.example/app@sha256:{'a' * 64}\n    run: echo hi\n"


def wish(folder, job: str = "smoke", artifacts_dir=None) -> Wish:
    return Wish(job=job, checkout=folder, artifacts_dir=artifacts_dir)


def refused(capsys, asked: Wish, *, code: int = 2) -> tuple[RunResult, str]:
    """The object on stdout and the text on stderr; for people the code and the text are the same."""
    assert run_job(asked, Output.JSON) == code
    out, err = capsys.readouterr()
    assert run_job(asked, Output.PEOPLE) == code
    assert ULID.sub("", capsys.readouterr().err) == ULID.sub("", err)
    return RunResult.model_validate(json.loads(out)), err


def test_every_verdict_has_its_exit_code():
    assert EXIT_CODES == {
        Verdict.PASSED: 0,
        Verdict.FAILED: 1,
        Verdict.TIMEOUT: 1,
        Verdict.REFUSED: 2,
        Verdict.LOST: 3,
        Verdict.CANCELLED: 130,
    }


def test_a_pass_without_its_artifacts_has_a_code_of_its_own():
    lacking = Places(folder="/kept", unwritten={"out/big": "No space left on device"})
    assert exit_code(Verdict.PASSED, Places(folder="/kept")) == 0
    assert exit_code(Verdict.PASSED, lacking) == 4
    assert all(exit_code(verdict, lacking) == code for verdict, code in EXIT_CODES.items() if code)


def test_not_a_checkout(capsys, tmp_path):
    result, told = refused(capsys, wish(tmp_path))
    assert f"{tmp_path} is not inside a git checkout" in told
    assert "git init" in told
    assert (result.verdict, result.reason, result.job, result.run) == ("refused", "usage", "smoke", "")
    assert result.detail.startswith(f"{tmp_path} is not inside a git checkout")


def test_no_commit_yet(capsys, checkout):
    _, told = refused(capsys, wish(checkout({})))
    assert "has no commit yet" in told


def test_no_file(capsys, checkout):
    result, told = refused(capsys, wish(checkout({"train.py": "pass\n"})))
    assert "there is no file `.gpurun.yml`" in told
    assert "^" not in told
    assert result.reason == "config"


def test_a_broken_file_shows_the_place_also_from_a_folder_below(capsys, checkout):
    folder = checkout({".gpurun.yml": CONFIG + "    imag: x\n", "src/train.py": "pass\n"})
    result, told = refused(capsys, wish(folder / "src"))
    assert ".gpurun.yml:6:5: unknown key `imag`" in told
    assert "6 |     imag: x\n  |     ^" in told
    assert result.detail.startswith(".gpurun.yml:6:5: unknown key `imag`")


def test_the_file_as_it_is_on_disk_counts(capsys, checkout):
    folder = checkout({".gpurun.yml": CONFIG})
    (folder / ".gpurun.yml").write_text(CONFIG + "    imag: x\n")
    _, told = refused(capsys, wish(folder))
    assert "unknown key `imag`" in told


@pytest.mark.parametrize(("typed", "meant"), [("smok", " Did you mean 'smoke'?"), ("hepl", ""), ("zzz", "")])
def test_an_unknown_job(capsys, checkout, typed, meant):
    _, told = refused(capsys, wish(checkout({".gpurun.yml": CONFIG}), typed))
    assert f"There is no job '{typed}' in .gpurun.yml.{meant}\nJobs: smoke.\n" in told


IN_FOLDERS = {
    ".gpurun.yml": CONFIG,
    "a/.gpurun.yml": CONFIG.replace("smoke", "full"),
    "a/deep/x.py": "",
    "b/.gpurun.yml": CONFIG + "    imag: x\n",
    "c/x.py": "",
}


@pytest.mark.parametrize(
    ("folder", "path", "told"),
    [
        ("a", None, "There is no job 'nope' in a/.gpurun.yml.\nJobs: full. `--path` names the folder of another file"),
        ("a/deep", None, "There is no job 'nope' in a/.gpurun.yml."),
        ("a", ".", "There is no job 'nope' in .gpurun.yml.\nJobs: smoke.\n"),
        ("c", None, "There is no job 'nope' in .gpurun.yml."),
        ("", "a", "There is no job 'nope' in a/.gpurun.yml."),
        ("c", "./a/", "There is no job 'nope' in a/.gpurun.yml."),
        ("", "b", "b/.gpurun.yml:6:5: unknown key `imag`"),
        ("b", None, "b/.gpurun.yml:6:5: unknown key `imag`"),
        ("", "c", "There is no c/.gpurun.yml in "),
        ("a", "..", "--path .. is no folder inside the repository."),
        ("", "../a", "--path ../a is no folder inside the repository."),
    ],
)
def test_which_file_counts(capsys, checkout, folder, path, told):
    top = checkout(IN_FOLDERS)
    _, said = refused(capsys, Wish(job="nope", checkout=top / folder, path=path))
    assert told in said


def test_no_engine(capsys, checkout):
    result, told = refused(capsys, wish(checkout({".gpurun.yml": CONFIG})), code=3)
    assert "no Docker Engine answers there" in told
    assert "Start Docker, or install it" in told
    assert (result.verdict, result.reason) == ("lost", "no_engine")


def test_a_setting_that_cannot_be_read(capsys, checkout, monkeypatch):
    monkeypatch.setenv("GPURUN_DOCKER_MAX_RUNS", "many")
    _, told = refused(capsys, wish(checkout({".gpurun.yml": CONFIG})))
    assert told.startswith("gpurun run: GPURUN_DOCKER_MAX_RUNS is 'many'")


def test_a_state_folder_that_cannot_be_made(capsys, checkout, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPURUN_STATE_DIR", str(tmp_path / "file"))
    _, told = refused(capsys, wish(checkout({".gpurun.yml": CONFIG})))
    assert "cannot be made" in told


def test_a_folder_for_artifacts_that_cannot_be_made_is_told_before_anything_runs(capsys, checkout, tmp_path):
    (tmp_path / "file").touch()
    folder = checkout({".gpurun.yml": CONFIG})
    _, told = refused(capsys, wish(folder, artifacts_dir=tmp_path / "file" / "out"))
    assert "Artifacts cannot be written" in told
