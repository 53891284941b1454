from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.cli.completion import SHELLS, complete_job, job_names
from gpurun.cli.main import cli

FILE = """\
# jobs:
version: 1
defaults:
    limits: {max_duration: 5m}
jobs:  # all of them

    # first: no
    smoke:
        run: echo hi
        env:
            nested: x
    "sm2": {run: x, image: y}
    train:
        run: |
            fake: x
policy:
    images: []
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(shell, capsys):
    with pytest.raises(SystemExit) as ended:
        cli(["completion", shell])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"_GPURUN_COMPLETE={shell}_complete" in said
    assert {"bash": "complete -o nosort", "zsh": "compdef", "fish": "complete --no-files --command gpurun"}[
        shell
    ] in said


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        cli(["completion", "csh"])
    assert ended.value.code == 2
    assert "csh" in capsys.readouterr().err


@pytest.fixture
def bash(tmp_path, checkout):
    """What bash offers for words, the last of which is being typed, in a checkout with FILE."""
    folder = checkout({".gpurun.yml": FILE, "src/a.py": "", "sub/.gpurun.yml": "jobs:\n  deep: {run: x}\n"})
    program = tmp_path / "bin" / "gpurun"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpurun "$@"\n')
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{os.getenv('PATH')}",
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    def offers(*words: str, place: str = "src") -> list[str]:
        typed = " ".join(f"'{word}'" for word in words)
        text = (
            'eval "$(gpurun completion bash)"\n'
            f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}\n"
            '_gpurun_completion gpurun\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", text],
            cwd=folder / place, env=environment, capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return offers


def test_bash_completes_jobs_commands_and_options(bash):
    assert bash("gpurun", "run", "") == ["smoke", "sm2", "train"]
    assert bash("gpurun", "run", "sm") == ["smoke", "sm2"]
    assert bash("gpurun", "run", "--checkout", "..", "tr") == ["train"]
    for words in (("plan",), ("config", "show"), ("diff", "HEAD", "HEAD")):
        assert bash("gpurun", *words, "sm") == ["smoke", "sm2"]
    assert "validate" in bash("gpurun", "va")
    assert "--json" in bash("gpurun", "run", "--j")


def test_jobs_are_those_of_the_file_that_the_command_would_take(bash):
    assert bash("gpurun", "run", "", place="sub") == ["deep"]
    assert bash("gpurun", "plan", "--path", "sub", "") == ["deep"]
    assert bash("gpurun", "run", "--path", ".", "tr", place="sub") == ["train"]
    assert bash("gpurun", "run", "--checkout", "../sub", "") == ["deep"]
    assert bash("gpurun", "run", "--path", "../..", "") == []


def test_the_tab_key_loads_nothing_heavy():
    program = "import sys, gpurun.cli.completion; print({'pydantic', 'yaml', 'anyio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"


def _with_checkout(folder):
    made = click.Context(cli, info_name="gpurun")
    made.params["checkout"] = folder
    return made


PARAMETER = click.Argument(["job"])


def test_nothing_is_offered_where_there_is_nothing(tmp_path, checkout):
    assert complete_job(_with_checkout(tmp_path), PARAMETER, "") == []
    assert complete_job(_with_checkout(checkout({"a": ""})), PARAMETER, "") == []
    assert complete_job(_with_checkout(tmp_path / "none"), PARAMETER, "") == []


def test_a_pipe_is_not_waited_for(checkout):
    folder = checkout({"a": ""})
    os.mkfifo(folder / ".gpurun.yml")
    assert complete_job(_with_checkout(folder), PARAMETER, "") == []


def test_a_file_that_is_no_text_offers_nothing(checkout):
    folder = checkout({"a": ""})
    (folder / ".gpurun.yml").write_bytes(b"\xff\xfe\x00jobs:\n  \xff: x\n")
    assert complete_job(_with_checkout(folder), PARAMETER, "") == []


@given(
    st.one_of(
        st.text(),
        st.lists(st.sampled_from(["jobs:", "\n", "  ", "a:", "b-1: {}", "\t", "#", "\r\n", '"x":'])).map("".join),
    )
)
def test_no_text_makes_it_fail(text):
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) for name in job_names(text))


def test_lines_that_look_like_jobs_and_are_none():
    assert job_names(FILE) == ("smoke", "sm2", "train")
    assert job_names(FILE.replace("\n", "\r\n")) == ("smoke", "sm2", "train")
    assert job_names("jobs: {smoke: {run: x}}\n") == ()
    assert job_names("run: x\n") == ()
