"""How long what went wrong waits before its next try, and what becomes of a run that has no task to keep count of it.

Owns no counter: how often a wake went wrong stands in the chain of its runs, each the cause of the next one's wakeup.
"""

from __future__ import annotations

import random

from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.config import Retry
from opencognit.models import Run
from opencognit.states import WakeupSource
from opencognit.work import escalation, runs, wakeups


def wait_s(retry: Retry, failures: int, wish_s: float | None) -> float:
    """Return the seconds before the try that follows failure number `failures`; what the provider wishes is the least."""
    waiting_s: float = retry.delays_s[failures - 1] * (1 + retry.jitter * random.random())
    return max(waiting_s, wish_s or 0.0)


async def again(session: AsyncSession, run: Run, note: str, *, delay_s: float = 0.0) -> None:
    """Wake the agent of a run without a task once more."""
    await wakeups.request(
        session, run.agent, WakeupSource.RETRY, note=note, delay_s=delay_s, cause_run_id=run.id, depth=run.depth
    )


async def failed(session: AsyncSession, run: Run, error: str, retry: Retry, *, retryable: bool, wish_s: float | None) -> None:
    """Follow up the booked failure of a run without a task: later again, as long as a task would be; else tell the board."""
    failures = (await runs.tries(session, run.id)).failures
    if retryable and failures <= len(retry.delays_s):
        delay_s = wait_s(retry, failures, wish_s)
        await again(session, run, f"attempt {failures} failed: {error}; again in {delay_s / 60:.0f} min", delay_s=delay_s)
        return
    await escalation.tell_of_wake(session, run.agent, f"its run {run.id} failed at attempt {failures}: {error}")


async def lost(session: AsyncSession, run: Run, *, limit: int) -> None:
    """Follow up a run without a task that was lost with its node: again, and at `limit` losses in a row tell the board."""
    count = (await runs.tries(session, run.id)).lost
    if count < limit:
        await again(session, run, "its node was lost")
        return
    await escalation.tell_of_wake(session, run.agent, f"{count} runs in a row were lost with their nodes, the last is {run.id}")
