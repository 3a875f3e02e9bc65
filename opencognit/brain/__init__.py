"""The shared memory of agents and outside clients; this is its front door. Everything else in here is private.

`write`, `recall`, `get`, `relate`, `archive` take a session and never commit. Who asks is a Viewer; no argument can widen
what it may see or raise the trust of what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.search import Hit, by_text, newest
from opencognit.brain.store import Stored, archive, edges_of, entities_of, get, relate, write
from opencognit.contracts import Viewer
from opencognit.errors import InvalidInput
from opencognit.states import MemoryType

LIMIT = 200

__all__ = ["Hit", "Stored", "archive", "edges_of", "entities_of", "get", "recall", "relate", "write"]


async def recall(
    session: AsyncSession,
    query: str | None = None,
    *,
    entity: tuple[str, str] | None = None,
    types: Sequence[MemoryType] | None = None,
    room: str | None = None,
    as_of: datetime | None = None,
    limit: int = 10,
    viewer: Viewer,
) -> list[Hit]:
    """Return what the viewer may see, best first; the inputs pick the mode.

    A query ranks by words; without one, the newest of an entity or a room come. Raises InvalidInput for a bad limit.
    """
    if not 1 <= limit <= LIMIT:
        raise InvalidInput("limit", f"is {limit}: give 1 to {LIMIT}")
    if query is not None and query.strip():
        return await by_text(session, query, viewer=viewer, types=types, room=room, entity=entity, as_of=as_of, limit=limit)
    return await newest(session, viewer=viewer, types=types, room=room, entity=entity, as_of=as_of, limit=limit)
