"""The real daemon and what people do to it: killed, interrupted, started twice, paused, told to stop a run."""

from __future__ import annotations

import signal
import time

import pytest

from tests.chaos import ledger
from tests.chaos.conftest import MakeSite, long
from tests.chaos.kit import CEO, CONFIG, command, is_gone, no_orphans, until

REMEMBERING = ledger.STUBBORN.replace("sleep 300 &", 'sleep 300 &\necho "[REMEMBER:lab] attempt saw the lab"; echo')


def test_a_killed_daemons_run_is_done_again_once(make_site: MakeSite) -> None:
    """kill -9 in mid-run: the child dies with it; `up` again runs the task once more when the lease is over, and once."""
    site = make_site(agents={"ceo": CEO, "ann": REMEMBERING})
    first = site.started("up")
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.trace(site, task_id) and site.children(), "the run has begun")
    first.end(signal.SIGKILL)
    until(lambda: not site.children(), "what it ran died with it")
    second = site.started("up")
    until(lambda: ledger.done(site, [task_id]), "done by the second daemon")
    assert second.end() == 0
    assert ledger.trace(site, task_id) == ["1", "2"]
    assert ledger.run_states(site, task_id) == ["lost", "succeeded"]
    assert site.value("SELECT sum(evidence)::int FROM memories") == 1
    ledger.balance(site, [task_id], memories=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_daemon_gives_its_work_back(make_site: MakeSite, number: int) -> None:
    """It exits with 0 after its drain; no process and no lock is left, and the task is ready."""
    site = make_site(agents={"ceo": CEO, "ann": ledger.STUBBORN})
    daemon = site.started("up")
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.trace(site, task_id), "the run has begun")
    assert daemon.end(number) == 0
    assert not site.children()
    assert site.rows("SELECT status, execution_run_id, attempt FROM tasks") == [("todo", None, 0)]
    assert site.rows("SELECT status FROM wakeups ORDER BY id") == [("done",), ("queued",)]


def test_a_second_up_is_refused_and_a_worker_is_not(make_site: MakeSite) -> None:
    """The second names the first and the way out; a worker shares the work; after the first's end another may start."""
    site = make_site()
    first = site.started("up")
    refused = command(site.home, "up")
    assert refused.returncode == 4
    assert str(first.pid) in refused.stderr
    assert "worker" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    worker = site.started()
    assert site.value("SELECT count(*) FROM nodes WHERE ended_at IS NULL") == 2
    assert worker.end() == 0
    assert first.end() == 0
    assert site.started("up").end() == 0
    assert site.value("SELECT count(*) FROM nodes WHERE ended_at IS NULL") == 0


def test_a_run_that_ignores_sigterm_is_cancelled(make_site: MakeSite) -> None:
    """`run cancel`: the whole process group is gone soon, the run is cancelled, and its task waits for the board."""
    site = make_site(agents={"ceo": CEO, "ann": ledger.STUBBORN})
    site.started()
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.trace(site, task_id), "the run has begun")
    assert command(site.home, "run", "cancel", "1").returncode == 0
    until(lambda: not site.children(), "the group is gone", patience_s=5)
    until(lambda: ledger.run_states(site, task_id) == ["cancelled"], "the run is cancelled")
    assert [ident for ident, _ in ledger.blocked(site)] == [task_id]
    assert ledger.settled(site)


def test_a_second_sigterm_stops_at_once(make_site: MakeSite) -> None:
    """The first waits for the runs, the second does not: exit 130, no process left, and another node does the work."""
    site = make_site(agents={"ceo": CEO, "ann": ledger.STUBBORN}, config=CONFIG.replace("drain_s = 0.5", "drain_s = 600"))
    node = site.started()
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.trace(site, task_id), "the run has begun")
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
    assert ledger.run_states(site, task_id) == ["lost", "succeeded"]


def test_pause_stops_every_node_and_resume_goes_on(make_site: MakeSite) -> None:
    """Three nodes under load: nothing starts a second after the pause, what runs finishes, and all is done after it."""
    site = make_site()
    for _ in range(3):
        site.start()
    until(lambda: all(node.claims for node in site.nodes), "all claim")
    ids = ledger.give(site, 72)
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
    site = make_site(agents={"ceo": CEO, "ann": ledger.steady(30)}, config="")
    site.started()
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.trace(site, task_id), "the run has begun")
    other = site.started()
    assert other.alive
    site.nodes[0].end(signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: len(ledger.run_states(site, task_id)) == 2, "another has it", patience_s=40)
    print(f"taken over after {time.monotonic() - killed:.1f} s")
    until(lambda: ledger.done(site, [task_id]), "it is done")
    ledger.balance(site, [task_id], memories=False)
