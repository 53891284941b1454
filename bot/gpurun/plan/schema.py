"""The JSON Schema of `.gpurun.yml`, for editors.

Draft-07, which SchemaStore asks for, because it is what editors know best. An editor reads YAML before it looks at the
schema: `3.10` is a number to it. So the schema takes whatever an editor makes of a text that the models take; what it
refuses, they refuse. It is checked so in `tests/unit/plan/test_schema.py`.
"""

from __future__ import annotations

from typing import TypeAlias

from gpurun.domain.config import File
from gpurun.domain.repository import SCHEMA_URL
from gpurun.plan.nodes import Items, Node, Table, Text, read_nodes

DRAFT = "http://json-schema.org/draft-07/schema#"

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def gpurun_yml_schema() -> dict[str, Json]:
    """Of a whole file."""
    found = _draft_07(File.model_json_schema(ref_template="#/definitions/{model}"))
    assert isinstance(found, dict)
    description = "Jobs that gpurun runs in containers, on GPUs"
    return {"$schema": DRAFT, "$id": SCHEMA_URL, **found, "title": ".gpurun.yml", "description": description}


def _draft_07(node: Json) -> Json:
    """What pydantic writes in the words of draft-07, without what is there for models only."""
    if isinstance(node, list):
        return [_draft_07(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = _without_null({key: value for key, value in node.items() if not _is_noise(key, value)})
    if "$ref" in kept and len(kept) > 1:  # draft-07 looks at nothing beside a `$ref`
        kept = {"allOf": [{"$ref": kept.pop("$ref")}], **kept}
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return {"definitions" if key == "$defs" else key: _below(key, value) for key, value in kept.items()}


def _below(key: str, value: Json) -> Json:
    match key, value:
        case (("properties" | "$defs" | "patternProperties"), dict()):  # its keys are names, not words of the schema
            return {name: _draft_07(inner) for name, inner in value.items()}
        case "description", str():
            return " ".join(value.split())
        case "examples", list():
            return [_example(one) for one in value if isinstance(one, str) and "…" not in one]
        case _:
            return _draft_07(value)


def _is_noise(key: str, value: Json) -> bool:
    """Titles that repeat the name, and `null`, which stands for "left out" in the models."""
    return (key == "title" and isinstance(value, str)) or (key == "default" and value in (None, "", []))


def _without_null(node: dict[str, Json]) -> dict[str, Json]:
    options = node.get("anyOf")
    if not isinstance(options, list) or {"type": "null"} not in options:
        return node
    rest = [option for option in options if option != {"type": "null"}]
    node = {key: value for key, value in node.items() if key != "anyOf"}
    (first, *more) = rest
    if more:
        return {**node, "anyOf": rest}
    assert isinstance(first, dict)
    return {**node, **first}


def _example(text: str) -> Json:
    """As it stands in a file: `[docker]` is a list."""
    node = read_nodes(text)
    return text if node is None else _value(node)


def _value(node: Node) -> Json:
    match node:
        case Text(value):
            return value
        case Items(items):
            return [_value(item) for item in items]
        case Table(entries):
            return {key.value: _value(value) for key, value in entries}
