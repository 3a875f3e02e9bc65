"""Calls the command line in this process, as a shell would: arguments in, exit status and both streams out."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from opencognit.cli import main


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document of standard output."""
        assert self.code in (0, 1), self.err
        return json.loads(self.out)


def say(*argv: str, stdin: bytes | None = None) -> Said:
    """Run one command. What it set up for logging is undone, since its streams are gone afterwards."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        if stdin is not None:
            sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(argv)
    finally:
        sys.stdin = before
        structlog.reset_defaults()
        root.handlers[:], root.level = handlers, level
    return Said(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True, slots=True)
class Cli:
    """The command line at one home."""

    home: Path

    def __call__(self, *argv: str, stdin: bytes | None = None) -> Said:
        return say("--home", str(self.home), *argv, stdin=stdin)

    def ok(self, *argv: str, stdin: bytes | None = None) -> Said:
        """Run a command that must succeed."""
        said = self(*argv, stdin=stdin)
        assert said.code == 0, said
        return said

    def refuses(self, code: int, told: str, *argv: str, stdin: bytes | None = None) -> None:
        """Run a command that must fail with `code`, print nothing, and say `told` in its one line."""
        said = self(*argv, stdin=stdin)
        assert (said.code, said.out) == (code, ""), said
        assert_one_line(said.err, told)


def assert_one_line(err: str, told: str) -> None:
    """One line that begins with `error: ` and holds `told`; no traceback, no box."""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("error: "), err
    assert told in lines[0], err
