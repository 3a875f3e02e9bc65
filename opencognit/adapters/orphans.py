"""Processes that a run left behind: finds them in `/proc`, ends them, and buries those that became ours.

A run's processes are known by a *mark*: a random name that is part of their `OPENCOGNIT_BRIEFING`, and that nothing else
on the machine carries. A process without it is never touched, whatever its number is. What wiped its own environment
and also left its process group is not found. Standard library only: the warden's helper imports this and nothing heavier.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NODE_MARK = os.urandom(16).hex()
"""Part of every mark that this process gives, so that the warden can find all that this node ever started."""

MARKED_VARIABLE = b"OPENCOGNIT_BRIEFING="
PROC = Path("/proc")

held: set[int] = set()
"""Children whose exit code somebody here still wants: never buried by `reap_adopted`."""

_first_seen: dict[int, float] = {}


def _pids() -> Iterator[int]:
    if PROC.is_dir():
        with os.scandir(PROC) as entries:
            yield from (int(entry.name) for entry in entries if entry.name.isdigit())


def _stat(pid: int) -> list[str]:
    """Return `/proc/PID/stat` from its third field on (state, ppid, pgrp, ...), or [] for a process that is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def started_at(pid: int) -> int | None:
    """Return the start of `pid` in clock ticks since boot: with the number it names one process for good."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def group_alive(pgid: int) -> bool:
    """Say whether anything but corpses is left of the group. Without `/proc`, corpses count too."""
    if not PROC.is_dir():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, 0)
            return True
        return False
    return any(fields and int(fields[2]) == pgid and fields[0] not in "ZX" for fields in map(_stat, _pids()))


def kill_group(pgid: int, sig: int = signal.SIGKILL) -> None:
    """Send `sig` to the group if it is still there; never to our own."""
    if pgid > 1 and pgid != os.getpgrp():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, sig)


def _carries(pid: int, mark: bytes) -> bool:
    try:
        descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:
        return False
    try:
        environ = b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    if mark not in environ:
        return False
    return any(entry.startswith(MARKED_VARIABLE) and mark in entry for entry in environ.split(b"\0"))


def _kill_marked(pid: int, mark: bytes) -> bool:
    """Kill `pid` if it is ours and still carries the mark; the descriptor keeps a reused number from being hit."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if (PROC / str(pid)).stat().st_uid != os.getuid() or not _carries(pid, mark):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def sweep(mark: str, *, patience_s: float = 2.0) -> int:
    """Kill every process of this user that carries `mark` until none is left; returns how many it had to kill.

    Repeats because a process may fork while it is looked for. Does nothing where there is no `/proc`.
    """
    if len(mark) < len(NODE_MARK):
        raise ValueError(f"{mark!r} is too short to be a mark: it could be part of a stranger's environment")
    needle, killed, give_up = mark.encode(), 0, time.monotonic() + patience_s
    while True:
        found = [pid for pid in _pids() if pid not in (1, os.getpid()) and _carries(pid, needle)]
        hits = sum(_kill_marked(pid, needle) for pid in found)
        killed += hits
        if not hits or time.monotonic() > give_up:
            return killed
        time.sleep(0.002)


def _adopts() -> bool:
    """Say whether the kernel gives us other processes' orphans: as PID 1 of a container, or as a subreaper."""
    if os.getpid() == 1:
        return True
    if not sys.platform.startswith("linux"):
        return False
    flag = ctypes.c_int(0)
    get_child_subreaper = 37
    return ctypes.CDLL(None).prctl(get_child_subreaper, ctypes.byref(flag), 0, 0, 0) == 0 and flag.value == 1


def reap_adopted(*, age_s: float = 10.0) -> int:
    """Bury orphans that were given to us and have lain dead for `age_s`; returns how many.

    A child that somebody here started is collected by its own waiter long before that age, or is in `held`: so no exit
    code is stolen. Cheap and without effect unless we are PID 1 or a subreaper.
    """
    if not _adopts():
        return 0
    me, now = os.getpid(), time.monotonic()
    dead = {pid for pid in _pids() if (fields := _stat(pid)) and fields[0] == "Z" and int(fields[1]) == me}
    for pid in set(_first_seen) - dead:
        del _first_seen[pid]
    buried = 0
    for pid in dead - held:
        if now - _first_seen.setdefault(pid, now) >= age_s:
            with suppress(ChildProcessError):
                buried += os.waitpid(pid, os.WNOHANG)[0] == pid
            _first_seen.pop(pid, None)
    return buried
