"""The embedded server under kill -9: of its users, its keeper, itself and its sessions; and under many who come and go."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from opencognit.errors import ServerFailed
from opencognit.postgres import Holding, hold, leftovers
from opencognit.postgres.locks import open_lock, try_alone
from opencognit.postgres.places import Places

ROOT = Path(__file__).resolve().parents[2]
LINGER_S = 0.3
PATIENCE_S = 40.0

HOLDER = """
import sys
from pathlib import Path
from opencognit.postgres import hold
with hold(Path(sys.argv[1]), linger_s=0.3) as holding:
    print(holding.dsn, flush=True)
    sys.stdin.read()
"""

# Joins, writes and leaves again and again. The keepers that it starts wait between the decision to stop and the stop, so
# that whoever could join a server about to go does it here often.
VISITOR = """
import random, sys, time
from pathlib import Path
import psycopg
from opencognit.postgres import hold, holding as module
module._BOOT = (
    "import sys, time; sys.path.append(sys.argv.pop(1)); from opencognit.postgres.keeper import Keeper, main;"
    "stop = Keeper._stop; Keeper._stop = lambda keeper: (time.sleep(0.2), stop(keeper)); main()"
)
who, rounds = int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(who)
for number in range(rounds):
    with hold(Path(sys.argv[1]), linger_s=0.0) as holding, psycopg.connect(holding.dsn) as connection:
        connection.execute("INSERT INTO visits VALUES (%s, %s, pg_postmaster_start_time())", [who, number])
    time.sleep(chance.uniform(0.0, 0.5))
"""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.02)


def is_free(path: Path) -> bool:
    fd = open_lock(path)
    try:
        return try_alone(fd, path)
    finally:
        os.close(fd)


def is_down(data: Path) -> bool:
    places = Places(data)
    return not places.runtime.exists() or (is_free(places.server_lock) and is_free(places.keeper_lock))


def keeper_of(data: Path) -> int:
    """Return the keeper's pid: who has the keeper's lock open and is not just looking whether it is free."""
    users = leftovers.users_of(Places(data).keeper_lock) or set()
    (keeper,) = [pid for pid in users if b"postgres.keeper import main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return keeper


def server_of(data: Path) -> int:
    return int((data / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def run(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@contextlib.contextmanager
def daemon_of(data: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the server until it is killed."""
    process = run(HOLDER, str(data))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def dsn_of(daemon: subprocess.Popen[str]) -> str:
    assert daemon.stdout is not None
    return daemon.stdout.readline().strip()


def commit(dsn: str) -> str:
    """Commit a new word and return it."""
    word = uuid.uuid4().hex
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO kept VALUES (%s)", [word])
    return word


def words(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {word for (word,) in connection.execute("SELECT word FROM kept")}


def words_after_recovery(dsn: str) -> set[str]:
    """Ask as a daemon does: again and again, by the same string, until the server answers."""
    found: set[str] = set()

    def answered() -> bool:
        try:
            found.update(words(dsn))
        except psycopg.OperationalError:
            return False
        return True

    wait_until(answered, "the server is back")
    return found


@contextlib.contextmanager
def busy_session(dsn: str) -> Iterator[int]:
    """Keep a session computing, so that it does not see the death of its server by itself; gives its pid."""
    with psycopg.connect(dsn) as connection, psycopg.connect(dsn, autocommit=True) as other:
        pid = connection.info.backend_pid

        def compute() -> None:
            with contextlib.suppress(psycopg.OperationalError):
                connection.execute("SELECT sum(sqrt(n)) FROM generate_series(1, 2000000000) AS n")

        thread = threading.Thread(target=compute)
        thread.start()
        try:
            seen = "SELECT state = 'active' FROM pg_stat_activity WHERE pid = %s"
            wait_until(lambda: other.execute(seen, [pid]).fetchone() == (True,), "the session computes")
            other.close()
            yield pid
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # a failed test must not compute on
            raise
        finally:
            thread.join()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("chaos") / "data"
    with hold(data, linger_s=0.0) as holding, psycopg.connect(holding.dsn) as connection:
        connection.execute("CREATE TABLE kept (word text PRIMARY KEY)")
        connection.execute("CREATE TABLE visits (who int, number int, server timestamptz)")
    wait_until(lambda: is_down(data), "the first server is gone")
    return data


@pytest.fixture
def data(finished: Path) -> Iterator[Path]:
    """The home that the tests share: after each kill it must be as good as before anyway."""
    yield finished
    wait_until(lambda: is_down(finished), "nothing is left running")


@pytest.fixture
def held(data: Path) -> Iterator[Holding]:
    with hold(data, linger_s=LINGER_S) as holding:
        yield holding


def test_killed_server_comes_back_by_itself_with_all_that_was_committed(data: Path, held: Holding) -> None:
    """A running daemon only has to connect again, by the same string; a session still computing hinders nothing."""
    word = commit(held.dsn)
    keeper = keeper_of(data)
    with busy_session(held.dsn):
        os.kill(server_of(data), signal.SIGKILL)
        assert word in words_after_recovery(held.dsn)
    assert keeper_of(data) == keeper


def test_killed_session_leaves_the_server_usable(data: Path, held: Holding) -> None:
    """One killed backend makes the server recover in place."""
    word = commit(held.dsn)
    with busy_session(held.dsn) as pid:
        os.kill(pid, signal.SIGKILL)
    assert word in words_after_recovery(held.dsn)


def test_server_dies_with_its_killed_keeper_and_ensure_brings_both_back(data: Path, held: Holding) -> None:
    """Without a keeper nobody would ever stop the server, so it goes too; a daemon that goes on gets a new pair."""
    word = commit(held.dsn)
    old = keeper_of(data)
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: is_free(Places(data).server_lock), "the kernel has ended the server")
    dsn = held.dsn
    held.ensure()
    assert held.dsn == dsn
    assert word in words(dsn)
    assert keeper_of(data) != old


def test_ensure_right_after_the_keepers_death_waits_for_the_old_server(data: Path, held: Holding) -> None:
    """Two servers never share a cluster, not even while the first is on its way out with a session still at work."""
    word = commit(held.dsn)
    with busy_session(held.dsn):
        os.kill(keeper_of(data), signal.SIGKILL)
        wait_until(lambda: not held.is_kept(), "the kill has been carried out")
        held.ensure()
    assert word in words(held.dsn)


def test_killed_user_is_noticed_and_the_server_leaves(data: Path) -> None:
    """kill -9 of a daemon leaves no server running, and the next start finds everything."""
    with daemon_of(data) as daemon:
        word = commit(dsn_of(daemon))
    wait_until(lambda: is_down(data), "the server is gone")
    with hold(data, linger_s=0.0) as holding:
        assert word in words(holding.dsn)


def test_everything_killed_at_once_starts_again_at_once(data: Path) -> None:
    """Power goes from user, keeper and server together; an orphaned session still computes on the old memory."""
    with daemon_of(data) as daemon:
        dsn = dsn_of(daemon)
        word = commit(dsn)
        with busy_session(dsn):
            server = server_of(data)
            for pid in (keeper_of(data), server, daemon.pid):
                os.kill(pid, signal.SIGKILL)
            with hold(data, linger_s=0.0) as holding:
                assert word in words(holding.dsn)
                assert server_of(data) != server


@pytest.mark.parametrize("moment", ["PG_VERSION", "global/pg_control", "base/5"])
def test_cluster_interrupted_in_the_making_is_made_anew(tmp_path: Path, moment: str) -> None:
    """A keeper killed during initdb never leaves a half cluster that is taken for a whole one."""
    data = tmp_path / "data"
    with daemon_of(data) as daemon:
        wait_until((data / "postgres.unfinished" / moment).exists, f"{moment} is there")
        keeper = keeper_of(data)
        daemon.kill()  # first, or it would start the next keeper
        os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: is_down(data), "its processes are gone")
    with hold(data, linger_s=0.0) as holding:
        psycopg.connect(holding.dsn).close()
        assert not (data / "postgres.unfinished").exists()
    wait_until(lambda: is_down(data), "the server is gone")


def test_server_that_dies_again_and_again_is_given_up_with_a_reason(data: Path, held: Holding) -> None:
    """A crash loop ends, with a line for whoever asks; and asking again later is a fresh start."""
    keeper = keeper_of(data)
    stop = threading.Event()

    def murder() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, ValueError, IndexError):
                os.kill(server_of(data), signal.SIGKILL)
            time.sleep(0.05)

    killer = threading.Thread(target=murder)
    killer.start()
    wait_until(lambda: is_free(Places(data).keeper_lock), "the keeper gives up")
    with pytest.raises(ServerFailed, match="does not stay up"):
        held.ensure()
    stop.set()
    killer.join()
    held.ensure()
    assert keeper_of(data) != keeper


def test_home_deleted_under_its_server_starts_empty_at_once(finished: Path, tmp_path: Path) -> None:
    """`rm -rf data` and a new start while the old server lingers: the old one ends and takes nothing of the new with it."""
    data = tmp_path / "data"
    shutil.copytree(finished, data)
    hold(data, linger_s=300.0).close()
    old = server_of(data)
    pidfd = os.pidfd_open(old)
    shutil.rmtree(data)
    with hold(data, linger_s=0.0) as holding:
        assert bool(select.select([pidfd], [], [], PATIENCE_S)[0]), "the old server ends although its linger was long"
        with psycopg.connect(holding.dsn) as connection:
            assert connection.execute("SELECT to_regclass('kept')").fetchone() == (None,)
    os.close(pidfd)
    wait_until(lambda: is_down(data), "the server is gone")


def test_many_who_come_and_go_never_meet_a_server_that_is_about_to_stop(data: Path) -> None:
    """With no linger every leaving races with an arrival: each visit is served, none is lost, and nothing is left.

    The servers' start times show that stops did happen in between.
    """
    visitors, rounds = 6, 8
    crowd = [run(VISITOR, str(data), str(who), str(rounds)) for who in range(visitors)]
    errors = [process.communicate()[1] for process in crowd]
    assert errors == [""] * visitors
    wait_until(lambda: is_down(data), "the server is gone")
    with hold(data, linger_s=0.0) as holding, psycopg.connect(holding.dsn) as connection:
        row = connection.execute("SELECT count(DISTINCT (who, number)), count(DISTINCT server) FROM visits").fetchone()
    assert row is not None
    assert row[0] == visitors * rounds
    assert row[1] > 1, "no server was ever stopped, so nothing was tried"
