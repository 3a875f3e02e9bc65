"""`db`: the database itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from opencognit.cli import output
from opencognit.cli.common import Json, opens_company, uses_home

if TYPE_CHECKING:
    from opencognit.config import Home
    from opencognit.daemon import Opened

app = typer.Typer(help="The database: bring it up to date, print its address.")


@app.command()
@uses_home
def upgrade(home: Home) -> None:
    """Bring the database's schema to this version; for the embedded database every command does so by itself."""
    from opencognit import db, postgres

    url = home.config.database_url
    if url is not None:
        changed = db.upgrade(url)
    else:
        with postgres.hold(home.data) as holding:
            changed = db.upgrade(holding.dsn)
    output.write("the database is brought up to date" if changed else "the database is up to date")


@app.command()
@opens_company
async def dsn(company: Opened, as_json: Json = False) -> None:
    """Print the database's address, for psql and other clients. The embedded server lives as long as somebody uses it."""
    if as_json:
        output.json_document({"dsn": company.db.url, "embedded": company.holding is not None})
    else:
        output.write(company.db.url)
