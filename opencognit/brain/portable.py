"""Memories as JSON Lines, out and in again: nothing is lost but their numbers. Never holds a whole file.

A line has the keys of a memory (CONTRACT.md) and those that the rest needs: `owner`, `evidence`, `uses`, `used_at`, `updated_at`,
`retired_at`, and `relations`, the edges that go out from it. Vectors are not among them: they are made anew.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import ScalarSelect, Select, func, literal, select, text
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from opencognit import shapes
from opencognit.brain import portable_lines, portable_merge
from opencognit.brain.portable_lines import LINE_LIMIT, Rows
from opencognit.brain.visibility import enter, visible
from opencognit.contracts import Viewer
from opencognit.errors import Refused
from opencognit.models import Entity, Memory, MemoryEdge, MemoryEntity, MemoryUse

FETCHED = 100
"""Memories that the server sends at a time."""
BATCH_LINES, BATCH_BYTES = 500, 4_000_000
"""What is read of a file before it is sent."""
NAMED = 100
"""Unknown keys that are told one by one."""
PATIENT = text("SET LOCAL idle_in_transaction_session_timeout = '1h'")
"""Whoever reads an export may be slow, and so is reading a million texts."""

_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys, and what some programs take for the end of a line."""


class Readable(Protocol):
    """A binary file."""

    def readline(self, limit: int, /) -> bytes: ...


@dataclass(slots=True)
class Unknown:
    """In how many lines a key stood, and in which first."""

    lines: int
    first: int


@dataclass(slots=True)
class Imported:
    """What came of a file. `stored` and `known` count its lines, `edges` what was drawn; `loose` edges led out of the file.

    `unknown` has at most NAMED keys, `more_unknown` counts the lines with others.
    """

    stored: int = 0
    known: int = 0
    edges: int = 0
    loose: int = 0
    loose_line: int | None = None
    unknown: dict[str, Unknown] = field(default_factory=dict)
    more_unknown: int = 0

    def shape(self) -> shapes.Shape:
        keys = [{"key": key, "lines": one.lines, "first_line": one.first} for key, one in self.unknown.items()]
        told = {"stored": self.stored, "known": self.known, "relations": self.edges, "relations_left_out": self.loose}
        return {**told, "unknown_keys": keys}


async def export(session: AsyncSession, *, viewer: Viewer) -> AsyncGenerator[str, None]:
    """Yield every memory that the viewer may see, retired ones too, oldest first, each as a line without its end.

    Expects a transaction; whoever may stop before the end closes it (`contextlib.aclosing`). One statement, so all lines are of
    one moment; an edge is told where both its ends are.
    """
    await enter(session, viewer)
    await session.execute(PATIENT)
    rows = await session.stream(_exported(viewer).execution_options(yield_per=FETCHED))
    try:
        async for row in rows:
            yield _line(row)
    finally:
        await rows.close()


def _line(row: Any) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(_shape(row), ensure_ascii=False))


def _exported(viewer: Viewer) -> Select[Any]:
    columns = [column for name, column in Memory.__table__.c.items() if name not in _DERIVED]
    query = select(*columns, MemoryUse.uses, MemoryUse.used_at, _named().label("entities"), _drawn(viewer).label("relations"))
    return query.outerjoin(MemoryUse, MemoryUse.memory_id == Memory.id).where(visible(viewer)).order_by(Memory.id)


_DERIVED = frozenset({"content_hash", "language", "search_text", "search", "terms", "content_terms", "index_version"})


def _named() -> ScalarSelect[Any]:
    one = func.jsonb_build_object("kind", Entity.kind, "key", Entity.key, "role", MemoryEntity.role, type_=JSONB)
    listed = func.jsonb_agg(aggregate_order_by(one, Entity.kind, Entity.key, MemoryEntity.role), type_=JSONB)
    query = select(func.coalesce(listed, literal([], JSONB))).select_from(MemoryEntity)
    return (
        query.join(Entity, Entity.id == MemoryEntity.entity_id)
        .where(MemoryEntity.memory_id == Memory.id)
        .correlate(Memory)
        .scalar_subquery()
    )


def _drawn(viewer: Viewer) -> ScalarSelect[Any]:
    target, edge = aliased(Memory), MemoryEdge
    ends = ("relation", edge.relation, "target_id", edge.target_id)
    one = func.jsonb_build_object(*ends, "created_by", edge.created_by, "created_at", edge.created_at, type_=JSONB)
    listed = func.jsonb_agg(aggregate_order_by(one, edge.id), type_=JSONB)
    query = select(func.coalesce(listed, literal([], JSONB))).select_from(edge).join(target, target.id == edge.target_id)
    return query.where(edge.source_id == Memory.id, visible(viewer, target)).correlate(Memory).scalar_subquery()


def _shape(row: Any) -> shapes.Shape:
    relations = [
        {
            "relation": one["relation"],
            "target_id": str(one["target_id"]),
            "created_by": one["created_by"],
            "created_at": shapes.time(datetime.fromisoformat(one["created_at"])),
        }
        for one in row.relations
    ]
    return {
        **shapes.memory(row, row.entities),
        "updated_at": shapes.time(row.updated_at),
        "retired_at": shapes.time(row.retired_at),
        "owner": row.owner or None,
        "evidence": row.evidence,
        "uses": row.uses or 0,
        "used_at": shapes.time(row.used_at),
        "relations": relations,
    }


async def import_(session: AsyncSession, source: Readable, *, viewer: Viewer) -> Imported:
    """Take in the lines of an export, or lines that say less; only `content` must be there. Expects a transaction.

    Memories get new numbers and keep all else; without a word on it, one is `asserted`. The same content in the same scope is
    one memory, with the stronger evidence and trust of both; a file that was imported before changes nothing. Entities are
    those that the line names. Raises Refused for anyone but the board, InvalidInput for the first line that is wrong: then
    the transaction must not be committed.
    """
    if not viewer.is_board:
        raise Refused(f"agent {viewer.agent!r} may not import memories, which bring their own trust: the board does")
    await enter(session, viewer)
    await session.execute(PATIENT)
    await portable_merge.begin(session)
    imported = Imported()
    lines = _numbered(source)
    while batch := await asyncio.to_thread(_batch, lines):
        await portable_merge.stage(session, batch)
        for rows in batch:
            _note_unknown(imported, rows)
    imported.stored, imported.known = await portable_merge.merge(session)
    imported.edges = await portable_merge.draw(session)
    imported.loose, imported.loose_line = await portable_merge.loose(session)
    return imported


def _numbered(source: Readable) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers; of one that is too long only its beginning, as the last."""
    number = 0
    while raw := source.readline(LINE_LIMIT + 1):
        number += 1
        if raw.strip():
            yield number, raw


def _batch(lines: Iterator[tuple[int, bytes]]) -> list[Rows]:
    batch, size = [], 0
    for number, raw in lines:
        batch.append(portable_lines.rows(number, raw))
        size += len(raw)
        if len(batch) >= BATCH_LINES or size >= BATCH_BYTES:
            break
    return batch


def _note_unknown(imported: Imported, rows: Rows) -> None:
    line = rows.memory["line"]
    more = False
    for key in dict.fromkeys(key[:200] for key in rows.unknown):
        if key in imported.unknown:
            imported.unknown[key].lines += 1
        elif len(imported.unknown) < NAMED:
            imported.unknown[key] = Unknown(1, line)
        else:
            more = True
    imported.more_unknown += more
