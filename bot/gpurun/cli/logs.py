"""The program's own log, on stderr."""

from __future__ import annotations

import logging
import sys

import structlog


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
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
