"""When a routine is due: cron expressions in a time zone, with days that have 23 or 25 hours right. Pure.

APScheduler's trigger matches the fields, in plain wall time. It is not given the zone: across a change of the clock it
would skip a midnight or return the repeated hour for ever, and it counts weekdays from Monday. The wall time is turned
into an instant here:

    a daily time that does not exist (spring)   runs as much later as the clock jumped: 02:30 becomes 03:30
    a daily time that comes twice (autumn)      runs the first time only
    every hour, or several times an hour        keeps its real spacing through both
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.triggers.cron import CronTrigger

from opencognit.errors import InvalidInput

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
FIELDS = ("minute", "hour", "day", "month", "day_of_week")


@dataclass(frozen=True, slots=True)
class Slot:
    """One due time. `key` names it once and for all: its wall time for daily schedules, else its time in UTC."""

    at: datetime
    key: datetime


class Schedule:
    """A checked cron expression. Raises InvalidInput saying what is wrong with it."""

    def __init__(self, cron: str, zone: str) -> None:
        fields = cron.split()
        if len(fields) != len(FIELDS):
            raise InvalidInput("cron", f"{cron!r} has {len(fields)} fields, not the five fields minute hour day month weekday")
        if fields[2] != "*" and fields[4] != "*":
            raise InvalidInput("cron", f"{cron!r} names both days and weekdays: leave one of them `*`, or write two routines")
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidInput("timezone", f"{zone!r} is not a time zone: use a name such as Europe/Berlin") from error
        fields[4] = _weekdays(fields[4], cron)
        try:
            named = dict(zip(FIELDS, fields, strict=True))
            self._trigger = CronTrigger(timezone=UTC, **named)
        except (ValueError, TypeError) as error:
            raise InvalidInput("cron", f"{cron!r}: {error}") from error
        self._spaced = fields[1].startswith("*")

    def next_after(self, moment: datetime) -> Slot:
        """Return the first slot later than `moment` (aware). Raises InvalidInput for a schedule that never comes."""
        return self._next_spaced(moment) if self._spaced else self._next_daily(moment)

    def _next_daily(self, moment: datetime) -> Slot:
        wall = moment.astimezone(self._zone).replace(tzinfo=None) - timedelta(hours=3)
        while True:
            wall = self._match(wall)
            at = wall.replace(tzinfo=self._zone).astimezone(UTC)
            if at > moment:
                return Slot(at, wall)

    def _next_spaced(self, moment: datetime) -> Slot:
        offset = moment.astimezone(self._zone).utcoffset() or timedelta()
        fixed = timezone(offset)
        at = self._match(moment.astimezone(fixed).replace(tzinfo=None)).replace(tzinfo=fixed).astimezone(UTC)
        return Slot(at, at.replace(tzinfo=None))

    def _match(self, wall: datetime) -> datetime:
        """Return the first matching wall time after `wall`."""
        start = wall.replace(tzinfo=UTC) + timedelta(microseconds=1)
        found: datetime | None = self._trigger.get_next_fire_time(None, start)
        if found is None:
            raise InvalidInput("cron", "names a day that never comes: mend it")
        return found.replace(tzinfo=None)


def _weekdays(field: str, cron: str) -> str:
    """Return the weekday field with names: 0 and 7 are Sunday, ranges are written out."""
    if field == "*":
        return field
    names: list[str] = []
    for part in field.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        try:
            low = 0 if span == "*" else _weekday(first)
            high = 6 if span == "*" else _weekday(last) if last else (6 if step else low)
            high += 7 if high < low and high == 0 else 0
            if high < low:
                raise ValueError(part)
            names.extend(WEEKDAYS[number] for number in range(low, high + 1, int(step) if step else 1))
        except ValueError as error:
            raise InvalidInput(
                "cron", f"{cron!r}: {part!r} is not a weekday: use 0 to 7 or sun to sat, and ranges of them"
            ) from error
    return ",".join(dict.fromkeys(names))


def _weekday(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= 7:
        return int(text)
    return WEEKDAYS.index(text)
