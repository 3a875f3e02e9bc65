"""Which memories name which entities. Owns entities and memory_entities."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.entities import canonical, extract
from opencognit.brain.visibility import enter, visible
from opencognit.brain.vocabulary import names
from opencognit.contracts import EntityRef, Viewer
from opencognit.models import Entity, Memory, MemoryEntity

LINK = text("""
-- Each entity once (uq_entities_kind_key); in one order for all writers, so that two who name the same never wait for each
-- other crosswise. A name that another transaction is just bringing in is waited for, not seen, and left to the second try.
WITH given AS (
  SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:keys AS text[]), CAST(:roles AS text[])) AS g (kind, key, role)
), found AS (
  SELECT e.id, kind, key FROM (SELECT DISTINCT kind, key FROM given) AS g JOIN entities e USING (kind, key)
), brought AS (
  INSERT INTO entities (kind, key)
  SELECT DISTINCT kind, key FROM given g
   WHERE NOT EXISTS (SELECT 1 FROM found f WHERE f.kind = g.kind AND f.key = g.key)
   ORDER BY kind, key
  ON CONFLICT DO NOTHING
  RETURNING id, kind, key
), named AS (
  SELECT id, kind, key FROM found UNION ALL SELECT id, kind, key FROM brought
), linked AS (
  INSERT INTO memory_entities (memory_id, entity_id, role)
  SELECT :memory_id, n.id, g.role FROM given g JOIN named n USING (kind, key)
  ON CONFLICT DO NOTHING
)
SELECT count(*) FROM given g WHERE NOT EXISTS (SELECT 1 FROM named n WHERE n.kind = g.kind AND n.key = g.key)
""")


IDENTS = text("""
SELECT e.id FROM unnest(CAST(:kinds AS text[]), CAST(:keys AS text[])) AS g (kind, key) JOIN entities e USING (kind, key)
""")
INLINE_CHARS = 4000
"""Texts up to this length are read on the loop: a thread costs more than the few milliseconds that they take."""


async def read(session: AsyncSession, content: str, given: Sequence[EntityRef] = ()) -> list[EntityRef]:
    """Return what a text is about: what its writer gave, in the role that he gave it, and what else it mentions."""
    stored = [EntityRef(kind=kind, key=key, role=one.role) for one in given for kind, key in [canonical(one.kind, one.key)]]
    known = names(session)
    shown = extract(content, known) if len(content) <= INLINE_CHARS else await asyncio.to_thread(extract, content, known)
    have = {(one.kind, one.key) for one in stored}
    return [*stored, *(one for one in shown if (one.kind, one.key) not in have)]


async def idents(session: AsyncSession, named: Sequence[EntityRef]) -> list[int]:
    """Return the ids of those that some memory names."""
    if not named:
        return []
    parameters = {"kinds": [one.kind for one in named], "keys": [one.key for one in named]}
    return list((await session.execute(IDENTS, parameters)).scalars())


async def link(session: AsyncSession, ident: int, named: Sequence[EntityRef]) -> None:
    """Say that a memory names these entities, as `read` gives them."""
    if not named:
        return
    kinds, keys, roles = zip(*sorted({(one.kind, one.key, one.role.value) for one in named}), strict=True)
    parameters = {"memory_id": ident, "kinds": list(kinds), "keys": list(keys), "roles": list(roles)}
    while (await session.execute(LINK, parameters)).scalar_one():
        continue


async def entities_of(session: AsyncSession, idents: Sequence[int], *, viewer: Viewer) -> dict[int, list[EntityRef]]:
    """Return the entities of each memory; none for one that the viewer may not see."""
    await enter(session, viewer)
    found: dict[int, list[EntityRef]] = {ident: [] for ident in idents}
    query = (
        select(MemoryEntity.memory_id, Entity.kind, Entity.key, MemoryEntity.role)
        .join(Entity, Entity.id == MemoryEntity.entity_id)
        .join(Memory, Memory.id == MemoryEntity.memory_id)
        .where(MemoryEntity.memory_id.in_(idents), visible(viewer))
        .order_by(MemoryEntity.memory_id, Entity.kind, Entity.key)
    )
    for row in await session.execute(query):
        found[row.memory_id].append(EntityRef(kind=row.kind, key=row.key, role=row.role))
    return found
