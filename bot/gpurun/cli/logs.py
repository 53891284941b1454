"""The program's own log, on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import structlog

from gpurun.domain.text import clean


class _Hidden:
    """A renderer whose lines pass `hide` as they will stand there: tracebacks, reprs and JSON escapes included."""

    hide: Callable[[str], str] = str

    def __init__(self, renderer: structlog.types.Processor) -> None:
        self._renderer = renderer

    def __call__(self, logger: object, method: str, event: structlog.types.EventDict) -> str:
        return _Hidden.hide(str(self._renderer(logger, method, event)))


class _OfOthers(logging.Handler):
    """What libraries log becomes a line of ours: the same form, and the same door."""

    def emit(self, record: logging.LogRecord) -> None:
        """Without `Handler.handleError`, which prints arguments as they are."""
        try:
            event, trouble = record.getMessage(), record.exc_info or None
        except Exception:  # noqa: BLE001 - a library's format and its values do not fit
            event, trouble = str(record.msg), None
        level = logging.ERROR if record.levelno >= logging.ERROR else logging.WARNING
        structlog.get_logger().log(level, event, logger=record.name, exc_info=trouble)


_of_others = _OfOthers()


def _harmless(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Texts of others are in it, and a terminal shows it."""
    return {name: clean(value) if isinstance(value, str) else value for name, value in event.items()}


def keep_out_of_log(hide: Callable[[str], str]) -> None:
    """From now on every line passes `hide`."""
    _Hidden.hide = hide


def log_as_json() -> None:
    """A JSON object a line, for a server."""
    _configure(structlog.processors.JSONRenderer(), logging.INFO)


def log_trouble_only() -> None:
    """Readable lines, and only for what went wrong: a person watches a run.

    Tracebacks are plain: a rich one would print local variables, secrets among them.
    """
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    _configure(renderer, logging.ERROR)


def _configure(renderer: structlog.types.Processor, level: int) -> None:
    _of_others.setLevel(max(level, logging.WARNING))
    logging.getLogger().addHandler(_of_others)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _harmless,
            _Hidden(renderer),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
