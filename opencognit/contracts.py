"""The shapes that pass between layers: the briefing in, the answer out, and the port of an adapter.

Pure data. Nothing here reads a clock, a file or the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from opencognit.states import EntityRole, MemoryType, Priority, Relation, Scope, TaskKind, TaskState, Trust

TITLE_LIMIT = 500
"""Longest title of a goal or task, in characters."""
TEXT_LIMIT = 1_000_000
"""Longest description, comment, result or memory, in characters."""


class Shape(BaseModel):
    """A frozen value; unknown fields are refused, so that a typo is never dropped in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- what an agent gets -------------------------------------------------------------------------------------------


class BriefingAgent(Shape):
    name: str
    role: str
    title: str
    skills: tuple[str, ...] = ()
    team: str | None = None


class BriefingCompany(Shape):
    name: str
    goal: str


class BriefingGoal(Shape):
    id: str
    title: str
    description: str


class BriefingTask(Shape):
    id: str
    kind: TaskKind
    title: str
    description: str
    priority: Priority
    attempt: int


class BriefingComment(Shape):
    author: str
    text: str
    created_at: datetime


class ProducedFile(Shape):
    path: str
    size: int
    sha256: str


class BriefingInput(Shape):
    """The outcome of a task that this one comes after; a report gets one of every task of its goal.

    `reason` says why it is blocked or who got it and why; `cost_usd` is None where no price is known.
    """

    task_id: str
    title: str
    result: str
    files: tuple[ProducedFile, ...] = ()
    status: TaskState = TaskState.DONE
    agent: str | None = None
    reason: str = ""
    cost_usd: Decimal | None = None
    duration_s: float | None = None


class BriefingMemory(Shape):
    id: str
    type: MemoryType
    room: str
    trust: Trust
    content: str
    created_at: datetime
    warning: str | None = Field(default=None, exclude=True)
    """What a reader must know of it; only in the text for a model."""


class Briefing(Shape):
    """Everything that an agent is told for one run. `goal` and `task` are None for a wake without work."""

    run_id: str
    token: str
    agent: BriefingAgent
    company: BriefingCompany
    goal: BriefingGoal | None
    task: BriefingTask | None
    comments: tuple[BriefingComment, ...] = ()
    inputs: tuple[BriefingInput, ...] = ()
    memories: tuple[BriefingMemory, ...] = ()
    reason: str
    soul: str


# --- what an agent answers: actions -------------------------------------------------------------------------------

Title = Annotated[str, Field(min_length=1, max_length=TITLE_LIMIT)]
Text = Annotated[str, Field(min_length=1, max_length=TEXT_LIMIT)]


class EntityRef(Shape):
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    key: Annotated[str, Field(min_length=1, max_length=512)]
    role: EntityRole = EntityRole.MENTIONED


class CreateTask(Shape):
    """Make a task. `after` names tasks by id, or by the provisional id `new-N`: the N-th task made in this answer.

    Without `assignee` the best fitting agent by `skills` gets it; where nobody fits it waits in the backlog.
    """

    action: Literal["create_task"] = "create_task"
    title: Title
    description: Annotated[str, Field(max_length=TEXT_LIMIT)] = ""
    assignee: str | None = None
    skills: tuple[str, ...] = ()
    priority: Priority | None = None
    after: tuple[str, ...] = ()
    reason: str = ""


class AssignTask(Shape):
    action: Literal["assign_task"] = "assign_task"
    task_id: str
    assignee: str


class CompleteTask(Shape):
    action: Literal["complete_task"] = "complete_task"
    task_id: str | None = None
    result: Annotated[str, Field(max_length=TEXT_LIMIT)] = ""


class BlockTask(Shape):
    action: Literal["block_task"] = "block_task"
    task_id: str | None = None
    reason: Text


class Comment(Shape):
    action: Literal["comment"] = "comment"
    task_id: str | None = None
    text: Text


class AskBoard(Shape):
    """Ask the board. `task_id` (an id or `new-N`) is the task that waits for the answer."""

    action: Literal["ask_board"] = "ask_board"
    question: Text
    options: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = ()
    task_id: str | None = None


class Hire(Shape):
    action: Literal["hire"] = "hire"
    role: Title
    skills: tuple[str, ...] = ()
    reason: Text


class Remember(Shape):
    """Store a memory. `derives_from` and `supersedes` are memory ids."""

    action: Literal["remember"] = "remember"
    content: Text
    room: Annotated[str, Field(min_length=1, max_length=100)]
    type: MemoryType = MemoryType.FACT
    scope: Scope = Scope.ORG
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.7
    entities: tuple[EntityRef, ...] = ()
    derives_from: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()


class Recall(Shape):
    action: Literal["recall"] = "recall"
    query: Text
    limit: Annotated[int, Field(ge=1, le=50)] = 10


class Relate(Shape):
    action: Literal["relate"] = "relate"
    source_id: str
    relation: Relation
    target_id: str


class Report(Shape):
    action: Literal["report"] = "report"
    text: Text


Action = Annotated[
    CreateTask | AssignTask | CompleteTask | BlockTask | Comment | AskBoard | Hire | Remember | Recall | Relate | Report,
    Field(discriminator="action"),
]


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's text, taken apart. `problems` are tags and actions that could not be read, one line each."""

    text: str
    memories: tuple[Remember, ...] = ()
    actions: tuple[Action, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def remembered(self) -> tuple[Remember, ...]:
        """All that is to become a memory, by whichever way it was said."""
        return (*self.memories, *(action for action in self.actions if isinstance(action, Remember)))


# --- the port of an adapter ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """One provider call's cost. `call_no` counts from 1 within the run: (run, call_no) is booked once.

    None means unknown, never zero: a bash command has no cost and books no usage at all.
    """

    call_no: int
    model: str
    cost_usd: Decimal | None
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How an adapter's run ended well. `text` still has its tags; `actions` came by native tool calls."""

    text: str
    actions: tuple[Action, ...] = ()
    usage: tuple[Usage, ...] = ()
    exit_code: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TeamMember:
    """One agent as the CEO sees it; `load` is its open tasks."""

    name: str
    role: str
    title: str
    skills: tuple[str, ...] = ()
    available: bool = True
    load: int = 0


@dataclass(frozen=True, slots=True)
class RunLimits:
    """All in seconds and bytes. `idle_timeout_s` is the longest silence."""

    timeout_s: float
    idle_timeout_s: float
    output_bytes: int = 64 * 1024
    kill_grace_s: float = 2.0


class RunContext(Protocol):
    """What a run may use of the world. The engine implements it; adapters see nothing else of the engine."""

    run_id: int
    token: int
    home: Path
    workspace: Path
    limits: RunLimits
    config: dict[str, Any]
    """The agent's `[adapter_config]`, already checked."""
    team: Sequence[TeamMember]
    """Filled for the CEO's planning and report tasks."""

    async def log(self, chunk: str, *, stream: str = "stdout") -> None:
        """Append to the run's log; bounded and fenced by the engine."""

    def spawned(self, pgid: int) -> None:
        """Tell the node that this run owns process group `pgid`, so that it dies with the run and with the node."""

    def reaped(self, pgid: int) -> None:
        """Tell the node that process group `pgid` is gone."""

    async def recall(self, query: str, *, limit: int = 10) -> Sequence[BriefingMemory]:
        """Search the brain as this run's agent."""


class Adapter(Protocol):
    """One way to make an agent think."""

    name: str

    async def run(self, briefing: Briefing, context: RunContext) -> RunResult:
        """Do the work and return its result; raises AdapterError. Holds no database connection.

        On cancellation kills what it started, then re-raises.
        """

    def check(self, config: dict[str, Any]) -> str | None:
        """Return None if this adapter can work with `config`, else one line with what is missing and its mend."""


@dataclass(frozen=True, slots=True)
class MemoryDraft:
    """A memory before it is stored."""

    content: str
    type: MemoryType = MemoryType.FACT
    room: str = "general"
    scope: Scope = Scope.ORG
    confidence: float = 0.7
    context: str = ""
    entities: tuple[EntityRef, ...] = ()
    derives_from: tuple[int, ...] = ()
    supersedes: tuple[int, ...] = ()
    valid_from: datetime | None = None
    valid_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who reads or writes: the board, or one agent with its team. `run_id` and `task_id` are provenance."""

    agent: str | None = None
    team: str | None = None
    run_id: int | None = None
    task_id: int | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def is_board(self) -> bool:
        return self.agent is None


BOARD = Viewer()
