"""One form for all that a process logs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from opencognit import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:], root.level = handlers, level
    structlog.configure(**before)


def test_a_library_s_warning_is_a_structured_line_too() -> None:
    """The scheduler logs through the standard library; whoever reads the log reads one form."""
    stream = io.StringIO()
    logs.setup("INFO", stream=stream, json=True)
    structlog.get_logger("a").info("run.finished", run_id=7)
    logging.getLogger("apscheduler.scheduler").warning("skipped %s", "beat")
    ours, theirs = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (ours["event"], ours["run_id"], ours["level"]) == ("run.finished", 7, "info")
    assert (theirs["event"], theirs["logger"], theirs["level"]) == ("skipped beat", "apscheduler.scheduler", "warning")
    assert theirs["timestamp"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_values(as_json: bool) -> None:
    """What a variable held when something broke may be a prompt or a key."""
    stream = io.StringIO()
    logs.setup("INFO", stream=stream, json=as_json)
    prompt = "-".join(["tell", "nobody"])
    try:
        raise ValueError(len(prompt))
    except ValueError:
        structlog.get_logger("a").exception("run.crashed")
        logging.getLogger("library").exception("crashed")
    assert stream.getvalue().count("ValueError") >= 2
    assert prompt not in stream.getvalue()
