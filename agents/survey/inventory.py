"""The surveyor's work: what a source tree is made of, by package and size. Parses no Python."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import history
import page
import tree
from briefing import Briefing, progress, run, surveyed_path

KIND = "Inventory"
LARGEST_MODULES = 10


@dataclass(slots=True)
class Package:
    name: str
    modules: int = 0
    lines: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    packages: list[Package]
    """Largest first; the modules of the root itself are one of them."""
    digest: str
    """Of all names and contents; a file that was not read counts with its size."""

    def total(self) -> Package:
        packages = self.packages
        return Package("total", sum(p.modules for p in packages), sum(p.lines for p in packages), sum(p.bytes for p in packages))

    def figures(self) -> dict[str, int | str]:
        total = self.total()
        top = next((p for p in self.packages if p.name == tree.TOP_LEVEL), Package(tree.TOP_LEVEL))
        named = [p for p in self.packages if p.name != tree.TOP_LEVEL]
        return {
            "modules": total.modules,
            "packages": len(named),
            "lines": total.lines,
            "bytes": total.bytes,
            history.CONTENT: self.digest,
            "modules at the top level": top.modules,
            "bytes at the top level": top.bytes,
            **{f"{history.PACKAGE}{p.name}": p.bytes for p in named[: history.MAX_PACKAGES]},
        }


def count(found: tree.Tree) -> Inventory:
    """Read every module once and add it to its package."""
    packages: defaultdict[str, Package] = defaultdict(lambda: Package(""))
    digest = hashlib.sha256()
    for module in found.modules:
        raw = found.read(module)
        package = packages[module.package]
        package.name = module.package
        package.modules += 1
        package.bytes += module.size
        package.lines += _lines(raw or b"")
        content = hashlib.sha256(raw).digest() if raw is not None else b"unread"
        digest.update(b"%s\0%d\0%s" % (os.fsencode(module.name), module.size, content))
    ordered = sorted(packages.values(), key=lambda package: (-package.bytes, package.name))
    return Inventory(ordered, f"sha256:{digest.hexdigest()[:16]}")


def _lines(raw: bytes) -> int:
    return raw.count(b"\n") + (raw != b"" and not raw.endswith(b"\n"))


def summary(inventory: Inventory) -> str:
    total, figures = inventory.total(), inventory.figures()
    top = figures["modules at the top level"]
    return (
        f"{page.count(total.modules, 'module')}: {page.count(total.lines, 'line')}, "
        f"{page.size(total.bytes)} ({total.bytes:,} bytes), in {page.count(int(figures['packages']), 'package')}"
        + (f" and {page.count(int(top), 'module')} at the top level." if top else ".")
    )


def package_table(inventory: Inventory) -> str:
    total, shown = inventory.total(), inventory.packages[: page.TABLE_ROWS]
    rows = [_row(package, total) for package in shown]
    if rest := inventory.packages[page.TABLE_ROWS :]:
        others = Inventory(rest, "").total()
        others.name = f"{len(rest)} smaller"
        rows.append(_row(others, total))
    return page.table(["package", "modules", "lines", "bytes", "share"], [*rows, _row(total, total)])


def _row(package: Package, total: Package) -> list[str | int]:
    return [package.name, package.modules, package.lines, package.bytes, page.share(package.bytes, total.bytes)]


def module_table(modules: Iterable[tree.Module]) -> str:
    largest = sorted(modules, key=lambda module: (-module.size, module.name))[:LARGEST_MODULES]
    return page.table(["module", "bytes"], [[page.printable(module.name), module.size] for module in largest])


def work(briefing: Briefing, now: datetime) -> str:
    """Survey the goal's tree; returns the page for the reader, its data and the memory."""
    path = surveyed_path(briefing)
    found = tree.survey(path)
    progress(f"inventory: {len(found.modules)} modules under {page.printable(path)}")
    inventory = count(found)
    figures = inventory.figures()
    earlier = history.newest(briefing.memories, KIND, path)
    changed = history.changes(earlier.figures, figures) if earlier else []
    progress(f"inventory: done, {inventory.total().bytes:,} bytes")
    data = {
        "survey": "inventory",
        "path": page.printable(path),
        "at": history.date_of(now),
        "summary": summary(inventory),
        "figures": {label: value for label, value in figures.items() if not label.startswith(history.PACKAGE)},
        "earlier": earlier.date if earlier else None,
        "changes": changed,
        "packages": [[p.name, p.modules, p.lines, p.bytes] for p in inventory.packages[: page.DATA_PACKAGES]],
    }
    return page.page(
        f"# {KIND} of {page.printable(path)}",
        summary(inventory),
        f"Surveyed on {history.date_of(now)} with Python {platform.python_version()}.",
        page.section("Packages by size", package_table(inventory)),
        page.section("Largest modules", module_table(found.modules)),
        page.section("Not in these figures", "\n".join(found.remarks())),
        page.section("What changed", history.told_changes(earlier, changed)),
        page.data_block(data),
        history.remember(KIND, path, now, figures, earlier),
    )


if __name__ == "__main__":
    sys.exit(run("inventory", work))
