"""The shared memory of agents and outside clients; this is its front door. Everything else in here is private.

Functions take a session and never commit; a Brain has a pool and an embedder. Who asks is a Viewer; no argument can widen
what it may see or raise the trust of what it says.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain import relations
from opencognit.brain.backlog import Indexer
from opencognit.brain.caretaker import Caretaker
from opencognit.brain.diary import Entry, diary
from opencognit.brain.embed import Embedder, open_embedder
from opencognit.brain.entity_links import entities_of
from opencognit.brain.facade import LIMIT, Brain, embedder_of, recall
from opencognit.brain.graph import Snapshot, snapshot
from opencognit.brain.hits import Hit, Recalled
from opencognit.brain.portable import Imported, export, import_
from opencognit.brain.recorder import Recorder
from opencognit.brain.relations import edges_of
from opencognit.brain.stats import Stats, stats
from opencognit.brain.store import Stored, get, known_to, listing, write
from opencognit.brain.summaries import Summary, summarise
from opencognit.brain.timings import TIMINGS, Timing, Timings
from opencognit.brain.vectors import Vector
from opencognit.brain.vocabulary import learn
from opencognit.contracts import Viewer
from opencognit.models import Memory
from opencognit.states import Relation, Trust

__all__ = [
    "LIMIT",
    "TIMINGS",
    "Brain",
    "Caretaker",
    "Embedder",
    "Entry",
    "Hit",
    "Imported",
    "Indexer",
    "Recalled",
    "Recorder",
    "Snapshot",
    "Stats",
    "Stored",
    "Summary",
    "Timing",
    "Timings",
    "Vector",
    "archive",
    "diary",
    "edges_of",
    "embedder_of",
    "entities_of",
    "export",
    "get",
    "import_",
    "learn",
    "listing",
    "open_embedder",
    "recall",
    "relate",
    "restore",
    "snapshot",
    "stats",
    "summarise",
    "write",
]


async def relate(
    session: AsyncSession, source: int, relation: Relation, target: int, *, viewer: Viewer, trust: Trust | None = None
) -> str | None:
    """Draw an edge between two memories that the viewer may see; return a note where it stays a proposal.

    `trust`: how far the viewer's word is trusted; without it an agent's is `observed`, also where others have raised that of
    what it wrote. Drawing it again changes nothing. Raises InvalidInput for a circle, Refused where it is not the viewer's
    to say.
    """
    known = await known_to(session, (source, target), viewer)
    relations.refuse_stranger(known[source], relation, viewer)
    word = trust if trust is not None else Trust.VERIFIED if viewer.is_board else Trust.OBSERVED
    return await relations.draw(session, known[target], relation, source=source, by=viewer, word=word)


async def archive(session: AsyncSession, ident: int, *, viewer: Viewer) -> Memory:
    """Put a memory away; it is kept and no longer recalled. Raises Refused where it is another's."""
    memory = await get(session, ident, viewer=viewer)
    relations.refuse_foreign(memory, "archive", viewer)
    await relations.archive(session, memory)
    return memory


async def restore(session: AsyncSession, ident: int, *, viewer: Viewer) -> Memory:
    """Take back that a memory was archived or superseded. Raises Refused where it is another's, or
    its content is in force again anyway."""
    memory = await get(session, ident, viewer=viewer)
    relations.refuse_foreign(memory, "restore", viewer)
    await relations.restore(session, memory)
    return memory
