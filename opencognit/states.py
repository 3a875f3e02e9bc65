"""Every state and the steps between them, in one table each. Owns no storage: `step` only says yes or refuses.

The same values stand as CHECK constraints in the schema; a test compares the two. No status literal elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from opencognit.errors import InvalidTransition


class GoalState(StrEnum):
    OPEN = "open"  # posted, nobody looked at it yet
    PLANNING = "planning"  # the CEO splits it into tasks
    ACTIVE = "active"  # tasks are being worked on
    ACHIEVED = "achieved"  # all tasks ended and at least one is done
    BLOCKED = "blocked"  # something needs the board and nothing else can run
    CANCELLED = "cancelled"  # called off


class TaskState(StrEnum):
    BACKLOG = "backlog"  # waits for other tasks, or for somebody who can do it
    TODO = "todo"  # ready: its assignee may start
    IN_PROGRESS = "in_progress"  # a run holds its lock
    IN_REVIEW = "in_review"  # done by its assignee, not yet accepted
    DONE = "done"  # ended well
    BLOCKED = "blocked"  # cannot go on by itself; `reason` says why
    CANCELLED = "cancelled"  # called off


class TaskKind(StrEnum):
    WORK = "work"  # what a goal or a person asked for
    PLAN = "plan"  # the CEO splits a goal
    REVIEW = "review"  # the critic judges a result
    REPORT = "report"  # the CEO tells the board how a goal ended
    CHAT = "chat"  # a person talks to an agent


class RunState(StrEnum):
    RUNNING = "running"  # an adapter works, a node renews its lease
    SUCCEEDED = "succeeded"  # the adapter gave a result and it is booked
    FAILED = "failed"  # the adapter said no
    TIMED_OUT = "timed_out"  # stopped at its own deadline or for silence
    CANCELLED = "cancelled"  # stopped by a person or by the drain
    LOST = "lost"  # its node stopped renewing


class CancelMode(StrEnum):
    """What becomes of the task when its run is stopped."""

    RUN = "run"  # the task is blocked until somebody retries it
    TASK = "task"  # the task is called off with it
    RELEASE = "release"  # the task starts again
    DRAIN = "drain"  # its node stops: the task starts again elsewhere, without an attempt used


class WakeupState(StrEnum):
    QUEUED = "queued"  # waits for its agent, its time and a free place
    CLAIMED = "claimed"  # its run is on
    DONE = "done"  # its run ended
    SKIPPED = "skipped"  # there was nothing to do
    EXPIRED = "expired"  # too old to mean anything


class AgentState(StrEnum):
    IDLE = "idle"  # free
    RUNNING = "running"  # derived from its runs, never stored
    PAUSED = "paused"  # takes nothing until a person resumes it
    ERROR = "error"  # its file or adapter is broken; takes nothing


class ApprovalState(StrEnum):
    PENDING = "pending"  # the board has not decided
    APPROVED = "approved"  # decided: yes, or one of the options
    REJECTED = "rejected"  # decided: no
    CANCELLED = "cancelled"  # its reason went away


class ApprovalKind(StrEnum):
    HIRE = "hire"  # a new agent
    BUDGET = "budget"  # more money
    STRATEGY = "strategy"  # a plan that needs consent
    QUESTION = "question"  # an answer with options
    ACTION = "action"  # a tool or command that needs consent


class Priority(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Sort key: 0 is the most urgent."""
        return (Priority.CRITICAL, Priority.HIGH, Priority.MEDIUM, Priority.LOW).index(self)


class WakeupSource(StrEnum):
    TIMER = "timer"  # the agent's own heartbeat interval
    ASSIGNMENT = "assignment"  # a ready task was given to it
    COMMENT = "comment"  # somebody else wrote on its task
    MENTION = "mention"  # somebody named it
    DEPENDENCY = "dependency"  # the last task before its task ended
    CHILDREN = "children"  # all sub-tasks of its task ended
    APPROVAL = "approval"  # the board decided
    ROUTINE = "routine"  # a schedule fired
    BOARD = "board"  # a person woke it
    RETRY = "retry"  # an earlier run failed or was lost


class MemoryType(StrEnum):
    FACT = "fact"
    EPISODE = "episode"
    DECISION = "decision"
    RULE = "rule"
    PLAN = "plan"
    PREFERENCE = "preference"
    ACTION = "action"
    OUTCOME = "outcome"


class Scope(StrEnum):
    AGENT_PRIVATE = "agent_private"  # its agent and the board
    TEAM = "team"  # the team named when it was written
    ORG = "org"  # everyone


class Trust(StrEnum):
    VERIFIED = "verified"  # the board, or a listed name
    OBSERVED = "observed"  # an agent of this company saw it
    ASSERTED = "asserted"  # somebody outside said so, or it was copied


class Lifecycle(StrEnum):
    ACTIVE = "active"
    STALE = "stale"  # aged without use
    SUPERSEDED = "superseded"  # a newer memory takes its place
    ARCHIVED = "archived"  # put away by a person


class EntityRole(StrEnum):
    SUBJECT = "subject"
    OBJECT = "object"
    MENTIONED = "mentioned"


class Relation(StrEnum):
    SUPERSEDES = "supersedes"
    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    DERIVES_FROM = "derives_from"
    RELATED_TO = "related_to"
    OBSERVED_WITH = "observed_with"


class TokenKind(StrEnum):
    BOARD = "board"
    AGENT = "agent"
    MCP = "mcp"
    RUN = "run"


S = TypeVar("S", bound=StrEnum)
G, T, R, W, A, P = GoalState, TaskState, RunState, WakeupState, AgentState, ApprovalState

GOAL_STEPS: Mapping[GoalState, frozenset[GoalState]] = {
    G.OPEN: frozenset({G.PLANNING, G.ACTIVE, G.BLOCKED, G.ACHIEVED, G.CANCELLED}),
    G.PLANNING: frozenset({G.ACTIVE, G.BLOCKED, G.ACHIEVED, G.CANCELLED, G.OPEN}),
    G.ACTIVE: frozenset({G.PLANNING, G.ACHIEVED, G.BLOCKED, G.CANCELLED}),
    G.ACHIEVED: frozenset({G.OPEN, G.ACTIVE, G.BLOCKED}),
    G.BLOCKED: frozenset({G.OPEN, G.PLANNING, G.ACTIVE, G.ACHIEVED, G.CANCELLED}),
    G.CANCELLED: frozenset({G.OPEN, G.ACTIVE}),
}
TASK_STEPS: Mapping[TaskState, frozenset[TaskState]] = {
    T.BACKLOG: frozenset({T.TODO, T.BLOCKED, T.CANCELLED, T.DONE}),
    T.TODO: frozenset({T.IN_PROGRESS, T.BACKLOG, T.BLOCKED, T.CANCELLED, T.DONE}),
    T.IN_PROGRESS: frozenset({T.TODO, T.BACKLOG, T.IN_REVIEW, T.DONE, T.BLOCKED, T.CANCELLED}),
    T.IN_REVIEW: frozenset({T.TODO, T.IN_PROGRESS, T.DONE, T.BLOCKED, T.CANCELLED}),
    T.DONE: frozenset({T.TODO}),
    T.BLOCKED: frozenset({T.TODO, T.BACKLOG, T.CANCELLED, T.DONE}),
    T.CANCELLED: frozenset({T.TODO, T.BACKLOG}),
}
RUN_STEPS: Mapping[RunState, frozenset[RunState]] = {
    R.RUNNING: frozenset({R.SUCCEEDED, R.FAILED, R.TIMED_OUT, R.CANCELLED, R.LOST}),
    **{state: frozenset() for state in (R.SUCCEEDED, R.FAILED, R.TIMED_OUT, R.CANCELLED, R.LOST)},
}
WAKEUP_STEPS: Mapping[WakeupState, frozenset[WakeupState]] = {
    W.QUEUED: frozenset({W.CLAIMED, W.SKIPPED, W.EXPIRED}),
    W.CLAIMED: frozenset({W.DONE, W.QUEUED}),
    **{state: frozenset() for state in (W.DONE, W.SKIPPED, W.EXPIRED)},
}
APPROVAL_STEPS: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    P.PENDING: frozenset({P.APPROVED, P.REJECTED, P.CANCELLED}),
    **{state: frozenset() for state in (P.APPROVED, P.REJECTED, P.CANCELLED)},
}

GOAL_ENDED = frozenset({G.ACHIEVED, G.BLOCKED, G.CANCELLED})
WEAKEST_FIRST = (Trust.ASSERTED, Trust.OBSERVED, Trust.VERIFIED)
IN_FORCE = (Lifecycle.ACTIVE, Lifecycle.STALE)
"""Lifecycles of what is recalled."""
TASK_ENDED = frozenset({T.DONE, T.CANCELLED})
STORED_AGENT_STATES = frozenset(A) - {A.RUNNING}


def step(table: Mapping[S, frozenset[S]], current: S, wanted: S, *, kind: str, ident: object) -> S:
    """Return `wanted` if `table` allows it from `current` (staying is allowed), else raise InvalidTransition."""
    if wanted == current or wanted in table[current]:
        return wanted
    raise InvalidTransition(kind, ident, current, wanted, sorted(table[current]))
