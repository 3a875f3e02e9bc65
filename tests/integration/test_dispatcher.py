"""The dispatcher's loop by itself: when it looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from opencognit.db import Database
from opencognit.engine import dispatcher
from opencognit.engine.dispatcher import Dispatcher
from opencognit.engine.runner import Active, Runner
from opencognit.states import Priority
from opencognit.testing import until
from opencognit.work import claims
from tests.integration import company


class _Idle:
    """A runner whose runs do nothing and never end."""

    async def prepare(self, batch: Sequence[Active]) -> None:
        pass

    async def run_once(self, active: Active) -> None:
        await asyncio.Event().wait()


async def test_a_claimer_behind_another_looks_again_soon(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It got in line behind what the other took and came away with nothing: what it has not seen is found without a poll."""
    monkeypatch.setattr(dispatcher, "POLL_S", 3600.0)
    await company.hire(db, company.spec("ceo"), company.spec("ann"), company.spec("bob"))
    for _ in range(20):
        await company.give(db, "ann", priority=Priority.HIGH)
    await company.give(db, "bob")

    async def bobs() -> Any:
        return await company.rows(db, "SELECT 1 FROM runs WHERE agent = 'bob' AND node_id = 'second'")

    async with asyncio.TaskGroup() as group:
        second = Dispatcher(db, cast(Runner, _Idle()), group, "second", capacity=4, lease_s=30, ttl_s=1800)
        async with db.transaction() as session:
            assert len(await claims.claim(session, "first", capacity=4, lease_s=30, ttl_s=1800)) == 1
            keeping = group.create_task(second.keep())
            await until(lambda: company.waits(db))
        await until(bobs, timeout_s=10)
        keeping.cancel()
        for active in second.active.values():
            assert active.task is not None
            active.task.cancel()
