"""What `gpurun` loads before it knows what to do: every import here is waited for by a person."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """\
version: 1
jobs:
  smoke:
    image: docker.io/library/python@sha256:{digest}
    run: echo hi
"""
HEAVY = {
    *("alembic", "anyio", "asyncio", "cryptography", "docker", "fastapi", "githubkit", "httpx", "httpx2"),
    *("huggingface_hub", "jinja2", "msgspec", "psycopg", "pydantic", "pydantic_settings", "requests", "rich"),
    *("runpod", "sqlalchemy", "sqlmodel", "starlette", "structlog", "uvicorn", "uvloop", "yaml"),
}
TELL = """\
import atexit, json, sys

loaded = sys.argv.pop(1)
atexit.register(lambda: open(loaded, "w").write(json.dumps(sorted(sys.modules))))
from gpurun.__main__ import main
main()
"""


@pytest.fixture
def modules(tmp_path: Path):
    """Top-level packages that are loaded when `gpurun <words>` ends."""

    def loaded_by(*words: str) -> set[str]:
        loaded = tmp_path / "modules.json"
        argv = [sys.executable, "-c", TELL, str(loaded), *words]
        subprocess.run(argv, check=True, timeout=30, capture_output=True, cwd=tmp_path)
        return {name.partition(".")[0] for name in json.loads(loaded.read_text())}

    return loaded_by


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("run", "--help"), ("plan", "--help"), ("db", "--help")], ids=" ".join
)
def test_words_about_the_program_load_nothing_heavy(modules, words):
    loaded = modules(*words)
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_config_show_loads_what_writes_tables_too(modules, tmp_path):
    (tmp_path / ".gpurun.yml").write_text(CONFIG.format(digest="0" * 64))
    assert modules("config", "show", "smoke") & HEAVY == {"rich", "yaml"}


def test_validate_loads_the_readers_of_the_file_and_nothing_else(modules, tmp_path):
    (tmp_path / ".gpurun.yml").write_text(CONFIG.format(digest="0" * 64))
    assert modules("validate") & HEAVY == {"yaml"}
