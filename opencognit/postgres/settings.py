"""Every parameter that the server is started with, each with its reason. They win over the cluster's own files."""

from __future__ import annotations

import os
from pathlib import Path

_ROOMY_SHM_BYTES = 256 * 1024 * 1024

PARAMETERS: dict[str, str] = {
    # Reached by a socket in a private folder, by nobody else.
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    # A commit that was confirmed survives kill -9 and power loss; explicit, so that a file in the cluster cannot undo it.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # A killed backend makes the server recover by itself instead of ending.
    "restart_after_crash": "on",
    # A daemon's pool, a few workers and commands beside it; each idle slot costs little.
    "max_connections": "100",
    # Enough for the hot part of a company's tables on a laptop.
    "shared_buffers": "128MB",
    # "try" ends in SIGBUS where a container is given fewer huge pages than its host shows.
    "huge_pages": "off",
    # One time zone everywhere; readers convert.
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    # The log goes to one file that the keeper bounds. Conflicts (23505) are a normal answer here, and rows and statements
    # can carry what people wrote: neither statement nor detail is logged, the client reports both.
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] ",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
    # Seen in process lists.
    "cluster_name": "opencognit",
}


def arguments(cluster: Path, socket_dir: Path) -> list[str]:
    """Return the server's command line after the program's name."""
    chosen = {
        **PARAMETERS,
        # Quoted: the parameter is a list, and a path may have spaces.
        "unix_socket_directories": f'"{socket_dir}"',
        "dynamic_shared_memory_type": _shared_memory_kind(),
    }
    return ["-D", str(cluster), *(word for name, value in chosen.items() for word in ("-c", f"{name}={value}"))]


def _shared_memory_kind() -> str:
    """Prefer /dev/shm, but not the 64 MB of a default container: parallel index builds fail there for want of space."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return "mmap" if os.path.isdir("/proc") else "posix"  # noqa: PTH112 - not a path of ours
    return "posix" if room.f_blocks * room.f_frsize >= _ROOMY_SHM_BYTES else "mmap"
