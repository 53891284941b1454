"""A run's page on a gpurun server, for whoever has its address: what the run left, and the bytes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, urlsplit

import httpx
from pydantic import SecretStr

from gpurun.domain.errors import PinNotFound, ServerUnavailable, UserError
from gpurun.domain.manifest import Entry, digest_of, read_manifest

TIMEOUT = httpx.Timeout(30.0, connect=10.0)
"""Of one read: a server that is quiet for so long is asked again."""
MAX_MANIFEST_BYTES = 8 * 1024 * 1024
"""1,000 files with the longest paths are less than a tenth of it."""

_RUN = re.compile(r"(?P<base>(?:/[^/]+)*)/runs/(?P<id>[0-9a-z]{10,40})/?")
_BUSY = frozenset({408, 425, 429, 502, 503, 504})
_WHAT_AN_ADDRESS_IS = (
    "It looks like 'https://gpurun.example/runs/…?key=…', in quotes: the link `Run page` of a comment."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What an attempt left."""

    run: str
    attempt: int
    complete: bool
    """False while more files may come."""
    digest: str
    entries: tuple[Entry, ...]


class RunPage:
    """Blocking, one connection. Every call may be repeated."""

    def __init__(self, address: str, *, transport: httpx.BaseTransport | None = None) -> None:
        """Raises UserError for what is no address of a run's page."""
        try:
            parts = urlsplit(address.strip())
            good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
            good = good and address.strip().isprintable()
        except ValueError:
            good = False
        match = _RUN.fullmatch(parts.path) if good else None
        query = parse_qs(parts.query) if good else {}
        if match is None or not query.get("key"):
            raise UserError("This is no address of a run's page.", hint=_WHAT_AN_ADDRESS_IS)
        self.run = match["id"]
        self.host = parts.netloc.rpartition("@")[2]
        self._key = SecretStr(query["key"][0])
        number = query.get("attempt", [""])[0]
        self._number = number if number.isascii() and number.isdigit() else ""
        self._page = f"{parts.scheme}://{parts.netloc}{match['base']}/runs/{self.run}"
        self._client = httpx.Client(timeout=TIMEOUT, follow_redirects=False, transport=transport)

    def close(self) -> None:
        """The connection."""
        self._client.close()

    def listing(self) -> Listing:
        """What there is to be downloaded. Raises UserError, ServerUnavailable."""
        place = f"artifacts/{self._number}.json" if self._number else "artifacts.json"
        with self._asked(place, {}) as answer:
            self._expect(answer, 200)
            body = b""
            for piece in self._pieces(answer):
                body += piece
                if len(body) > MAX_MANIFEST_BYTES:
                    raise UserError(f"{self.host} sent more than a list of artifacts can have.")
            number = answer.headers.get("x-gpurun-attempt", "")
            complete = answer.headers.get("x-gpurun-complete") == "yes"
        entries = read_manifest(body.decode("utf-8", "replace"))
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise UserError(f"{self.host} is no gpurun server that this version knows.")
        return Listing(run=self.run, attempt=int(number), complete=complete, digest=digest_of(body), entries=entries)

    @contextmanager
    def bytes_of(self, attempt: int, entry: Entry, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Where the bytes start that come, `offset` or 0, and the bytes.

        Raises: PinNotFound when the server has not got them (any more), or cannot read them; UserError,
        ServerUnavailable, the latter also between two pieces.
        """
        headers = {"range": f"bytes={offset}-", "if-range": f'"{entry.sha256}"'} if offset else {}
        with self._asked(f"artifacts/{attempt}/{quote(entry.path)}", headers) as answer:
            if answer.status_code == 410:
                raise PinNotFound("the server does not keep its bytes any more")
            if answer.status_code == 500:
                raise PinNotFound("the server cannot read it")
            self._expect(answer, 200, 206)
            told = answer.headers.get("content-range", "")
            if answer.status_code == 206 and not told.startswith(f"bytes {offset}-"):
                raise UserError(f"{self.host} sent another part of {entry.path} than was asked for.")
            yield (offset if answer.status_code == 206 else 0), self._pieces(answer)

    def _pieces(self, answer: httpx.Response) -> Iterator[bytes]:
        try:
            yield from answer.iter_raw()
        except httpx.TransportError as error:
            raise self._unavailable(error) from error

    @contextmanager
    def _asked(self, place: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        try:
            request = self._client.build_request(
                "GET",
                f"{self._page}/{place}",
                params={"key": self._key.get_secret_value()},
                headers={"accept-encoding": "identity", **headers},
            )
            answer = self._client.send(request, stream=True)
        except (httpx.InvalidURL, UnicodeError) as error:  # a host that DNS has no room for, an address of 64 KiB
            raise UserError("This is no address of a run's page.", hint=_WHAT_AN_ADDRESS_IS) from error
        except httpx.TransportError as error:
            raise self._unavailable(error) from error
        try:
            yield answer
        finally:
            answer.close()

    def _expect(self, answer: httpx.Response, *statuses: int) -> None:
        status = answer.status_code
        if status in statuses:
            return
        if status in _BUSY:
            raise ServerUnavailable(f"{self.host} answered {status}.")
        if status == 404:
            raise UserError(
                f"{self.host} has no such run, or this is not its key.",
                hint="A newer comment may have another link. Is the address whole, and in quotes?",
            )
        raise UserError(f"{self.host} answered {status}.", hint=_WHAT_AN_ADDRESS_IS)

    def _unavailable(self, error: httpx.TransportError) -> ServerUnavailable:
        said = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "cannot be reached"
        return ServerUnavailable(f"{self.host} {said} ({type(error).__name__}).")
