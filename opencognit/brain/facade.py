"""The brain as an object: what of it needs a model, a pool of connections, or both. Owns when a question is encoded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain import entity_links, search, store
from opencognit.brain.hits import Recalled
from opencognit.brain.search import QUERY_LIMIT, Question
from opencognit.brain.timings import timed
from opencognit.brain.uses import Uses
from opencognit.brain.visibility import Asked, enter
from opencognit.config import Home
from opencognit.contracts import MemoryDraft, Viewer
from opencognit.db import Database
from opencognit.errors import ConfigError, InvalidInput, ModelUnavailable
from opencognit.states import MemoryType, Trust

if TYPE_CHECKING:
    from opencognit.brain.embed import Embedder
    from opencognit.brain.vectors import Vector

log = structlog.get_logger(__name__)

LIMIT = 200


@timed("recall")
async def recall(
    session: AsyncSession,
    query: str | None = None,
    *,
    embedding: Vector | None = None,
    entity: tuple[str, str] | None = None,
    types: Sequence[MemoryType] | None = None,
    room: str | None = None,
    as_of: datetime | None = None,
    limit: int = 10,
    viewer: Viewer,
) -> Recalled:
    """Return what the viewer may see, best first; the inputs pick the mode.

    A query ranks by words, an embedding by likeness, both together by both; an entity, types, a room, a time restrict them.
    Without query and embedding the newest come. Raises InvalidInput for a bad limit.
    """
    if not 1 <= limit <= LIMIT:
        raise InvalidInput("limit", f"is {limit}: give 1 to {LIMIT}")
    await enter(session, viewer)
    asked = Asked(viewer, entity=entity, types=types, room=room, as_of=as_of)
    if embedding is None and not (query or "").strip():
        return await search.newest(session, asked, limit=limit)
    question = Question.of(query, embedding)
    if not question.words and question.vector is None:
        found = Recalled()
        found.incomplete = "the question has only words that stand in every text: ask more exactly"
        return found
    entities = await entity_links.idents(session, await entity_links.read(session, question.text))
    return await search.answer(session, question, asked, entities=entities, limit=limit)


def embedder_of(home: Home) -> Embedder | None:
    """Return the embedder that a home's `[brain]` names; None, said in the log, where its model is not there. Blocks."""
    from opencognit.brain.embed import open_embedder

    try:
        return open_embedder(home.config.brain, home.models)
    except ConfigError:
        raise
    except ModelUnavailable as error:
        log.warning("brain.without_model", error=str(error))
        return None
    except Exception:  # a library that does not load is a model that is not there
        log.exception("brain.without_model")
        return None


class Brain:
    """The brain of one process: a database, and the embedder that its questions are encoded by (None: words alone)."""

    def __init__(self, db: Database, embedder: Embedder | None = None) -> None:
        self.db, self.embedder = db, embedder
        self.uses = Uses()
        self._silent = False

    async def encode(self, query: str | None) -> Vector | None:
        """Return the vector of a question; None without an embedder, or where its model cannot be had (said once)."""
        if self.embedder is None or not (query or "").strip():
            return None
        from opencognit.brain.vectors import Vector

        try:
            (vector,) = await asyncio.to_thread(self.embedder.encode, [(query or "")[:QUERY_LIMIT]])
        except ModelUnavailable as error:
            if not self._silent:
                log.warning("brain.without_model", error=str(error))
            self._silent = True
            return None
        except Exception:  # whatever ails the model: words alone still find
            log.exception("brain.question_not_encoded")
            return None
        return Vector(self.embedder.name, vector)

    async def recall(
        self,
        query: str | None = None,
        *,
        embedding: Vector | None = None,
        entity: tuple[str, str] | None = None,
        types: Sequence[MemoryType] | None = None,
        room: str | None = None,
        as_of: datetime | None = None,
        limit: int = 10,
        viewer: Viewer,
    ) -> Recalled:
        """Return what the viewer may see, best first: by words and meaning where there is an embedder, else by words."""
        if embedding is None:
            embedding = await self.encode(query)
        async with self.db.transaction() as session:
            found = await recall(
                session,
                query,
                embedding=embedding,
                entity=entity,
                types=types,
                room=room,
                as_of=as_of,
                limit=limit,
                viewer=viewer,
            )
        self.uses.note(hit.memory.id for hit in found)
        return found

    async def write(
        self, draft: MemoryDraft, *, viewer: Viewer, trust: Trust, idempotency_key: str | None = None
    ) -> store.Stored:
        """Store a memory in a transaction of its own; see `store.write`."""
        return await self.db.retrying(
            lambda session: store.write(session, draft, viewer=viewer, trust=trust, idempotency_key=idempotency_key)
        )
