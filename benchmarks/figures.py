"""What a measure gives: a named figure, what it should be, and how busy the machine was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `met` is None where nothing was promised."""

    what: str
    value: str
    target: str = ""
    met: bool | None = None
    load: float = field(default_factory=lambda: os.getloadavg()[0])


def at_most(what: str, value: float, limit: float, unit: str) -> Figure:
    return Figure(what, f"{value:.1f} {unit}", f"< {limit:g} {unit}", value < limit)


def percentile(sorted_values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least `fraction` of all do not exceed."""
    return sorted_values[max(0, -(-int(fraction * 1000) * len(sorted_values) // 1000) - 1)]


def line(figure: Figure) -> str:
    verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
    return f"{figure.what:<58} {figure.value:>24}  {figure.target:<12} {verdict:<7} load {figure.load:.2f}"
