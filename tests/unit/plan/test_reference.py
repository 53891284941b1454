"""The pages in `docs/reference` equal what the tables and models say. `make docs` writes them anew."""

import json
import runpy
from pathlib import Path

import pytest

from gpurun.command.parse import parse
from gpurun.plan.load import load
from gpurun.plan.reference import EXAMPLE, json_schema

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
PAGES = runpy.run_path(str(FOLDER / "generate.py"))["PAGES"]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_fresh(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_the_example_of_the_page_is_a_valid_file():
    assert list(load(EXAMPLE).jobs) == ["smoke"]


def test_the_schema_forbids_unknown_keys_everywhere():
    schema = json.loads(json_schema())
    assert schema["additionalProperties"] is False
    assert {part["additionalProperties"] for part in schema["definitions"].values()} == {False}
    assert set(schema["properties"]) == {"version", "permissions", "policy", "defaults", "jobs"}


def test_every_key_of_the_schema_is_on_the_page():
    page = PAGES["gpurun-yml.md"]()
    schema = json.loads(json_schema())
    parts = [schema, *schema["definitions"].values()]
    assert [key for part in parts for key in part["properties"] if f"\n| `{key}` |" not in page] == []


def test_no_page_shows_a_command_that_would_run_when_pasted():
    assert parse(PAGES["commands.md"]()) == ()
