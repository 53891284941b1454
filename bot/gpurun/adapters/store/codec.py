"""How domain values stand in columns: times as integers, structured values as JSON text, names as text.

Everything round-trips exactly, with one exception: free text loses NUL characters and lone surrogates, which
PostgreSQL cannot hold (`plain_text`). Inside JSON text both survive, since JSON escapes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from sqlalchemy import BigInteger, Dialect, LargeBinary, Text
from sqlalchemy.types import TypeDecorator

from gpurun.domain.errors import NewerRow, PinNotFound

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REPLACEMENT = "\ufffd"


def micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime. A naive one raises TypeError."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros_since_epoch: int) -> datetime:
    """Aware UTC."""
    return _EPOCH + timedelta(microseconds=micros_since_epoch)


def dump(value: object) -> str:
    """JSON text of a frozen domain value. ASCII only, so that every string fits every database."""
    return json.dumps(msgspec.to_builtins(value, enc_hook=_encode_checked), separators=(",", ":"), allow_nan=False)


@lru_cache(maxsize=256)
def load(kind: type[T], text: str) -> T:
    """The value that `dump` wrote: a run's plan and offer are read with each of its steps.

    The same text gives the same object, whose mappings nobody may change.
    Fields that this version does not know are left out. Raises: NewerRow when the text is no `kind`.
    """
    try:
        return msgspec.convert(json.loads(text), kind, dec_hook=_decode_checked)
    except (msgspec.ValidationError, PinNotFound) as exc:
        raise NewerRow(f"A row holds a value that this version does not know: {exc}") from exc


def canonical(data: object) -> str:
    """JSON text that does not depend on the order of keys; what is hashed."""
    return json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)


def plain_text(text: str) -> str:
    """The text with U+FFFD for what PostgreSQL's text cannot hold: NUL and lone surrogates."""
    if text.isascii():
        return text.replace("\x00", _REPLACEMENT) if "\x00" in text else text
    return text.replace("\x00", _REPLACEMENT).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _encode_checked(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in a column")


def _decode_checked(kind: Callable[[str], T], value: str) -> T:
    return kind(value)


class Moment(TypeDecorator[datetime]):
    """An aware UTC datetime as microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else moment(value)


class Words(TypeDecorator[str]):
    """Free text, cleaned by `plain_text`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else plain_text(value)


class FileText(TypeDecorator[str]):
    """A user's file, kept byte for byte: what is no UTF-8 stands in the text as lone surrogates."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else value.encode("utf-8", "surrogateescape")

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        return None if value is None else value.decode("utf-8", "surrogateescape")


class Named(TypeDecorator[Any]):
    """A StrEnum or an identifier that checks itself when it is made."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[str]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str.__str__(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        try:
            return None if value is None else self.kind(value)
        except (ValueError, PinNotFound) as exc:
            raise NewerRow(f"A row holds a word that this version does not know: {exc}.") from exc


class Structured(TypeDecorator[Any]):
    """A frozen value as JSON text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: object | None, dialect: Dialect) -> str | None:
        return None if value is None else dump(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else load(self.kind, value)
