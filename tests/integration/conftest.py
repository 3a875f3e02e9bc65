"""Fixtures of the brain's tests: one database for those that roll back what they do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import Database, application_role
from tests.integration.brain_kit import rolled_back


@pytest.fixture(scope="module")
def brain_url(server: str, template: str) -> Iterator[str]:
    """A migrated database for all of a module's tests that roll back what they do."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE brain TEMPLATE {template}")
        yield re.sub(r"/opencognit\?", "/brain?", server)
        admin.execute("DROP DATABASE brain WITH (FORCE)")


@pytest.fixture
async def session(brain_url: str) -> AsyncIterator[AsyncSession]:
    """A transaction of the application's own role, bound by row-level security; rolled back at the end."""
    db = Database(brain_url, role=application_role(brain_url))
    try:
        async with db.transaction() as session:
            yield session
            await session.rollback()
    finally:
        await db.close()


@pytest.fixture
def stage(brain_url: str) -> Iterator[tuple[asyncio.Runner, AsyncSession]]:
    """A loop and a transaction for properties, whose examples are functions and no coroutines."""
    with rolled_back(brain_url, application_role(brain_url)) as opened:
        yield opened


@pytest.fixture
def runner(stage: tuple[asyncio.Runner, AsyncSession]) -> asyncio.Runner:
    return stage[0]


@pytest.fixture
def open_session(stage: tuple[asyncio.Runner, AsyncSession]) -> AsyncSession:
    return stage[1]
