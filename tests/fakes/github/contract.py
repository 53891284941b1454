"""Whether requests and answers are what GitHub's own OpenAPI document says (`tests/data/github/openapi.json`).

`record.py` keeps what was wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx

DOCUMENT = Path(__file__).parents[2] / "data" / "github" / "openapi.json"

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request to the API, without the prefix of GitHub Enterprise Server."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = "application/json"
    user_agent: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}{'?' if self.query else ''}{self.query}"


@dataclass(frozen=True)
class Told:
    """An answer."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"


class Contract:
    """The document, ready to be asked. A validator is made when it is first needed."""

    def __init__(self, document: Json) -> None:
        whole = lenient({**document, "paths": closed(document["paths"])})
        paths: Json = resolved(whole["paths"], whole, {})
        self._calls = [
            _Call(template, method, call, [*call.get("parameters", []), *calls.get("parameters", [])])
            for template, calls in paths.items()
            for method, call in calls.items()
            if method != "parameters"
        ]

    def wrong_in(self, asked: Asked) -> list[str]:
        """Everything that the document does not allow in the request."""
        call = self._find(asked)
        if call is None:
            return ["no such call in tests/data/github/openapi.json; see ops/github_contract.py"]
        return [*call.wrong_parameters(asked), *call.wrong_body(asked)]

    def wrong_with(self, told: Told, asked: Asked) -> list[str]:
        """Everything that the document does not foresee in the answer; a status that it does not name may say all."""
        call = self._find(asked)
        return [] if call is None else list(call.wrong_answer(told))

    def _find(self, asked: Asked) -> _Call | None:
        return next((call for call in self._calls if call.fits(asked)), None)


class _Call:
    """One operation of the document."""

    def __init__(self, template: str, method: str, call: Json, parameters: list[Json]) -> None:
        self._method = method.upper()
        self._path = re.compile(pattern(template))
        self._body = call.get("requestBody")
        self._answers = call["responses"]
        self._parameters = {(one["in"], one["name"]): one for one in parameters}
        self._validators: dict[str, Any] = {}

    def fits(self, asked: Asked) -> bool:
        return self._method == asked.method and self._path.fullmatch(asked.path) is not None

    def wrong_parameters(self, asked: Asked) -> Iterator[str]:
        """In the path and in the query."""
        found = self._path.fullmatch(asked.path)
        assert found is not None
        given = [("path", name, unquote(value)) for name, value in found.groupdict().items()]
        given += [("query", name, value) for name, value in parse_qsl(asked.query, keep_blank_values=True)]
        for where, name, text in given:
            parameter = self._parameters.get((where, name))
            if parameter is None:
                yield f"no {where} parameter {name!r}"
            else:
                yield from self._wrong(f"{where} {name}", parameter["schema"], _cast(text, parameter["schema"]))
        missing = {key for key, one in self._parameters.items() if one.get("required")} - {one[:2] for one in given}
        yield from (f"{where} parameter {name!r} is missing" for where, name in sorted(missing))

    def wrong_body(self, asked: Asked) -> Iterator[str]:
        """Its type and its fields."""
        if not asked.body:
            if self._body and self._body.get("required"):
                yield "the body is missing"
            return
        if self._body is None:
            yield "there must be no body"
            return
        yield from self._wrong_content("body", self._body["content"], asked.content_type, asked.body)

    def wrong_answer(self, told: Told) -> Iterator[str]:
        """Its type and its fields, for a status that the document names."""
        content = self._answers.get(str(told.status), {}).get("content")
        if content:
            yield from self._wrong_content(f"answer {told.status}", content, told.content_type, told.body)

    def _wrong_content(self, what: str, content: Json, content_type: str, text: bytes) -> Iterator[str]:
        medium = content.get(content_type.partition(";")[0])
        if medium is None:
            yield f"{what} is {content_type or 'of no type'}, not {' or '.join(content)}"
            return
        try:
            value = json.loads(text)
        except ValueError:
            yield f"{what} is no JSON"
        else:
            yield from self._wrong(what, medium["schema"], value)

    def _wrong(self, what: str, schema: Json, value: object) -> Iterator[str]:
        for error in self._validator(what, schema).iter_errors(value):
            where = ".".join(map(str, error.absolute_path))
            yield f"{what}{' ' if where else ''}{where}: {error.message[:200]}"

    def _validator(self, what: str, schema: Json) -> Any:
        # a third of a second of imports that a process without requests does without
        from openapi_schema_validator import OAS30Validator, oas30_format_checker

        if what not in self._validators:
            self._validators[what] = OAS30Validator(schema, format_checker=oas30_format_checker)
        return self._validators[what]


@cache
def contract() -> Contract:
    """Read once."""
    return Contract(json.loads(DOCUMENT.read_text("utf-8")))


def resolved(part: Any, document: Json, known: Json) -> Any:
    """Without `$ref`; the document has no circles. `known`: what was resolved before."""
    if isinstance(part, list):
        return [resolved(value, document, known) for value in part]
    if not isinstance(part, dict):
        return part
    if isinstance(reference := part.get("$ref"), str):
        if reference not in known:
            _, section, kind, name = reference.split("/", 3)
            known[reference] = resolved(document[section][kind][name], document, known)
        return known[reference]
    return {key: resolved(value, document, known) for key, value in part.items()}


def _cast(text: str, schema: Json) -> object:
    """As the schema wants it; what is no number stays text and is then refused."""
    if schema.get("type") == "integer" and re.fullmatch(r"-?\d+", text):
        return int(text)
    if schema.get("type") == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def asked_by(request: httpx.Request, *, prefix: str = "/api/v3") -> Asked:
    """As GitHub would see it. The prefix is that of GitHub Enterprise Server."""
    return Asked(
        method=request.method,
        path=request.url.path.removeprefix(prefix),
        query=request.url.query.decode(),
        body=request.content,
        content_type=request.headers.get("content-type", ""),
        user_agent=request.headers.get("user-agent", ""),
    )


def closed(part: Any, *, inside: bool = False) -> Any:
    """Bodies of requests with no fields but those named: GitHub ignores others, so one would be a mistake of ours."""
    if isinstance(part, list):
        return [closed(value, inside=inside) for value in part]
    if not isinstance(part, Mapping):
        return part
    made = {key: closed(value, inside=inside or key == "requestBody") for key, value in part.items()}
    if inside and isinstance(part.get("properties"), Mapping) and "type" in part:
        made.setdefault("additionalProperties", False)
    return made


def lenient(document: Json) -> Json:
    """Where the document contradicts itself, or what GitHub does."""
    made: Json = json.loads(json.dumps(document), object_hook=_null_is_a_value)
    head = made["components"]["schemas"]["pull-request"]["properties"]["head"]["properties"]
    for gone in ("repo", "user"):  # null once the fork or its owner is deleted, as our own users report
        head[gone] = {"anyOf": [head[gone], {"type": "object", "nullable": True, "maxProperties": 0}]}
    return made


def _null_is_a_value(part: Json) -> Json:
    """`nullable` with an `enum` that does not name null, such as the conclusion of a check that goes on."""
    if part.get("nullable") is True and isinstance(part.get("enum"), list) and None not in part["enum"]:
        part["enum"] = [*part["enum"], None]
    return part


def pattern(template: str) -> str:
    """`contents/{path}` and `git/ref/{ref}` are the calls whose last segment holds slashes."""
    made = re.escape(template).replace(r"/contents/\{path\}", "/contents/(?P<path>.+)")
    made = made.replace(r"/git/ref/\{ref\}", "/git/ref/(?P<ref>.+)")
    return re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", made)
