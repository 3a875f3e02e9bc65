"""Real nodes as processes, what to do to them, and what a chaos test asks the database about them.

Owns starting, hurting and ending processes of a home; a site's end leaves none behind, whatever a test did. Knows nothing
of what a test expects: that is for the tests and for `ledger`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from opencognit import postgres
from opencognit.adapters import orphans
from opencognit.db import upgrade
from opencognit.errors import ServerFailed

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
POLL_S = 0.02
CONFIG = "[runs]\nlease_s = 2\ndrain_s = 0.5\n[heartbeat]\ninterval_s = 1\n"
CEO = 'adapter = "ceo"'
_BOOT = (  # dies with the test's process, even when that is killed
    "import ctypes, runpy, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); module = sys.argv.pop(1);"
    "runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def until(condition: Callable[[], T], what: str, *, patience_s: float = PATIENCE_S) -> T:
    """Return the condition's first true value."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never in {patience_s:g} s: {what}"
        time.sleep(POLL_S)
    return value


def environ() -> dict[str, str]:
    """This process's environment without what would change a home's configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENCOGNIT_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One short command beside the nodes."""
    argv = [sys.executable, "-m", "opencognit", "--home", str(home), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, env=environ(), timeout=PATIENCE_S, check=False)


def is_gone(pid: int) -> bool:
    """Whether nothing of the process runs any more; a corpse that nobody has buried does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def processes_of(place: Path) -> list[int]:
    """Every process whose environment names something under `place`: what runs have started, and what that started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if b"=" + bytes(place) in (entry / "environ").read_bytes() and not is_gone(int(entry.name)):
                    found.append(int(entry.name))
    return found


def hit(pid: int, number: int) -> bool:
    """Send a signal; return whether there was somebody to get it. Nobody's number is 0, and init is not ours."""
    if pid <= 1:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Node:
    """One node in a process group of its own; by default `opencognit worker`. `module` is run in its place."""

    def __init__(self, home: Path, log: Path, *words: str, module: str = "opencognit") -> None:
        argv = [sys.executable, "-c", _BOOT, module, "--home", str(home), *(words or ("worker",))]
        self._log_path = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(argv, stdout=output, stderr=output, env=environ(), start_new_session=True)
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def claims(self) -> bool:
        """Whether it has come so far as to claim."""
        return '"node.started"' in self.log

    def wardens(self) -> list[int]:
        """The helper processes that end what it runs."""
        with contextlib.suppress(OSError):
            children = "".join(path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/children"))
            return [int(pid) for pid in children.split() if b"adapters.warden" in _argv(int(pid))]
        return []

    def send(self, number: int) -> None:
        if self.alive:
            self.process.send_signal(number)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and return the exit code."""
        self.send(number)
        return self.wait()


def _argv(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Site:
    """A home, its nodes, and a connection to its database that outlives the server's restarts."""

    def __init__(self, home: Path, dsn: str, *, holding: postgres.Holding | None = None) -> None:
        self.home, self.dsn, self._holding = home, dsn, holding
        self.nodes: list[Node] = []
        self._frozen_servers: set[int] = set()
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._logs = home.parent / f"{home.name}-logs"
        self._logs.mkdir(exist_ok=True)

    def start(self, *words: str, module: str = "opencognit") -> Node:
        """Start a node; it may not claim yet."""
        node = Node(self.home, self._logs / f"node-{len(self.nodes)}.log", *words, module=module)
        self.nodes.append(node)
        return node

    def started(self, *words: str, module: str = "opencognit") -> Node:
        """Start a node and return it when it claims."""
        node = self.start(*words, module=module)
        until(lambda: node.claims or not node.alive, "the node claims")
        assert node.alive, f"the node has ended at once:\n{node.log}"
        return node

    def rows(self, query: str, *parameters: Any) -> list[TupleRow]:
        """Ask the database, patiently while its server is away."""
        deadline = time.monotonic() + PATIENCE_S * 2
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = psycopg.connect(self.dsn, autocommit=True, connect_timeout=5, application_name="chaos")
                return self._connection.execute(query.encode(), parameters or None).fetchall()
            except psycopg.OperationalError:
                self._disconnect()
                if time.monotonic() > deadline:
                    raise
                self.revive()
            time.sleep(POLL_S)

    def value(self, query: str, *parameters: Any) -> Any:
        ((value,),) = self.rows(query, *parameters)
        return value

    def revive(self) -> None:
        """See to it that the embedded server has a keeper, as any user of it would."""
        if self._holding is not None and not self._frozen_servers:
            with contextlib.suppress(ServerFailed):
                self._holding.ensure(timeout_s=30)

    def running(self) -> int:
        count: int = self.value("SELECT count(*) FROM runs WHERE status = 'running'")
        return count

    def workspace(self, task_id: int) -> Path:
        return self.home / "data" / "workspaces" / f"task-{task_id}"

    def children(self) -> list[int]:
        """What runs of this home have started and is still there."""
        return processes_of(self.home)

    def server_pid(self) -> int:
        """The embedded server's postmaster, 0 while there is none; never somebody who has got its number since."""
        cluster = self.home / "data" / "postgres"
        with contextlib.suppress(OSError, ValueError, IndexError):
            named = int((cluster / "postmaster.pid").read_text().splitlines()[0])
            if b"-D\0" + bytes(cluster) + b"\0" in _argv(named):
                return named
        return 0

    def keeper_pid(self) -> int:
        """The server's keeper, 0 when it has died: the server's parent is then somebody who has nothing to do with it."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(Path(f"/proc/{self.server_pid()}/stat").read_text().rpartition(")")[2].split()[1])
            if b"postgres.keeper import main" in _argv(parent):
                return parent
        return 0

    def freeze_server(self) -> list[int]:
        """Stop every process of the embedded server, its sessions too: it takes data and answers nothing."""
        server = until(self.server_pid, "the server is up")
        pids = [server, *map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split())]
        self.pause_processes(pids)
        return pids

    def pause_processes(self, pids: Sequence[int]) -> None:
        self._frozen_servers.update(pids)
        for pid in pids:
            hit(pid, signal.SIGSTOP)

    def resume_processes(self, pids: Sequence[int]) -> None:
        for pid in reversed(pids):
            hit(pid, signal.SIGCONT)
        self._frozen_servers.difference_update(pids)

    def close(self) -> None:
        """End everything that belongs to the site, however it is."""
        self.resume_processes(list(self._frozen_servers))
        wardens = [pid for node in self.nodes for pid in node.wardens()]
        for node in self.nodes:
            if node.alive:
                node.end(signal.SIGKILL)
        with contextlib.suppress(AssertionError):
            until(lambda: all(map(is_gone, wardens)), "the wardens have gone", patience_s=10)
        for pid in self.children():
            hit(pid, signal.SIGKILL)
        self._disconnect()
        if self._holding is not None:
            keeper = self.keeper_pid()
            self._holding.close()
            if hit(keeper, signal.SIGTERM):
                until(lambda: is_gone(keeper), "the server has gone with its last user")

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


def write_home(root: Path, *, agents: dict[str, str], config: str = CONFIG) -> Path:
    """Write a home whose server is its own."""
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("agents", "souls", "data"):
        (root / folder).mkdir(parents=True)
    (root / "config.toml").write_text(config)
    for agent, body in agents.items():
        (root / "agents" / f"{agent}.toml").write_text(f'name = "{agent}"\n{body}\n')
    return root


@contextlib.contextmanager
def embedded(root: Path, *, agents: dict[str, str], config: str = CONFIG) -> Iterator[Site]:
    """A site with a server of its own, which may be hurt."""
    home = write_home(root, agents=agents, config=config)
    holding = postgres.hold(home / "data", linger_s=0.2)
    try:
        upgrade(holding.dsn)
        site = Site(home, holding.dsn, holding=holding)
    except BaseException:
        holding.close()
        raise
    try:
        yield site
    finally:
        site.close()


def no_orphans(site: Site) -> None:
    """Fail unless everything that runs had started is gone."""
    until(lambda: not site.children(), "what runs have started is gone")
    assert not [node for node in site.nodes if orphans.group_alive(node.pid) and not node.alive]
