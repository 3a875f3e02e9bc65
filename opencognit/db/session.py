"""The engine, its pool, and the one way to a transaction. Translates a lost server into Unreachable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import structlog
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from opencognit.errors import Unreachable

log = structlog.get_logger(__name__)
T = TypeVar("T")

_NOTICES_A_DEAD_PEER = {"keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}

_AGAIN = frozenset({"40001", "40P01", "55P03"})  # serialization failure, deadlock, lock not available
_GONE = ("08", "57P", "58", "25P03")  # connection exceptions, server shutting down or starting, system errors


def libpq_url(url: str) -> str:
    """Return `url` in the form that libpq and psycopg take."""
    parsed = make_url(url).set(drivername="postgresql")
    return parsed.render_as_string(hide_password=False)


def path_option(search_path: str) -> str:
    """Return libpq's `options` that set the search path of a connection."""
    return f"-csearch_path={search_path.replace(' ', '')}"


_PLANNING = "-cjit=off -chnsw.iterative_scan=relaxed_order -chnsw.ef_search=80 -chnsw.max_scan_tuples=40000"
"""Statements here are short: compiling them costs more than they take. A search by likeness goes on past rows that the asker
may not see, until it has as many as were asked for."""


class Database:
    """One pool of connections. `search_path` lets a test put its own clock before the server's.

    `role` is what its sessions work as (db/roles.py); None: as whoever logged in.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        search_path: str | None = None,
        role: str | None = None,
        name: str = "opencognit",
        idle_s: float = 10.0,
        answer_s: float | None = None,
    ) -> None:
        self.url = libpq_url(url)
        self.answer_s = answer_s
        connect_args: dict[str, Any] = {"application_name": name, "connect_timeout": 10, **_NOTICES_A_DEAD_PEER}
        connect_args["options"] = f"-cidle_in_transaction_session_timeout={int(idle_s * 1000)} {_PLANNING}"
        if search_path is not None:
            connect_args["options"] += f" {path_option(search_path)}"
        if role is not None:
            connect_args["options"] += f" -crole={role}"
        self.role = role
        self.search_path = search_path
        self.engine = create_async_engine(
            make_url(url).set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=10,
            pool_use_lifo=True,
            hide_parameters=True,  # they are what people and models wrote: an error's text goes to the log
            connect_args=connect_args,
        )
        info = {"role": role}
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False, autoflush=False, info=info)
        single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._readers = async_sessionmaker(single, expire_on_commit=False, autoflush=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """Yield a session; commit at the end, roll back on any exception. Raises Unreachable when the server is gone."""
        with _translated():
            async with asyncio.timeout(self.answer_s), self._sessions() as session, session.begin():
                yield session

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Yield a session whose statements each stand alone: reads that need no common snapshot, two round trips cheaper."""
        with _translated():
            async with asyncio.timeout(self.answer_s), self._readers() as session:
                yield session

    async def retrying(self, work: Callable[[AsyncSession], Awaitable[T]], *, timeout_s: float = 120.0) -> T:
        """Run `work` in a transaction, again on a deadlock or a lost server, until `timeout_s` has passed.

        The answer to a commit may get lost: `work` may run a second time after its first commit took effect, and must
        find that out by itself (the run's token does).
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        wait_s = 0.02
        while True:
            try:
                async with self.transaction() as session:
                    return await work(session)
            except (Unreachable, DBAPIError) as error:
                again = isinstance(error, Unreachable) or _sqlstate(error) in _AGAIN
                if not again or asyncio.get_running_loop().time() + wait_s > deadline:
                    raise
                log.warning("transaction.retried", error=first_line(error), wait_s=round(wait_s, 3))
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
            wait_s = min(wait_s * 2, 2.0)

    async def close(self) -> None:
        await self.engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise Unreachable("the database does not answer (a transaction took too long): see `opencognit doctor`") from error
    except (DBAPIError, PoolTimeout) as error:
        if isinstance(error, DBAPIError) and not is_lost(error):
            raise
        raise Unreachable(f"the database does not answer ({first_line(error)}): see `opencognit doctor`") from error


def _sqlstate(error: BaseException) -> str:
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


def is_lost(error: DBAPIError) -> bool:
    """Return whether the server or the connection went away, rather than refused a statement."""
    state = _sqlstate(error)
    return error.connection_invalidated or state.startswith(_GONE) or (not state and isinstance(error, OperationalError))


def first_line(error: BaseException) -> str:
    """Return what went wrong in one line, as the driver says it."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
