"""Cron in time zones: each kind of clock change, and what people write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opencognit.errors import InvalidInput
from opencognit.schedule import Schedule

BERLIN = "Europe/Berlin"


def fires(cron: str, zone: str, start: datetime, until: datetime) -> list[str]:
    """The instants in UTC at which it fires, each once by its key as the firings table holds it."""
    schedule, moment, seen, found = Schedule(cron, zone), start, set[datetime](), []
    while (slot := schedule.next_after(moment)).at < until:
        moment = slot.at
        if slot.key not in seen:
            seen.add(slot.key)
            found.append(f"{slot.at:%d %H:%M}")
    return found


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["28 01:30", "29 01:30", "30 00:30"]),  # 02:30 does not exist on the 29th: 03:30 local
        ("0 0 * * *", ["28 23:00", "29 22:00", "30 22:00"]),  # midnight is missed on no day (F06-02)
        ("0 3 * * *", ["28 02:00", "29 01:00", "30 01:00"]),
    ],
)
def test_a_daily_time_fires_once_on_the_day_without_an_hour(cron: str, expected: list[str]) -> None:
    """Exactly one firing on each day around the spring change."""
    assert fires(cron, BERLIN, at(2026, 3, 28, 0, 30), at(2026, 3, 31, 0, 30)) == expected


@pytest.mark.parametrize(
    ("cron", "expected"),
    [("30 2 * * *", ["24 00:30", "25 00:30", "26 01:30"]), ("30 3 * * *", ["24 01:30", "25 02:30", "26 02:30"])],
)
def test_a_daily_time_fires_once_on_the_day_with_an_hour_twice(cron: str, expected: list[str]) -> None:
    """The first 02:30 counts, the second does not (F06-01)."""
    assert fires(cron, BERLIN, at(2026, 10, 23, 22, 0), at(2026, 10, 26, 12, 0)) == expected


def test_a_schedule_that_is_made_within_the_repeated_hour_comes_once() -> None:
    """Before the first 02:30 that is next; from then on, and in the whole second hour, the next day's is (F06-01)."""
    schedule = Schedule("30 2 * * *", BERLIN)
    first, next_day = at(2026, 10, 25, 0, 30), at(2026, 10, 26, 1, 30)
    for minute in range(0, 120, 5):
        moment = at(2026, 10, 25, 0, 0) + timedelta(minutes=minute)
        assert schedule.next_after(moment).at == (first if moment < first else next_day)


@pytest.mark.parametrize(
    ("cron", "days"),
    [("0 0 * * *", [7, 8, 9, 10, 11]), ("0 0 * * mon-fri", [9, 10, 11, 12, 13]), ("0 0 * * sun", [8, 15, 22, 29])],
)
def test_midnight_is_on_every_matching_day_around_the_change(cron: str, days: list[int]) -> None:
    """A US zone in March: midnight itself exists, and no day is skipped (F06-02)."""
    schedule, moment, found = Schedule(cron, "America/New_York"), at(2026, 3, 6, 12, 0), []
    for _ in days:
        moment = schedule.next_after(moment).at
        local = moment.astimezone(ZoneInfo("America/New_York"))
        assert (local.hour, local.minute) == (0, 0)
        found.append(local.day)
    assert found == days


def test_half_hours_keep_their_spacing_through_both_changes() -> None:
    """An interval is real time: 48 firings in 24 hours, whatever the clock does."""
    for start in (at(2026, 3, 28, 12, 0), at(2026, 10, 24, 12, 0)):
        found = fires("*/30 * * * *", BERLIN, start, start + timedelta(days=1))
        assert len(found) == 47


def test_local_minutes_count_in_zones_with_half_hours() -> None:
    """Every full hour in India is half past in UTC."""
    assert fires("0 * * * *", "Asia/Kolkata", at(2026, 1, 1, 0, 0), at(2026, 1, 1, 2, 0)) == ["01 00:30", "01 01:30"]


@pytest.mark.parametrize(
    ("field", "weekdays"),
    [
        ("1", {0}),
        ("0", {6}),
        ("7", {6}),
        ("1-5", {0, 1, 2, 3, 4}),
        ("mon-fri", {0, 1, 2, 3, 4}),
        ("5-7", {4, 5, 6}),
        ("fri-sun", {4, 5, 6}),
        ("1,3", {0, 2}),
        ("*/2", {6, 1, 3, 5}),
    ],
)
def test_weekdays_are_crons_own(field: str, weekdays: set[int]) -> None:
    """1 is Monday, 0 and 7 are Sunday."""
    schedule, moment, found = Schedule(f"0 6 * * {field}", "UTC"), at(2026, 6, 1), set()
    for _ in range(20):
        moment = schedule.next_after(moment).at
        found.add(moment.weekday())
    assert found == weekdays


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "61 * * * *",
        "0 25 * * *",
        "0 0 31 2 *",
        "0 0 1 * mon",
        "0 0 * * 9",
        "0 0 * * fri-mon",
        "a b c d e",
        "0 0 * * */0",
    ],
)
def test_what_is_no_schedule_is_refused_in_one_line(cron: str) -> None:
    """Also a day that never comes."""
    with pytest.raises(InvalidInput) as refused:
        Schedule(cron, "UTC").next_after(at(2026, 1, 1))
    assert "\n" not in str(refused.value)


def test_an_unknown_zone_is_refused() -> None:
    """By name."""
    with pytest.raises(InvalidInput, match="Mars"):
        Schedule("0 0 * * *", "Mars/Olympus")


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Asuncion", "UTC"]),
)
def test_the_next_slot_is_always_later_and_within_a_day(moment: datetime, zone: str) -> None:
    """For a daily schedule and any moment: strictly future, and at most 25 hours (and a clock jump) away (F06-05)."""
    start = moment.replace(tzinfo=UTC)
    slot = Schedule("30 2 * * *", zone).next_after(start)
    assert timedelta() < slot.at - start <= timedelta(hours=26)
