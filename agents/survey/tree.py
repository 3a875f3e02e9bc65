"""Which Python files belong to a tree, and what was left out and why. Parses nothing and reads one file at a time.

Symbolic links are named, not followed: a loop cannot catch the walk and nothing is counted twice.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from briefing import Trouble
from page import printable

LARGE_FILE_BYTES = 5_000_000
"""A larger file is counted by its size alone; such files are data written as Python."""
SKIPPED = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
STDLIB_TESTS = frozenset({"test", "tests", "idle_test"})
"""Folders of tests in the standard library, at any depth (`test`, `lib2to3/tests`, `idlelib/idle_test`)."""
SOURCE_FOLDERS = frozenset({"src", "lib"})
"""Folders that hold packages without being one: `src/json/x.py` belongs to `src/json`."""
TOP_LEVEL = "(top level)"


@dataclass(frozen=True, slots=True)
class Module:
    """One .py file. `name` is its path under the root, as the file system spells it."""

    name: str
    size: int

    @property
    def package(self) -> str:
        """The first folder of its path, spelled for a reader; modules of the root itself belong to `(top level)`."""
        folders = self.name.split("/")[:-1]
        depth = 2 if folders and folders[0] in SOURCE_FOLDERS else 1
        return printable("/".join(folders[:depth])) or TOP_LEVEL

    @property
    def is_large(self) -> bool:
        return self.size > LARGE_FILE_BYTES


@dataclass(slots=True)
class Tree:
    """A tree as it was found; names are spelled for a reader but for those of the modules."""

    root: str
    modules: list[Module] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def read(self, module: Module) -> bytes | None:
        """Return a module's bytes; None for one that is too large, or unreadable, which is noted with its reason."""
        if module.is_large:
            return None
        try:
            return Path(self.root, module.name).read_bytes()
        except OSError as error:
            self.note_unreadable(module.name, error)
            return None

    def note_unreadable(self, name: str, error: OSError) -> None:
        self.unreadable.append(f"{printable(name)} ({error.strerror or error})")

    def remarks(self) -> list[str]:
        """Say what the figures do not cover, one line each."""
        large = [f"{printable(m.name)} ({m.size:,} bytes)" for m in self.modules if m.is_large]
        kinds = [
            ("left out as tests, installed packages or tools", self.left_out),
            ("symbolic links, not followed", self.links),
            ("not readable", self.unreadable),
            (f"over {LARGE_FILE_BYTES // 1_000_000} MB, counted by size and not read", large),
        ]
        return [f"- {len(names)} {what}: {some(names)}" for what, names in kinds if names]


def some(names: list[str], limit: int = 12) -> str:
    """Join the first names and say how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def survey(root: str) -> Tree:
    """Find every module under `root`, sorted by name; raises Trouble where there is nothing to survey."""
    _check(root)
    tree = Tree(root)
    is_stdlib = all(Path(root, landmark).is_file() for landmark in ("os.py", "site.py"))
    skipped = SKIPPED | STDLIB_TESTS if is_stdlib else SKIPPED
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as entries:  # noqa: PTH118 - names that are not UTF-8 stay as they are
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            tree.note_unreadable(folder, error)
            continue
        folders += [name for entry in found if (name := _take(tree, entry, folder, skipped))]
    tree.modules.sort(key=lambda module: module.name)
    if not tree.modules:
        seen = "; ".join(line.removeprefix("- ") for line in tree.remarks())
        raise Trouble(f"no .py file under {printable(root)!r}{f' ({seen})' if seen else ''}; name the folder of a Python project")
    return tree


def _check(root: str) -> None:
    mend = "correct the goal's 'path:' line, or leave it out to survey the running interpreter's standard library"
    try:
        mode = os.stat(root).st_mode  # noqa: PTH116 - a name with NUL must raise, not read as missing
        if not stat.S_ISDIR(mode):
            raise Trouble(f"{printable(root)!r} is a file, not a folder; {mend}")
        with os.scandir(root):
            pass
    except FileNotFoundError as error:
        raise Trouble(f"there is no folder {printable(root)!r}; {mend}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Trouble(f"cannot read the folder {printable(root)!r}: {why}; {mend}") from error


def _take(tree: Tree, entry: os.DirEntry[str], folder: str, skipped: frozenset[str]) -> str | None:
    """Sort one entry into `tree`; returns the name of a folder that the walk has to enter."""
    name = f"{folder}/{entry.name}" if folder else entry.name
    try:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in skipped and not entry.name.startswith(".") and not Path(entry.path, "pyvenv.cfg").exists():
                return name
            if entry.name != "__pycache__":
                tree.left_out.append(printable(name))
        elif entry.is_symlink():
            if entry.name.endswith(".py") or Path(entry.path).is_dir():
                tree.links.append(printable(name))
        elif entry.name.endswith(".py") and entry.is_file(follow_symlinks=False):
            tree.modules.append(Module(name, entry.stat(follow_symlinks=False).st_size))
    except OSError as error:
        tree.note_unreadable(name, error)
    return None
