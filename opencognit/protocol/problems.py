"""How a problem with an answer is told: one bounded line each, and a bounded number of them."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from opencognit.errors import InvalidInput

LIMIT = 50
"""Problems told of one answer; the rest is a number."""
_EXCERPT = 60


def excerpt(text: str) -> str:
    """Return `text` as one short quoted line."""
    line = " ".join(text[: 4 * _EXCERPT].split())
    return repr(line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…")


def invalid(error: ValidationError, *, allowed: Iterable[str] = (), skip: int = 0) -> InvalidInput:
    """Return pydantic's findings as ours; `allowed` are the known fields, `skip` the leading parts of each place."""
    found = []
    for item in error.errors(include_url=False, include_context=False, include_input=False)[:5]:
        place = ".".join(str(part) for part in item["loc"][skip:])
        unknown = item["type"] == "extra_forbidden"
        text = f"unknown field; allowed are {', '.join(allowed)}" if unknown else item["msg"]
        found.append((excerpt(place) if unknown else place, text))
    (field, message), *others = found
    return InvalidInput(field, "; ".join((message, *(f"{place}: {text}" for place, text in others))))


def bounded(problems: list[str]) -> tuple[str, ...]:
    """Return the first problems, and how many more there were."""
    if len(problems) <= LIMIT:
        return tuple(problems)
    return (*problems[:LIMIT], f"{len(problems) - LIMIT} more problems of the same answer are not listed")
