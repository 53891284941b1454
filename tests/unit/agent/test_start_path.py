"""What the agent needs to start, because both milliseconds and small images depend on it."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

import gpurun_agent

SOURCES = sorted(Path(gpurun_agent.__file__).parent.glob("*.py"))

HEAVY = {
    "json",
    "subprocess",
    "http",
    "http.client",
    "logging",
    "threading",
    "socket",
    "ssl",
    "signal",
    "re",
    "enum",
    "hashlib",
    "typing",
    "urllib.parse",
    "dataclasses",
    "tarfile",
    "shutil",
    "tempfile",
    "zipfile",
    "argparse",
}

WATCH = """
import atexit, os, gpurun_agent.wire as wire
send = wire.Line.send
def watched(self, request, done):
    if request.target.endswith("/claim"):
        with open({path!r}, "w") as file:
            file.write("\\n".join(sys.modules))
    send(self, request, done)
wire.Line.send = watched
"""


def test_nothing_heavy_is_loaded_when_the_claim_is_sent(bot, run, tmp_path):
    run("echo hi", first=WATCH.format(path=str(tmp_path / "modules")))
    loaded = set((tmp_path / "modules").read_text().split())
    assert "_socket" in loaded
    assert loaded & HEAVY == set()
    assert not any(name.startswith("encodings.") and "idna" in name for name in loaded)


def test_it_runs_from_bytecode_of_its_own_version(bot, run, tmp_path):
    run("echo hi", first=f"import gpurun_agent.run as r; open({str(tmp_path / 'f')!r}, 'w').write(r.__file__)")
    assert f"/{sys.implementation.cache_tag}/gpurun_agent/run.pyc" in (tmp_path / "f").read_text()


def test_it_runs_from_source_in_another_version(bot, run):
    run("echo hi", first="del sys.path[0]")
    assert bot.output == b"hi\n"


MISSING = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {names!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Missing())
"""


def test_it_runs_without_the_modules_that_small_images_lack(bot, run):
    absent = ("json", "http", "shutil", "tarfile", "shlex", "uuid", "dataclasses", "ctypes", "zipfile", "subprocess")
    bot.set_source({"a": b"x"})
    run("cat a", first=MISSING.format(names=absent))
    assert bot.output == b"x"


def test_a_module_that_is_needed_and_missing_is_named(bot, run):
    bot.artifact_globs = ["*"]
    run("echo x > a", first=MISSING.format(names=("hashlib",)))
    assert bot.end["result"] == "passed"
    assert bot.end["left_out"] == "No artifacts: the image's Python has no module hashlib."


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_source_is_python_3_8_and_imports_the_standard_library_only(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            names.add(node.module.split(".")[0])
    assert names - {"gpurun_agent"} <= sys.stdlib_module_names


def test_the_heavy_list_names_real_modules():
    assert {name.split(".")[0] for name in HEAVY} <= sys.stdlib_module_names
    assert json.loads("1") == 1
