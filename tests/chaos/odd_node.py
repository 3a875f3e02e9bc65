"""A node with one thing wrong with it, for chaos tests: `python -m tests.chaos.odd_node --home HOME ODDITY worker ...`.

Owns the oddities; each patches one place of the engine in this process alone, and everything else is the real node.
"""

from __future__ import annotations

import datetime
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import adapters
from opencognit.adapters.warden import Warden
from opencognit.cli import main
from opencognit.contracts import Briefing, RunContext, RunResult
from opencognit.db import Database
from opencognit.engine import runner
from opencognit.engine.leases import Leases
from opencognit.errors import Unreachable
from opencognit.models import Run
from opencognit.states import CancelMode
from opencognit.work import closing, locks

HOUR_S = 3600.0


def once(workspace: Path, name: str) -> bool:
    """Whether this is the first time, whichever process asks."""
    workspace.mkdir(parents=True, exist_ok=True)
    try:
        (workspace / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Blocking:
    """An adapter that blocks its node's event loop for a while at its first attempt."""

    name = "blocking"

    def check(self, config: dict[str, Any]) -> str | None:
        return None

    async def run(self, briefing: Briefing, context: RunContext) -> RunResult:
        if once(context.workspace, "blocked"):
            time.sleep(float(context.config["seconds"]))  # noqa: ASYNC251 - that is what is wrong with it
        return RunResult(text=f"effect of task {briefing.task.id}" if briefing.task else "")


def blocking() -> None:
    """It knows the adapter that blocks."""
    adapters.BUILT_IN["blocking"] = f"{Blocking.__module__}:Blocking"


def _shift(seconds: float) -> None:
    """Move the wall clock of everything here that looks at it."""
    import apscheduler.schedulers.base
    import apscheduler.triggers.interval  # noqa: F401 - all that keeps the name `datetime` must be there before

    import opencognit.engine.node  # noqa: F401

    real, by = time.time, datetime.timedelta(seconds=seconds)

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.now(tz) + by

    time.time = lambda: real() + seconds
    print(f"its clock says {time.time()}", file=sys.stderr, flush=True)
    for name, module in list(sys.modules.items()):
        if name.startswith(("opencognit", "apscheduler")) and getattr(module, "datetime", None) is datetime.datetime:
            module.datetime = Shifted  # type: ignore[attr-defined]


def clock_ahead() -> None:
    """Its clock is an hour fast."""
    _shift(HOUR_S)


def clock_behind() -> None:
    """Its clock is an hour slow."""
    _shift(-HOUR_S)


def lost_answers() -> None:
    """A fifth of its commits take effect without its getting to know, once it has begun."""
    real, chance, served = Database.transaction, random.Random(os.getpid()), itertools.count()

    @asynccontextmanager
    async def transaction(self: Database) -> AsyncIterator[AsyncSession]:
        async with real(self) as session:
            yield session
        if next(served) > 10 and chance.random() < 0.2:
            raise Unreachable("the answer to a commit was lost")

    Database.transaction = transaction  # type: ignore[method-assign]


def _freeze_once(home: Path) -> None:
    if once(home / "data" / "runtime", "frozen"):
        os.kill(os.getpid(), signal.SIGSTOP)


def frozen_booking() -> None:
    """It freezes in the middle of its first booking, with the rows locked."""
    home, real = Path(sys.argv[2]), closing.close

    async def close(session: AsyncSession, given: Sequence[closing.Plain]) -> set[int]:
        closed = await real(session, given)
        _freeze_once(home)
        return closed

    closing.close = close


def frozen_start() -> None:
    """It freezes between a claim and the start of what was claimed, with nothing left to wait for."""
    home, real = Path(sys.argv[2]), runner.Runner._brief

    def brief(self: runner.Runner, *known: Any) -> Briefing:
        _freeze_once(home)
        return real(self, *known)

    runner.Runner._brief = brief  # type: ignore[assignment, method-assign]


def late_renewal() -> None:
    """Once, the lease of its run is renewed late, and by an answer that comes after its warden has given it up."""
    real = Leases.renew
    late = {"tries": 0}

    async def renew(self: Leases) -> None:
        late["tries"] += bool(self._active)
        if late["tries"] in (1, 2):
            raise OSError("the database is slow")
        await real(self)
        if late["tries"] == 3:
            held_up_s = self._renewed_at + self._lease_s - time.monotonic()
            time.sleep(held_up_s)  # noqa: ASYNC251 - the process is held up past the warden's deadline

    Leases.renew = renew  # type: ignore[method-assign]


def no_token() -> None:
    """Its writes are not fenced by the token, nor by the run's state."""

    async def fence(session: AsyncSession, run_id: int, token: int) -> Run:
        return (await session.execute(select(Run).where(Run.id == run_id).with_for_update())).scalar_one()

    async def close(session: AsyncSession, given: Sequence[closing.Plain]) -> set[int]:
        return set()

    locks.fence, closing.close = fence, close


def no_warden() -> None:
    """Nothing on its side ends a run whose lease is over: neither its warden nor itself."""
    real = runner.Active.stop

    def stop(self: runner.Active, mode: CancelMode | None, by: str) -> None:
        if mode is not None:
            real(self, mode, by)

    runner.Active.stop = stop  # type: ignore[method-assign]
    Warden.keep_until = lambda self, deadline: None  # type: ignore[method-assign]
    Leases.valid = lambda self: True  # type: ignore[method-assign]


ODDITIES: tuple[Callable[[], None], ...] = (
    blocking,
    clock_ahead,
    clock_behind,
    lost_answers,
    frozen_booking,
    frozen_start,
    late_renewal,
    no_token,
    no_warden,
)

if __name__ == "__main__":
    wanted = sys.argv.pop(3)
    next(one for one in ODDITIES if one.__name__ == wanted.replace("-", "_"))()
    sys.exit(main(sys.argv[1:]))
