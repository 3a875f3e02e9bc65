"""One node: its loops in one TaskGroup, and its orderly end. Owns nothing that another node does not have too."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from opencognit import adapters
from opencognit.adapters.warden import Warden
from opencognit.brain import Brain, Caretaker, Indexer, embedder_of
from opencognit.config import Config, Home
from opencognit.db import Database, Listener
from opencognit.engine import heartbeat
from opencognit.engine.bookkeeper import Bookkeeper
from opencognit.engine.dispatcher import Dispatcher
from opencognit.engine.heartbeat import Heartbeat
from opencognit.engine.leases import Leases
from opencognit.engine.loops import ended
from opencognit.engine.runner import Registry, Runner
from opencognit.errors import OpenCognitError, Unreachable
from opencognit.states import CancelMode, Trust
from opencognit.work import locks

log = structlog.get_logger(__name__)

REAP_S = 5.0
ROUTINES_S = 5.0

Loop = Callable[[], Coroutine[Any, Any, None]]


class Node:
    """Claims and runs until `stop` is set, then drains. `capacity` bounds its runs."""

    def __init__(self, db: Database, home: Home, *, capacity: int | None = None, registry: Registry = adapters.get) -> None:
        self._db, self._home, self._registry = db, home, registry
        self.capacity = capacity if capacity is not None else home.config.runs.capacity
        self.id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.ready = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set and the drain is over."""
        warden, beats = Warden(), Heartbeat()
        await asyncio.to_thread(warden.start)
        try:
            brain = Brain(self._db, await asyncio.to_thread(embedder_of, self._home))
            async with asyncio.TaskGroup() as group:
                dispatcher, leases, loops = self._build(group, warden, brain)
                if not await _signed_on(leases, stop):
                    return
                self._schedule(beats)
                running = [group.create_task(loop(), name=name) for name, loop in loops.items()]
                claiming = group.create_task(dispatcher.keep(), name="dispatcher")
                log.info("node.started", node=self.id, capacity=self.capacity)
                self.ready.set()
                await stop.wait()
                beats.stop()
                dispatcher.drain()
                await claiming
                await self._drain(dispatcher, self._home.config.runs.drain_s)
                await ended(running)
        finally:
            await asyncio.to_thread(warden.stop)
            await self._leave()

    def _build(self, group: asyncio.TaskGroup, warden: Warden, brain: Brain) -> tuple[Dispatcher, Leases, dict[str, Loop]]:
        """Wire the node's parts; return those that are spoken to, and the loops that must run beside the dispatcher's."""
        config, capacity = self._home.config, self.capacity
        lease_s, ttl_s = config.runs.lease_s, config.locks.ttl_s
        trust = {name: Trust(tier) for name, tier in config.brain.trust.items()}
        keeper = Bookkeeper(self._db, retry=config.retry)
        runner = Runner(self._db, self._home, brain, warden, keeper, trust=trust, registry=self._registry)
        dispatcher = Dispatcher(
            self._db, runner, group, self.id, capacity=capacity, lease_s=lease_s, ttl_s=ttl_s, limits=_limits(config)
        )
        leases = Leases(self._db, self.id, dispatcher.active, warden, lease_s=lease_s, ttl_s=ttl_s, capacity=capacity)
        runner.lease_valid = leases.valid
        listener = Listener(self._db.url, lambda payload: _heard(payload, dispatcher, leases))
        indexer = Indexer(self._db, brain.embedder)
        loops = {
            "indexer": indexer.keep,
            "caretaker": Caretaker(brain).keep,
            "bookkeeper": keeper.keep,
            "leases": leases.keep,
            "guard": leases.guard,
            "listener": listener.run,
        }
        return dispatcher, leases, loops

    def _schedule(self, beats: Heartbeat) -> None:
        async def beat() -> None:
            await heartbeat.beat(self._db)

        async def reap() -> None:
            await heartbeat.reap(self._db, grace_s=self._home.config.runs.lease_s)

        async def fire() -> None:
            await heartbeat.fire(self._db)

        beats.every(self._home.config.heartbeat.interval_s, "heartbeat", beat)
        beats.every(ROUTINES_S, "routines", fire)
        beats.every(min(REAP_S, self._home.config.runs.lease_s / 2), "reaper", reap)
        beats.start()

    async def _drain(self, dispatcher: Dispatcher, drain_s: float) -> None:
        """Let runs finish for `drain_s`, then give their wakeups back."""
        if dispatcher.active:
            log.info("node.draining", runs=len(dispatcher.active), drain_s=drain_s)
        try:
            async with asyncio.timeout(drain_s):
                await dispatcher.idle.wait()
        except TimeoutError:
            for active in list(dispatcher.active.values()):
                active.stop(CancelMode.DRAIN, "the node's stop")
            await dispatcher.idle.wait()

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(5), self._db.transaction() as session:
                await locks.left(session, self.id)
        except (OpenCognitError, SQLAlchemyError, TimeoutError, OSError) as error:
            log.warning("node.not_signed_off", error=str(error)[:200])
        log.info("node.stopped", node=self.id)


async def _signed_on(leases: Leases, stop: asyncio.Event) -> bool:
    """Make the node known to the others, however long the server takes to come; return False where it is stopped first."""
    while not stop.is_set():
        try:
            await leases.renew()
            return True
        except (Unreachable, SQLAlchemyError) as error:
            log.warning("node.not_signed_on", error=str(error)[:200])
        with suppress(TimeoutError):
            async with asyncio.timeout(leases.every_s / 4):
                await stop.wait()
    return False


def _limits(config: Config) -> dict[str, int]:
    """The adapters whose runs are limited over all nodes, by the name that agents' files use."""
    settings = config.adapters.model_dump()
    return {name.replace("_", "-"): one["capacity"] for name, one in settings.items() if one.get("capacity") is not None}


def _heard(payload: str, dispatcher: Dispatcher, leases: Leases) -> None:
    if payload == "cancel":
        leases.ask()
    elif payload != "event":
        dispatcher.wake()
