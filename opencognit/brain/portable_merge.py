"""What an import does once its whole file has been read: staged rows become memories, entities and edges. Knows no file.

Until then they wait in tables of the transaction's own, which nobody else sees; the few statements here then take as long as
the data does, not as the file is slow.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.portable_lines import Rows
from opencognit.brain.relations import ORDERED
from opencognit.errors import InvalidInput
from opencognit.models import MemoryEdge
from opencognit.states import WEAKEST_FIRST, Relation

_STAGE = MetaData()
_OWN: Mapping[str, Any] = {"prefixes": ["TEMPORARY"], "postgresql_on_commit": "DROP"}
_WHEN = DateTime(timezone=True)

MEMORIES = Table(
    "imported_memories",
    _STAGE,
    Column("line", BigInteger, primary_key=True, autoincrement=False),
    Column("file_id", Text, index=True),
    Column("memory_id", BigInteger),
    Column("merged", Boolean, nullable=False, server_default=text("false")),
    *(Column(name, Text) for name in ("type", "room", "scope", "owner", "trust", "lifecycle", "content", "context", "language")),
    Column("confidence", Double),
    Column("content_hash", LargeBinary),
    Column("search_text", Text),
    Column("terms", LargeBinary),
    Column("content_terms", Integer),
    Column("index_version", SmallInteger),
    Column("evidence", BigInteger),
    Column("source_agent", Text),
    Column("source_run_id", BigInteger),
    Column("source_task_id", BigInteger),
    *(Column(name, _WHEN) for name in ("valid_from", "valid_to", "created_at", "updated_at", "retired_at", "used_at")),
    Column("uses", BigInteger),
    **_OWN,
)
ENTITIES = Table(
    "imported_entities", _STAGE, Column("line", BigInteger), *(Column(name, Text) for name in ("kind", "key", "role")), **_OWN
)
RELATIONS = Table(
    "imported_relations",
    _STAGE,
    Column("line", BigInteger),
    Column("position", Integer),
    *(Column(name, Text) for name in ("relation", "target", "created_by")),
    Column("created_at", _WHEN),
    **_OWN,
)

TWICE = text("""
SELECT file_id, min(line) AS first, max(line) AS last FROM imported_memories
 WHERE file_id IS NOT NULL GROUP BY file_id HAVING count(*) > 1 ORDER BY first LIMIT 1
""")
SAME = text("""
-- A memory that this brain has had all along, whatever has become of it here: the same words in the same scope, stored at the
-- same instant. Importing a file twice changes nothing, and brings back nothing that was put away meanwhile.
UPDATE imported_memories i SET memory_id = found.id, merged = true
  FROM (SELECT DISTINCT ON (s.line) s.line, m.id
          FROM imported_memories s JOIN memories m USING (scope, owner, content_hash, created_at)
         ORDER BY s.line, (m.lifecycle = s.lifecycle) DESC, m.id) found
 WHERE found.line = i.line
""")
NUMBER = text("""
-- Every other one gets its number, in the file's order; of lines in force that say the same only the first.
UPDATE imported_memories i SET memory_id = numbered.id
  FROM (SELECT line, nextval(pg_get_serial_sequence('memories', 'id')) AS id
          FROM (SELECT min(line) AS line FROM imported_memories WHERE memory_id IS NULL
                 GROUP BY scope, owner, content_hash, CASE WHEN lifecycle IN ('active', 'stale') THEN 0 ELSE line END
                 ORDER BY 1) firsts) numbered
 WHERE numbered.line = i.line
""")
STORE = text("""
-- One memory in force per scope and content (uq_memories_content): one that is here already stays, locked for MERGE.
INSERT INTO memories (id, type, room, scope, owner, trust, lifecycle, confidence, content, content_hash, context, language,
       search_text, terms, content_terms, index_version, evidence, source_agent, source_run_id, source_task_id, valid_from,
       valid_to, created_at, updated_at, retired_at)
OVERRIDING SYSTEM VALUE
SELECT memory_id, type, room, scope, owner, trust, lifecycle, confidence, content, content_hash, context, language,
       search_text, terms, content_terms, index_version, evidence, source_agent, source_run_id, source_task_id, valid_from,
       valid_to, coalesce(created_at, now()), coalesce(updated_at, created_at, now()),
       CASE WHEN lifecycle NOT IN ('active', 'stale') THEN coalesce(retired_at, updated_at, created_at, now()) END
  FROM imported_memories WHERE memory_id IS NOT NULL AND NOT merged ORDER BY line
ON CONFLICT (scope, owner, content_hash) WHERE lifecycle IN ('active', 'stale') DO UPDATE SET evidence = memories.evidence
""")
FIND = text("""
-- Whoever was not stored, since the same words are in force: that memory is theirs.
UPDATE imported_memories i SET memory_id = m.id, merged = true
  FROM memories m
 WHERE NOT i.merged AND i.lifecycle IN ('active', 'stale') AND m.lifecycle IN ('active', 'stale')
   AND (m.scope, m.owner, m.content_hash) = (i.scope, i.owner, i.content_hash) AND i.memory_id IS DISTINCT FROM m.id
""")
MERGE = text("""
-- Both know it: the stronger evidence and the stronger trust hold (not their sum: the file may come from here).
UPDATE memories m
   SET evidence = greatest(m.evidence, g.evidence),
       trust = (CAST(:weakest_first AS text[]))[greatest(array_position(CAST(:weakest_first AS text[]), m.trust), g.strength)],
       lifecycle = CASE WHEN m.lifecycle = 'stale' AND g.active THEN 'active' ELSE m.lifecycle END,
       updated_at = now()
  FROM (SELECT memory_id, max(evidence) AS evidence, bool_or(lifecycle = 'active') AS active,
               max(array_position(CAST(:weakest_first AS text[]), trust)) AS strength
          FROM imported_memories WHERE merged GROUP BY memory_id) g
 WHERE m.id = g.memory_id
   AND (g.evidence > m.evidence OR g.strength > array_position(CAST(:weakest_first AS text[]), m.trust)
        OR (m.lifecycle = 'stale' AND g.active))
""")
FOLLOWING = tuple(
    map(
        text,
        (
            "INSERT INTO memory_backlog (memory_id) SELECT memory_id FROM imported_memories WHERE NOT merged",
            """INSERT INTO entities (kind, key)
               SELECT DISTINCT kind, key FROM imported_entities ORDER BY 1, 2 ON CONFLICT DO NOTHING""",
            """INSERT INTO memory_entities (memory_id, entity_id, role)
               SELECT i.memory_id, e.id, n.role FROM imported_entities n JOIN imported_memories i USING (line)
                 JOIN entities e USING (kind, key) ON CONFLICT DO NOTHING""",
            """INSERT INTO memory_uses AS u (memory_id, uses, used_at)
               SELECT memory_id, max(uses), max(used_at) FROM imported_memories
                WHERE uses > 0 AND used_at IS NOT NULL GROUP BY memory_id
               ON CONFLICT (memory_id) DO UPDATE SET uses = greatest(u.uses, excluded.uses),
                  used_at = greatest(u.used_at, excluded.used_at)""",
        ),
    )
)
DRAW = text("""
-- What was known here already stands on its own, whatever the file's writer had it from.
WITH drawn AS (
  INSERT INTO memory_edges (source_id, relation, target_id, created_by, created_at)
  SELECT s.memory_id, r.relation, t.memory_id, r.created_by, coalesce(r.created_at, now())
    FROM imported_relations r
    JOIN imported_memories s USING (line)
    JOIN imported_memories t ON t.file_id = r.target
   WHERE s.memory_id <> t.memory_id AND NOT (r.relation = 'derives_from' AND s.merged)
   ORDER BY r.line, r.position
  ON CONFLICT DO NOTHING RETURNING relation
)
SELECT relation, count(*) AS edges FROM drawn GROUP BY relation
""")
LOOSE = text("""
SELECT count(*) AS edges, min(line) AS first FROM imported_relations r
 WHERE NOT EXISTS (SELECT 1 FROM imported_memories t WHERE t.file_id = r.target)
""")
IN_CIRCLE = text("""
SELECT min(r.line) FROM imported_relations r
  JOIN imported_memories s USING (line) JOIN imported_memories t ON t.file_id = r.target
 WHERE r.relation = :relation AND s.memory_id = ANY(CAST(:ids AS bigint[])) AND t.memory_id = ANY(CAST(:ids AS bigint[]))
""")


async def begin(session: AsyncSession) -> None:
    """Make the tables that rows wait in; they go with the transaction."""
    connection = await session.connection()
    await connection.run_sync(_STAGE.drop_all)
    await connection.run_sync(_STAGE.create_all, checkfirst=False)


async def stage(session: AsyncSession, batch: Sequence[Rows]) -> None:
    """Let the rows of a few lines wait."""
    connection = await session.connection()
    waiting = (
        (MEMORIES, [rows.memory for rows in batch]),
        (ENTITIES, [one for rows in batch for one in rows.entities]),
        (RELATIONS, [one for rows in batch for one in rows.relations]),
    )
    for table, values in waiting:
        if values:
            await connection.execute(insert(table), values)


async def merge(session: AsyncSession) -> tuple[int, int]:
    """Make memories, with their entities, of all that waits; return how many are new and how many were known.

    Raises InvalidInput for a number that two lines have.
    """
    for table in (MEMORIES, ENTITIES, RELATIONS):
        await session.execute(text(f"ANALYZE {table.name}"))
    if (twice := (await session.execute(TWICE)).first()) is not None:
        raise InvalidInput(f"line {twice.last}", f"id: {twice.file_id!r} is line {twice.first}'s too: give each line its own")
    for statement in (SAME, NUMBER, STORE, FIND):
        await session.execute(statement)
    await session.execute(MERGE, {"weakest_first": [tier.value for tier in WEAKEST_FIRST]})
    for statement in FOLLOWING:
        await session.execute(statement)
    known = func.count().filter(MEMORIES.c.merged)
    lines, merged = (await session.execute(select(func.count(), known).select_from(MEMORIES))).one()
    return lines - merged, merged


async def draw(session: AsyncSession) -> int:
    """Draw the edges that wait; return how many are new. Raises InvalidInput where one closes a circle."""
    await draw_alone(session)
    drawn = {row.relation: row.edges for row in await session.execute(DRAW)}
    for relation in sorted(ORDERED & drawn.keys()):
        await _refuse_circle(session, Relation(relation))
    return sum(drawn.values())


async def draw_alone(session: AsyncSession) -> None:
    """Let nobody else draw what may close a circle with ours until the transaction ends; relations.draw has the same locks."""
    for relation in sorted(ORDERED):
        await session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"edges:{relation.value}", 0))))


async def loose(session: AsyncSession) -> tuple[int, int | None]:
    """Return how many edges lead to a memory that is not in the file, and the first line that has one."""
    found = (await session.execute(LOOSE)).one()
    return found.edges, found.first


async def _refuse_circle(session: AsyncSession, relation: Relation) -> None:
    query = select(MemoryEdge.source_id, MemoryEdge.target_id).where(MemoryEdge.relation == relation.value)
    ends = array("q")
    async for source, target in await session.stream(query.execution_options(yield_per=10_000)):
        ends.extend((source, target))
    found = circle(np.frombuffer(ends, dtype=np.int64).reshape(-1, 2))
    if not found:
        return
    line = (await session.execute(IN_CIRCLE, {"relation": relation.value, "ids": found})).scalar_one()
    said = f"its memory {relation} one that {relation} it, directly or by others: a circle; leave one of them out"
    raise InvalidInput(f"line {line}", f"relations: {said}")


def circle(edges: NDArray[np.int64]) -> list[int]:
    """Return the nodes of a circle among (n, 2) edges, empty where there is none. Linear (Kahn 1962)."""
    nodes, inverse = np.unique(edges.ravel(), return_inverse=True)
    pairs = inverse.reshape(-1, 2)
    places = pairs[np.argsort(pairs[:, 0], kind="stable")]
    starts = np.searchsorted(places[:, 0], np.arange(len(nodes) + 1))
    waits_for = np.bincount(places[:, 1], minlength=len(nodes)).tolist()
    free = [at for at, count in enumerate(waits_for) if not count]
    while free:
        at = free.pop()
        for reached in places[starts[at] : starts[at + 1], 1].tolist():
            waits_for[reached] -= 1
            if not waits_for[reached]:
                free.append(reached)
    left = np.asarray(waits_for, dtype=bool)
    # Whatever is left has a predecessor that is left too: going back, one comes round.
    before = {target: source for source, target in places[left[places[:, 0]] & left[places[:, 1]]].tolist()}
    way: dict[int, None] = {}
    at = next(iter(before), -1)
    while at in before and at not in way:
        way[at] = None
        at = before[at]
    passed = list(way)
    return [int(nodes[one]) for one in passed[passed.index(at) :]] if passed else []
