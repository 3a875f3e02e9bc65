"""How the process logs: structlog, JSON unless a terminal reads. Owns the format, no message."""

from __future__ import annotations

import logging
import sys
from typing import TextIO, cast

import structlog

from opencognit.outlet import Outlet


def setup(level: str = "INFO", *, stream: TextIO | Outlet | None = None, json: bool | None = None) -> None:
    """Send structured lines to `stream` (default: standard error); JSON unless it is a terminal."""
    target = stream if stream is not None else sys.stderr
    as_json = json if json is not None else not target.isatty()
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer(default=str) if as_json else structlog.dev.ConsoleRenderer(colors=True)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([structlog.processors.format_exc_info] if as_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, target)),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=cast(TextIO, target), force=True)
