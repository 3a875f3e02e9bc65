"""What an earlier server left behind: processes that still use the cluster, and files that name a dead one.

Every process of a server holds the server lock by inheritance, so the lock tells exactly whether one of them lives, and
/proc tells which. A pid from a file is never trusted alone: after a restart of a container it is soon somebody else's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from opencognit.errors import ServerFailed
from opencognit.postgres import locks
from opencognit.postgres.ping import Life, ping
from opencognit.postgres.places import SOCKET_FILE, Places

SHUTDOWN_GRACE_S = 15.0  # a server that lost its keeper writes its checkpoint
ORPHAN_GRACE_S = 0.5  # sessions that lost their server see it at once, unless they are busy
_LIMIT_S = 30.0


def claim(places: Places, socket_dir: Path) -> int:
    """Wait for the end of every process of an earlier server, by force if need be; return the locked server lock."""
    lock = locks.open_lock(places.server_lock)
    start = time.monotonic()
    asked = False
    while not locks.try_alone(lock, places.server_lock):
        waited = time.monotonic() - start
        users = users_of(places.server_lock)
        if users is None and not asked:
            asked = _ask_to_stop(places, socket_dir)
        elif users is not None and waited > (SHUTDOWN_GRACE_S if _noted_pid(places.cluster) in users else ORPHAN_GRACE_S):
            for pid in users:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if waited > _LIMIT_S:
            os.close(lock)
            raise ServerFailed(
                f"{places.cluster}: processes of an earlier server do not end ({sorted(users or [])}): end them, then start again"
            )
        time.sleep(0.01)
    try:
        _forget_dead_server(places, socket_dir)
    except BaseException:
        os.close(lock)
        raise
    return lock


def users_of(path: Path) -> set[int] | None:
    """Return the other processes that have `path` open; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    wanted = path.stat()
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid() and _has_open(process, wanted):
            found.add(int(process.name))
    return found


def _has_open(process: Path, wanted: os.stat_result) -> bool:
    try:
        files = list((process / "fd").iterdir())
    except OSError:
        return False  # it ended, or it is another user's
    for file in files:
        with contextlib.suppress(OSError):
            if os.path.samestat(file.stat(), wanted):
                return True
    return False


def _noted_pid(cluster: Path) -> int | None:
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _ask_to_stop(places: Places, socket_dir: Path) -> bool:
    """Without /proc and parent-death signals a server survives its keeper: stop it, if it is the one that answers."""
    pid = _noted_pid(places.cluster)
    if pid is None or ping(socket_dir).life is not Life.READY:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    return True


def _forget_dead_server(places: Places, socket_dir: Path) -> None:
    """Remove the files that would keep a new server from starting because their pid is alive again as something else."""
    pid = _noted_pid(places.cluster)
    if pid is not None and sys.platform == "linux":
        if _works_in(pid, places.cluster):
            raise ServerFailed(
                f"{places.cluster}: a server that OpenCognit did not start runs on it (process {pid}): stop it, then start again"
            )
        (places.cluster / "postmaster.pid").unlink(missing_ok=True)
    for name in (SOCKET_FILE, f"{SOCKET_FILE}.lock"):
        (socket_dir / name).unlink(missing_ok=True)


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:
        return False
