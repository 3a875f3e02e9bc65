"""Real nodes, killed, frozen, blocked: each task has its effect exactly once, and nothing is left running or locked.

`python -m benchmarks.chaos` repeats the killer and prints figures. What the database may do is in test_outages.py.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.chaos import ledger
from tests.chaos.conftest import MakeSite, long
from tests.chaos.killer import run_round
from tests.chaos.kit import CEO, embedded, hit, no_orphans, until

LEASE_S = 2.0
ODD = "tests.chaos.odd_node"


def test_a_random_killer_neither_loses_nor_doubles_anything(tmp_path: Path) -> None:
    """Three nodes, 200 tasks; nodes are killed, frozen, drained, their sessions ended, and the server with its keeper and
    its backends killed, until all is done: each effect once, every wakeup ended, nothing running, locked or orphaned."""
    with embedded(tmp_path / "home", agents=ledger.company(step_s=0.05)) as site:
        print(run_round(site, tasks=200, nodes=3, lease_s=LEASE_S, seed=int.from_bytes(os.urandom(3))))


def test_a_killed_child_fails_its_run_and_no_other(make_site: MakeSite) -> None:
    """kill -9 of what the adapter runs: its grandchildren go too, its task says what happened, all others are done."""
    site = make_site(agents={**ledger.company(), "ann": ledger.steady(1000)})
    site.started()
    (victim,) = ledger.give(site, 1, to=["ann"])
    others = ledger.give(site, 8)
    until(lambda: ledger.trace(site, victim), "the run has begun")
    leaders = [pid for pid in site.children() if os.getpgid(pid) == pid and _of_task(pid, victim)]
    assert len(leaders) == 1
    hit(leaders[0], signal.SIGKILL)
    ((_, reason),) = until(lambda: ledger.blocked(site), "the task is blocked")
    assert "SIGKILL" in reason
    assert ledger.run_states(site, victim) == ["failed"]
    ledger.until_done(site, others)
    ledger.balance(site, others)


def _of_task(pid: int, task_id: int) -> bool:
    try:
        return f"OPENCOGNIT_TASK_ID={task_id}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("oddity", [pytest.param("", marks=long), "no-token", "no-warden"])
def test_a_frozen_node_doubles_nothing_by_either_fence_alone(make_site: MakeSite, oddity: str) -> None:
    """SIGSTOP past the lease, then SIGCONT. Without the token, the warden has ended the node's runs before anybody else
    starts them; without the warden they go on beside their successors, and the token keeps their results out."""
    site = make_site(agents={"ceo": CEO, "ann": ledger.steady(35)})
    for _ in range(2):
        site.start(oddity, "worker", module=ODD) if oddity else site.start()
    until(lambda: all(node.claims for node in site.nodes), "both claim")
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.trace(site, task_id), "the run has begun")
    (frozen,) = [node for node in site.nodes if f"-{node.pid}-" in site.value("SELECT node_id FROM runs")]
    frozen.freeze()
    until(lambda: len(set(ledger.trace(site, task_id))) == 2, "another node has taken it over")
    frozen.thaw()
    until(lambda: ledger.done(site, [task_id]), "it is done")
    until(lambda: "run.fenced" in frozen.log or "run.abandoned" in frozen.log, "the thawed node has given up")
    assert ("run.fenced" in frozen.log) == (oddity == "no-warden")
    assert ledger.run_states(site, task_id) == ["lost", "succeeded"]
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
    site = make_site(agents={"ceo": CEO, "ann": ledger.steady(3)})
    frozen = site.started("frozen-start", "worker", module=ODD)
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: _state(frozen.pid) == "T", "it is frozen")
    site.started()
    until(lambda: ledger.done(site, [task_id]), "another node did it")
    frozen.thaw()
    until(lambda: "run.abandoned" in frozen.log, "the thawed node gives it up")
    ledger.balance(site, [task_id], memories=False)
    assert len(set(ledger.trace(site, task_id))) == 1


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
    blocking = f'adapter = "blocking"\n[adapter_config]\nseconds = {2 * LEASE_S}\n'
    site = make_site(agents={"ceo": CEO, "bob": blocking, "ann": ledger.steady(25)})
    blocked = site.started("blocking", "worker", module=ODD)
    (steady,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.trace(site, steady), "its other run has begun")
    (stuck,) = ledger.give(site, 1, to=["bob"])
    until(lambda: (site.workspace(stuck) / "blocked").exists(), "its loop is blocked")
    site.started("blocking", "worker", module=ODD)
    until(lambda: ledger.done(site, [steady, stuck]) == 2, "both are done")
    until(lambda: "run.abandoned" in blocked.log, "the blocked node has found out")
    assert ledger.run_states(site, steady) == ledger.run_states(site, stuck) == ["lost", "succeeded"]
    ledger.check_traces(site, [steady])
    ledger.check_effects(site, [steady, stuck], memories=False)
    ledger.check_wakeups(site)
    assert blocked.end() == 0


def test_a_lease_renewed_too_late_blames_nobody(make_site: MakeSite) -> None:
    """The answer to a renewal comes after the warden has ended the runs: they are lost, not failed, and are done again."""
    site = make_site(agents={"ceo": CEO, "ann": ledger.steady(25)})
    site.started("late-renewal", "worker", module=ODD)
    (task_id,) = ledger.give(site, 1, to=["ann"])
    until(lambda: ledger.done(site, [task_id]) or ledger.blocked(site), "the task has ended")
    assert ledger.run_states(site, task_id) == ["lost", "succeeded"]
    ledger.balance(site, [task_id], memories=False)


def test_a_clock_an_hour_off_takes_nothing_early(make_site: MakeSite) -> None:
    """Two nodes, one an hour ahead and one behind, run past several leases: neither takes over what the other has."""
    site = make_site(agents={"ceo": CEO, "ann": ledger.steady(35), "bob": ledger.steady(35)})
    for oddity in ("clock-ahead", "clock-behind"):
        site.start(oddity, "worker", "--capacity", "1", module=ODD)
    until(lambda: all(node.claims for node in site.nodes), "both claim")
    ids = ledger.give(site, 2, to=["ann", "bob"])
    until(lambda: ledger.done(site, ids) == 2, "both are done")
    assert site.value("SELECT count(DISTINCT node_id) FROM runs") == 2
    assert ledger.balance(site, ids, memories=False).runs == 2
    ahead, behind = (float(node.log.split("its clock says ")[1].split()[0]) for node in site.nodes)
    assert ahead - behind > 7000
