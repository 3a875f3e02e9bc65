"""What a recall gives: the shapes alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from opencognit.models import Memory


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found, with how: `why` holds each leg's rank (from 1) and score; `warning` what a reader must know of it.

    One that is shown only because it contradicts the hit before it has that hit's score, and its id as `beside` in `why`.
    """

    memory: Memory
    score: float
    mode: str
    why: dict[str, float] = field(default_factory=dict)
    warning: str | None = None


class Recalled(list[Hit]):
    """Hits, best first. `incomplete` says why there may be more that would have belonged here; None: there is not."""

    incomplete: str | None = None
