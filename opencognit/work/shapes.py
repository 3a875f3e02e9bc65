"""The JSON shapes that programs read, each as a function from rows to a dict. Reads no database and decides nothing.

Ids are strings, times RFC 3339 in UTC, money decimal strings in USD; what is unknown stays None.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from opencognit import shapes
from opencognit.contracts import EntityRef
from opencognit.models import Agent, Approval, Comment, Event, Goal, Memory, Node, Routine, RoutineFiring, Run, RunLog, Task
from opencognit.shapes import Shape, ident
from opencognit.shapes import time as time  # its readers take it from here
from opencognit.states import AgentState


def money(usd: Decimal | None) -> str | None:
    """Return an amount with its six decimals."""
    return None if usd is None else f"{usd:.6f}"


def goal(row: Goal) -> Shape:
    return {
        "id": str(row.id),
        "title": row.title,
        "description": row.description,
        "priority": row.priority,
        "status": row.status,
        "reason": row.reason,
        "budget_usd": money(row.budget_usd),
        "created_at": time(row.created_at),
        "ended_at": time(row.ended_at),
    }


def comment(row: Comment) -> Shape:
    return {"id": str(row.id), "author": row.author, "text": row.text, "created_at": time(row.created_at)}


def task(row: Task, *, after: Sequence[int] = (), comments: Sequence[Comment] = ()) -> Shape:
    """`after` are the ids of the tasks that it waits for."""
    return {
        "id": str(row.id),
        "kind": row.kind,
        "goal_id": ident(row.goal_id),
        "parent_id": ident(row.parent_id),
        "after": [str(one) for one in after],
        "title": row.title,
        "description": row.description,
        "skills": list(row.skills),
        "status": row.status,
        "priority": row.priority,
        "assignee": row.assignee,
        "reason": row.reason,
        "attempt": row.attempt,
        "result": row.result,
        "files": list(row.files),
        "comments": [comment(one) for one in comments],
        "lock": lock(row),
        "created_at": time(row.created_at),
        "ended_at": time(row.ended_at),
    }


def lock(row: Task) -> Shape | None:
    """Return who holds the task; None when nobody does."""
    if row.execution_run_id is None:
        return None
    return {
        "run_id": str(row.execution_run_id),
        "agent": row.execution_agent_key,
        "locked_at": time(row.execution_locked_at),
        "expires_at": time(row.lock_expires_at),
    }


def run(row: Run) -> Shape:
    return {
        "id": str(row.id),
        "task_id": ident(row.task_id),
        "agent": row.agent,
        "adapter": row.adapter,
        "status": row.status,
        "reason": row.reason,
        "attempt": row.attempt,
        "started_at": time(row.started_at),
        "ended_at": time(row.ended_at),
        "cost_usd": money(row.cost_usd),
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
        "soul_hash": row.soul_hash,
        "exit_code": row.exit_code,
        "error": row.error,
        "notes": list(row.notes),
    }


def log_piece(row: RunLog) -> Shape:
    return {"seq": row.seq, "stream": row.stream, "at": time(row.at), "text": row.chunk}


def approval(row: Approval) -> Shape:
    return {
        "id": str(row.id),
        "kind": row.kind,
        "subject": row.subject,
        "question": row.question,
        "options": list(row.options),
        "status": row.status,
        "decision": row.decision,
        "note": row.note,
        "goal_id": ident(row.goal_id),
        "task_id": ident(row.task_id),
        "asked_by": row.asked_by,
        "decided_by": row.decided_by,
        "created_at": time(row.created_at),
        "decided_at": time(row.decided_at),
    }


def agent(row: Agent, *, running: int = 0, load: int = 0) -> Shape:
    """`running` are its runs that are on, `load` its tasks that have not ended."""
    status = AgentState.RUNNING if running and row.status == AgentState.IDLE else AgentState(row.status)
    told = {key: row.spec.get(key) for key in ("display_name", "role", "title", "skills", "team", "reports_to")}
    return {
        "name": row.name,
        **told,
        "adapter": row.adapter,
        "status": status.value,
        "reason": row.status_reason,
        "present": row.present,
        "running": running,
        "load": load,
        "max_concurrent_runs": row.max_concurrent_runs,
        "heartbeat_interval_s": row.heartbeat_interval_s,
        "monthly_budget_usd": row.spec.get("monthly_budget_usd"),
    }


def node(row: Node, *, running: int) -> Shape:
    """A node's id is text already."""
    return {"id": row.id, "pid": row.pid, "host": row.host, "capacity": row.capacity, "running": running}


def event(row: Event) -> Shape:
    return {
        "id": str(row.id),
        "type": row.type,
        "at": time(row.at),
        "subject": {"kind": row.subject_kind, "id": row.subject_id, "title": row.subject_title},
        "actor": row.actor,
        "data": row.data,
    }


def memory(row: Memory, entities: Sequence[EntityRef] = ()) -> Shape:
    return shapes.memory(row, [{"kind": one.kind, "key": one.key, "role": one.role.value} for one in entities])


def routine(row: Routine, fired: Sequence[RoutineFiring]) -> Shape:
    return {
        "name": row.name,
        **{key: row.spec.get(key) for key in ("cron", "timezone", "agent", "title", "catch_up", "overlap")},
        "next_at": time(row.next_at),
        "firings": [
            {"slot": one.slot.isoformat(), "fired_at": time(one.fired_at), "task_id": ident(one.task_id), "outcome": one.outcome}
            for one in fired
        ],
    }
