"""The database goes away from under real nodes, in every way: nothing is lost, nothing is booked twice, work goes on.

The long forms run with OPENCOGNIT_LONG=1.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import ledger
from tests.chaos.conftest import MakeSite, long, through
from tests.chaos.kit import CONFIG, PATIENCE_S, Site, embedded, hit, until
from tests.chaos.proxy import Proxy

LEASE_S = 2.0
ODD = "tests.chaos.odd_node"


def test_a_lost_answer_to_a_commit_books_nothing_twice(make_site: MakeSite) -> None:
    """A fifth of all commits take effect and then fail for the caller: each booking is repeated, and true once."""
    site = make_site()
    site.started("lost-answers", "worker", module=ODD)
    ids = ledger.give(site, 24)
    ledger.until_done(site, ids)
    ledger.balance(site, ids)
    assert "transaction.retried" in site.nodes[0].log


def test_a_connection_cut_between_commit_and_answer_books_once(make_site: MakeSite, proxy: Proxy, database_url: str) -> None:
    """The network loses the answers to the commits of bookings, by both ways of booking."""
    site = make_site(url=through(proxy, database_url))
    node = site.started()
    proxy.lose_answers(6, to=b"run.succeeded")
    ids = ledger.give(site, 24)
    ledger.until_done(site, ids)
    assert proxy.answers_to_lose == 0
    assert ledger.balance(site, ids).lost == 0
    assert "transaction.retried" in node.log


@long
def test_a_stalled_network_loses_nothing(make_site: MakeSite, proxy: Proxy, database_url: str) -> None:
    """All connections stand still for longer than the lease, then go on as if nothing had been: each effect is once."""
    site = make_site(url=through(proxy, database_url))
    site.started()
    ids = ledger.give(site, 24)
    until(lambda: ledger.done(site, ids), "it is at work")
    assert proxy.stall()
    time.sleep(1.5 * LEASE_S)
    proxy.go_on()
    ledger.until_done(site, ids)
    assert ledger.balance(site, ids).failed == 0


@long
@pytest.mark.parametrize("way", ["stall", "drop"])
def test_blackholed_connections_are_given_up(make_site: MakeSite, proxy: Proxy, database_url: str, way: str) -> None:
    """All connections go silent for good, new ones work: the node notices, comes back and does the rest, each once."""
    site = make_site(url=through(proxy, database_url))
    site.started()
    ids = ledger.give(site, 24)
    until(lambda: ledger.done(site, ids), "it is at work")
    assert (proxy.stall if way == "stall" else proxy.drop)()
    ledger.until_done(site, ids)
    ledger.balance(site, ids)


def test_an_exhausted_pool_recovers(make_site: MakeSite) -> None:
    """Two connections for thirty runs at a time: all are done, and the leases are renewed among them."""
    site = make_site(
        agents=ledger.company(at_once=8),
        config="pool_size = 2\n" + CONFIG.replace("[runs]", "[runs]\ncapacity = 30"),  # the first table is the database's
    )
    site.started()
    ids = ledger.give(site, 120)
    ledger.until_done(site, ids)
    assert ledger.balance(site, ids).failed == 0


def test_terminated_sessions_cost_nothing(make_site: MakeSite) -> None:
    """pg_terminate_backend of the listener and of sessions in mid-claim: both come back, no wakeup is lost."""
    site = make_site()
    site.started()
    ids = ledger.give(site, 24)
    ends = {"LISTEN": 0, "takes wakeups": 0}
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
    ledger.until_done(site, ids)
    assert ledger.balance(site, ids).failed == 0


def test_the_server_may_die_in_every_way(tmp_path: Path) -> None:
    """Postmaster, a backend and the keeper killed, a restart, down and frozen for longer than a lease: work goes on after
    each, and the account is even."""
    with embedded(tmp_path / "home", agents=ledger.company()) as site:
        site.start()
        site.start("worker")
        until(lambda: all(node.claims for node in site.nodes), "both claim")
        ids: list[int] = []
        for hurt in (_kill_server, _kill_backend, _kill_keeper, _restart_server, _server_down, _server_frozen):
            more = ledger.give(site, 12)
            until(lambda: site.running() >= 2, "work is on")
            hurt(site)
            ledger.until_done(site, more)
            ids += more
        assert ledger.balance(site, ids).failed == 0
        assert [node.end() for node in site.nodes] == [0, 0]


def _kill_server(site: Site) -> None:
    assert hit(site.server_pid(), signal.SIGKILL)


def _kill_backend(site: Site) -> None:
    ((pid,),) = site.rows(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1"
    )
    hit(pid, signal.SIGKILL)


def _kill_keeper(site: Site) -> None:
    assert hit(site.keeper_pid(), signal.SIGKILL)


def _restart_server(site: Site) -> None:
    """A fast shutdown; the keeper starts it again at once."""
    assert hit(site.server_pid(), signal.SIGINT)


def _server_down(site: Site, seconds: float = 3.0) -> None:
    keeper, server = site.keeper_pid(), site.server_pid()
    site.pause_processes([keeper])
    assert hit(server, signal.SIGKILL)
    time.sleep(seconds)
    site.resume_processes([keeper])


def _server_frozen(site: Site, seconds: float = 3.0) -> None:
    frozen = site.freeze_server()
    time.sleep(seconds)
    site.resume_processes(frozen)


@long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("outage", [_server_down, _server_frozen])
@pytest.mark.parametrize("seconds", [0.2, 5.0, 45.0])
def test_an_outage_of_any_length_loses_nothing(tmp_path: Path, outage: Callable[[Site, float], None], seconds: float) -> None:
    """The same with the server away for up to 45 seconds under load."""
    with embedded(tmp_path / "home", agents=ledger.company()) as site:
        for _ in range(2):
            site.started()
        ids = ledger.give(site, 60)
        until(lambda: site.running() >= 4, "work is on")
        outage(site, seconds)
        ledger.until_done(site, ids)
        assert ledger.balance(site, ids).failed == 0
