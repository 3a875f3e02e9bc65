"""The editor's work: one report out of the surveyor's and the inspector's results. Looks at no source itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import history
import page
from briefing import Briefing, Input, Trouble, progress, run

KIND = "Survey report"
HALVES = {"inventory": "inventory", "health": "code health"}
FIRST_LOOKS = 5
REMEMBERED = ("modules", "packages", "lines", "bytes", "functions", "functions over 100 lines", "modules with errors")


@dataclass(frozen=True, slots=True)
class Half:
    """One survey's block of data."""

    path: str
    summary: str
    figures: dict[str, int | str]
    earlier: str | None
    changes: list[str]
    packages: dict[str, list[int]]
    """By name, largest first. Inventory: modules, lines, bytes; health: functions, long, longest, bare, public."""
    longest: list[tuple[str, str, int]]
    errors: list[str]


def halves(inputs: tuple[Input, ...]) -> dict[str, Half]:
    """Find the surveys among the inputs by their blocks of data, whoever wrote them; a later one replaces an earlier."""
    found: dict[str, Half] = {}
    for item in inputs:
        data = page.data_of(item.result)
        if data and data.get("survey") in HALVES:
            found[data["survey"]] = _half(data, item.title)
    if not found:
        names = ", ".join(repr(item.title) for item in inputs) or "none"
        raise Trouble(
            f"no survey among the results this task was given ({names}); let it run after an inventory and a code health"
        )
    if len({half.path for half in found.values()}) > 1:
        paths = " and ".join(repr(half.path) for half in found.values())
        raise Trouble(f"the surveys are of different trees, {paths}; run both tasks again for the same goal")
    return found


def _half(data: dict[str, Any], title: str) -> Half:
    try:
        return Half(
            path=page.printable(data["path"]),
            summary=page.printable(data["summary"]),
            figures=dict(data["figures"]),
            earlier=page.printable(data["earlier"]) if data["earlier"] else None,
            changes=[page.printable(line) for line in data["changes"]],
            packages={page.printable(name): [int(n) for n in numbers] for name, *numbers in data["packages"]},
            longest=[(page.printable(place), page.printable(name), int(lines)) for place, name, lines in data.get("longest", [])],
            errors=[page.printable(line) for line in data.get("errors", [])],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Trouble(
            f"the block of data in the result of {title!r} is not a survey's ({error!r}); run that task again"
        ) from error


def joined_table(sizes: Half, health: Half) -> str:
    """Put size and health of each package side by side, with a figure that needs both: bare functions by lines."""
    rows: list[list[str | int]] = []
    for name, (modules, lines, size) in list(sizes.packages.items())[: page.TABLE_ROWS]:
        functions, long, longest, bare, public = health.packages.get(name, [0] * 5)
        density = f"{1000 * bare / lines:.1f}" if lines else "-"
        rows.append([name, modules, lines, page.size(size), functions, long, longest, page.share(bare, public), density])
    headers = ["package", "modules", "lines", "size", "functions", "over 100", "longest", "bare", "bare per 1,000 lines"]
    more = len(sizes.packages) - page.TABLE_ROWS
    note = f"\n\nThe {page.TABLE_ROWS} largest packages; {more} more are in the inventory." if more > 0 else ""
    return page.table(headers, rows) + "\n\nBare: public functions without docstring." + note


def first_looks(health: Half) -> str:
    """Say where a person who has an hour should begin."""
    looks = [f"- Does not parse: {line}" for line in health.errors[:FIRST_LOOKS]]
    looks += [f"- {place}: {name} is {lines:,} lines long" for place, name, lines in health.longest[:FIRST_LOOKS]]
    by_bare = sorted(health.packages.items(), key=lambda item: -item[1][3])[:FIRST_LOOKS]
    for name, (_, _, _, bare, public) in by_bare:
        if bare:
            looks.append(f"- {name}: {bare:,} of {page.count(public, 'public function')} without docstring")
    return "\n".join(looks) or "Nothing stands out."


def changes(found: dict[str, Half]) -> str:
    """Say what changed since the survey before, for each half that has one."""
    if not any(half.earlier for half in found.values()):
        return "This is the first survey of this tree, so there is nothing to compare it with."
    parts = []
    for kind, half in found.items():
        name = HALVES[kind].capitalize()
        if half.earlier is None:
            parts.append(f"{name}: first of its kind for this tree.")
        elif half.changes:
            parts.append(f"{name}, since {half.earlier}:\n\n" + "\n".join(f"- {line}" for line in half.changes))
        else:
            parts.append(f"{name}: nothing changed since {half.earlier}.")
    return "\n\n".join(parts)


def work(briefing: Briefing, now: datetime) -> str:
    """Join the inputs; returns the page for the reader and the memory of the outcome."""
    found = halves(briefing.inputs)
    path = next(iter(found.values())).path
    progress(f"report: joins {' and '.join(HALVES[kind] for kind in found)} of {path}")
    sizes, health = found.get("inventory"), found.get("health")
    figures = {label: half.figures[label] for label in REMEMBERED for half in found.values() if label in half.figures}
    earlier = history.newest(briefing.memories, KIND, path)
    return page.page(
        f"# Survey of {path}",
        page.section("Missing", _missing(found, briefing.inputs)),
        *(half.summary for half in found.values()),
        page.section("What changed", changes(found)),
        page.section("Where to look first", first_looks(health) if health else ""),
        page.section("Size and health by package", joined_table(sizes, health) if sizes and health else ""),
        f"Written on {history.date_of(now)}.",
        history.remember(KIND, path, now, figures, earlier, type="outcome"),
    )


def _missing(found: dict[str, Half], inputs: tuple[Input, ...]) -> str:
    names = " and ".join(name for kind, name in HALVES.items() if kind not in found)
    given = "; ".join(f"{page.printable(item.title)!r} is {page.printable(item.status)}" for item in inputs)
    return f"This report lacks the {names}. What I was given: {given}." if names else ""


if __name__ == "__main__":
    sys.exit(run("report", work))
