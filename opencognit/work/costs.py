"""What work has cost, summed by whom it was for. Reads only; booking is runs.py's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from sqlalchemy import ColumnElement, Text, cast, func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.models import Cost, Goal

CostBy = Literal["agent", "goal", "model", "day"]


@dataclass(frozen=True, slots=True)
class Total:
    """One line of the account. `known_usd` sums the calls whose price is known; `unpriced` counts the others."""

    key: str
    title: str
    calls: int
    known_usd: Decimal
    unpriced: int
    tokens_in: int | None
    tokens_out: int | None

    @property
    def cost_usd(self) -> Decimal | None:
        """The whole sum, None where it is not wholly known."""
        return self.known_usd if not self.unpriced else None


async def totals(session: AsyncSession, by: CostBy, *, since: datetime | None = None, zone: str = "UTC") -> Sequence[Total]:
    """Return the sums by `by`: the dearest first, days in their order (a day is one of `zone`)."""
    key = _key(by, zone).label("key")
    known = func.coalesce(func.sum(Cost.cost_usd), 0).label("known")
    query = (
        select(
            key,
            func.coalesce(func.min(Goal.title), "").label("title"),
            func.count().label("calls"),
            known,
            func.count().filter(Cost.cost_usd.is_(None)).label("unpriced"),
            func.sum(Cost.tokens_in).label("tokens_in"),
            func.sum(Cost.tokens_out).label("tokens_out"),
        )
        .select_from(Cost)
        .outerjoin(Goal, (Goal.id == Cost.goal_id) & (literal(by == "goal")))
        .group_by(key)
        .order_by(key if by == "day" else known.desc(), key)
    )
    if since is not None:
        query = query.where(Cost.booked_at >= since)
    return [
        Total(row.key, row.title, row.calls, Decimal(row.known), row.unpriced, _whole(row.tokens_in), _whole(row.tokens_out))
        for row in await session.execute(query)
    ]


def _key(by: CostBy, zone: str) -> ColumnElement[str]:
    match by:
        case "agent":
            return Cost.agent.expression
        case "model":
            return Cost.model.expression
        case "goal":
            return func.coalesce(cast(Cost.goal_id, Text), "")
        case "day":
            return func.to_char(func.timezone(zone, Cost.booked_at), "YYYY-MM-DD")


def _whole(number: Decimal | None) -> int | None:
    """The sum of bigints is a numeric."""
    return None if number is None else int(number)
