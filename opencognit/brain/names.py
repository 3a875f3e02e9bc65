"""Names as they are stored and compared. Pure."""

from __future__ import annotations

import hashlib

from opencognit.textclean import clean

ROOM_LIMIT, KIND_LIMIT, KEY_LIMIT = 100, 64, 512
"""Characters: all three stand in B-trees, whose rows have a limit."""


def room_name(room: str) -> str:
    """Return a room as it is stored and compared; without a name it is `general`."""
    return clean(room).strip().casefold() or "general"


def digest(content: str) -> bytes:
    """Return what tells contents apart: white space and case do not."""
    return hashlib.sha256(" ".join(content.split()).casefold().encode("utf-8", "surrogatepass")).digest()
