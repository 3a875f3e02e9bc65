"""The server's log file: kept bounded, and read for the lines that explain a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LIMIT_BYTES = 16 * 1024 * 1024
TAIL_LINES = 4
TAIL_CHARS = 600
_TAIL_READ_BYTES = 64 * 1024
_FATAL = ("FATAL:", "PANIC:")


def open_append(path: Path) -> int:
    """Open the log for a child's output. Appending makes `bound` safe while the server writes."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def bound(path: Path, limit: int = LIMIT_BYTES) -> None:
    """Move a log that grew past `limit` bytes to `NAME.1`, in place: its writers keep their open file."""
    try:
        if path.stat().st_size <= limit:
            return
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)
    except OSError:
        return  # a full disk must not stop the server; the next round tries again


def size(path: Path) -> int:
    """Return where the log ends now, to read later only what came after."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tail(path: Path, since: int) -> str:
    """Return the lines written after byte `since` that say why a server ended, else the last ones, joined into one line."""
    try:
        with path.open("rb") as file:
            file.seek(max(since, path.stat().st_size - _TAIL_READ_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    fatal = [line for line in lines if any(word in line for word in _FATAL)]
    return " | ".join((fatal or lines)[-TAIL_LINES:])[-TAIL_CHARS:]
