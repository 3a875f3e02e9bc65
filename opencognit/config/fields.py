"""What a value of the home's files may be: the strict base model, checked kinds of text, amounts, spans.

Owns no key: `sections` and the agents' files are built from these.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from opencognit.config.problems import found, nearest

YEAR_S = 366 * 86_400
SOUL_LIMIT_BYTES = 256 * 1024
"""Largest soul, as a file or as a prompt."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Section(BaseModel):
    """A frozen table. Strict: a quoted number or a `false` is never taken for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def check_name(value: str) -> str:
    """Return a name that is safe in paths, URLs and commands; ValueError for any other."""
    if not _NAME.fullmatch(value):
        raise ValueError(f"{found(value)} is not a name: use a-z, 0-9 and '-', at most 63, not starting with '-'")
    return value


def check_env_name(value: str) -> str:
    """Return the name of an environment variable. Never repeats a wrong one: it may be the secret itself."""
    if value and not _ENV_NAME.fullmatch(value):
        raise ValueError("expected the name of an environment variable, such as MY_KEY, never its content")
    return value


def check_zone(value: str) -> str:
    """Return the name of a time zone that exists."""
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        near = nearest(value, available_timezones(), "write one such as 'Europe/Berlin' or 'UTC'")
        raise ValueError(f"there is no time zone {value!r}: {near}") from None
    return value


def check_url(value: str) -> str:
    """Return an http(s) address without its final slash, or ''."""
    if value and not re.fullmatch(r"https?://[^\s/?#]+[^\s]*", value):
        raise ValueError(f"{found(value)} is not an address: write http://HOST or https://HOST")
    return value.rstrip("/")


def check_line(value: str) -> str:
    """Return one line of text that says something, without blanks around it."""
    line = value.strip()
    if not line:
        raise ValueError("is empty: write something, or leave the key out")
    if not line.isprintable():
        raise ValueError(f"{found(line)} holds a line break or control character: keep it to one plain line")
    return line


def check_language(value: str) -> str:
    """Return a language tag such as 'en' or 'de-AT'."""
    if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", value):
        raise ValueError(f"{found(value)} is not a language: write its code, such as 'en' or 'de'")
    return value


def to_usd(value: Any) -> Any:
    """Return an amount as a decimal; floats by their shortest notation, so that 0.1 is 0.1."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"expected an amount in USD such as 25 or 12.50, found {found(value)}")
    try:
        amount = Decimal(str(value))
    except ArithmeticError:
        raise ValueError(f"expected an amount in USD such as 25 or 12.50, found {found(value)}") from None
    if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", f"{amount:f}"):
        raise ValueError(f"expected an amount in USD from 0 with at most 6 decimals, found {found(value)}")
    return amount


Seconds = Annotated[float, Field(gt=0, le=YEAR_S)]
Count = Annotated[int, Field(ge=1, le=10_000)]
Days = Annotated[int, Field(ge=1, le=36_500)]
Usd = Annotated[Decimal, BeforeValidator(to_usd)]
Name = Annotated[str, AfterValidator(check_name)]
EnvName = Annotated[str, AfterValidator(check_env_name)]
Url = Annotated[str, AfterValidator(check_url)]
Text = Annotated[str, Field(max_length=10_000)]
Language = Annotated[str, AfterValidator(check_language)]
Line = Annotated[str, Field(max_length=500), AfterValidator(check_line)]
