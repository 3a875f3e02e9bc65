"""What a run may use of the world, and its log. Owns the buffer between an adapter's chatter and the database."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from opencognit.adapters.warden import Warden
from opencognit.brain import Brain, Hit
from opencognit.contracts import BriefingMemory, RunLimits, TeamMember, Viewer
from opencognit.db import Database
from opencognit.errors import OpenCognitError
from opencognit.states import MemoryType, Trust
from opencognit.textclean import clean
from opencognit.work import runs

log = structlog.get_logger(__name__)

FLUSH_S = 0.5
PIECE = 64 * 1024
"""Characters in one row of the log at most."""


class RunLogWriter:
    """Keeps the head of what a run prints, then only its tail: half of `limit` bytes each, whatever comes.

    Rows are written under the run's token; once the run is somebody else's, the rest is dropped.
    """

    def __init__(self, db: Database, run_id: int, token: int, limit: int) -> None:
        self._db, self._run_id, self._token = db, run_id, token
        self._room = self._half = max(limit // 2, PIECE)
        self._waiting: list[tuple[str, str]] = []
        self._tail: deque[tuple[str, str, int]] = deque()
        self._tail_size = self._left_out = self._seq = 0
        self._fenced = False
        self._writing = asyncio.Lock()

    def add(self, chunk: str, stream: str) -> None:
        """Take a chunk; never waits."""
        raw = chunk.encode("utf-8", "replace")
        if len(raw) <= self._room:
            self._waiting.append((stream, chunk))
            self._room -= len(raw)
            return
        head, rest = raw[: self._room], raw[self._room :]
        if head:
            self._waiting.append((stream, head.decode("utf-8", "ignore")))
        self._room = 0
        kept = rest[-self._half :]
        self._tail.append((stream, kept.decode("utf-8", "ignore"), len(kept)))
        self._left_out += len(rest) - len(kept)
        self._tail_size += len(kept)
        while self._tail_size > self._half and len(self._tail) > 1:
            dropped = self._tail.popleft()[2]
            self._tail_size -= dropped
            self._left_out += dropped

    async def keep_flushing(self) -> None:
        """Write what has come, every half second, until cancelled; while the database is away it waits here."""
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self._flush()
            except (OpenCognitError, SQLAlchemyError) as error:
                log.warning("run_log.waits", error=str(error)[:200])

    async def close(self) -> None:
        """Write the rest: what was held back of the head, a line that says what was left out, the tail."""
        if self._left_out:
            self._waiting.append(("system", f"\n[... {self._left_out} bytes left out ...]\n"))
        self._waiting.extend((stream, text) for stream, text, _ in self._tail)
        self._tail.clear()
        try:
            await self._flush()
        except (OpenCognitError, SQLAlchemyError) as error:
            log.warning("run_log.lost", error=str(error)[:200])

    async def _flush(self) -> None:
        async with self._writing:
            taken, seq = len(self._waiting), self._seq
            pieces = _joined(self._waiting[:taken])
            if self._fenced or not pieces:
                return
            async with self._db.transaction() as session:
                for stream, text in pieces:
                    seq += 1
                    if not await runs.append_log(session, self._run_id, self._token, seq, stream, clean(text)):
                        self._fenced = True
                        break
            del self._waiting[:taken]
            self._seq = seq


def _joined(chunks: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Join neighbours of one stream, so that a thousand short lines are not a thousand rows."""
    pieces: list[tuple[str, str]] = []
    for stream, text in chunks:
        if pieces and pieces[-1][0] == stream and len(pieces[-1][1]) + len(text) <= PIECE:
            pieces[-1] = (stream, pieces[-1][1] + text)
        else:
            pieces.extend((stream, text[start : start + PIECE]) for start in range(0, len(text), PIECE))
    return pieces


@dataclass(slots=True)
class Context:
    """The engine's side of contracts.RunContext."""

    db: Database
    brain: Brain
    warden: Warden
    viewer: Viewer
    writer: RunLogWriter
    run_id: int
    token: int
    home: Path
    workspace: Path
    limits: RunLimits
    config: dict[str, Any] = field(default_factory=dict)
    team: Sequence[TeamMember] = ()
    heard: dict[str, None] = field(default_factory=dict)
    """What the brain told in the course of this run: it does not come back as new."""

    async def log(self, chunk: str, *, stream: str = "stdout") -> None:
        self.writer.add(chunk, stream)

    def spawned(self, pgid: int) -> None:
        self.warden.add(pgid, self.run_id)

    def reaped(self, pgid: int) -> None:
        self.warden.remove(pgid)

    async def recall(self, query: str, *, limit: int = 10) -> Sequence[BriefingMemory]:
        hits = await self.brain.recall(query, limit=limit, viewer=self.viewer)
        found = [as_briefing_memory(hit) for hit in hits]
        self.heard |= dict.fromkeys(memory.content for memory in found)
        return found


def as_briefing_memory(hit: Hit) -> BriefingMemory:
    """Return a hit as an agent gets it."""
    memory = hit.memory
    return BriefingMemory(
        id=str(memory.id),
        type=MemoryType(memory.type),
        room=memory.room,
        trust=Trust(memory.trust),
        content=memory.content,
        created_at=memory.created_at,
        warning=hit.warning,
    )
