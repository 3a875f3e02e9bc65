"""Every fence proves its worth: with it taken away, a check that passes must fail.

The checks are short properties (fence_checks.py) or the bodies of real tests. Where several fences stand before one fault,
each of them alone must hold it, and with all of them gone the fault must appear: else the check could not see it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opencognit.db import Database
from opencognit.work import claims, closing, flow, locks, runs, tasks
from tests.chaos.fence_checks import CHECKS, Check
from tests.chaos.fences import ANY_STEP, UNJOINED, Off, dropped, loosened, unlocked, without
from tests.integration import company, test_booking, test_closing


@pytest.fixture
async def team(db: Database) -> Database:
    await company.hire(db, company.spec("ceo"), company.spec("ann"), company.spec("bob"))
    return db


@pytest.mark.parametrize("check", CHECKS)
async def test_the_engine_passes(team: Database, check: str) -> None:
    """The checks hold as long as all fences stand."""
    await CHECKS[check](team)


# --- mutants: one fence gone, and a test fails ---------------------------------------------------------------------------

RENEWALS = test_booking.test_only_the_owner_renews_and_never_a_lease_that_is_over
MUTANTS: Mapping[str, tuple[Check, Off]] = {
    "token of a booking": (CHECKS["wrong token, booking"], loosened("token")),
    "token of a closing": (
        test_closing.test_what_is_lost_or_resumed_is_left_out_and_the_rest_is_closed,
        without(closing, "CLOSE", "r.token = given.token"),
    ),
    "token of a log": (CHECKS["wrong token, log"], without(runs, "APPEND", "AND token = :token", "")),
    "token of a renewal": (RENEWALS, without(locks, "RENEW", "r.token = held.token")),
    "owner of a renewal": (RENEWALS, without(locks, "RENEW", "r.node_id = :node_id", "(:node_id)::text IS NOT NULL")),
    "expiry of a renewal": (RENEWALS, without(locks, "RENEW", "r.lease_expires_at > now()")),
    "expiry of a take-over": (CHECKS["renewed run"], without(locks, "TAKE_OVER", "lease_expires_at <= now()")),
    "index of agents' slots": (CHECKS["racing claims, agent"], dropped("uq_runs_agent_slot")),
    "index of adapters' slots": (CHECKS["racing claims, adapter"], dropped("uq_runs_adapter_slot")),
    "index of tasks' runs": (CHECKS["one task"], dropped("uq_runs_task")),
    "lock of who waits, booked": (CHECKS["third, booked"], unlocked(flow)),
    "lock of who waits, closed": (CHECKS["third, closed"], unlocked(flow)),
    "lock of what comes before": (CHECKS["next, booked"], unlocked(tasks)),
    "lock of what comes before, made late": (CHECKS["next, made late"], unlocked(tasks)),
    "lock of what is closed": (
        CHECKS["next, closed"],
        without(closing, "LOCKS", "ORDER BY t.id FOR NO KEY UPDATE", "ORDER BY t.id"),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_without_its_fence_the_check_fails(team: Database, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fence is needed: what passes with it fails without it."""
    check, off = MUTANTS[mutant]
    await off.take_away(monkeypatch, team)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await check(team)


# --- faults behind several fences: each alone holds ----------------------------------------------------------------------

STATUS_OF_CLOSE, HELD = (
    "r.status = 'running'",
    "EXISTS (SELECT 1 FROM tasks t WHERE t.id = r.task_id AND t.execution_run_id = r.id)",
)
RUNNING_NOW = "(SELECT count(*) FROM runs r WHERE r.agent = w.agent AND r.status = 'running') < a.max_concurrent_runs"
PLACE_TAKEN = "NOT EXISTS (SELECT 1 FROM runs r WHERE r.agent = d.agent AND r.slot = s AND r.status = 'running')"
LAPSED = "(r.lease_expires_at <= now() OR (t.execution_run_id = r.id AND t.lock_expires_at <= now()))"
FAULTS: Mapping[str, tuple[str, Mapping[str, Off]]] = {
    "a lost run is booked": (
        "lost run books",
        {"token": loosened("token"), "status": loosened("status"), "steps": ANY_STEP},
    ),
    "a lost run is closed": (
        "lost run closes",
        {
            "token": without(closing, "CLOSE", "r.token = given.token"),
            "status": without(closing, "CLOSE", STATUS_OF_CLOSE),
            "task": without(closing, "CLOSE", HELD),
        },
    ),
    "a lost run logs": (
        "lost run logs",
        {
            "token": without(runs, "APPEND", "AND token = :token", ""),
            "status": without(runs, "APPEND", "AND status = 'running'", ""),
        },
    ),
    "a lost run is renewed": (
        "lost run renews",
        {
            "token": without(locks, "RENEW", "r.token = held.token"),
            "status": without(locks, "RENEW", "r.status = 'running'"),
            "expiry": without(locks, "RENEW", "r.lease_expires_at > now()"),
        },
    ),
    "a living run is taken over": (
        "living run",
        {
            "found": without(locks, "LAPSED", LAPSED),
            "taken": without(locks, "TAKE_OVER", "lease_expires_at <= now()"),
        },
    ),
    "an agent has too many runs": (
        "claims one by one",
        {
            "count": without(claims, "CLAIM", RUNNING_NOW),
            "places": without(claims, "CLAIM", PLACE_TAKEN),
            "rest": without(claims, "CLAIM", "d.nth <= d.max_concurrent_runs - d.running"),
            "index": dropped("uq_runs_agent_slot"),
        },
    ),
    "a goal's end is missed by bookings": (
        "last two, booked",
        {"lock of the verb": unlocked(tasks), "lock of the settlement": unlocked(flow)},
    ),
    "a goal's end is missed by closings": (
        "last two, closed",
        {
            "lock of the closing": without(closing, "LOCKS", "ORDER BY g.id FOR NO KEY UPDATE", "ORDER BY g.id"),
            "lock of the settlement": unlocked(flow),
        },
    ),
}
ALONE = [(fault, fence) for fault, (_, fences) in FAULTS.items() for fence in fences]


@pytest.mark.parametrize(("fault", "alone"), ALONE)
async def test_each_fence_holds_with_the_others_off(
    team: Database, fault: str, alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fence leans on another."""
    check, fences = FAULTS[fault]
    for name, off in fences.items():
        if name != alone:
            await off.take_away(monkeypatch, team)
    await CHECKS[check](team)


@pytest.mark.parametrize("fault", FAULTS)
async def test_with_all_fences_off_the_fault_appears(team: Database, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks above can see what they look for."""
    check, fences = FAULTS[fault]
    for off in fences.values():
        await off.take_away(monkeypatch, team)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await CHECKS[check](team)


async def test_the_index_alone_keeps_a_subject_queued_once(team: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wish that does not join is refused by the database; without the index too there are two."""
    await UNJOINED.take_away(monkeypatch, team)
    await CHECKS["one subject"](team)
    await dropped("uq_wakeups_queued").take_away(monkeypatch, team)
    with pytest.raises(AssertionError):
        await CHECKS["one subject"](team)
