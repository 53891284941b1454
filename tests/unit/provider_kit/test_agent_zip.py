"""The zip is the same for the same sources, and complete."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import zipfile

from gpurun.provider_kit.agent_zip import agent_zip


def test_the_same_sources_give_the_same_bytes(tmp_path):
    first = agent_zip(tmp_path / "a")
    code = (
        "import pathlib, sys\nfrom gpurun.provider_kit.agent_zip import agent_zip\n"
        "print(agent_zip(pathlib.Path(sys.argv[1])).sha256)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "b")],
        env={"PYTHONHASHSEED": "7"},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert out.decode().strip() == first.sha256 == hashlib.sha256(first.path.read_bytes()).hexdigest()


def test_it_is_built_once(tmp_path):
    first = agent_zip(tmp_path)
    os.utime(first.path, (1, 1))
    assert agent_zip(tmp_path) == first
    assert first.path.stat().st_mtime == 1
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o644


def test_it_holds_sources_and_bytecode(tmp_path):
    names = zipfile.ZipFile(agent_zip(tmp_path).path).namelist()
    assert "gpurun_agent/protocol.py" in names
    assert f"{sys.implementation.cache_tag}/gpurun_agent/protocol.pyc" in names
    assert len([name for name in names if name.endswith(".pyc")]) == len([n for n in names if n.startswith("gpurun_")])


def test_it_says_by_itself_that_it_has_no_uplink(tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(agent_zip(tmp_path).path)], env={}, stdout=subprocess.PIPE, check=False
    )
    assert done.returncode == 1
    assert done.stdout.startswith(b"::gpurun-boot 1 ? error agent WireError: the uplink is none of")
