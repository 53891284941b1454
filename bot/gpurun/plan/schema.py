"""The JSON Schema of `.gpurun.yml`, for editors.

Draft-07, which SchemaStore asks for, because it is what editors know best. An editor reads YAML before it looks at the
schema: `3.10` is a number to it. So the schema takes whatever an editor makes of a text that the models take; what it
refuses, they refuse. It is checked so in `tests/unit/plan/test_schema.py`.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

from gpurun.domain.config import File
from gpurun.domain.errors import Bug
from gpurun.domain.part import Form, Key, Many, Named, Part, Value
from gpurun.domain.project import SCHEMA_URL
from gpurun.plan.described import description, descriptions
from gpurun.plan.nodes import Items, Node, Table, Text, read_nodes

DRAFT = "http://json-schema.org/draft-07/schema#"

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def gpurun_yml_schema() -> dict[str, Json]:
    """Of a whole file."""
    parts: dict[str, Json] = {}
    root = _part(File, parts)
    return {
        "$schema": DRAFT,
        "$id": SCHEMA_URL,
        "definitions": {name: parts[name] for name in sorted(parts)},
        **root,
        "title": ".gpurun.yml",
        "description": "Jobs that gpurun runs in containers, on GPUs",
    }


def _part(part: type[Part], parts: dict[str, Json]) -> dict[str, Json]:
    """Of a part; those below it are put into `parts`."""
    meanings = descriptions(part)
    return {
        "additionalProperties": False,
        "description": description(part),
        "properties": {name: _key(key, meanings[name], parts) for name, key in part.KEYS.items()},
        **({"required": list(part.REQUIRED)} if part.REQUIRED else {}),
        "type": "object",
    }


def _key(key: Key, meaning: str, parts: dict[str, Json]) -> dict[str, Json]:
    found = _form(key.form, parts)
    if isinstance(key.form, type) and key.form.SHORT:
        short = _form(key.form.KEYS[key.form.SHORT].form, parts)
        return {"anyOf": [found, short], "description": meaning}
    if isinstance(key.form, type):  # draft-07 looks at nothing beside a `$ref`
        return found if meaning == description(key.form) else {"allOf": [found], "description": meaning}
    examples = [_example(text) for text in key.examples if "…" not in text]
    return {"description": meaning, **({"examples": examples} if examples else {}), **found}


def _form(form: Form[Any] | type[Part], parts: dict[str, Json]) -> dict[str, Json]:
    match form:
        case Value():
            return dict(form.schema)
        case Many():
            least: dict[str, Json] = {"minItems": form.at_least} if form.at_least else {}
            most: dict[str, Json] = {"maxItems": form.at_most} if form.at_most < sys.maxsize else {}
            return {"items": _form(form.of, parts), **most, **least, "type": "array"}
        case Named():
            return {**_names(form, parts), "type": "object", "additionalProperties": False}
        case type():
            parts.setdefault(form.__name__, _part(form, parts))
            return {"$ref": f"#/definitions/{form.__name__}"}
        case _:
            raise Bug(f"{form} is no form")


def _names(form: Named[Any, Any], parts: dict[str, Json]) -> dict[str, Json]:
    """The pattern of a name stands with its values, and what else is asked of it beside them."""
    name = {word: asked for word, asked in form.name.schema.items() if word != "type"}
    return {
        **({"minProperties": form.at_least} if form.at_least else {}),
        "patternProperties": {name.pop("pattern"): _form(form.of, parts)},
        "propertyNames": name,
    }


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
