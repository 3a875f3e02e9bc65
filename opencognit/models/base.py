"""The declarative base and the few column kinds that every table shares. Owns naming, no table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Identity, MetaData, Numeric, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

NOW = text("now()")
"""The database's unqualified clock: every default uses it, so that a test can move time by the search path."""


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    __mapper_args__ = {"eager_defaults": True}  # noqa: RUF012 (server-side values come back with the statement itself)
    type_annotation_map = {  # noqa: RUF012 (read by SQLAlchemy, never changed)
        str: Text(),
        int: BigInteger(),
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB(),
        list[Any]: JSONB(),
    }


Id = Annotated[int, mapped_column(BigInteger, Identity(always=True), primary_key=True)]
Created = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=NOW)]
Money = Numeric(18, 6)


def one_of(column: str, values: Iterable[StrEnum]) -> CheckConstraint:
    """Return the CHECK that holds `column` to the values of an enum of states.py."""
    listed = ", ".join(f"'{value.value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)
