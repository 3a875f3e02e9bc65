"""Deliberate writes from code, one verb for each type of memory. Nothing is stored that nobody asked for.

Each call is a transaction of its own, so it must not be made within another one; who is in one uses `brain.write`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict, Unpack

from opencognit.brain.facade import Brain
from opencognit.brain.store import Stored
from opencognit.contracts import EntityRef, MemoryDraft, Viewer
from opencognit.states import MemoryType, Scope, Trust


class Details(TypedDict, total=False):
    """What may be said of a memory beside its content; what is left out is as in MemoryDraft, the room the recorder's.

    `idempotency_key`: a second call with the same key stores nothing and gives the same memory.
    """

    room: str
    scope: Scope
    confidence: float
    context: str
    entities: Sequence[EntityRef]
    derives_from: Sequence[int]
    supersedes: Sequence[int]
    valid_from: datetime | None
    valid_to: datetime | None
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes as one viewer with one trust, into one room unless a call names another. Raises what `brain.write` does."""

    brain: Brain
    viewer: Viewer
    trust: Trust
    room: str = "general"

    async def fact(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store how something is."""
        return await self._write(MemoryType.FACT, content, details)

    async def episode(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store what happened."""
        return await self._write(MemoryType.EPISODE, content, details)

    async def decision(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store what was decided, and why."""
        return await self._write(MemoryType.DECISION, content, details)

    async def rule(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store what is always or never to be done."""
        return await self._write(MemoryType.RULE, content, details)

    async def plan(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store what is intended."""
        return await self._write(MemoryType.PLAN, content, details)

    async def preference(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store what somebody would rather have."""
        return await self._write(MemoryType.PREFERENCE, content, details)

    async def action(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store what was done."""
        return await self._write(MemoryType.ACTION, content, details)

    async def outcome(self, content: str, **details: Unpack[Details]) -> Stored:
        """Store what came of something."""
        return await self._write(MemoryType.OUTCOME, content, details)

    async def _write(self, kind: MemoryType, content: str, details: Details) -> Stored:
        said: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in details.items()}
        key = said.pop("idempotency_key", None)
        draft = replace(MemoryDraft(content, type=kind, room=self.room), **said)
        return await self.brain.write(draft, viewer=self.viewer, trust=self.trust, idempotency_key=key)
