"""Ways to take one fence of the engine away, in a test's process or in its database. Says nothing of what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Select, TextClause, select, text
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import Database
from opencognit.errors import StaleToken
from opencognit.models import Run
from opencognit.states import RunState
from opencognit.work import locks, runs, wakeups


@dataclass(frozen=True)
class Off:
    """One fence, and how to take it away in the test's process and database."""

    in_code: Callable[[pytest.MonkeyPatch], None] | None = None
    in_schema: str | None = None

    async def take_away(self, patch: pytest.MonkeyPatch, db: Database) -> None:
        if self.in_code is not None:
            self.in_code(patch)
        if self.in_schema is not None:
            async with db.transaction() as session:
                await session.execute(text(self.in_schema))


def without(module: Any, name: str, part: str, instead: str = "true") -> Off:
    """Replace a condition in a statement; it must be there exactly once."""

    def cut(patch: pytest.MonkeyPatch) -> None:
        statement: TextClause = getattr(module, name)
        assert statement.text.count(part) == 1, f"{name} has no single {part!r} any more: this mutant must follow it"
        patch.setattr(module, name, text(statement.text.replace(part, instead)))

    return Off(cut)


class _Unlocked(Select[Any]):
    inherit_cache = True

    def with_for_update(self, **_: Any) -> _Unlocked:
        return self


class _Joinless(Insert):
    inherit_cache = True

    def on_conflict_do_update(self, **_: Any) -> _Joinless:  # type: ignore[override]
        return self


def unlocked(module: Any) -> Off:
    """Let the module's queries lock nothing."""
    return Off(lambda patch: patch.setattr(module, "select", _Unlocked))


def dropped(index: str) -> Off:
    return Off(in_schema=f"DROP INDEX {index}")


def loosened(part: str) -> Off:
    """Take the `token` or the `status` out of the fence in front of every booking."""

    def loosen(patch: pytest.MonkeyPatch) -> None:
        missing = {part, *getattr(locks.fence, "missing", ())}

        async def fence(session: AsyncSession, run_id: int, token: int) -> Run:
            query = select(Run).where(Run.id == run_id).with_for_update()
            query = query if "token" in missing else query.where(Run.token == token)
            query = query if "status" in missing else query.where(Run.status == RunState.RUNNING)
            run = (await session.execute(query)).scalar_one_or_none()
            if run is None:
                raise StaleToken(run_id, token)
            return run

        fence.missing = missing  # type: ignore[attr-defined]
        patch.setattr(locks, "fence", fence)

    return Off(loosen)


ANY_STEP = Off(lambda patch: patch.setattr(runs, "RUN_STEPS", dict.fromkeys(RunState, frozenset(RunState))))
UNJOINED = Off(lambda patch: patch.setattr(wakeups, "insert", _Joinless))
