"""One process at a time in a folder: a lock that ends with its holder, however that one dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from opencognit.errors import Refused


@contextlib.contextmanager
def held(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock file `path`, made where it is missing; yields False on a file system that has no locks.

    Without `wait`, raises Refused while another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield _take(descriptor, path, wait)
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise Refused(f"{path.parent}: another `opencognit model pull` is at work there: wait for it") from None
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            return False
        raise
    return True
