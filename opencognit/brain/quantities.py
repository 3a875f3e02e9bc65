"""Dates and amounts of money in German and English spelling, as one key each. Pure; refuses what has two readings."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from decimal import Decimal

from opencognit.brain.folding import fold

Words = Mapping[str, Mapping[str, str]]
"""The pattern set's word lists: {list: {folded word: meaning}}."""

_YEARS = range(1000, 2200)
_PIVOT = 70
"""Two digits under this are a year of this century, the others one of the last."""
_ISO = re.compile(r"([0-9]{4})([-/])([0-9]{1,2})\2([0-9]{1,2})(?:[t ].*)?")
_DOTTED = re.compile(r"([0-9]{1,2})\. ?([0-9]{1,2})\. ?([0-9]{4}|[0-9]{2})")
_SLASHED = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})")
_DAY_FIRST = re.compile(r"([0-9]{1,2})(?:\.|st|nd|rd|th)? ?(?:of )?([^\W\d_]+)\.?,? ?([0-9]{4})")
_MONTH_FIRST = re.compile(r"([^\W\d_]+)\.? ?([0-9]{1,2})(?:st|nd|rd|th)?,? ?([0-9]{4})")

_MONEY = re.compile(r"([^\d]*?) ?([0-9](?:[0-9.,'’ ]*[0-9])?) ?([^\d]*)")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[ '’][0-9]{3})+(?:[.,][0-9]+)?")


def date(text: str, words: Words) -> str | None:
    """Return a folded text's date as YYYY-MM-DD."""
    if match := _ISO.fullmatch(text):
        return _day(match[1], match[3], match[4])
    if match := _DOTTED.fullmatch(text):
        return _day(match[3], match[2], match[1])
    if match := _SLASHED.fullmatch(text):
        return _slashed(int(match[1]), int(match[2]), match[3])
    if match := _DAY_FIRST.fullmatch(text):
        return _day(match[3], words["month"].get(fold(match[2])), match[1])
    if match := _MONTH_FIRST.fullmatch(text):
        return _day(match[3], words["month"].get(fold(match[1])), match[2])
    return None


def _slashed(first: int, second: int, year: str) -> str | None:
    """Return the date of first/second/year where only one of the two can be the month, or they are the same."""
    if first > 12 or first == second:
        return _day(year, second, first)
    return _day(year, first, second) if second > 12 else None


def _day(year: str, month: str | int | None, day: str | int) -> str | None:
    full = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < _PIVOT else 1900)
    if month is None or full not in _YEARS:
        return None
    try:
        return datetime.date(full, int(month), int(day)).isoformat()
    except ValueError:
        return None


def amount(text: str, words: Words) -> str | None:
    """Return a folded text's amount as `1234.5 EUR`: a plain number and the currency's code."""
    match = _MONEY.fullmatch(text)
    if match is None:
        return None
    before, number, after = match[1].strip(), match[2], match[3].strip()
    factor, after = _factor(after, words)
    codes = {code for each in (before, after) if each for code in [_currency(each, words)]}
    if len(codes) != 1 or (code := codes.pop()) is None:
        return None
    value = _number(number, words["currency_code"][code.casefold()], is_behind=not before)
    return None if value is None else f"{_shown(value if factor == 1 else value * factor)} {code}"


def _factor(after: str, words: Words) -> tuple[Decimal, str]:
    """Return what the number is to be multiplied by, and what is left of the text behind it."""
    for word in sorted(words["multiplier"], key=len, reverse=True):
        rest = after.removeprefix(word).strip()
        if after.startswith(word) and (not rest or _currency(rest, words)):
            return Decimal(words["multiplier"][word]), rest
    return Decimal(1), after


def _currency(text: str, words: Words) -> str | None:
    code = words["currency_symbol"].get(text) or words["currency_name"].get(text)
    return code or (text.upper() if text in words["currency_code"] else None)


def _number(text: str, style: str, *, is_behind: bool) -> Decimal | None:
    """Return a number in either style; None where its separators are out of place or have two readings.

    `style` is how those who use the currency write 1234: `1.234`, `1,234`, or `1234` where three decimals are usual.
    """
    if any(char in text for char in " '’"):
        if not _GROUPED.fullmatch(text):
            return None
        return Decimal(re.sub("[ '’]", "", text).replace(",", "."))
    last = max(text.rfind("."), text.rfind(","))
    if last < 0:
        return Decimal(text)
    mark, other = text[last], ",."[text[last] == ","]
    if text.count(mark) == 1 and (other in text or not re.fullmatch(r"[1-9][0-9]{0,2}[.,][0-9]{3}", text)):
        return _decimal(text[:last], text[last + 1 :], other)
    if not re.fullmatch(rf"[0-9]{{1,3}}(?:{re.escape(mark)}[0-9]{{3}})+", text):
        return None
    if text.count(mark) == 1 and not _is_thousands(mark, style, is_behind):
        return None
    return Decimal(text.replace(mark, ""))


def _is_thousands(mark: str, style: str, is_behind: bool) -> bool:
    """Tell whether the one mark before three digits parts thousands: `1.234 €` does, `1,234 €` may be either."""
    return f"1{mark}234" == style or (mark == "," and style == "1.234" and not is_behind)


def _decimal(whole: str, fraction: str, mark: str) -> Decimal | None:
    if mark in whole and not re.fullmatch(rf"[0-9]{{1,3}}(?:{re.escape(mark)}[0-9]{{3}})+", whole):
        return None
    return Decimal(f"{whole.replace(mark, '')}.{fraction}")


def _shown(value: Decimal) -> str:
    """Return the number without exponent or final zeros; three decimals get a fourth, or they would read as thousands."""
    text = f"{value:f}"
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    whole = whole.lstrip("0") or "0"
    return f"{whole}.{fraction}{'0' if len(fraction) == 3 else ''}" if fraction else whole
