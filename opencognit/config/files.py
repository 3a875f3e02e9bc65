"""Reads the text files that people and agents can change. Owns the open: regular files only, bounded, UTF-8.

A file that is read *inside* a root can never be one outside it, whatever links are planted or swapped meanwhile: the
path is walked from the root's descriptor, one part at a time, and no part may be a link (the way was resolved before).
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path

from opencognit.errors import ConfigError

# O_NONBLOCK: opening a FIFO must not hang; the check for a regular file follows.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_BOM = b"\xef\xbb\xbf"


def read_text(path: Path, *, limit: int) -> str:
    """Return the text of `path`, without a byte order mark; ConfigError if it is not readable UTF-8 of `limit` bytes."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise _unreadable(path, error) from error
    return _decode(path, _read_regular(path, descriptor, limit))


def read_text_inside(root: Path, name: str, *, limit: int) -> str:
    """Like `read_text`, for a file `name` (relative to `root`) that must truly be inside `root`."""
    path = resolve_inside(root, name)
    parts = path.relative_to(os.path.realpath(root)).parts
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in parts[:-1]:
            parent, folder = folder, _open_folder(folder, part)
            os.close(parent)
        with ExitStack() as stack:
            stack.callback(os.close, folder)
            descriptor = os.open(parts[-1], _READ | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        raise _unreadable(path, error) from error
    return _decode(path, _read_regular(path, descriptor, limit))


def resolve_inside(root: Path, name: str) -> Path:
    """Return the real path of `name` under `root`, links followed; ConfigError where that is not inside `root`."""
    real_root = Path(os.path.realpath(root))
    path = Path(os.path.realpath(real_root / name))
    if path == real_root or not path.is_relative_to(real_root):
        raise ConfigError(f"leaves the home {str(real_root)!r} (as {name!r}): keep the file inside it", path=path)
    return path


def _open_folder(parent: int, name: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        os.close(parent)
        raise


def _read_regular(path: Path, descriptor: int, limit: int) -> bytes:
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise ConfigError(f"is {kind}: put a text file there", path=path)
        chunks, left = [], limit + 1
        while left > 0 and (chunk := os.read(descriptor, left)):
            chunks.append(chunk)
            left -= len(chunk)
    if left <= 0:
        raise ConfigError(f"is larger than {limit // 1024} KB: shorten it", path=path)
    return b"".join(chunks)


def _decode(path: Path, raw: bytes) -> str:
    body = raw.removeprefix(_BOM)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{body[error.start]:02x}"
        raise ConfigError(f"is not UTF-8 ({found}): save it as UTF-8", path=path, line=line) from error
    if (at := text.find("\0")) >= 0:  # no database and no command line can hold it
        raise ConfigError("holds a NUL character: remove it", path=path, line=text.count("\n", 0, at) + 1)
    return text


def _unreadable(path: Path, error: OSError) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError("no such file: create it, or correct its name where it is set", path=path)
    reason = (error.strerror or str(error)).lower()
    return ConfigError(f"cannot be read ({reason}): check the file and its permissions", path=path)
