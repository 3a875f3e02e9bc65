"""Count the files of a folder and name the largest: an OpenCognit agent as a plain script.

    python inspector.py FOLDER

What it prints becomes the task's result, but for the last line: a line that starts with [REMEMBER:room] is stored as a
memory instead. A status other than 0 blocks the task, with what stands on standard error as the reason.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

LARGEST = 5
MOST_FILES = 200_000


def sizes_of(folder: Path) -> dict[Path, int]:
    """Return the size of every file, without hidden folders and `data`; links are neither followed nor counted."""
    sizes: dict[Path, int] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "data")
        for name in sorted(names):
            path = Path(root, name)
            if len(sizes) < MOST_FILES and path.is_file() and not path.is_symlink():
                sizes[path.relative_to(folder)] = path.stat().st_size
    return sizes


def plain(path: Path) -> str:
    """Return a path that cannot break the lines around it, whatever its name holds."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    if not folder.is_dir():
        print(f"{folder} is not a folder: correct the last word of `command` in inspector.toml", file=sys.stderr)
        return 1
    sizes = sizes_of(folder)
    total = f"{len(sizes)} files with {sum(sizes.values())} bytes"
    print(f"{plain(folder)} has {total} (hidden folders and data left out).\n")
    if len(sizes) == MOST_FILES:
        print(f"There may be more: it stopped counting at {MOST_FILES}.\n")
    print("```")
    for kind, number in Counter(plain(Path(path.suffix)) if path.suffix else "none" for path in sizes).most_common(10):
        print(f"{number:7} with ending {kind}")
    for path, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:LARGEST]:
        print(f"{size:12} bytes  {plain(path)}")
    print("```\n")
    print(f"[REMEMBER:inventory] {plain(folder)} has {total}.")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
