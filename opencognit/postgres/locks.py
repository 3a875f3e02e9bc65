"""Advisory locks on files (flock). The kernel drops them however their owner dies, which is why nothing here trusts a pid.

A lock belongs to the open file: a child that inherits the descriptor holds the lock too, and only the last one closed
frees it. Descriptors made here are not inherited unless somebody passes them on purpose.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from opencognit.errors import ServerFailed

if sys.platform != "win32":
    import fcntl


def open_lock(path: Path) -> int:
    """Open (and make) the lock file at `path`; raise ServerFailed when this user may not."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ServerFailed(
            f"{path}: cannot be opened ({error.strerror}): the home must be writable, and used by one and the same user always"
        ) from error


def try_shared(fd: int, path: Path) -> bool:
    """Take the lock beside others; False when somebody holds it alone."""
    return _try(fd, path, fcntl.LOCK_SH)


def try_alone(fd: int, path: Path) -> bool:
    """Take the lock alone; False when anybody holds it."""
    return _try(fd, path, fcntl.LOCK_EX)


def unlock(fd: int) -> None:
    """Give the lock back and keep the file open."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def is_current(fd: int, path: Path) -> bool:
    """Say whether `path` is still the file that was opened: a home can be deleted or moved under a running process."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _try(fd: int, path: Path, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno == errno.EINTR:
            return False
        raise ServerFailed(
            f"{path}: this file system has no file locks ({error.strerror}): put the home on a local disk, or set database.url"
        ) from error
    return True
