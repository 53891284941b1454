"""Ctrl-C, at any time, ends any command with 130 and no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED_AT = """\
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == at:
            raise KeyboardInterrupt

at = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
from gpurun.__main__ import main
main()
"""


def interrupted(at: str, *words: str, cwd: object) -> tuple[int, str]:
    """What a command says that Ctrl-C ends while it loads that module."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, at, *words],
        cwd=str(cwd),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("words", ["validate", "lock --check", "plan smoke", "init --print", "run smoke", "cache list"])
def test_while_the_program_loads(tmp_path, words):
    assert interrupted("click", *words.split(), cwd=tmp_path) == (130, "")


@pytest.mark.parametrize(
    ("words", "module"),
    [
        ("validate", "gpurun.cli.validate"),
        ("lock --check", "gpurun.plan.lock"),
        ("lock", "gpurun.cli.lock"),
        ("plan smoke", "gpurun.adapters.local"),
        ("diff a b", "anyio"),
        ("config show smoke", "rich"),
        ("init --print", "gpurun.plan.starter"),
        ("run smoke", "gpurun.wiring"),
        ("secret list --repo a/b", "pydantic"),
        ("db check", "gpurun.adapters"),
    ],
)
def test_while_the_command_loads(tmp_path, words, module):
    assert interrupted(module, *words.split(), cwd=tmp_path) == (130, "")


PROMPT = """\
import signal, sys, types
from gpurun.__main__ import main
from gpurun.cli import secret
secret.sys.stdin.isatty = lambda: True
secret._keys = lambda: None
secret._desk = lambda keys: types.SimpleNamespace(set=lambda place, name, value, who: None)
import click.termui
def ask(text):
    signal.raise_signal(signal.SIGINT)
click.termui.hidden_prompt_func = ask
sys.argv = ["gpurun", "secret", "set", "HF", "--repo", "a/b"]
main()
"""


def test_at_a_prompt(tmp_path):
    """click makes `Aborted!` and 1 of it."""
    done = subprocess.run(
        [sys.executable, "-c", PROMPT], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")
