"""Processor time and memory of a family of processes, as Linux tells them under /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def family(root: Path, pid: int) -> set[int]:
    """Return `pid`, every process that names the folder `root` on its command line (the server), and all below them."""
    parents, found = {}, {pid}
    for number, folder in _processes():
        try:
            parents[number] = int(_stat(folder)[1])
            if os.fsencode(root) in (folder / "cmdline").read_bytes():
                found.add(number)
        except OSError:
            continue
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds that these processes and their ended children have computed."""
    total = 0
    for pid in pids:
        try:
            total += sum(map(int, _stat(Path(f"/proc/{pid}"))[11:15]))
        except OSError:
            continue
    return total / TICKS_A_SECOND


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return _kib(Path(f"/proc/{pid}/status"), "VmRSS:") / 1024


def pss_mb(pid: int) -> float:
    """Return a process's share of memory: what several have in common counts once over all of them."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") / 1024


def _processes() -> Iterator[tuple[int, Path]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            yield int(folder.name), folder


def _stat(folder: Path) -> list[str]:
    """Return the fields behind the name, which may hold spaces: state, parent, ... user time is number 11."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _kib(path: Path, key: str) -> int:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    except OSError:
        return 0
    return 0
