"""Real nodes, hurt in every way they can be: each task has its effect exactly once, and nothing is left running or locked.

The long forms run with OPENCOGNIT_LONG=1; `python -m benchmarks.chaos` repeats the killer and prints figures.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.chaos import ledger
from tests.chaos.kit import CEO, CONFIG, PATIENCE_S, Site, command, embedded, hit, is_gone, no_orphans, until
from tests.chaos.killer import run_round
from tests.chaos.proxy import Proxy
from tests.conftest import MakeHome

LEASE_S = 2.0
AGENTS = {"ceo": CEO, **dict.fromkeys(ledger.HANDS, ledger.HAND)}
ODD = "tests.chaos.odd_node"
long = pytest.mark.skipif(not os.environ.get("OPENCOGNIT_LONG"), reason="takes minutes: set OPENCOGNIT_LONG=1")

STEADY = """adapter = "bash"
[adapter_config]
command = '''
i=0
while [ $i -lt {steps} ]; do echo "$OPENCOGNIT_RUN_ID" >> "$OPENCOGNIT_WORKSPACE/trace"; sleep 0.1; i=$((i+1)); done
echo; echo "effect of task $OPENCOGNIT_TASK_ID"
'''
"""
STUBBORN = """adapter = "bash"
[adapter_config]
command = '''
trap "" TERM
sleep 300 &
echo x >> "$OPENCOGNIT_WORKSPACE/trace"
while true; do sleep 300; done
'''
"""

MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(make_home: MakeHome, database_url: str) -> Iterator[MakeSite]:
    """Make sites on the session's server, each by `make_site(agents={...}, config=...)`; `url` is another way to it."""
    sites: list[Site] = []

    def make(*, agents: dict[str, str] = AGENTS, config: str = CONFIG, url: str | None = None) -> Site:
        home = make_home(agents=agents, config=config).root
        if url is not None:
            file = home / "config.toml"
            file.write_text(file.read_text().replace(database_url, url))
        sites.append(Site(home, database_url))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def traced(site: Site, task_id: int) -> str:
    """What the runs of a task have left in its workspace."""
    path = site.workspace(task_id) / "trace"
    return path.read_text() if path.exists() else ""


def run_states(site: Site, task_id: int) -> list[str]:
    return [row[0] for row in site.rows("SELECT status FROM runs WHERE task_id = %s ORDER BY id", task_id)]


# --- Nodes ---


def test_a_random_killer_neither_loses_nor_doubles_anything(tmp_path: Path) -> None:
    """Three nodes, 200 tasks; nodes are killed, frozen, drained, their sessions ended, and the server with its keeper and
    its backends killed, until all is done: each effect once, every wakeup ended, nothing running, locked or orphaned."""
    with embedded(tmp_path / "home", agents=AGENTS) as site:
        print(run_round(site, tasks=200, nodes=3, lease_s=LEASE_S, seed=int.from_bytes(os.urandom(3))))


def test_a_killed_child_fails_its_run_and_no_other(make_site: MakeSite) -> None:
    """kill -9 of what the adapter runs: its grandchildren go too, the task says what happened, and runs when retried."""
    site = make_site(agents={"ceo": CEO, "ann": STEADY.format(steps=1000), **dict.fromkeys(ledger.HANDS, ledger.HAND)})
    site.started()
    (victim,) = ledger.give(site, 1, to=["ann"])
    others = ledger.give(site, 8)
    until(lambda: traced(site, victim), "the run has begun")
    leaders = [pid for pid in site.children() if os.getpgid(pid) == pid and _of_task(pid, victim)]
    assert len(leaders) == 1
    hit(leaders[0], signal.SIGKILL)
    ((_, reason),) = until(lambda: ledger.blocked(site), "the task is blocked")
    assert "SIGKILL" in reason
    assert run_states(site, victim) == ["failed"]
    until(lambda: ledger.done(site, others) == len(others), "the others are done")
    ledger.balance(site, others)


def _of_task(pid: int, task_id: int) -> bool:
    try:
        return f"OPENCOGNIT_TASK_ID={task_id}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("oddity", ["", "no-token", "no-warden"])
def test_a_frozen_node_doubles_nothing_by_either_fence_alone(make_site: MakeSite, oddity: str) -> None:
    """SIGSTOP past the lease, then SIGCONT. Without the token, its warden has ended its runs before anybody else starts
    them; without the warden its runs go on beside their successors, and the token keeps their results out."""
    site = make_site(agents={"ceo": CEO, "ann": STEADY.format(steps=60)})
    frozen = site.started(oddity, "worker", module=ODD) if oddity else site.started()
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: traced(site, task_id), "the run has begun")
    frozen.freeze()
    site.started()
    until(lambda: len(set(traced(site, task_id).split())) == 2, "another node has taken it over")
    frozen.thaw()
    until(lambda: ledger.done(site, [task_id]), "it is done")
    until(lambda: "run.fenced" in frozen.log or "run.abandoned" in frozen.log, "the thawed node has given up")
    assert run_states(site, task_id) == ["lost", "succeeded"]
    ledger.check_effects(site, [task_id], memories=False)
    ledger.check_wakeups(site)
    if oddity == "no-warden":
        with pytest.raises(AssertionError, match="overlap"):
            ledger.check_traces(site, [task_id])
    else:
        ledger.check_traces(site, [task_id])
    assert frozen.end() == 0
    no_orphans(site)


def test_a_node_frozen_before_its_adapter_starts_does_not_start_it_afterwards(make_site: MakeSite) -> None:
    """Frozen between claim and start until another node has done the work: after SIGCONT it does not begin."""
    site = make_site(agents={"ceo": CEO, "ann": STEADY.format(steps=3)})
    frozen = site.started("frozen-start", "worker", module=ODD)
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: _state(frozen.pid) == "T", "it is frozen")
    site.started()
    until(lambda: ledger.done(site, [task_id]), "another node did it")
    frozen.thaw()
    until(lambda: "run.abandoned" in frozen.log, "the thawed node gives it up")
    ledger.balance(site, [task_id], memories=False)
    assert len(set(traced(site, task_id).split())) == 1


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_node_frozen_in_mid_booking_holds_nobody_up(make_site: MakeSite) -> None:
    """It has the rows of its run locked and never says another word: the server ends its session, another node does the
    work, and after SIGCONT its booking is void."""
    site = make_site()
    frozen = site.started("frozen-booking", "worker", module=ODD)
    ids = ledger.give(site, 8)
    until(lambda: _state(frozen.pid) == "T", "it is frozen")
    site.started()
    until(lambda: ledger.done(site, ids) == len(ids), "another node did all of it")
    frozen.thaw()
    assert frozen.end() == 0
    ledger.balance(site, ids)


def test_a_blocked_event_loop_costs_its_node_the_runs(make_site: MakeSite) -> None:
    """An adapter that blocks the loop longer than the lease: the node's runs end before another has them, its own late
    result counts for nothing, and everything is done once."""
    blocking = f'adapter = "blocking"\n[adapter_config]\nseconds = {3 * LEASE_S}\n'
    site = make_site(agents={"ceo": CEO, "bob": blocking, "ann": STEADY.format(steps=30)})
    blocked = site.started("blocking", "worker", module=ODD)
    (steady,) = ledger.give(site, 1, to=["ann"])
    until(lambda: traced(site, steady), "its other run has begun")
    (stuck,) = ledger.give(site, 1, to=["bob"])
    until(lambda: (site.workspace(stuck) / "blocked").exists(), "its loop is blocked")
    site.started("blocking", "worker", module=ODD)
    until(lambda: ledger.done(site, [steady, stuck]) == 2, "both are done")
    until(lambda: "run.abandoned" in blocked.log, "the blocked node has found out")
    assert run_states(site, steady) == run_states(site, stuck) == ["lost", "succeeded"]
    ledger.check_traces(site, [steady])
    ledger.check_effects(site, [steady, stuck], memories=False)
    ledger.check_wakeups(site)
    assert blocked.end() == 0


def test_a_lease_renewed_too_late_blames_nobody(make_site: MakeSite) -> None:
    """The answer to a renewal comes after the warden has ended the runs: they are lost, not failed, and are done again."""
    site = make_site(agents={"ceo": CEO, "ann": STEADY.format(steps=40)})
    site.started("late-renewal", "worker", module=ODD)
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.done(site, [task_id]) or ledger.blocked(site), "the task has ended")
    assert run_states(site, task_id) == ["lost", "succeeded"]
    ledger.balance(site, [task_id], memories=False)


@pytest.mark.parametrize("oddity", ["clock-ahead", "clock-behind"])
def test_a_clock_an_hour_off_takes_nothing_early(make_site: MakeSite, oddity: str) -> None:
    """A node whose clock is wrong runs past several leases beside a good one: no run is taken over by either."""
    site = make_site(agents={"ceo": CEO, "ann": STEADY.format(steps=35), "bob": STEADY.format(steps=35)})
    site.start(oddity, "worker", "--capacity", "1", module=ODD)
    site.start("worker", "--capacity", "1")
    until(lambda: all(node.claims for node in site.nodes), "both claim")
    ids = ledger.give(site, 2, to=["ann", "bob"])
    until(lambda: ledger.done(site, ids) == 2, "both are done")
    assert site.value("SELECT count(DISTINCT node_id) FROM runs") == 2
    assert ledger.balance(site, ids, memories=False).runs == 2
    stamps = [re.findall(r'"timestamp": "([^"]+)"', node.log)[0][:13] for node in site.nodes]
    assert stamps[0] != stamps[1]


# --- The database ---


def test_a_lost_answer_to_a_commit_books_nothing_twice(make_site: MakeSite) -> None:
    """A fifth of all commits take effect and then fail for the caller: each booking is repeated, and true once."""
    site = make_site()
    site.started("lost-answers", "worker", module=ODD)
    ids = ledger.give(site, 40)
    _until_done(site, ids)
    ledger.balance(site, ids)
    assert "transaction.retried" in site.nodes[0].log


def _until_done(site: Site, ids: list[int]) -> None:
    """Wait; the board starts again what was lost three times."""

    def all_done() -> bool:
        ledger.retry(site, [ident for ident, reason in ledger.blocked(site) if ledger.LOST_WITH_NODES in reason])
        return ledger.done(site, ids) == len(ids)

    until(all_done, "all is done", patience_s=2 * PATIENCE_S)


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    host = parse_qs(urlsplit(database_url).query)["host"][0]
    with Proxy(Path(host) / ".s.PGSQL.5432") as running:
        yield running


def through(proxy: Proxy, database_url: str) -> str:
    """The address of the same database by TCP."""
    parts = urlsplit(database_url)
    return f"postgresql://{parts.username}@127.0.0.1:{proxy.port}{parts.path}"


def test_a_connection_cut_between_commit_and_answer_books_once(make_site: MakeSite, proxy: Proxy, database_url: str) -> None:
    """The network loses the answers to the commits of bookings, by both ways of booking."""
    site = make_site(url=through(proxy, database_url))
    node = site.started()
    proxy.lose_answers(6, to=b"run.succeeded")
    ids = ledger.give(site, 24)
    _until_done(site, ids)
    assert proxy.answers_to_lose == 0
    assert ledger.balance(site, ids).lost == 0
    assert "transaction.retried" in node.log


@pytest.mark.parametrize("way", ["stall", "drop"])
def test_blackholed_connections_are_given_up(make_site: MakeSite, proxy: Proxy, database_url: str, way: str) -> None:
    """All connections go silent for good, new ones work: the node notices, comes back and does the rest, each once."""
    site = make_site(url=through(proxy, database_url))
    site.started()
    ids = ledger.give(site, 24)
    until(lambda: ledger.done(site, ids), "it is at work")
    assert (proxy.stall if way == "stall" else proxy.drop)()
    _until_done(site, ids)
    ledger.balance(site, ids)


def test_an_exhausted_pool_recovers(make_site: MakeSite) -> None:
    """Two connections for thirty runs at a time: all are done, and the leases are renewed among them."""
    site = make_site(
        agents={"ceo": CEO, **dict.fromkeys(ledger.HANDS, ledger.HAND.replace("runs = 4", "runs = 8"))},
        config=CONFIG.replace("[runs]", "[database]\npool_size = 2\n[runs]\ncapacity = 30"),
    )
    site.started()
    ids = ledger.give(site, 120)
    _until_done(site, ids)
    assert ledger.balance(site, ids).failed == 0


def test_terminated_sessions_cost_nothing(make_site: MakeSite) -> None:
    """pg_terminate_backend of the listener and of sessions in mid-claim: both come back, no wakeup is lost."""
    site = make_site()
    site.started()
    ids = ledger.give(site, 24)
    ends = {"LISTEN": 0, "takes wakeups and": 0}
    aim = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND query LIKE %s AND (state <> 'idle' OR query LIKE 'LISTEN%%')"
    )

    def struck() -> bool:
        for what in ends:
            if ends[what] < 3:
                ends[what] += len(site.rows(aim, f"%{what}%"))
        return min(ends.values()) >= 3

    deadline = time.monotonic() + PATIENCE_S
    while not struck():
        assert time.monotonic() < deadline, f"never met: {ends}"
        if ledger.done(site, ids) == len(ids):
            ids += ledger.give(site, 24)
    _until_done(site, ids)
    assert ledger.balance(site, ids).failed == 0


def test_the_server_may_die_in_every_way(tmp_path: Path) -> None:
    """Postmaster, a backend and the keeper killed, a restart, five seconds down, five seconds frozen: work goes on after
    each, and the account is even."""
    with embedded(tmp_path / "home", agents=AGENTS) as site:
        site.start()
        site.start("worker")
        until(lambda: all(node.claims for node in site.nodes), "both claim")
        ids: list[int] = []
        for hurt in (_kill_server, _kill_backend, _kill_keeper, _restart_server, _server_down, _server_frozen):
            more = ledger.give(site, 12)
            until(lambda: site.running() >= 2, "work is on")  # noqa: B023
            hurt(site)
            _until_done(site, more)
            ids += more
        assert ledger.balance(site, ids).failed == 0
        assert [node.end() for node in site.nodes] == [0, 0]


def _kill_server(site: Site) -> None:
    hit(site.server_pid(), signal.SIGKILL)


def _kill_backend(site: Site) -> None:
    ((pid,),) = site.rows(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1"
    )
    hit(pid, signal.SIGKILL)


def _kill_keeper(site: Site) -> None:
    hit(site.keeper_pid(), signal.SIGKILL)


def _restart_server(site: Site) -> None:
    """A fast shutdown; the keeper starts it again at once."""
    hit(site.server_pid(), signal.SIGINT)


def _server_down(site: Site, seconds: float = 5.0) -> None:
    keeper, server = site.keeper_pid(), site.server_pid()
    site.pause_processes([keeper])
    hit(server, signal.SIGKILL)
    time.sleep(seconds)
    site.resume_processes([keeper])


def _server_frozen(site: Site, seconds: float = 5.0) -> None:
    frozen = site.freeze_server()
    time.sleep(seconds)
    site.resume_processes(frozen)


@long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("outage", [_server_down, _server_frozen])
@pytest.mark.parametrize("seconds", [0.2, 5.0, 45.0])
def test_an_outage_of_any_length_loses_nothing(
    tmp_path: Path, outage: Callable[[Site, float], None], seconds: float
) -> None:
    """The same with the server away for up to 45 seconds under load."""
    with embedded(tmp_path / "home", agents=AGENTS) as site:
        for _ in range(2):
            site.started()
        ids = ledger.give(site, 60)
        until(lambda: site.running() >= 4, "work is on")
        outage(site, seconds)
        _until_done(site, ids)
        assert ledger.balance(site, ids).failed == 0


# --- People ---


def test_a_run_that_ignores_sigterm_is_cancelled(make_site: MakeSite) -> None:
    """`run cancel`: the whole process group is gone soon, the run is cancelled, and its task waits for the board."""
    site = make_site(agents={"ceo": CEO, "ann": STUBBORN})
    site.started()
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: traced(site, task_id), "the run has begun")
    assert command(site.home, "run", "cancel", "1").returncode == 0
    until(lambda: not site.children(), "the group is gone", patience_s=5)
    until(lambda: run_states(site, task_id) == ["cancelled"], "the run is cancelled")
    assert [ident for ident, _ in ledger.blocked(site)] == [task_id]
    assert ledger.settled(site)


def test_a_second_sigterm_stops_at_once(make_site: MakeSite) -> None:
    """The first waits for the runs, the second does not: exit 130, no process left, and another node does the work."""
    site = make_site(
        agents={"ceo": CEO, "ann": STUBBORN.replace("while true", '[ $(wc -l < "$OPENCOGNIT_WORKSPACE/trace") -gt 1 ] || while true')},
        config=CONFIG.replace("drain_s = 0.5", "drain_s = 600"),
    )
    node = site.started()
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: traced(site, task_id), "the run has begun")
    wardens = node.wardens()
    assert wardens
    node.send(signal.SIGTERM)
    until(lambda: "node.draining" in node.log, "it drains")
    assert node.alive
    assert node.end(signal.SIGTERM) == 130
    no_orphans(site)
    until(lambda: all(map(is_gone, wardens)), "its warden has gone")
    site.started()
    until(lambda: ledger.done(site, [task_id]), "another node did it")
    assert run_states(site, task_id) == ["lost", "succeeded"]


def test_pause_stops_every_node_and_resume_goes_on(make_site: MakeSite) -> None:
    """Three nodes under load: nothing starts a second after the pause, what runs finishes, and all is done after it."""
    site = make_site()
    for _ in range(3):
        site.start()
    until(lambda: all(node.claims for node in site.nodes), "all claim")
    ids = ledger.give(site, 120)
    until(lambda: ledger.done(site, ids), "work is on")
    assert command(site.home, "pause").returncode == 0
    until(lambda: not site.running(), "what runs finishes")
    waiting = site.value("SELECT count(*) FROM wakeups WHERE status = 'queued'")
    assert waiting
    ledger.give(site, 3)  # a notification, and a second for every node's heartbeat
    until(lambda: site.value("SELECT bool_and(seen_at > paused_at + interval '1.5 s') FROM nodes, company"), "time passes")
    late = "SELECT count(*) FROM runs, company WHERE started_at > paused_at + interval '1 s'"
    assert site.value(late) == 0
    assert site.value("SELECT count(*) FROM wakeups WHERE status = 'queued'") == waiting + 3
    assert command(site.home, "resume").returncode == 0
    until(lambda: ledger.done(site, ids) == len(ids), "all is done")
    ledger.balance(site, ids)


@long
@pytest.mark.timeout(300)
def test_a_killed_nodes_run_is_taken_over_soon_with_default_settings(make_site: MakeSite) -> None:
    """With leases of 30 seconds another node has the run within 40 of the kill."""
    site = make_site(agents={"ceo": CEO, "ann": STEADY.format(steps=30)}, config="")
    site.started()
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: traced(site, task_id), "the run has begun")
    other = site.started()
    assert other.alive
    site.nodes[0].end(signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: len(run_states(site, task_id)) == 2, "another has it", patience_s=40)
    print(f"taken over after {time.monotonic() - killed:.1f} s")
    until(lambda: ledger.done(site, [task_id]), "it is done")
    ledger.balance(site, [task_id], memories=False)
