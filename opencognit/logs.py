"""How the process logs: structlog, JSON unless a terminal reads. Owns the format, no message."""

from __future__ import annotations

import logging
import sys
from typing import TextIO, cast

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor

from opencognit.outlet import Outlet

SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
)


def setup(level: str = "INFO", *, stream: TextIO | Outlet | None = None, json: bool | None = None) -> None:
    """Send structured lines to `stream` (default: standard error); JSON unless it is a terminal.

    What libraries log through the standard library, from a warning up, comes out in the same form.
    """
    target = cast(TextIO, stream if stream is not None else sys.stderr)
    rendering = _rendering(as_json=json if json is not None else not target.isatty())
    structlog.configure(
        processors=[*SHARED, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    kept: list[Processor] = [ProcessorFormatter.remove_processors_meta, *rendering]
    handler.setFormatter(ProcessorFormatter(processors=kept, foreign_pre_chain=[*SHARED, structlog.stdlib.add_logger_name]))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def _rendering(*, as_json: bool) -> list[Processor]:
    """Tracebacks are plain: the values of variables are what people and models wrote, and no business of a log."""
    if as_json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=True, exception_formatter=plain)]
