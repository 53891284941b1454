"""The JSON Schema against the models: what a file may hold, an editor takes; what an editor refuses, so do we.

An editor reads YAML 1.2 first: it sees numbers and booleans where the models see text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from gpurun.domain.config import File
from gpurun.domain.repository import SCHEMA_URL
from gpurun.plan.load import load
from gpurun.plan.nodes import Items, Node, Table, Text, read_nodes
from gpurun.plan.read import Reader
from gpurun.plan.reference import EXAMPLE, json_schema
from tests.unit.plan.golden import CASES

SCHEMA = json.loads(json_schema())
EDITOR = Draft7Validator(SCHEMA)
IMAGE = "ghcr.io/org/app@sha256:" + "0" * 64


@dataclass(frozen=True)
class Quoted:
    """Text in quotes."""

    text: str


def meant(node):
    """What the models get: every scalar is text."""
    match node:
        case Quoted(text):
            return text
        case dict():
            return {key: meant(value) for key, value in node.items()}
        case list():
            return [meant(value) for value in node]
    return node


def seen(node):
    """What an editor gets."""
    match node:
        case Quoted(text):
            return text
        case dict():
            return {key: seen(value) for key, value in node.items()}
        case list():
            return [seen(value) for value in node]
    return core(node)


def core(text: str) -> object:
    """A scalar without quotes by YAML 1.2, https://yaml.org/spec/1.2.2/#1032-tag-resolution, read 2026-12."""
    if re.fullmatch(r"true|True|TRUE|false|False|FALSE", text):
        return text.lower() == "true"
    if re.fullmatch(r"null|Null|NULL|~|", text):
        return None
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"0o[0-7]+|0x[0-9a-fA-F]+", text):
        return int(text, 0)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text):
        return float(text)
    if re.fullmatch(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN", text):
        return float(text.replace(".", "").lower())
    return text


def at(path: str, value):
    """A whole file with that value at `job.limits.max_duration`; `[]` makes it an item, `{}` a key."""
    for part in reversed(path.split(".")):
        if part == "{rule}":
            value = {value.text if isinstance(value, Quoted) else value: {"jobs": ["smoke"]}}
        elif part == "[]":
            value = [value]
        elif part == "{}":
            value = {value.text if isinstance(value, Quoted) else value: "x"}
        else:
            value = {part: value}
    job = {"image": IMAGE, "run": "ls", **value.pop("job", {})}
    return {"version": "1", "jobs": {"smoke": job}, **value}


def holds_nothing(node) -> bool:
    """A scalar without quotes that YAML takes for nothing; the loader refuses it before the models see it."""
    match node:
        case dict():
            return any(map(holds_nothing, node.values()))
        case list():
            return any(map(holds_nothing, node))
        case str():
            return core(node) is None
    return False


def models_take(file) -> bool:
    if holds_nothing(file):
        return False
    return not faults(file)


def faults(file) -> list[str]:
    """What the models say of it."""
    reader = Reader()
    reader.part(File, node_of(meant(file)), node_of(""), ())
    return [str(sentence(at)) for at, sentence in reader.faults]


def node_of(value) -> Node:
    """As the file would hold it, wherever that is."""
    match value:
        case dict():
            return Table(tuple((Text(key, False, 1, 1), node_of(one)) for key, one in value.items()), 1, 1)
        case list():
            return Items(tuple(map(node_of, value)), 1, 1)
    return Text(value, False, 1, 1)


def editor_takes(file) -> bool:
    return EDITOR.is_valid(seen(file))


SCALARS = (
    "version", "job.kind", "job.trigger.comment", "job.image", "job.setup", "job.run", "job.workdir", "job.env.SEED",
    "job.env.{}", "job.secrets.[]", "job.resources.gpu", "job.resources.cpu", "job.resources.memory",
    "job.resources.disk", "job.resources.shm_size", "job.providers.[]", "job.limits.max_duration",
    "job.retry.attempts", "job.checkout.lfs", "job.checkout.submodules", "job.artifacts.[]", "policy.images.[]",
    "policy.providers.[]", "policy.secrets.{rule}", "policy.max.duration", "policy.max.gpus",
    "policy.secrets.A.jobs.[]", "defaults.image", "defaults.env.A",
)  # fmt: skip
NAMES = ("job.env.{}", "policy.secrets.{rule}", "job.secrets.[]")
MODEL_SCALARS = ("revision", "target")
WORDS = """\
1 0 2 5 6 08 99 100 -1 +1 1.0 3.10 0.5 0.25 8.. 0.5.. .5 1. 1e-4 0x10 0o7 true false True FALSE yes NO on null Null ~
.inf .nan 2026-12-01 1:30 90s 30m 2h 0s 999999h 168h 169h 1d 30 30M
24GB 512MB 1TB 0GB 24gb 32GB.. 24GB..80GB 24GB..80GB:2 ..80GB .. :2 24GB:2 24GB:0 80GB..24GB A100 ..80GB:4 24GB..:1
24GB:100 verify batch train Train docker runpod skip fetch smoke run help smoke. a.b_c-1
AAAA HF_TOKEN hf_token PATH LD_PRELOAD GPURUN_X GITHUB_SHA _ _A1 1A A-B PATHS
ghcr.io/org/app:1.2 localhost:5000/a/b app App:1 Ghcr.io/a app: app@sha256:0 app@1
main v1.0 a/b a//b a..b -x abcdef1 org/name
/weights / /a/b /a/ /a//b /../a /a/./b a/../b ./a . .. ~/a a\\b out/** * ghcr.io/org/* größe/ü∑ 日本語
"""
TEXTS = (
    *WORDS.split(),
    *("", " ", "24 GB", "a b", "a\nb", "python -m app --seed 0", "echo #1", IMAGE, "0" * 40, "f" * 40, "F" * 40),
    *("x" * 63, "x" * 64, "x" * 200, "x" * 201, "x" * 300),
)


def files() -> Iterator[tuple[str, object]]:
    for path in SCALARS:
        for text in TEXTS:
            for value in (text, Quoted(text)):
                if path in NAMES and isinstance(value, str) and core(text) != text:
                    continue  # nobody calls a secret TRUE
                yield path, at(path, value)
    for key in MODEL_SCALARS:
        for text in TEXTS:
            for value in (text, Quoted(text)):
                yield f"models[].{key}", at("job.models.[]", {"id": "org/name", key: value})
    for text in TEXTS:
        yield "models[].id", at("job.models.[]", {"id": Quoted(text)})
        yield "jobs", {"version": "1", "jobs": {text: {"image": IMAGE, "run": "ls"}}}


FILES = list(files())


def test_whatever_the_models_take_the_editor_takes():
    wrong = [(path, file) for path, file in FILES if models_take(file) and not editor_takes(file)]
    assert wrong[:5] == []


def test_this_is_a_test_of_each_key():
    """Each key has values that the models take, and values that both refuse; a few take all text."""
    taken = {path for path, file in FILES if models_take(file)}
    refused = {path for path, file in FILES if not models_take(file) and not editor_takes(file)}
    assert taken == {path for path, _ in FILES}
    all_text = {"job.setup", "job.env.SEED", "defaults.env.A"}
    # of these the editor refuses what YAML takes for nothing
    assert refused >= {path for path, _ in FILES} - all_text


def test_the_editor_refuses_most_of_what_the_models_refuse():
    refused = [file for _, file in FILES if not models_take(file)]
    missed = [file for file in refused if editor_takes(file)]
    assert len(missed) < len(refused) / 20


MISSED = {
    "version": {"this version of gpurun reads"},
    "job.trigger.comment": {"is neither"},
    "job.image": {"is no image"},
    "defaults.image": {"is no image"},
    "job.workdir": {"is no folder"},
    "job.resources.gpu": {"runs backwards", "is no GPU need", "is no number of GPUs"},
    "job.resources.cpu": {"is no number of CPUs"},
    "job.limits.max_duration": {"is longer than"},
    "policy.max.duration": {"is longer than"},
    "job.retry.attempts": {"is no number of attempts"},
    "job.artifacts.[]": {"is no path"},
    "policy.max.gpus": {"is no number of GPUs"},
    "policy.secrets.A.jobs.[]": {"cannot be the name of a job"},
    "models[].revision": {"is no branch", "is no full commit id"},
    "models[].target": {"is no absolute folder"},
}
"""What only the models refuse, and what they say of it."""


def test_what_the_editor_misses_is_known():
    said: dict[str, set[str]] = {}
    for path, file in FILES:
        if not models_take(file) and editor_takes(file):
            said.setdefault(path, set()).add("\n".join(faults(file)))
    assert said.keys() == MISSED.keys()
    for path, messages in said.items():
        known = MISSED[path]
        assert {one for one in known if any(one in text for text in messages)} == known, path
        assert [text for text in messages if not any(one in text for one in known)] == [], path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", "2"),
        ("nothing", "1"),
        ("job.nothing", "1"),
        ("job.on", {"push": "main"}),
        ("job.matrix", {}),
        ("job.kind", "huge"),
        ("job.kind", ["verify"]),
        ("job.trigger", "comment"),
        ("job.trigger.push", ["main"]),
        ("job.trigger.comment", "yes"),
        ("job.image", ["a"]),
        ("job.image", "./a"),
        ("job.run", {"a": "b"}),
        ("job.env", ["A=1"]),
        ("job.env.A", ["1"]),
        ("job.env.1A", "1"),
        ("job.env.PATH", "/bin"),
        ("job.secrets", "HF_TOKEN"),
        ("job.secrets", [f"A{number}" for number in range(51)]),
        ("job.models", {"id": "a/b"}),
        ("job.models.[]", {"revision": "main"}),
        ("job.models.[]", {"id": "org"}),
        ("job.models.[]", {"id": "a/b", "include": ["/x"]}),
        ("job.resources.gpu", "A100"),
        ("job.resources.memory", "32"),
        ("job.limits.max_duration", "30"),
        ("job.limits.max_price", "1"),
        ("job.retry.attempts", "6"),
        ("job.checkout.lfs", "get"),
        ("job.providers.[]", "vast"),
        ("policy.max.gpus", "-1"),
        ("policy.secrets.A", {}),
        ("policy.secrets.A.jobs", []),
        ("jobs", {}),
        ("jobs", {"Smoke": {"image": IMAGE, "run": "ls"}}),
        ("jobs", {"help": {"image": IMAGE, "run": "ls"}}),
    ],
)
def test_both_refuse(path, value):
    file = {"version": "1", "jobs": value} if path == "jobs" else at(path, value)
    assert not models_take(file)
    assert not editor_takes(file)


@given(st.sampled_from(SCALARS), st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.booleans())
def test_no_text_is_taken_by_the_models_alone(path, text, quoted):
    file = at(path, Quoted(text) if quoted else text)
    if path in NAMES and not quoted and core(text) != text:
        return
    assert editor_takes(file) or not models_take(file)


@given(st.sampled_from(SCALARS), st.one_of(st.integers(), st.floats(0, 1e6), st.booleans()).map(json.dumps))
def test_no_number_is_taken_by_the_models_alone(path, text):
    if path in NAMES:
        return
    file = at(path, text)
    assert editor_takes(file) or not models_take(file)


@pytest.mark.parametrize("name", sorted(CASES))
def test_files_of_golden_plans_hold_nothing_that_an_editor_refuses(name):
    assert load(CASES[name].text).jobs
    node = loaded(CASES[name].text)
    assert list(EDITOR.iter_errors(seen(node))) == []


def loaded(text: str):
    """The file, with quotes where it would be another one without."""

    def plain(node):
        match node:
            case Text(value, is_null):
                return Quoted(value) if core(value) is None and not is_null else value
            case Items(items):
                return [plain(item) for item in items]
            case Table(entries):
                return {key.value: plain(value) for key, value in entries}

    return plain(read_nodes(text))


def test_the_example_is_valid_and_names_the_schema():
    assert EXAMPLE.splitlines()[0] == f"# yaml-language-server: $schema={SCHEMA_URL}"
    assert list(EDITOR.iter_errors(seen(loaded(EXAMPLE)))) == []


# what SchemaStore asks for: draft-07, and the strict mode of ajv


def parts(node, name: str = "#") -> Iterator[tuple[str, dict]]:
    """Every schema in the schema."""
    yield name, node
    for key in ("properties", "patternProperties", "definitions"):
        for inner, one in node.get(key, {}).items():
            yield from parts(one, f"{name}/{key}/{inner}")
    for key in ("anyOf", "allOf"):
        for number, one in enumerate(node.get(key, [])):
            yield from parts(one, f"{name}/{key}/{number}")
    for key in ("items", "not", "propertyNames"):
        if key in node:
            yield from parts(node[key], f"{name}/{key}")


PARTS = list(parts(SCHEMA))


def test_it_is_draft_07_with_an_identity():
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert SCHEMA["$id"] == SCHEMA_URL
    assert SCHEMA["title"] == ".gpurun.yml"
    assert SCHEMA["description"]
    assert "$defs" not in json.dumps(SCHEMA)


def test_no_word_has_no_effect():
    needs = {
        "pattern": "string", "minLength": "string", "maxLength": "string", "items": "array", "maxItems": "array",
        "minItems": "array", "properties": "object", "patternProperties": "object", "additionalProperties": "object",
        "required": "object", "propertyNames": "object",
    }  # fmt: skip
    for name, part in PARTS:
        assert "$ref" not in part or set(part) == {"$ref"}, name
        assert isinstance(part.get("type", ""), str), name
        if not name.endswith("/propertyNames"):  # those are always text
            assert {kind for word, kind in needs.items() if word in part} <= {part.get("type")}, name


def test_nothing_may_be_null_and_no_key_is_left_open():
    assert "null" not in json.dumps(SCHEMA)
    for name, part in PARTS:
        assert part.get("type") != "object" or part["additionalProperties"] is False, name


def test_every_pattern_is_anchored():
    patterns = [part["pattern"] for _, part in PARTS if "pattern" in part]
    patterns += [pattern for _, part in PARTS for pattern in part.get("patternProperties", {})]
    assert len(patterns) > 20
    assert [one for one in patterns if one != r"\S" and not (one.startswith("^") and one.endswith(("$", "))")))] == []


def test_every_key_of_the_file_is_described_and_its_examples_are_valid():
    for name, part in PARTS:
        resolver = EDITOR.evolve(schema={**part, "definitions": SCHEMA["definitions"]})
        for example in part.get("examples", []):
            assert resolver.is_valid(example), (name, example)
        owner, _, key = name.rpartition("/properties/")
        if key and "/" not in key and "$ref" not in part:
            assert part.get("description"), (owner, key)
