"""Fixtures of every layer: one embedded server for the session, a migrated database of its own for each test."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from opencognit import postgres
from opencognit.config import Home, open_home
from opencognit.db import Database, upgrade
from opencognit.db.roles import ROLE

ROOT = Path(__file__).resolve().parent.parent
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The session's embedded server; yields the address of its maintenance database."""
    with postgres.hold(tmp_path_factory.mktemp("server") / "data") as holding:
        yield holding.dsn


@pytest.fixture(scope="session")
def template(server: str) -> str:
    """The name of a database at this version's schema, from which others are copied."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("CREATE DATABASE template_opencognit")
    upgrade(sibling(server, "template_opencognit"))
    return "template_opencognit"


@pytest.fixture
def database_url(server: str, template: str) -> Iterator[str]:
    """A fresh migrated database."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield sibling(server, name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """A pool on a fresh database, as its owner: a test looks at tables past the policies."""
    database = Database(database_url)
    yield database
    await database.close()


@pytest.fixture
async def bound(database_url: str) -> AsyncIterator[Database]:
    """The same database in the role that a company works as, which the policies bind."""
    database = Database(database_url, role=ROLE)
    yield database
    await database.close()


MakeHome = Callable[..., Home]


@pytest.fixture
def make_home(tmp_path: Path, database_url: str) -> MakeHome:
    """Write a home on a fresh database: `make_home(agents={name: toml}, config=toml)`; returns it opened."""

    def make(*, agents: dict[str, str] | None = None, config: str = "", name: str = "home") -> Home:
        root = tmp_path / name
        shutil.rmtree(root, ignore_errors=True)
        for folder in ("agents", "souls", "data"):
            (root / folder).mkdir(parents=True)
        (root / "config.toml").write_text(f'[database]\nurl = "{database_url}"\n{config}')
        for agent, body in (agents if agents is not None else {"ceo": 'adapter = "ceo"'}).items():
            (root / "agents" / f"{agent}.toml").write_text(f'name = "{agent}"\n{body}\n')
        return open_home(root, _without_overrides(), root)

    return make


def _without_overrides() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OPENCOGNIT_")}


def sibling(url: str, database: str) -> str:
    return re.sub(r"/opencognit\?", f"/{database}?", url)
