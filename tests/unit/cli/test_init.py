from __future__ import annotations

import os

import pytest

from gpurun.cli.init import show_starter, write_starter
from gpurun.cli.validate import validate_file
from tests.unit.plan.starter.repositories import EVERY, GRADIO, PACKAGE


@pytest.mark.parametrize("name", [name for name, files in EVERY.items() if files])
def test_from_init_to_a_valid_file(checkout, capsys, name):
    folder = checkout(EVERY[name])
    assert write_starter(folder) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"Wrote {folder}/.gpurun.yml with the job `smoke`:\n")
    for command in ("gpurun validate", "gpurun lock", "gpurun plan smoke", "gpurun run smoke"):
        assert f"\n  {command} " in told
    assert validate_file(folder / ".gpurun.yml") == 0


def test_what_is_said(checkout, capsys):
    write_starter(checkout(GRADIO) / ".")
    told = capsys.readouterr().out
    assert "  image     docker.io/pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime\n" in told
    assert "  models    Qwen/Qwen2.5-0.5B-Instruct at main (app.py:6)\n" in told
    assert "- run: `app.py` serves with gradio until it is stopped.\n" in told
    assert ".env is not ignored by git" in told


MONOREPO = {
    "a/demo.py": "import os\nos.environ['HF_TOKEN']\n",
    "a/requirements.txt": "numpy\n",
    "b/app.py": "",
    "b/deep/c/main.py": "",
    ".gitignore": ".env\n",
}


def test_in_a_sub_folder_the_file_is_for_that_folder(checkout, capsys):
    folder = checkout({**MONOREPO, ".gpurun.yml": "mine"})
    assert write_starter(folder / "a") == 0
    text = (folder / "a/.gpurun.yml").read_text()
    assert "run: python3 demo.py" in text
    assert "setup: pip install -r requirements.txt" in text
    assert "HF_TOKEN in `demo.py:2`" in text
    assert "workdir" not in text
    assert (folder / ".gpurun.yml").read_text() == "mine"
    told = capsys.readouterr().out
    assert told.startswith(f"Wrote {folder}/a/.gpurun.yml with")
    assert "\n  gpurun plan smoke  prints" in told
    assert "--path ." not in told
    assert validate_file(folder / "a/.gpurun.yml") == 0


def test_a_named_folder_and_what_to_type_then(checkout, capsys):
    folder = checkout(MONOREPO)
    assert write_starter(folder, "b/deep/c/") == 0
    assert "run: python3 main.py" in (folder / "b/deep/c/.gpurun.yml").read_text()
    told = capsys.readouterr().out
    assert "\n  gpurun lock b/deep/c/.gpurun.yml " in told
    assert "\n  gpurun plan smoke --path b/deep/c " in told
    assert "`gpurun init --path .` writes one for the whole repository" in told
    assert write_starter(folder / "a", ".") == 0
    told = capsys.readouterr().out
    assert "\n  gpurun run smoke --path . " in told
    assert "- workdir: there are other projects. `gpurun init --path b` writes a file there.\n" in told
    assert "The first of several projects. `gpurun init --path b` writes" in (folder / ".gpurun.yml").read_text()
    for odd, said in {"none": "There is no folder none in", "../x": "is no folder inside", "/": "is no folder"}.items():
        assert write_starter(folder, odd) == 2
        assert said in capsys.readouterr().err


def test_the_file_goes_to_the_top_and_new_files_count(checkout, capsys):
    folder = checkout({"src/a.py": "", ".gitignore": ".env\nignored/\n"})
    for path, text in {"requirements.txt": "numpy\n", "ignored/Dockerfile": "FROM x", "demo.py": ""}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    assert write_starter(folder / "src", ".") == 0
    assert ".env" not in capsys.readouterr().out
    text = (folder / ".gpurun.yml").read_text()
    assert text.startswith("# yaml-language-server: $schema=https://")
    assert "run: python3 demo.py" in text
    assert "setup: pip install -r requirements.txt" in text


def test_of_dotenv_only_names_are_told(checkout, capsys):
    folder = checkout({"demo.py": "", ".gitignore": ".env\n"})
    (folder / ".env").write_text("HF_TOKEN=hf_geheim\n")
    assert write_starter(folder) == 0
    text = (folder / ".gpurun.yml").read_text()
    assert "secrets: [HF_TOKEN]" in text
    assert "geheim" not in text + capsys.readouterr().out


def test_a_dotenv_that_git_tracks_is_no_secret_any_more(checkout, capsys):
    folder = checkout({"demo.py": "", "sub/demo.py": "", ".env": "HF_TOKEN=hf_geheim\n"})
    (folder / ".gitignore").write_text(".env\n")  # comes too late
    for place in (folder, folder / "sub"):
        assert write_starter(place) == 0
        told = capsys.readouterr().out
        assert (
            "- .env is tracked by git, and goes into the container of each run. `git rm --cached .env`, add it to "
            ".gitignore, and change its secrets: the history has them.\n"
        ) in told
        assert "before you write" not in told
        assert "geheim" not in told


def test_print_writes_nothing(checkout, capsys):
    folder = checkout(PACKAGE)
    assert show_starter(folder) == 0
    printed = capsys.readouterr().out
    assert not (folder / ".gpurun.yml").exists()
    assert write_starter(folder) == 0
    assert (folder / ".gpurun.yml").read_text() == printed


def test_what_is_there_stays(checkout, capsys):
    folder = checkout({"a.py": ""})
    there = folder / ".gpurun.yml"
    there.write_text("mine")
    assert write_starter(folder) == 2
    told = capsys.readouterr().err
    assert "is there already; it stays as it is" in told
    assert "gpurun init --print" in told
    assert there.read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "loop", "folder"])
def test_what_is_no_file_is_named(checkout, tmp_path, capsys, kind):
    folder = checkout({"a.py": ""})
    there = folder / ".gpurun.yml"
    if kind == "folder":
        there.mkdir()
    else:
        there.symlink_to(tmp_path / "elsewhere" if kind == "link" else ".gpurun.yml")
    assert write_starter(folder) == 2
    what = "a folder; a file belongs there." if kind == "folder" else "a symbolic link; put the file itself there."
    assert f".gpurun.yml is {what}\n" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_nothing_is_written_behind_a_link(checkout, tmp_path, capsys):
    """Git would not see it, and it may be anybody's folder."""
    folder = checkout({"a.py": ""})
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (folder / "sub").symlink_to(tmp_path / "elsewhere")
    for typed in ("sub", "sub/deep"):
        assert write_starter(folder, typed) == 2
        assert "sub is a symbolic link, and git keeps no files behind it." in capsys.readouterr().err
    assert [*(tmp_path / "elsewhere").rglob("*")] == [tmp_path / "elsewhere/deep"]


def test_no_checkout(tmp_path, capsys):
    assert write_starter(tmp_path) == 2
    assert show_starter(tmp_path) == 2
    assert "is not inside a git checkout" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_links_pipes_and_files_that_are_gone_are_not_read(checkout, tmp_path, capsys):
    (tmp_path / "secret.txt").write_text("FROM python:3.9\n")
    folder = checkout({"demo.py": "", "gone.py": ""})
    (folder / "Dockerfile").symlink_to(tmp_path / "secret.txt")
    (folder / "gone.py").unlink()
    os.mkfifo(folder / "requirements.txt")
    assert show_starter(folder) == 0
    printed = capsys.readouterr().out
    assert "3.9" not in printed
    assert "requirements" not in printed
