"""Fixtures of tests with real nodes: sites on the session's server, and a proxy before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.chaos import ledger
from tests.chaos.kit import CONFIG, Site
from tests.chaos.proxy import Proxy
from tests.conftest import MakeHome

long = pytest.mark.skipif(not os.environ.get("OPENCOGNIT_LONG"), reason="takes minutes: set OPENCOGNIT_LONG=1")

MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(make_home: MakeHome, database_url: str) -> Iterator[MakeSite]:
    """Make sites on the session's server, each by `make_site(agents={...}, config=...)`; `url` is another way to it."""
    sites: list[Site] = []

    def make(*, agents: dict[str, str] | None = None, config: str = CONFIG, url: str | None = None) -> Site:
        home = make_home(agents=agents if agents is not None else ledger.company(), config=config).root
        if url is not None:
            file = home / "config.toml"
            file.write_text(file.read_text().replace(database_url, url))
        sites.append(Site(home, database_url))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    host = parse_qs(urlsplit(database_url).query)["host"][0]
    with Proxy(Path(host) / ".s.PGSQL.5432") as running:
        yield running


def through(proxy: Proxy, database_url: str) -> str:
    """The address of the same database by TCP."""
    parts = urlsplit(database_url)
    return f"postgresql://{parts.username}@127.0.0.1:{proxy.port}{parts.path}"
