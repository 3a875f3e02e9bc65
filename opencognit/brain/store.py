"""Memories as rows: one INSERT a write, without a model. Owns what may be written and how the same content becomes one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain import entity_links, folding, relations
from opencognit.brain.entities import canonical
from opencognit.brain.names import KEY_LIMIT, KIND_LIMIT, ROOM_LIMIT, digest, room_name
from opencognit.brain.timings import timed
from opencognit.brain.visibility import enter, visible
from opencognit.contracts import TEXT_LIMIT, MemoryDraft, Viewer
from opencognit.errors import InvalidInput, NotFound
from opencognit.events import BOARD
from opencognit.models import Memory, MemoryKey
from opencognit.states import IN_FORCE, WEAKEST_FIRST, Lifecycle, Scope, Trust
from opencognit.textclean import clean

LARGEST_ID = 2**63 - 1
INDEX_VERSION = 1
"""Raise it when folding.py reads words differently, with a migration that empties memory_terms and memory_counts and puts every
memory into the backlog: the loop then reads them again."""
KEY_LENGTH = 200

INSERT = text("""
WITH stored AS (
  -- One memory in force per scope and content (uq_memories_content): whoever comes second adds evidence, what had grown stale
  -- is wanted again, and only the board's word raises its trust. Written out: an INSERT that is put together anew for each
  -- write takes longer than the server does.
  INSERT INTO memories AS m (type, room, scope, owner, trust, confidence, content, content_hash, context, language, search_text,
         terms, content_terms, index_version, source_agent, source_run_id, source_task_id, valid_from, valid_to)
  VALUES (:type, :room, :scope, :owner, :trust, :confidence, :content, :content_hash, :context, :language, :search_text,
         :terms, :content_terms, :index_version, :source_agent, :source_run_id, :source_task_id, :valid_from, :valid_to)
  ON CONFLICT (scope, owner, content_hash) WHERE lifecycle IN ('active', 'stale') DO UPDATE
     SET evidence = m.evidence + 1, lifecycle = 'active', updated_at = now(),
         -- What was over, or had not begun, is said anew: for the time that is said now.
         valid_from = CASE WHEN m.valid_to <= now() OR m.valid_from > now() THEN excluded.valid_from ELSE m.valid_from END,
         valid_to = CASE WHEN m.valid_to <= now() OR m.valid_from > now() THEN excluded.valid_to ELSE m.valid_to END,
         trust = CASE WHEN :by_board AND array_position(CAST(:weakest_first AS text[]), excluded.trust)
                                       > array_position(CAST(:weakest_first AS text[]), m.trust)
                      THEN excluded.trust ELSE m.trust END
  RETURNING id, xmax = 0 AS fresh
), queued AS (
  INSERT INTO memory_backlog (memory_id) SELECT id FROM stored WHERE fresh
)
SELECT id, fresh FROM stored
""")


@dataclass(frozen=True, slots=True)
class Stored:
    """`merged`: the same content was known in that scope already; its evidence grew."""

    id: int
    merged: bool
    note: str | None = None


@timed("write")
async def write(
    session: AsyncSession, draft: MemoryDraft, *, viewer: Viewer, trust: Trust, idempotency_key: str | None = None
) -> Stored:
    """Store a memory; identical content in the same scope is one memory whose evidence grows.

    Trust never exceeds that of the weakest memory it derives from; where the content is known already, only the board's
    word raises it. The same idempotency key of a writer gives the memory that its first use stored. Raises InvalidInput
    or NotFound before it writes.
    """
    content = checked(draft)
    await enter(session, viewer)
    if idempotency_key is not None and (known := await _of_key(session, idempotency_key, content, viewer)) is not None:
        return known
    named_sources = (*draft.derives_from, *draft.supersedes)
    sources = await known_to(session, named_sources, viewer) if named_sources else {}
    trust = min([trust, *(Trust(sources[ident].trust) for ident in draft.derives_from)], key=WEAKEST_FIRST.index)
    scope, owner, note = place(draft.scope, viewer)
    context = clean(draft.context).strip()
    long = len(content) + len(context) > entity_links.INLINE_CHARS
    reading = await asyncio.to_thread(folding.read, content, context) if long else folding.read(content, context)
    row = _row(draft, content, context, reading, scope, owner, trust, viewer)
    named = await entity_links.read(session, content, draft.entities)
    ident, fresh = await _insert(session, row, by_board=viewer.is_board)
    await entity_links.link(session, ident, named)
    notes = [note] if note else []
    # What was known already stands on its own, whatever this writer had it from.
    for relation, target in relations.wished(draft, derived=fresh):
        if target != ident:
            told = await relations.draw(session, sources[target], relation, source=ident, by=viewer, word=trust)
            notes += [told] if told else []
    if idempotency_key is not None:
        await _keep_key(session, idempotency_key, ident, viewer)
    return Stored(ident, not fresh, "; ".join(notes) or None)


def _row(
    draft: MemoryDraft,
    content: str,
    context: str,
    reading: folding.Reading,
    scope: Scope,
    owner: str,
    trust: Trust,
    viewer: Viewer,
) -> dict[str, Any]:
    return {
        "type": draft.type.value,
        "room": room_name(draft.room),
        "scope": scope.value,
        "owner": owner,
        "trust": trust.value,
        "confidence": draft.confidence,
        "content": content,
        "content_hash": digest(content),
        "context": context,
        "language": reading.language,
        "search_text": reading.search_text,
        "terms": reading.terms,
        "content_terms": reading.content_terms,
        "index_version": INDEX_VERSION,
        "source_agent": viewer.agent,
        "source_run_id": viewer.run_id,
        "source_task_id": viewer.task_id,
        "valid_from": draft.valid_from,
        "valid_to": draft.valid_to,
    }


async def _insert(session: AsyncSession, values: dict[str, Any], *, by_board: bool) -> tuple[int, bool]:
    """Store the memory, and its place in the backlog where it is new; return (id, whether it is new)."""
    strengths = [tier.value for tier in WEAKEST_FIRST]
    found = (await session.execute(INSERT, {**values, "by_board": by_board, "weakest_first": strengths})).one()
    return found.id, found.fresh


def checked(draft: MemoryDraft) -> str:
    """Return the content as it is stored; raises InvalidInput for what no memory may have."""
    content = clean(draft.content).strip()
    if not content:
        raise InvalidInput("content", "is empty: say what is to be remembered")
    if len(content) > TEXT_LIMIT:
        raise InvalidInput("content", f"has {len(content)} characters, at most {TEXT_LIMIT}: store the gist and name the source")
    if len(room := room_name(draft.room)) > ROOM_LIMIT:
        raise InvalidInput("room", f"has {len(room)} characters, at most {ROOM_LIMIT}: give it a short name")
    if not 0 <= draft.confidence <= 1:
        raise InvalidInput("confidence", f"is {draft.confidence}: give a number from 0 to 1")
    if draft.valid_from and draft.valid_to and draft.valid_to <= draft.valid_from:
        raise InvalidInput("valid_to", "is not after valid_from: give a later time, or none")
    for entity in draft.entities:
        kind, key = canonical(entity.kind, entity.key)
        if not (0 < len(kind) <= KIND_LIMIT and 0 < len(key) <= KEY_LIMIT):
            limits = f"a kind of 1 to {KIND_LIMIT} characters and a key of 1 to {KEY_LIMIT}"
            raise InvalidInput("entity", f"{entity.kind[:80]!r}:{entity.key[:80]!r} is blank or too long: give it {limits}")
    return content


def place(wanted: Scope, viewer: Viewer) -> tuple[Scope, str, str | None]:
    """Return the scope, owner and a note where it is not the wanted one; raises InvalidInput for what the board has not."""
    if wanted is Scope.ORG:
        return wanted, "", None
    if wanted is Scope.TEAM:
        if viewer.team:
            return wanted, viewer.team, None
        if viewer.agent is None:
            raise InvalidInput("scope", "the board has no team: use org")
        return Scope.AGENT_PRIVATE, viewer.agent, f"agent {viewer.agent!r} has no team: stored as agent_private"
    if viewer.agent is None:
        raise InvalidInput("scope", "the board has no private memory: use org")
    return wanted, viewer.agent, None


async def _of_key(session: AsyncSession, key: str, content: str, viewer: Viewer) -> Stored | None:
    """Return what the key has stored before; holds the key until the transaction ends, so that two uses are one."""
    if not 0 < len(key) <= KEY_LENGTH:
        raise InvalidInput("idempotency_key", f"has {len(key)} characters: give 1 to {KEY_LENGTH}")
    writer = viewer.agent or BOARD
    await session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"memory:{writer}:{clean(key)}", 0))))
    query = select(Memory.id, Memory.content_hash).join(MemoryKey, MemoryKey.memory_id == Memory.id)
    found = (await session.execute(query.where(MemoryKey.writer == writer, MemoryKey.key == clean(key)))).first()
    if found is None:
        return None
    if found.content_hash != digest(content):
        raise InvalidInput("idempotency_key", f"{key!r} was used for another memory, {found.id}: use a new key")
    return Stored(found.id, True)


async def _keep_key(session: AsyncSession, key: str, ident: int, viewer: Viewer) -> None:
    await session.execute(upsert(MemoryKey).values(writer=viewer.agent or BOARD, key=clean(key), memory_id=ident))


async def known_to(session: AsyncSession, idents: Sequence[int], viewer: Viewer) -> dict[int, Memory]:
    """Return the named memories; raises NotFound for one that is not there or not to be seen."""
    await enter(session, viewer)
    possible = [ident for ident in idents if 0 < ident <= LARGEST_ID]
    query = select(Memory).where(Memory.id.in_(possible), visible(viewer))
    found = {memory.id: memory for memory in (await session.scalars(query)).all()} if possible else {}
    for ident in idents:
        if ident not in found:
            raise NotFound("memory", str(ident), "name one that this agent may see")
    return found


async def get(session: AsyncSession, ident: int, *, viewer: Viewer) -> Memory:
    """Return one memory; raises NotFound also where the viewer may not see it."""
    return (await known_to(session, [ident], viewer))[ident]


async def listing(
    session: AsyncSession,
    *,
    viewer: Viewer,
    room: str | None = None,
    lifecycles: Sequence[Lifecycle] = IN_FORCE,
    before: int | None = None,
    limit: int = 50,
) -> list[Memory]:
    """Return memories that the viewer may see, newest first, from below the id `before`."""
    await enter(session, viewer)
    query = select(Memory).where(visible(viewer), Memory.lifecycle.in_([one.value for one in lifecycles]))
    if room is not None:
        query = query.where(Memory.room == room_name(room))
    if before is not None:
        query = query.where(Memory.id < before)
    return list((await session.scalars(query.order_by(Memory.id.desc()).limit(limit))).all())
