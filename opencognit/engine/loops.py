"""Ending what runs beside the work. Knows no loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

AGAIN_S = 2.0
"""How long a loop may take to its end before it is cancelled once more."""


async def ended(loops: Iterable[asyncio.Task[None]]) -> None:
    """Cancel loops until they are over.

    Once is not enough: a cancel that hits a query comes out of the driver as the error of a lost session, which a loop is
    made to survive. What a loop raises is its task group's to hear of.
    """
    waiting = set(loops)
    while waiting:
        for loop in waiting:
            loop.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_S)
