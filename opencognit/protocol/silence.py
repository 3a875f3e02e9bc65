"""The token by which an agent says that it has nothing to say. Owns its spellings."""

from __future__ import annotations

import re

TOKEN = "HEARTBEAT_OK"

_DECORATION = r"""[\s*_`~"'“”‘’„«»().!…\[\]]*+"""
SILENT = re.compile(rf"{_DECORATION}(?:{TOKEN}{_DECORATION})++", re.IGNORECASE | re.ASCII)
"""Nothing but the token: bare, in backticks, bold or quotes, with a full stop, in any case, once or more often."""


def is_token(text: str, start: int = 0, end: int | None = None) -> bool:
    """Return whether `text`, or this part of it, is nothing but the token."""
    return SILENT.fullmatch(text, start, len(text) if end is None else end) is not None
