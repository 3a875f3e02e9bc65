"""What `doctor` looks at: the files of a home, its adapters, its database, what is stuck. Each check is a finding.

A check that cannot be made is a finding too: nothing here raises for something that is broken.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from opencognit.errors import ConfigError, ModelUnavailable, NotFound, OpenCognitError, ServerFailed

if TYPE_CHECKING:
    from opencognit.agents import AgentSpec
    from opencognit.config import Home
    from opencognit.daemon import Opened

LOW_BYTES = 1_000_000_000
FULL_BYTES = 100_000_000
FREE = frozenset({"bash", "ceo"})
"""Adapters that cost nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`mend` is what to do, empty where nothing is to be done."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    mend: str = ""


def examine(option: Path | None) -> list[Finding]:
    """Look at everything that can be looked at from here on; what depends on something broken is left out."""
    from opencognit import config

    findings = [_python()]
    try:
        root = config.find_home(option, os.environ, Path.cwd())
    except OpenCognitError as error:
        return [*findings, Finding("home", "fail", str(error), "make a home with `opencognit init DIR`, then give --home DIR")]
    findings += [Finding("home", "ok", str(root)), _disk(root)]
    specs = _agents(root, findings)
    try:
        home = config.Home(root, config.load_config(root, os.environ))
    except OpenCognitError as error:
        return [*findings, Finding("config", "fail", str(error), "correct what the line says")]
    findings.append(Finding("config", "ok", f"{root / 'config.toml'}: {home.config.company.name}"))
    findings.append(_model(home))
    if specs is not None:
        findings += [*_souls(home, specs), *_staff(specs), *_adapters(specs), *_not_yet(home, specs)]
    return findings + asyncio.run(_database(home))


def _not_yet(home: Home, specs: Mapping[str, AgentSpec]) -> Iterator[Finding]:
    """Settings that this version reads and does not act on: nobody should rely on them unawares."""
    config = home.config
    found = {
        "critic.enabled": config.critic.enabled,
        "budget.monthly_usd": config.budget.monthly_usd is not None and any(spec.adapter not in FREE for spec in specs.values()),
        "notify.webhook_url_env": bool(config.notify.webhook_url_env),
        **{f"workdir of {spec.name}": spec.workdir is not None for spec in specs.values()},
        **{f"needs_approval of {spec.name}": bool(spec.needs_approval) for spec in specs.values()},
        **{f"monthly_budget_usd of {spec.name}": spec.monthly_budget_usd is not None for spec in specs.values()},
    }
    if named := [name for name, is_set in found.items() if is_set]:
        yield Finding(
            "settings", "warn", f"set, but without effect in this version: {', '.join(named)}", "do not rely on them yet"
        )


def _python() -> Finding:
    told = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform == "win32":
        return Finding("python", "fail", told, "Windows is not supported: use Linux, or macOS")
    return Finding("python", "ok", told)


def _disk(root: Path) -> Finding:
    data = root / "data"
    place = data if data.is_dir() else root
    free = shutil.disk_usage(place).free
    told = f"{free / 1e9:.1f} GB free in {place}"
    if not os.access(place, os.W_OK):
        return Finding("disk", "fail", f"{place} cannot be written", "let this user write there")
    if free < LOW_BYTES:
        return Finding(
            "disk", "fail" if free < FULL_BYTES else "warn", told, "make room: the database stops when the disk is full"
        )
    return Finding("disk", "ok", told)


def _model(home: Home) -> Finding:
    """What finds memories by meaning. Without it nothing fails: words find them."""
    from opencognit.brain import embed

    settings = home.config.brain
    told = f"{settings.embedder} {settings.model}"
    try:
        place = embed.check(settings, home.models)
    except ModelUnavailable as error:
        return Finding(
            "model", "warn", f"memories are found by their words alone: {error}", 'do what it says, or set embedder = "off"'
        )
    if place is not None:
        return Finding("model", "ok", f"{told}: {place.folder}")
    if settings.embedder == "hash":
        return Finding("model", "warn", "hash knows spelling and no meaning", 'for more than tests, set embedder = "onnx"')
    return Finding("model", "ok", "off: memories are found by their words alone")


def _agents(root: Path, findings: list[Finding]) -> Mapping[str, AgentSpec] | None:
    from opencognit import adapters
    from opencognit.agents import load_agents

    try:
        specs = load_agents(root, known_adapters=adapters.names())
    except OpenCognitError as error:
        mend = "correct what the line says; until then the agents stay as they were"
        findings.append(Finding("agents", "fail", str(error), mend))
        return None
    findings.append(Finding("agents", "ok", f"{len(specs)}: {', '.join(specs) or 'none'}"))
    return {name: spec for name, spec in specs.items() if spec.enabled}


def _souls(home: Home, specs: Mapping[str, AgentSpec]) -> Iterator[Finding]:
    from opencognit import souls

    company = home.config.company
    about = {"language": company.language, "timezone": company.timezone}
    problems = souls.check(specs.values(), home=home.root, company=company, **about)
    for error in problems:
        yield Finding("souls", "fail", str(error), "correct what the line says, then `opencognit soul check`")
    if not problems:
        yield Finding("souls", "ok", f"{len(specs)} render")


def _staff(specs: Mapping[str, AgentSpec]) -> Iterator[Finding]:
    ceo = next((name for name, spec in specs.items() if spec.adapter == "ceo"), None)
    if ceo is None:
        mend = 'add an agents/NAME.toml with adapter = "ceo", or set enabled = true in the one there is'
        yield Finding("ceo", "fail", "nobody plans: no enabled agent has the adapter 'ceo'", mend)
    else:
        yield Finding("ceo", "ok", ceo)
    if shells := [name for name, spec in specs.items() if spec.adapter == "bash"]:
        detail = f"bash agents work in their workspace, but nothing stops them from writing elsewhere: {', '.join(shells)}"
        yield Finding("isolation", "warn", detail, "run OpenCognit as a user that may write only what they may")


def _adapters(specs: Mapping[str, AgentSpec]) -> Iterator[Finding]:
    from opencognit import adapters

    for name, spec in specs.items():
        try:
            problem = adapters.get(spec.adapter).check(spec.adapter_config)
        except NotFound as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - an adapter of another package may fail in any way; that is the finding
            problem = f"its check failed with {type(error).__name__}: {error}"
        what = f"adapter of {name}"
        if problem is None:
            yield Finding(what, "ok", spec.adapter)
        else:
            yield Finding(what, "fail", problem, f"mend that, or set enabled = false in agents/{name}.toml")


async def _database(home: Home) -> list[Finding]:
    from sqlalchemy.exc import SQLAlchemyError

    from opencognit import db

    findings: list[Finding] = []
    mend = "check the address and that its server runs" if home.config.database.url else "see data/logs/postgres.log"
    try:
        async with _server(home) as url:
            findings.append(Finding("database", "ok", await asyncio.to_thread(db.check_server, url)))
            if home.config.database_url is not None and not await asyncio.to_thread(db.is_current, url):
                told = "missing, or of another version"
                return [*findings, Finding("schema", "fail", told, "run `opencognit db upgrade`")]
            changed = await asyncio.to_thread(db.upgrade, url)
            findings.append(Finding("schema", "ok", "brought up to date just now" if changed else "up to date"))
            findings.append(_row_security(await asyncio.to_thread(db.application_role, url)))
            findings += await _company(home, url)
    except ConfigError as error:
        findings.append(Finding("database", "fail", str(error), "correct what the line says"))
    except ServerFailed as error:
        findings.append(Finding("database", "fail", str(error), "see data/logs/postgres.log"))
    except (OpenCognitError, SQLAlchemyError) as error:
        findings.append(Finding("schema" if findings else "database", "fail", str(error), mend))
    return findings


def _row_security(role: str | None) -> Finding:
    if role is not None:
        return Finding("row security", "ok", f"works as {role}: the database keeps memories apart too")
    told = "this server lets us make no role of our own: memories are kept apart by OpenCognit's queries alone"
    return Finding("row security", "warn", told, "give the role in database.url CREATEROLE, then run `opencognit db upgrade`")


@asynccontextmanager
async def _server(home: Home) -> AsyncIterator[str]:
    from opencognit import postgres

    url = home.config.database_url
    if url is not None:
        yield url
        return
    holding = await asyncio.to_thread(postgres.hold, home.data)
    try:
        yield holding.dsn
    finally:
        await asyncio.to_thread(holding.close)


async def _company(home: Home, url: str) -> list[Finding]:
    from opencognit.daemon import Opened
    from opencognit.db import Database

    database = Database(url, pool_size=2)
    try:
        return await _standing(Opened(home, database, None))
    finally:
        await database.close()


async def _standing(company: Opened) -> list[Finding]:
    """What the rows say: whether somebody works, and what does not go on by itself."""
    from opencognit import daemon
    from opencognit.work import company as companies

    alive = await daemon.is_running(company)
    async with company.db.transaction() as session:
        paused = (await companies.get(session)).paused
        stuck = await companies.stuck(session)
    if alive:
        findings = [Finding("daemon", "ok", "at work")]
    else:
        findings = [Finding("daemon", "warn", "no daemon runs this company: nothing is started", "`opencognit up`")]
    if paused:
        findings.append(Finding("company", "warn", "paused: nothing is started", "`opencognit resume`"))
    findings += [Finding(f"{one.kind} {one.ident}", "warn", one.why, _mend(one.kind, one.ident, alive)) for one in stuck]
    return findings if stuck else [*findings, Finding("stuck", "ok", "nothing")]


def _mend(kind: str, ident: str, alive: bool) -> str:
    if kind == "goal":
        return f"`opencognit goal show {ident}` says what it waits for"
    if kind == "agent":
        return f"`opencognit agent show {ident}`, then `opencognit agent resume {ident}`"
    if kind == "run" or not alive:
        return "a running daemon takes it over by itself within seconds" if alive else "`opencognit up` takes it over"
    return f"`opencognit task show {ident}`, then assign or release it"
