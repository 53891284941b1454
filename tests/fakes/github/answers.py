"""How the fake reads requests and says no."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

Json = dict[str, Any]
DOCS = "https://docs.github.com/rest"


class Refusal(Exception):
    """Becomes the answer."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body = {"message": message, **more, "documentation_url": DOCS, "status": str(status)}


def refuse(_request: Request, exc: Exception) -> JSONResponse:
    """Starlette's handler for `Refusal`."""
    assert isinstance(exc, Refusal)
    return JSONResponse(exc.body, status_code=exc.status, headers=exc.headers)


def not_found() -> Refusal:
    return Refusal(404, "Not Found")


def forbidden() -> Refusal:
    return Refusal(403, "Resource not accessible by integration")


def invalid(resource: str, field: str, why: str) -> Refusal:
    """422 as GitHub's own validators say it."""
    errors = [{"resource": resource, "field": field, "code": "custom", "message": f"{field} {why}"}]
    return Refusal(422, "Validation Failed", errors=errors)


def not_in_schema(why: str) -> Refusal:
    """422 as the JSON schema in front of some calls says it."""
    return Refusal(422, f"Invalid request.\n\n{why}")


async def read_json(request: Request) -> Json:
    """The body, which must be an object."""
    raw = await request.body()
    try:
        parsed = json.loads(raw) if raw else {}
    except ValueError:
        raise Refusal(400, "Problems parsing JSON") from None
    if not isinstance(parsed, dict):
        raise Refusal(400, "Body should be a JSON object")
    return parsed


def text(body: Json, field: str, *, required: bool = False, most: int | None = None, least: int = 0) -> str | None:
    """A string field within its limits, counted in characters."""
    value = body.get(field)
    if value is None:
        if required:
            raise not_in_schema(f'"{field}" wasn\'t supplied.')
        return None
    if not isinstance(value, str):
        raise not_in_schema(f"For 'properties/{field}', {value!r} is not a string.")
    if most is not None and len(value) > most:
        raise not_in_schema(f"Only {most} characters are allowed; {len(value)} were supplied.")
    if len(value) < least:
        raise not_in_schema(f"For 'properties/{field}', {value!r} is too short.")
    return value


def one_of(body: Json, field: str, allowed: tuple[str, ...], *, required: bool = False) -> str | None:
    """A string field with a closed set of values."""
    value = text(body, field, required=required)
    if value is not None and value not in allowed:
        raise not_in_schema(f"For 'properties/{field}', {value!r} is not one of {', '.join(allowed)}.")
    return value


def whole(body: Json, field: str) -> int:
    """A required number from 1 on."""
    value = body.get(field)
    if not isinstance(value, int) or value < 1:
        raise not_in_schema(f"For 'properties/{field}', {value!r} is not a line number.")
    return value


def objects(body: Json, field: str, *, most: int) -> list[Json] | None:
    """A list of objects, not too long."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise not_in_schema(f"For 'properties/{field}', {value!r} is not an array of objects.")
    if len(value) > most:
        raise not_in_schema(f"No more than {most} items are allowed for '{field}'; {len(value)} were supplied.")
    return value
