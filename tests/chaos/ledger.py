"""Work whose effects can be counted, and the account of it: what came in, what was done, that nothing is left or doubled.

Owns the agents that such work is for and the questions to the database. Starts and hurts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from opencognit import adapters
from opencognit.agents import load_agents
from opencognit.db import Database
from opencognit.errors import Unreachable
from opencognit.work import intake, roster, steering
from tests.chaos.kit import CEO, PATIENCE_S, Site, no_orphans, until

STEPS = 4
HANDS = tuple(f"hand-{letter}" for letter in "abcd")
LOST_WITH_NODES = "runs were lost with their nodes"


def hand(*, step_s: float = 0.1, at_once: int = 6) -> str:
    """An agent's file. Each of its steps leaves the run's number in the task's workspace; every second task stores a
    memory, and so is booked alone rather than with others."""
    return f"""adapter = "bash"
max_concurrent_runs = {at_once}
[adapter_config]
command = '''
i=0
while [ $i -lt {STEPS} ]; do
  echo "$OPENCOGNIT_RUN_ID" >> "$OPENCOGNIT_WORKSPACE/trace"
  sleep {step_s}
  i=$((i+1))
done
[ $((OPENCOGNIT_TASK_ID % 2)) = 0 ] || echo "[REMEMBER:lab] number $OPENCOGNIT_TASK_ID has had its effect"
echo
echo "effect of task $OPENCOGNIT_TASK_ID"
'''
"""


def company(*, step_s: float = 0.1, at_once: int = 6) -> dict[str, str]:
    """The agents' files of a company of such hands."""
    return {"ceo": CEO, **dict.fromkeys(HANDS, hand(step_s=step_s, at_once=at_once))}


def steady(steps: int) -> str:
    """An agent that does one thing for so many tenths of a second."""
    return f"""adapter = "bash"
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
echo "$OPENCOGNIT_RUN_ID" >> "$OPENCOGNIT_WORKSPACE/trace"
[ $(wc -l < "$OPENCOGNIT_WORKSPACE/trace") -gt 1 ] || while true; do sleep 300; done
echo "effect of task $OPENCOGNIT_TASK_ID"
'''
"""
"""Hangs at its first attempt, leaves a process behind at each, and does not go when it is asked to."""


@dataclass(frozen=True, slots=True)
class Account:
    """What it took to do the work."""

    tasks: int
    runs: int
    lost: int
    failed: int
    retried_by_board: int
    wakeups: int

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks, {self.runs} runs ({self.lost} lost, {self.failed} failed), {self.wakeups} wakeups, "
            f"{self.retried_by_board} retried by the board"
        )


def give(site: Site, count: int, *, to: Sequence[str] = HANDS) -> list[int]:
    """Make ready tasks, in one transaction, whether or not a node has read the agents' files; return their ids."""

    async def make() -> list[int]:
        db = Database(site.dsn, pool_size=2)
        try:
            async with db.transaction() as session:
                specs = load_agents(site.home, known_adapters=(*adapters.names(), "blocking"))
                await roster.sync(session, specs, interval_s=30)
                hands = itertools.islice(itertools.cycle(to), count)
                return [(await intake.create(session, "work", assignee=hand, by="board")).id for hand in hands]
        finally:
            await db.close()

    return asyncio.run(make())


def retry_lost(site: Site) -> None:
    """Start again what was blocked because it was lost with its node three times, as the board would."""
    innocent = [task_id for task_id, reason in blocked(site) if LOST_WITH_NODES in reason]

    async def again() -> None:
        db = Database(site.dsn, pool_size=2)
        try:
            for task_id in innocent:
                async with db.transaction() as session:
                    await steering.retry(session, task_id, by="board")
        finally:
            await db.close()

    if innocent:
        with contextlib.suppress(Unreachable):  # while the server is away; the caller asks again
            asyncio.run(again())


def until_done(site: Site, ids: Sequence[int], *, patience_s: float = 2 * PATIENCE_S) -> None:
    """Wait until these tasks are done; nothing but lost nodes may need the board."""

    def all_done() -> bool:
        retry_lost(site)
        return done(site, ids) == len(ids)

    until(all_done, "all is done", patience_s=patience_s)


def blocked(site: Site) -> list[tuple[int, str]]:
    """Tasks that wait for the board, each with its reason."""
    return [(row[0], row[1]) for row in site.rows("SELECT id, reason FROM tasks WHERE status = 'blocked' AND kind = 'work'")]


def trace(site: Site, task_id: int) -> list[str]:
    """The runs that have worked on a task, one entry a step, in the order of their steps."""
    path = site.workspace(task_id) / "trace"
    return path.read_text().split() if path.exists() else []


def run_states(site: Site, task_id: int) -> list[str]:
    return [row[0] for row in site.rows("SELECT status FROM runs WHERE task_id = %s ORDER BY id", task_id)]


def done(site: Site, ids: Sequence[int]) -> int:
    count: int = site.value("SELECT count(*) FROM tasks WHERE status = 'done' AND id = ANY(%s)", list(ids))
    return count


def settled(site: Site) -> bool:
    """Whether nothing runs, waits or is locked."""
    query = """
        SELECT (SELECT count(*) FROM runs WHERE status = 'running')
             + (SELECT count(*) FROM wakeups WHERE status IN ('queued', 'claimed'))
             + (SELECT count(*) FROM tasks WHERE execution_run_id IS NOT NULL)"""
    return bool(site.value(query) == 0)


def balance(site: Site, ids: Sequence[int], *, memories: bool = True) -> Account:
    """Check that each task had its effect exactly once and that nothing is left over; return what it took."""
    until(lambda: settled(site), "nothing runs, waits or is locked")
    check_effects(site, ids, memories=memories)
    check_wakeups(site)
    check_traces(site, ids)
    no_orphans(site)
    runs, lost, failed = site.rows(
        "SELECT count(*), count(*) FILTER (WHERE status = 'lost'), count(*) FILTER (WHERE status = 'failed') FROM runs"
    )[0]
    retried = site.value(
        "SELECT count(*) FROM events WHERE type = 'task.status_changed' AND actor = 'board' AND data->>'from' = 'blocked'"
    )
    return Account(len(ids), runs, lost, failed, retried, site.value("SELECT count(*) FROM wakeups"))


EFFECTS = """
SELECT t.id, t.status, btrim(t.result, E'\\n'),
       (SELECT count(*) FROM runs r WHERE r.task_id = t.id AND r.status = 'succeeded'),
       (SELECT count(*) FROM comments c WHERE c.task_id = t.id AND c.author = t.assignee),
       (SELECT count(*) FROM events e WHERE e.type = 'task.status_changed' AND e.subject_id = t.id::text
           AND e.data->>'to' = 'done'),
       (SELECT count(*) FROM events e JOIN runs r ON r.id::text = e.subject_id
         WHERE e.type = 'run.succeeded' AND r.task_id = t.id),
       (SELECT coalesce(sum(m.evidence), 0)::int FROM memories m WHERE m.content = 'number ' || t.id || ' has had its effect')
  FROM tasks t WHERE t.id = ANY(%s) ORDER BY t.id
"""


def check_effects(site: Site, ids: Sequence[int], *, memories: bool = True) -> None:
    """Done, with one result, one comment, one event of each kind, and one memory where it stores one."""
    expected = [
        (task_id, "done", f"effect of task {task_id}", 1, 1, 1, 1, int(memories and task_id % 2 == 1)) for task_id in sorted(ids)
    ]
    wrong = [(found, wanted) for found, wanted in zip(site.rows(EFFECTS, list(ids)), expected, strict=True) if found != wanted]
    assert not wrong, f"found and wanted: {wrong[:5]}"


def check_wakeups(site: Site) -> None:
    """Every wakeup has ended, none by age; each run answered one, and each that was answered had a run."""
    query = """
        SELECT (SELECT count(*) FROM wakeups WHERE ended_at IS NULL OR status NOT IN ('done', 'skipped')),
               (SELECT count(*) FROM wakeups w
                 WHERE status = 'done' AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = w.run_id)),
               (SELECT count(*) FROM runs r
                 WHERE (SELECT count(*) FROM wakeups w WHERE w.run_id = r.id AND w.status = 'done') <> 1)"""
    assert site.rows(query) == [(0, 0, 0)]


def check_traces(site: Site, ids: Sequence[int]) -> None:
    """No two runs of a task were ever at work at the same time: none says something after its successor has begun."""
    for task_id in ids:
        order = [run for run, _ in itertools.groupby(trace(site, task_id))]
        assert order, f"task {task_id} has left no trace"
        assert len(order) == len(set(order)), f"task {task_id}: runs {order} overlap"
        assert order == sorted(order, key=int), f"task {task_id}: runs {order} are not in order"
