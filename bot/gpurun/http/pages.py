"""Pages for people: a run with its log, and what this server is.

Everything shown was written by somebody else: templates escape, views clean, and the policy of the page allows nothing
but its own style and its own script. A run's page opens with its read key; without it there is no such page.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gpurun.domain.run import Attempt, Run, RunState
from gpurun.domain.text import clean, clean_log
from gpurun.http import log_view
from gpurun.http.artifact_pages import ArtifactPages
from gpurun.http.downloads import BYTES_HEADERS, attachment
from gpurun.http.metrics_view import MetricsViews
from gpurun.http.run_view import RunView, revision, run_view, size_text
from gpurun.http.services import HttpServices
from gpurun.ports.store import Tx

FIRST_LOG_BYTES = 32 * 1024
"""Of the log in the page itself; the script or the links bring the rest."""
MAX_OFFSET_DIGITS = 15

_TEMPLATES = Path(__file__).parent / "templates"
_STYLE = (_TEMPLATES / "page.css").read_text()
_SCRIPT = (_TEMPLATES / "run.js").read_text()

log = structlog.get_logger()


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


HEADERS = BYTES_HEADERS | {
    "content-security-policy": (
        f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}


class Pages:
    """The routes for people."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._store = services.store
        self._metrics = MetricsViews(services.store)
        self._templates = Environment(
            loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters |= {"plain": _plain, "size": size_text}
        self._templates.globals |= {"style": Markup(_STYLE), "script": Markup(_SCRIPT)}  # noqa: S704  # our own files

    def routes(self) -> list[Route]:
        """For the application's router."""
        return [
            Route("/", self.home),
            Route("/healthz", self.health),
            Route("/runs/{run_id}", self.run_page),
            Route("/runs/{run_id}/facts", self.run_facts),
            Route("/runs/{run_id}/live", self.run_live),
            Route("/runs/{run_id}/log", self.run_log),
            Route("/runs/{run_id}/log.raw", self.run_log_raw),
            *ArtifactPages(self._services, self._opened).routes(),
        ]

    async def home(self, _: Request) -> Response:
        """What this is, and nothing about anybody's runs."""
        return self._html("home.html", {})

    async def health(self, _: Request) -> Response:
        """200 while the store can be read."""
        try:
            await self._store.read(lambda tx: tx.now())
        except Exception:
            # The border of the route: whatever it is, this process cannot serve.
            log.exception("store_not_readable")
            return PlainTextResponse("the store cannot be read\n", 503, BYTES_HEADERS)
        return PlainTextResponse("ok\n", 200, BYTES_HEADERS)

    async def run_page(self, request: Request) -> Response:
        """The whole page."""
        run, attempt = await self._opened(request)
        text, offset = await self._log_end(run, attempt)
        text = (await self._hide(attempt))(text)
        view = await self._view(run, attempt)
        return self._html("run.html", self._links(request, run, attempt) | {"view": view, "text": text, "next": offset})

    async def run_facts(self, request: Request) -> Response:
        """The part of the page above the log."""
        run, attempt = await self._opened(request)
        return self._html("facts.html", self._links(request, run, attempt) | {"view": await self._view(run, attempt)})

    async def run_live(self, request: Request) -> Response:
        """What came after `offset`, as JSON for the page's script."""
        run, _ = await self._opened(request)
        piece = await self._piece(run, _number(request), _offset(request))
        hide = await self._hide(piece.attempt)
        facts = {
            "text": hide(piece.text),
            "partial": hide(clean_log(piece.partial)),
            "next": piece.next,
            "more": not piece.at_end,
            "ended": piece.ended and piece.at_end,
            "over": piece.run.state is RunState.ENDED,
            "rev": revision(piece.run, piece.attempt, now=self._services.clock.now()),
        }
        return JSONResponse(facts, headers=BYTES_HEADERS)

    async def run_log(self, request: Request) -> Response:
        """The cleaned log from `offset`; with `follow=1` as it grows."""
        run, _ = await self._opened(request)
        number, offset = _number(request), _offset(request)
        if request.query_params.get("follow") == "1":
            body = log_view.followed(self._store, self._services.clock, run.id, number, offset)
        else:
            body = log_view.cleaned(self._store, run.id, number, offset)
        return _text_stream(log_view.hidden(body, self._hide))

    async def run_log_raw(self, request: Request) -> Response:
        """The stored bytes as they are."""
        _, attempt = await self._opened(request)
        if attempt is None:
            return PlainTextResponse("", headers=BYTES_HEADERS)
        return _text_stream(log_view.raw(self._store, attempt.id, _offset(request)), download=f"{attempt.id}.log")

    async def _hide(self, attempt: Attempt | None) -> Callable[[str], str]:
        """Cleaning may join what escapes kept apart."""
        return str if attempt is None else (await self._services.masker(attempt)).text

    async def _opened(self, request: Request) -> tuple[Run, Attempt | None]:
        """The run that the key opens and the attempt asked for. A wrong key is answered like an unknown run."""
        run_id, key = request.path_params["run_id"], request.query_params.get("key", "")
        number = _number(request)

        def read(tx: Tx) -> tuple[Run | None, Attempt | None]:
            run = tx.run(run_id)
            return run, log_view.chosen(tx.attempts(run_id), number) if run else None

        run, attempt = await self._store.read(read) if run_id.isalnum() else (None, None)
        expected = run.read_key if run else ""
        if not hmac.compare_digest(key.encode("utf-8", "replace"), expected.encode()) or run is None or not expected:
            raise HTTPException(404)
        return run, attempt

    async def _view(self, run: Run, shown: Attempt | None) -> RunView:
        attempts, artifacts = await self._store.read(
            lambda tx: (tx.attempts(run.id), tx.artifacts(shown.id) if shown else ())
        )
        summary = await self._metrics.summary(shown.id) if shown else None
        now = self._services.clock.now()
        return run_view(run, attempts, shown, artifacts=artifacts, summary=summary, now=now)

    async def _log_end(self, run: Run, attempt: Attempt | None) -> tuple[str, int]:
        """The last lines that a page starts with, and the offset behind them."""
        if attempt is None:
            return "", 0
        end = await self._store.read(lambda tx: tx.log_size(attempt.id))
        start = max(0, end - FIRST_LOG_BYTES)
        piece = await self._piece(run, attempt.number, start)
        lines = piece.lines
        if start:
            lines = lines[lines.find(b"\n") + 1 :]
        return piece.shown(lines), piece.next

    async def _piece(self, run: Run, number: int | None, offset: int) -> log_view.LogPiece:
        piece = await self._store.read(lambda tx: log_view.read_piece(tx, run.id, number, offset))
        assert piece is not None
        return piece

    def _links(self, request: Request, run: Run, attempt: Attempt | None) -> dict[str, Any]:
        query = f"?key={quote(run.read_key, safe='')}"
        if _number(request) is not None:
            query += f"&attempt={_number(request)}"
        return {"here": f"/runs/{run.id}", "query": query, "number": attempt.number if attempt else 0}

    def _html(self, template: str, values: dict[str, Any]) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(values), headers=HEADERS)


def _plain(text: object) -> str:
    """Untrusted text without what steers terminals or turns letters around."""
    return clean(str(text).encode("utf-8", "replace"))


def _number(request: Request) -> int | None:
    """The attempt asked for; None is the latest."""
    text = request.query_params.get("attempt", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _offset(request: Request) -> int:
    text = request.query_params.get("offset", "0")
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_OFFSET_DIGITS:
        raise HTTPException(400, "`offset` is a number of bytes.")
    return int(text)


def _text_stream(body: AsyncIterator[bytes], *, download: str = "") -> Response:
    headers = dict(BYTES_HEADERS)
    if download:
        headers["content-disposition"] = attachment(download)
    return StreamingResponse(body, media_type="text/plain; charset=utf-8", headers=headers)
