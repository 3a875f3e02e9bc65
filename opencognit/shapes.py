"""What the shapes of work and of the brain have in common: instants, ids, and a memory. Reads no database and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from opencognit.states import Scope

Shape = dict[str, Any]


def time(at: datetime | None) -> str | None:
    """Return an instant as RFC 3339 with `Z`."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def ident(row_id: int | None) -> str | None:
    return None if row_id is None else str(row_id)


def memory(row: Any, entities: Sequence[Shape]) -> Shape:
    """`row` is a Memory, or a row of its columns."""
    return {
        "id": str(row.id),
        "type": row.type,
        "room": row.room,
        "scope": row.scope,
        "team": row.owner if row.scope == Scope.TEAM else None,
        "trust": row.trust,
        "lifecycle": row.lifecycle,
        "confidence": row.confidence,
        "content": row.content,
        "context": row.context,
        "source": {"agent": row.source_agent, "run_id": ident(row.source_run_id), "task_id": ident(row.source_task_id)},
        "entities": list(entities),
        "valid_from": time(row.valid_from),
        "valid_to": time(row.valid_to),
        "created_at": time(row.created_at),
    }
