"""What the brain needs now and then in each process: uses written down, names learned, memories aged. Owns how often.

A loop of its own: making the vectors of a whole store takes hours, and none of this waits for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic

import structlog
from sqlalchemy.exc import SQLAlchemyError

from opencognit.brain import ageing, vocabulary
from opencognit.brain.facade import Brain
from opencognit.errors import OpenCognitError

log = structlog.get_logger(__name__)

PAUSE_S = 5.0
NAMES_S = 60.0
AGEING_S = 3600.0


@dataclass(slots=True)
class Caretaker:
    """Looks after one process's brain."""

    brain: Brain
    _names_due: float = field(default=0.0, init=False)
    _ageing_due: float = field(default=0.0, init=False)

    async def keep(self) -> None:
        """Look after the brain until cancelled."""
        while True:
            try:
                await self.look_after()
            except (OpenCognitError, SQLAlchemyError, OSError) as error:
                log.warning("brain.not_looked_after", error=str(error)[:300])
            except Exception:  # a row that nobody foresaw must not end the node
                log.exception("brain.not_looked_after")
            await asyncio.sleep(PAUSE_S)

    async def look_after(self) -> None:
        """Do what is due. Uses come first: what was just given to somebody does not age."""
        await self.brain.uses.flush(self.brain.db)
        if monotonic() >= self._names_due:
            await vocabulary.learn(self.brain.db)
            self._names_due = monotonic() + NAMES_S
        if monotonic() >= self._ageing_due:
            await self._age()
            self._ageing_due = monotonic() + AGEING_S

    async def _age(self) -> None:
        """In batches, so that nobody waits long for a memory that is being marked."""
        marked = 0
        while found := await self.brain.db.retrying(ageing.age):
            marked += found
        if marked:
            log.info("memories.aged", memories=marked)
