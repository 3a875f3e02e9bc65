"""Books what came of a run: one transaction, fenced by its token, all or nothing.

Run finished, cost, memories, actions, comment, task state, wakeups that follow and the lock's release become true
together. A second call for the same claim changes nothing: a commit whose answer got lost may be repeated.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain, events
from opencognit.config import Retry
from opencognit.contracts import Answer, MemoryDraft, Relate, Remember, Usage, Viewer
from opencognit.engine import retrying
from opencognit.errors import OpenCognitError
from opencognit.events import BOARD, SYSTEM, Happened
from opencognit.models import Run, Task
from opencognit.states import TASK_ENDED, TASK_STEPS, CancelMode, Priority, RunState, TaskState, Trust, WakeupSource
from opencognit.work import escalation, flow, locks, planning, roster, runs, tasks, wakeups
from opencognit.work.claims import Claimed
from opencognit.work.planning import Answering

LOST_LIMIT = 3
"""So many lost runs block a task: something about it kills its node."""
REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, before it is booked. `cancel` says what becomes of the task of a cancelled run.

    `copied`: contents of memories that say in longer pieces what the run was told; these are only asserted.
    """

    status: RunState
    viewer: Viewer
    trust: Trust = Trust.OBSERVED
    copied: frozenset[str] = frozenset()
    answer: Answer = field(default_factory=lambda: Answer(text=""))
    usage: tuple[Usage, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    exit_code: int | None = None
    soul_hash: str | None = None
    cancel: CancelMode | None = None
    cancelled_by: str = SYSTEM


async def book(session: AsyncSession, claimed: Claimed, outcome: Outcome, *, retry: Retry) -> None:
    """Make the run's end true. Raises StaleToken when another has taken the run over: then nothing is written."""
    if await locks.was_booked(session, claimed.run_id, claimed.token):
        return
    task = await tasks.locked(session, claimed.task_id) if claimed.task_id is not None else None
    run = await locks.fence(session, claimed.run_id, claimed.token)
    outcome = _as_wished(run, outcome)
    answering = Answering(run.id, await roster.get(session, run.agent), task, run.depth, run.resumes_status is not None)
    if outcome.status is RunState.SUCCEEDED:
        await _remember(session, task, answering, outcome)
        await planning.apply(session, answering, outcome.answer.actions)
        _refuse_impossible(task, answering)
    await runs.book(session, run, task, outcome.usage)
    notes = (*outcome.notes, *outcome.answer.problems, *answering.problems)
    said = outcome.answer.text
    ending = runs.Ending(outcome.status, said, outcome.error, outcome.exit_code, outcome.soul_hash, notes)
    await runs.end(session, run, ending)
    await wakeups.close(session, run.id, outcome.status.value)
    if task is not None:
        await _comment(session, run, task, outcome)
        await _conclude(session, run, task, outcome, answering, retry)
    else:
        await _alone(session, run, outcome, retry)


async def _alone(session: AsyncSession, run: Run, outcome: Outcome, retry: Retry) -> None:
    """Follow up the end of a run without a task: what is tried again, and what the board hears of."""
    if outcome.status is RunState.SUCCEEDED:
        return
    if outcome.status is not RunState.CANCELLED:
        await retrying.failed(session, run, _error(outcome), retry, retryable=outcome.retryable, wish_s=outcome.retry_after_s)
    elif outcome.cancel is CancelMode.DRAIN:
        await retrying.again(session, run, "its node stopped")
    elif outcome.cancel is CancelMode.RELEASE:
        await retrying.again(session, run, f"released by {outcome.cancelled_by}")


def _error(outcome: Outcome) -> str:
    return (outcome.error or "no reason given")[-REASON_CHARS:]


def _as_wished(run: Run, outcome: Outcome) -> Outcome:
    """What somebody wanted of the run before it ended holds, however it ended; only a finished result comes first."""
    if run.cancel_mode is None or outcome.status is RunState.SUCCEEDED:
        return outcome
    by = run.cancel_requested_by or SYSTEM
    return replace(outcome, status=RunState.CANCELLED, cancel=CancelMode(run.cancel_mode), cancelled_by=by)


def _refuse_impossible(task: Task | None, answering: Answering) -> None:
    """A run on an ended task may want a step that the task cannot take: that is noted, and the rest of its answer counts."""
    if task is None or not answering.resumed:
        return
    steps = TASK_STEPS[TaskState(task.status)]
    if answering.blocked is not None and TaskState.BLOCKED not in steps and task.status != TaskState.BLOCKED:
        answering.problems.append(f"block_task: the task is {task.status} already; said instead: {answering.blocked}")
        answering.blocked = None
    if answering.completed is not None and TaskState.DONE not in steps and task.status != TaskState.DONE:
        answering.problems.append(f"complete_task: the task is {task.status}: `task retry {task.id}` takes it up again")
        answering.completed = None


async def _remember(session: AsyncSession, task: Task | None, answering: Answering, outcome: Outcome) -> None:
    """Store what the agent wants remembered; one that cannot be stored is a problem of its own."""
    for number, remember in enumerate(outcome.answer.remembered, 1):
        where = f"memory {number} [REMEMBER:{remember.room}]"
        trust = Trust.ASSERTED if remember.content in outcome.copied else outcome.trust
        try:
            draft = _draft(remember, task, answering)
            # A write that draws edges may find only then that one of them closes a circle: all of it is undone.
            async with session.begin_nested() if draft.derives_from or draft.supersedes else nullcontext():
                stored = await brain.write(session, draft, viewer=outcome.viewer, trust=trust)
        except OpenCognitError as error:
            answering.problems.append(f"{where}: {error}")
            continue
        if trust is not outcome.trust:
            answering.problems.append(f"{where}: in part copied from what this run was told, so it is only {trust}")
        if stored.note:
            answering.problems.append(f"{where}: {stored.note}")
    for action in outcome.answer.actions:
        if isinstance(action, Relate):
            try:
                source, target = tasks.parse_id("memory", action.source_id), tasks.parse_id("memory", action.target_id)
                note = await brain.relate(session, source, action.relation, target, viewer=outcome.viewer, trust=outcome.trust)
                if note:
                    answering.problems.append(f"relate: {note}")
            except OpenCognitError as error:
                answering.problems.append(f"relate: {error}")


def _draft(remember: Remember, task: Task | None, answering: Answering) -> MemoryDraft:
    role = answering.agent.spec.get("role") or answering.agent.name
    return MemoryDraft(
        content=remember.content,
        type=remember.type,
        room=remember.room,
        scope=remember.scope,
        confidence=remember.confidence,
        context=f"{answering.agent.name} ({role})" + (f", task: {task.title}" if task is not None else ""),
        entities=remember.entities,
        derives_from=tuple(tasks.parse_id("memory", ident) for ident in remember.derives_from),
        supersedes=tuple(tasks.parse_id("memory", ident) for ident in remember.supersedes),
    )


async def _comment(session: AsyncSession, run: Run, task: Task, outcome: Outcome) -> None:
    """Say on the task what came of the run; an agent's own words never wake it."""
    if outcome.status is RunState.SUCCEEDED:
        if outcome.answer.text.strip():
            await tasks.add_comment(session, task, run.agent, outcome.answer.text, run_id=run.id)
    elif outcome.cancel is not CancelMode.DRAIN:
        said = f"Run {run.id} {outcome.status.value.replace('_', ' ')}: {outcome.error or 'no reason given'}"
        await tasks.add_comment(session, task, SYSTEM, said, run_id=run.id)


async def _conclude(session: AsyncSession, run: Run, task: Task, outcome: Outcome, answering: Answering, retry: Retry) -> None:
    """Release the lock and move the task on, in one flush."""
    locks.clear(task)
    if outcome.status is RunState.SUCCEEDED:
        await _succeeded(session, run, task, outcome, answering)
        if run.cancel_mode == CancelMode.TASK and task.status not in TASK_ENDED:
            by = run.cancel_requested_by or SYSTEM
            await flow.move(session, task, TaskState.CANCELLED, reason=f"cancelled by {by}", actor=by)
        if answering.made and task.goal_id is not None:
            await flow.settle_goal(session, task.goal_id)
    elif outcome.status is RunState.CANCELLED:
        await _cancelled(session, run, task, outcome)
    else:
        await _failed(session, run, task, outcome, retry)


async def _succeeded(session: AsyncSession, run: Run, task: Task, outcome: Outcome, answering: Answering) -> None:
    actor = run.agent
    resumed = run.resumes_status is not None
    task.failures = task.lost = 0
    if not resumed or answering.blocked is not None or answering.completed is not None:
        task.stale_runs = 0
    if answering.blocked is not None:
        await _block(session, run, task, answering.blocked)
    elif answering.completed is not None or not (resumed or answering.asked or answering.children):
        task.result = answering.completed or outcome.answer.text
        await flow.move(session, task, TaskState.DONE, actor=actor, cause_run_id=run.id)
        await escalation.follow_up(session, task)
    elif resumed:
        await _changed_nothing(session, task)
    elif answering.asked:
        await flow.move(session, task, TaskState.BLOCKED, reason="waits for the board's answer", actor=actor, cause_run_id=run.id)
    else:
        task.rounds += 1
        await tasks.change(session, task, TaskState.BACKLOG, actor=actor)
        await flow.settle_in(session, task, WakeupSource.CHILDREN, by=actor, cause_run_id=run.id)


async def _cancelled(session: AsyncSession, run: Run, task: Task, outcome: Outcome) -> None:
    by = outcome.cancelled_by
    if outcome.cancel is CancelMode.TASK and task.status not in TASK_ENDED:
        await flow.move(session, task, TaskState.CANCELLED, reason=f"cancelled by {by}", actor=by)
    elif outcome.cancel is CancelMode.RUN and run.resumes_status is None:
        reason = f"run {run.id} was cancelled by {by}: `task retry {task.id}` starts it again"
        await flow.move(session, task, TaskState.BLOCKED, reason=reason, actor=by)
    elif outcome.cancel in (CancelMode.TASK, CancelMode.RUN):
        await session.flush()
    else:
        if outcome.cancel is CancelMode.DRAIN:
            task.attempt -= 1
        await _again(session, run, task, "its node stopped" if outcome.cancel is CancelMode.DRAIN else f"released by {by}")


async def _again(session: AsyncSession, run: Run, task: Task, note: str, *, delay_s: float = 0.0) -> None:
    """Make the task ready once more, with a wakeup after `delay_s`; under a cancelled goal it ends instead."""
    if await flow.is_called_off(session, task):
        if run.resumes_status is None:
            await flow.move(session, task, TaskState.CANCELLED, reason="the goal was cancelled")
        return
    if run.resumes_status is None:
        await tasks.change(session, task, TaskState.TODO)
        if task.goal_id is not None:  # its agent may have been removed meanwhile: then the goal waits for the board
            await flow.settle_goal(session, task.goal_id)
    else:
        await session.flush()
    source = WakeupSource.RETRY if run.resumes_status is None else WakeupSource.COMMENT
    await wakeups.request(
        session,
        run.agent,
        source,
        task_id=task.id,
        note=note,
        priority=Priority(task.priority),
        delay_s=delay_s,
        cause_run_id=run.id,
        depth=run.depth,
    )


async def _block(session: AsyncSession, run: Run, task: Task, reason: str) -> bool:
    """Block the task; return False where the board wrote on it during the run: then its agent goes on with that."""
    if await wakeups.has_word_of(session, task.id, BOARD):
        await tasks.change(session, task, TaskState.TODO, reason=f"{BOARD} wrote on it meanwhile", actor=run.agent)
        return False
    await flow.move(session, task, TaskState.BLOCKED, reason=reason, actor=run.agent, cause_run_id=run.id)
    return True


async def _changed_nothing(session: AsyncSession, task: Task) -> None:
    """Count a run on an ended task that left it as it was; enough of them in a row stop, and the board is told once."""
    task.stale_runs += 1
    await session.flush()
    if task.stale_runs == flow.STALE_LIMIT:
        await wakeups.skip(session, task.id, f"{task.stale_runs} runs changed nothing", talk=True)
        await escalation.escalate(session, task, f"{task.stale_runs} runs in a row changed nothing on it.")


async def _failed(session: AsyncSession, run: Run, task: Task, outcome: Outcome, retry: Retry) -> None:
    """Try again later while the adapter thinks it helps and attempts are left; else block and escalate, saying why."""
    task.failures += 1
    task.lost = 0  # its node lived to tell
    error = _error(outcome)
    if outcome.retryable and task.failures <= len(retry.delays_s):
        delay_s = retrying.wait_s(retry, task.failures, outcome.retry_after_s)
        note = f"attempt {task.attempt} failed: {error}; again in {delay_s / 60:.0f} min"
        await _again(session, run, task, note, delay_s=delay_s)
        return
    if run.resumes_status is not None:
        task.failures = 0
        await _changed_nothing(session, task)
        if outcome.retryable:
            await escalation.escalate(session, task, f"What was said on it could not be answered: {error}")
        return
    if await _block(session, run, task, error) and outcome.retryable:
        await escalation.escalate(session, task, f"{task.failures} attempts failed.")


async def book_lost(session: AsyncSession, lost: locks.Lost) -> bool:
    """Take over a run whose lease or lock has run out, and start its task again; return False if it was not lost.

    The third lost run in a row blocks the task. The run's late writes carry the old token and match nothing.
    """
    task = await tasks.locked(session, lost.task_id) if lost.task_id is not None else None
    why = "its node stopped renewing the lease" if lost.lease_over else "the time of its lock was over"
    if not await locks.take_over(session, lost.run_id, why):
        return False
    run = await runs.get(session, lost.run_id)
    await wakeups.close(session, run.id, RunState.LOST)
    await events.record(session, Happened("run.lost", "run", run.id, run.agent))
    if task is None:
        if run.cancel_mode in (None, CancelMode.RELEASE):
            await retrying.lost(session, run, limit=LOST_LIMIT)
        return True
    if task.execution_run_id != run.id:
        return True
    locks.clear(task)
    if run.cancel_mode is not None:
        wished = _as_wished(run, Outcome(RunState.LOST, Viewer(agent=run.agent)))
        await _cancelled(session, run, task, wished)
        return True
    task.lost += 1
    task.updated_at = func.now()
    if task.lost >= LOST_LIMIT and run.resumes_status is not None:
        await session.flush()
        await wakeups.skip(session, task.id, f"{task.lost} runs were lost", talk=True)
        await escalation.escalate(session, task, f"{task.lost} runs on what was said on it were lost with their nodes.")
    elif task.lost >= LOST_LIMIT:
        reason = f"{task.lost} runs were lost with their nodes: see `run list --task {task.id}`, then `task retry {task.id}`"
        if await _block(session, run, task, reason):
            await escalation.escalate(session, task, reason)
    else:
        await _again(session, run, task, f"run {run.id} was lost with its node")
    return True
