"""How much the brain holds and how far its indexes are, as the viewer may know it. Counts only; writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.backlog import TRIES
from opencognit.brain.timings import TIMINGS, Timing
from opencognit.brain.visibility import enter, visible
from opencognit.contracts import Viewer
from opencognit.models import Memory, MemoryBacklog, MemoryEmbedding
from opencognit.shapes import Shape

ROOMS = 100
"""Rooms that are named; the fullest."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of memories. `timings` are this process's, by verb.

    `uncounted`: words not in the statistics yet; `unembedded`: no vector yet; `given_up`: a model failed on them, they are
    found by words alone. `vectors` counts by model.
    """

    memories: int
    scopes: dict[str, int]
    types: dict[str, int]
    trusts: dict[str, int]
    lifecycles: dict[str, int]
    rooms: dict[str, int]
    more_rooms: int
    uncounted: int
    unembedded: int
    given_up: int
    vectors: dict[str, int]
    timings: dict[str, Timing] = field(default_factory=dict)

    def shape(self) -> Shape:
        return {
            "memories": self.memories,
            "scopes": self.scopes,
            "types": self.types,
            "trusts": self.trusts,
            "lifecycles": self.lifecycles,
            "rooms": self.rooms,
            "more_rooms": self.more_rooms,
            "backlog": {"uncounted": self.uncounted, "unembedded": self.unembedded, "given_up": self.given_up},
            "vectors": self.vectors,
            "timings": {verb: timing.shape() for verb, timing in self.timings.items()},
        }


async def stats(session: AsyncSession, *, viewer: Viewer) -> Stats:
    """Return the counts of what the viewer may see. Expects a transaction.

    Reads every memory's row: for a person or a scrape, not for a loop.
    """
    await enter(session, viewer)
    by = await _memories(session, viewer)
    rooms = sorted(by["room"].items(), key=lambda room: (-room[1], room[0]))
    uncounted, unembedded, given_up = await _backlog(session, viewer)
    return Stats(
        memories=sum(by["scope"].values()),
        scopes=by["scope"],
        types=by["type"],
        trusts=by["trust"],
        lifecycles=by["lifecycle"],
        rooms=dict(rooms[:ROOMS]),
        more_rooms=len(rooms[ROOMS:]),
        uncounted=uncounted,
        unembedded=unembedded,
        given_up=given_up,
        vectors=await _vectors(session, viewer),
        timings=TIMINGS.read(),
    )


async def _memories(session: AsyncSession, viewer: Viewer) -> dict[str, dict[str, int]]:
    """Return, for each column, how many memories have which value. One pass."""
    columns = {"scope": Memory.scope, "type": Memory.type, "trust": Memory.trust, "lifecycle": Memory.lifecycle}
    columns["room"] = Memory.room
    sets = func.grouping_sets(*(tuple_(column) for column in columns.values()))
    query = select(*columns.values(), func.count().label("memories")).where(visible(viewer)).group_by(sets)
    found: dict[str, dict[str, int]] = {name: {} for name in columns}
    for row in await session.execute(query):
        # Each row is of the one column that is not NULL: none of them ever is in the table.
        name = next(name for name in columns if getattr(row, name) is not None)
        found[name][getattr(row, name)] = row.memories
    return {name: dict(sorted(counts.items())) for name, counts in found.items()}


async def _backlog(session: AsyncSession, viewer: Viewer) -> tuple[int, int, int]:
    waits = MemoryBacklog.tries < TRIES
    query = (
        select(
            func.count().filter(MemoryBacklog.counted.is_(False)),
            func.count().filter(waits),
            func.count().filter(~waits),
        )
        .join(Memory, Memory.id == MemoryBacklog.memory_id)
        .where(visible(viewer))
    )
    uncounted, unembedded, given_up = (await session.execute(query)).one()
    return uncounted, unembedded, given_up


async def _vectors(session: AsyncSession, viewer: Viewer) -> dict[str, int]:
    query = (
        select(MemoryEmbedding.model, func.count().label("vectors"))
        .where(visible(viewer, MemoryEmbedding))
        .group_by(MemoryEmbedding.model)
    )
    return {row.model: row.vectors for row in await session.execute(query.order_by(MemoryEmbedding.model))}
