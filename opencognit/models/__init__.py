"""The schema as SQLAlchemy sees it. `migrations/` makes it; a test finds no difference between the two."""

from opencognit.models.base import Base
from opencognit.models.brain import (
    Entity,
    Memory,
    MemoryBacklog,
    MemoryCount,
    MemoryEdge,
    MemoryEmbedding,
    MemoryEntity,
    MemoryKey,
    MemoryTerm,
    MemoryUse,
)
from opencognit.models.company import Agent, Company, Node, Routine, RoutineFiring, Token
from opencognit.models.events import Event
from opencognit.models.runs import FENCE, Cost, Run, RunLog, Wakeup
from opencognit.models.work import Approval, Comment, Goal, Task, TaskDependency

__all__ = [
    "FENCE",
    "Agent",
    "Approval",
    "Base",
    "Comment",
    "Company",
    "Cost",
    "Entity",
    "Event",
    "Goal",
    "Memory",
    "MemoryBacklog",
    "MemoryCount",
    "MemoryEdge",
    "MemoryEmbedding",
    "MemoryEntity",
    "MemoryKey",
    "MemoryTerm",
    "MemoryUse",
    "Node",
    "Routine",
    "RoutineFiring",
    "Run",
    "RunLog",
    "Task",
    "TaskDependency",
    "Token",
    "Wakeup",
]
