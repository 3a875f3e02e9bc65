"""What the keeper tells the processes that wait for it: one small file, replaced as a whole.

It is news, never proof: whether a keeper lives says its lock, whether the server lives says a connection.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Phase = Literal["starting", "ready", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Status:
    phase: Phase
    socket_dir: str = ""  # empty until it is known
    message: str = ""  # why it failed


def read(path: Path) -> Status:
    """Return the last news; a missing or unreadable file is none."""
    try:
        return Status(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return Status("stopped")


def write(path: Path, status: Status) -> None:
    """Replace the news, so that a reader sees the old or the new and never a half."""
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(asdict(status)), "utf-8")
    fresh.replace(path)
