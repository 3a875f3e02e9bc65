"""The inspector's work: a tree's code health, out of what `measure` finds in each module."""

from __future__ import annotations

import platform
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

import history
import page
import tree
from briefing import Briefing, progress, run, surveyed_path
from measure import DEFINITIONS, LONG_FUNCTION, Finding, Tally, inspect, parse

KIND = "Code health"
LONGEST_SHOWN = 15
ERRORS_SHOWN = 50
PROGRESS_EVERY = 250


@dataclass(slots=True)
class Health:
    packages: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    longest: list[Finding] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)
    """Modules that do not parse: syntax, encoding, NUL, nesting."""

    def total(self) -> Tally:
        total = Tally()
        for tally in self.packages.values():
            total.add(tally)
        return total

    def figures(self) -> dict[str, int | str]:
        total = self.total()
        return {
            "modules parsed": total.modules,
            "modules with errors": len(self.errors),
            "functions": total.functions,
            "longest function in lines": total.longest,
            f"functions over {LONG_FUNCTION} lines": total.long_functions,
            "public functions": total.public_functions,
            "public functions without docstring": total.bare_functions,
            "public classes": total.classes,
            "public classes without docstring": total.bare_classes,
            "modules with code": total.coded_modules,
            "modules without docstring": total.bare_modules,
        }


def examine(found: tree.Tree) -> Health:
    """Parse every module of the tree, one after the other; one core does the standard library in two to three seconds."""
    health, functions = Health(), list[Finding]()
    for number, module in enumerate(found.modules, 1):
        if number % PROGRESS_EVERY == 0:
            progress(f"health: {number} of {len(found.modules)} modules")
        raw = found.read(module)
        if raw is None:
            continue
        name, parsed = page.printable(module.name), parse(raw)
        if isinstance(parsed, tuple):
            health.errors.append(Finding(name, parsed[0], page.printable(parsed[1])))
            continue
        tally, its_functions = inspect(parsed, name)
        health.packages[module.package].add(tally)
        functions += its_functions
    health.longest = sorted(functions, key=lambda finding: (-finding.lines, finding))[:LONGEST_SHOWN]
    return health


def summary(health: Health) -> str:
    total = health.total()
    errors = f"{page.count(len(health.errors), 'module')} with errors" if health.errors else "no syntax errors"
    return (
        f"{page.count(total.modules, 'module')} parsed, {errors}. {page.count(total.functions, 'function')}, "
        f"{total.long_functions:,} of them over {LONG_FUNCTION} lines, the longest {total.longest:,}. Without docstring: "
        f"{page.share(total.bare_functions, total.public_functions)} of the public functions, "
        f"{page.share(total.bare_classes, total.classes)} of the public classes, "
        f"{page.share(total.bare_modules, total.coded_modules)} of the modules."
    )


def longest_table(health: Health) -> str:
    rows: list[list[str | int]] = [[finding.place, finding.text, finding.lines] for finding in health.longest]
    return page.table(["place", "function", "lines"], rows, left=2) if rows else ""


def docstring_table(total: Tally) -> str:
    kinds = [
        ("public functions", total.public_functions, total.bare_functions),
        ("public classes", total.classes, total.bare_classes),
        ("modules with code", total.coded_modules, total.bare_modules),
    ]
    rows: list[list[str | int]] = [[what, whole, bare, page.share(bare, whole)] for what, whole, bare in kinds]
    return page.table(["what", "all", "bare", "share"], rows)


def package_table(health: Health, order: list[str]) -> str:
    rows = [_row(name, health.packages[name]) for name in order[: page.TABLE_ROWS]]
    if rest := order[page.TABLE_ROWS :]:
        others = Tally()
        for name in rest:
            others.add(health.packages[name])
        rows.append(_row(f"{len(rest)} smaller", others))
    bare = ["bare functions", "bare classes", "bare modules"]
    headers = ["package", "modules", "functions", f"over {LONG_FUNCTION} lines", "longest", *bare]
    return page.table(headers, [*rows, _row("total", health.total())])


def _row(name: str, tally: Tally) -> list[str | int]:
    shares = [
        page.share(tally.bare_functions, tally.public_functions),
        page.share(tally.bare_classes, tally.classes),
        page.share(tally.bare_modules, tally.coded_modules),
    ]
    return [name, tally.modules, tally.functions, tally.long_functions, tally.longest, *shares]


def error_list(health: Health) -> str:
    lines = [f"- {finding.place}: {finding.text}" for finding in health.errors[:ERRORS_SHOWN]]
    more = len(health.errors) - ERRORS_SHOWN
    return "\n".join(lines + ([f"- and {more} more"] if more > 0 else [])) or "None: every module that was read parses."


def by_size(found: tree.Tree) -> list[str]:
    """Return the packages' names, largest first: the order of the inventory."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for module in found.modules:
        sizes[module.package] += module.size
    return sorted(sizes, key=lambda name: (-sizes[name], name))


def work(briefing: Briefing, now: datetime) -> str:
    """Inspect the goal's tree; returns the page for the reader, its data and the memory."""
    path = surveyed_path(briefing)
    found = tree.survey(path)
    progress(f"health: parsing {len(found.modules)} modules under {page.printable(path)}")
    health = examine(found)
    order, figures = by_size(found), health.figures()
    earlier = history.newest(briefing.memories, KIND, path)
    changed = history.changes(earlier.figures, figures) if earlier else []
    progress(f"health: done, {len(health.errors)} modules with errors")
    packages = [(name, health.packages[name]) for name in order[: page.DATA_PACKAGES]]
    data = {
        "survey": "health",
        "path": page.printable(path),
        "at": history.date_of(now),
        "summary": summary(health),
        "figures": figures,
        "earlier": earlier.date if earlier else None,
        "changes": changed,
        "packages": [
            [name, t.functions, t.long_functions, t.longest, t.bare_functions, t.public_functions] for name, t in packages
        ],
        "longest": [[finding.place, finding.text, finding.lines] for finding in health.longest],
        "errors": [f"{finding.place}: {finding.text}" for finding in health.errors[:ERRORS_SHOWN]],
    }
    return page.page(
        f"# {KIND} of {page.printable(path)}",
        summary(health),
        f"Inspected on {history.date_of(now)} with the grammar of Python {platform.python_version()}.",
        page.section("Longest functions", longest_table(health)),
        page.section("Missing docstrings", docstring_table(health.total()), DEFINITIONS),
        page.section("Packages, largest first", package_table(health, order)),
        page.section("Modules that do not parse", error_list(health)),
        page.section("Not in these figures", "\n".join(found.remarks())),
        page.section("What changed", history.told_changes(earlier, changed)),
        page.data_block(data),
        history.remember(KIND, path, now, figures, earlier),
    )


if __name__ == "__main__":
    sys.exit(run("health", work))
