"""The real program from outside: what `opencognit up` costs while nothing happens, how soon a killed node is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg

from benchmarks import procfs
from benchmarks.figures import Figure, at_most

SETTLE_S = 10.0
PATIENCE_S = 120.0
AGENT = 'name = "ann"\nadapter = "bash"\n[adapter_config]\ncommand = "sleep 600"\n'
CEO = 'name = "ceo"\nadapter = "ceo"\n'


@contextmanager
def home() -> Iterator[Path]:
    """Yield a home with default settings, a CEO, and an agent whose work takes long."""
    with tempfile.TemporaryDirectory(prefix="opencognit-benchmark-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        (root / "agents").mkdir()
        (root / "config.toml").write_text("")
        (root / "agents" / "ann.toml").write_text(AGENT)
        (root / "agents" / "ceo.toml").write_text(CEO)
        yield root


@contextmanager
def running(root: Path, verb: str, *, nodes: int) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a daemon once that many nodes work; it is ended at once afterwards."""
    argv = [sys.executable, "-m", "opencognit", "--home", str(root), verb]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet, env=_environ(), start_new_session=True)
    try:
        with _connected(root) as connection:
            _until(lambda: _count(connection, NODES) >= nodes, f"`opencognit {verb}` works")
        yield process
    finally:
        for _ in range(2):  # the second signal does not wait for runs
            if process.poll() is None:
                process.terminate()
                time.sleep(0.5)
        process.wait(PATIENCE_S)


def idle(*, seconds: float) -> Iterator[Figure]:
    """Yield processor time and memory of everything that `opencognit up` is, over a while without work."""
    with home() as root, running(root, "up", nodes=1) as daemon:
        time.sleep(SETTLE_S)
        before, start = procfs.cpu_s(procfs.family(root, daemon.pid)), time.monotonic()
        time.sleep(seconds)
        family, took = procfs.family(root, daemon.pid), time.monotonic() - start
        spent = procfs.cpu_s(family) - before
        yield at_most(f"idle processor time over {took:.0f} s, all {len(family)} processes", 100 * spent / took, 1, "%")
        yield Figure("idle memory of the daemon's process", f"{procfs.rss_mb(daemon.pid):.0f} MB RSS")
        yield Figure("idle memory of all processes, PostgreSQL too", f"{sum(map(procfs.pss_mb, family)):.0f} MB PSS")


def takeover() -> Iterator[Figure]:
    """Yield how long after kill -9 of its node a run is on again elsewhere, with default settings."""
    with home() as root, running(root, "worker", nodes=1) as first, _connected(root) as connection:
        _ask(root, "task", "create", "long work", "--assignee", "ann")
        _until(lambda: _count(connection, RUNS) == 1, "the first node runs it")
        with running(root, "worker", nodes=2):
            start = time.monotonic()
            first.kill()
            _until(lambda: _count(connection, RUNS) == 2, "the other node took it over")
            yield at_most("takeover of a killed node's run, default settings", time.monotonic() - start, 40, "s")


@contextmanager
def _connected(root: Path) -> Iterator[psycopg.Connection[tuple[int]]]:
    with psycopg.connect(_ask(root, "db", "dsn").strip(), autocommit=True) as connection:
        yield connection


NODES = "SELECT count(*) FROM nodes WHERE ended_at IS NULL"
RUNS = "SELECT count(*) FROM runs"


def _count(connection: psycopg.Connection[tuple[int]], query: LiteralString) -> int:
    try:
        row = connection.execute(query).fetchone()
    except psycopg.errors.UndefinedTable:
        return 0
    return row[0] if row is not None else 0


def _environ() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENCOGNIT_")}
    return {**kept, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}


def _ask(root: Path, *arguments: str) -> str:
    argv = [sys.executable, "-m", "opencognit", "--home", str(root), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, env=_environ(), timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`opencognit {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"never: {what}")
        time.sleep(0.1)
