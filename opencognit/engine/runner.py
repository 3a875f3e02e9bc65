"""One run from its claim to its booking. Holds no database connection while an adapter works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from opencognit import adapters, briefing, souls
from opencognit.adapters.warden import Warden
from opencognit.agents import AgentSpec
from opencognit.brain import Brain
from opencognit.config import Home
from opencognit.contracts import (
    Adapter,
    Answer,
    Briefing,
    BriefingAgent,
    BriefingCompany,
    Remember,
    RunLimits,
    RunResult,
    Viewer,
)
from opencognit.db import Database
from opencognit.engine import brief, reading
from opencognit.engine.booking import Outcome
from opencognit.engine.bookkeeper import Bookkeeper
from opencognit.engine.context import Context, RunLogWriter
from opencognit.errors import AdapterError, AdapterTimeout, OpenCognitError, StaleToken, Unreachable
from opencognit.states import CancelMode, RunState, TaskKind, Trust
from opencognit.textclean import clean, clean_json
from opencognit.work import runs
from opencognit.work.claims import Claimed

log = structlog.get_logger(__name__)

Registry = Callable[[str], Adapter]
BACKSTOP_S = 30.0
"""How long past its own timeout an adapter may take to give up before the engine stops it."""
INLINE_CHARS = 20_000
"""Texts up to this length are parsed on the loop: a thread costs more."""
SOULS_KEPT = 1000
BRIEFING_S = 60.0
"""How long a run waits for the database before it has begun."""
RECALL_AGAIN_S = 0.25
"""How soon the brain is asked again when the database was away."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a run was stopped, and what is to become of its work. `mode` None: the run is lost, nothing may be booked."""

    mode: CancelMode | None
    by: str


@dataclass(slots=True)
class Active:
    """A run of this node. Once `finished` it cannot be stopped any more: what it did is being booked."""

    claimed: Claimed
    known: brief.Collected | None = None
    task: asyncio.Task[None] | None = None
    stopped: Stopped | None = None
    finished: bool = False
    started: float = field(default_factory=time.monotonic)

    def outlives(self, ttl_s: float) -> bool:
        """Return whether the agent's own time is longer than a lock's and not over yet: then the node renews the lock."""
        timeout_s = self.known.spec.timeout_s if self.known is not None else None
        return timeout_s is not None and ttl_s < timeout_s + BACKSTOP_S and time.monotonic() < self.started + timeout_s

    @property
    def is_lost(self) -> bool:
        """Whether its end may not be booked; one that is merely being stopped keeps its lease until it is over."""
        return self.stopped is not None and self.stopped.mode is None

    def stop(self, mode: CancelMode | None, by: str) -> None:
        """Cancel the run; a second reason changes nothing, except that a lost run is lost."""
        if self.finished or (self.stopped is not None and mode is not None):
            return
        first = self.stopped is None
        self.stopped = Stopped(mode, by)
        if first and self.task is not None:
            self.task.cancel()


class Runner:
    """Does runs for one node. `run_once` is the seam through which an engine delivers work."""

    def __init__(
        self,
        db: Database,
        home: Home,
        brain: Brain,
        warden: Warden,
        bookkeeper: Bookkeeper,
        *,
        trust: Mapping[str, Trust] | None = None,
        registry: Registry = adapters.get,
    ) -> None:
        self._db, self._home, self._brain, self._warden, self._bookkeeper = db, home, brain, warden, bookkeeper
        self._trust = trust or {}
        self._registry = registry
        self._souls: dict[tuple[str, souls.Fingerprint], souls.Soul] = {}
        self.lease_valid: Callable[[], bool] = lambda: True

    async def run_once(self, active: Active) -> None:
        """Run what was claimed and book its end; never raises but for cancellation of a lost run."""
        claimed = active.claimed
        started = time.monotonic()
        with structlog.contextvars.bound_contextvars(run_id=claimed.run_id, task_id=claimed.task_id, agent=claimed.agent):
            outcome = await self._outcome(active)
            active.finished = True
            if outcome is not None and outcome.status is not RunState.SUCCEEDED and not self.lease_valid():
                outcome = None  # it failed because it was killed when the lease ran out: that is nobody's failure
            if outcome is None:
                log.warning("run.abandoned", reason="the lease is gone: nothing is booked")
                return
            outcome = await self._book(claimed, outcome)
            if outcome is None:
                return
            log.info(
                "run.finished",
                adapter=claimed.adapter,
                status=outcome.status.value,
                attempt=claimed.attempt,
                duration_s=round(time.monotonic() - started, 3),
                error=(outcome.error or "")[:200] or None,
            )

    async def _book(self, claimed: Claimed, outcome: Outcome) -> Outcome | None:
        """Book the outcome, or that it could not be booked; return what was, None where nothing could be.

        A run that nobody can book is left to its lease: it is lost, and counts as such.
        """
        try:
            await self._bookkeeper.book(claimed, outcome)
            return outcome
        except (StaleToken, Unreachable) as error:
            log.warning("run.fenced" if isinstance(error, StaleToken) else "run.not_booked", error=str(error))
            return None
        except Exception as error:
            log.exception("run.not_booked")
            what = clean(f"its result could not be stored: {type(error).__name__}: {error}")[:2000]
        said = Answer(text=outcome.answer.text)
        broken = replace(outcome, status=RunState.FAILED, answer=said, error=what, retryable=False, cancel=None)
        try:
            await self._bookkeeper.book(claimed, broken)
        except Exception:
            log.exception("run.not_booked")
            return None
        return broken

    async def _outcome(self, active: Active) -> Outcome | None:
        """Work, and turn every way in which that can end into an outcome; None when the run is no longer ours."""
        nobody = Outcome(RunState.FAILED, Viewer(agent=active.claimed.agent))
        try:
            if active.stopped is not None:
                return self._stopped(active.stopped, nobody)
            return await self._work(active, await self._prepared(active))
        except asyncio.CancelledError:
            if active.stopped is None:
                if active.task is None or active.task.cancelling():
                    raise
                return replace(nobody, error="the adapter broke: something that it waited for was cancelled")
            if active.task is not None:
                active.task.uncancel()
            return self._stopped(active.stopped, nobody)
        except StaleToken:
            return None
        except AdapterTimeout as error:
            return replace(nobody, status=RunState.TIMED_OUT, error=clean(str(error)), retryable=True)
        except AdapterError as error:
            return replace(
                nobody,
                error=clean(str(error)),
                retryable=error.retryable,
                retry_after_s=error.retry_after_s,
                exit_code=error.process_exit,
            )
        except OpenCognitError as error:
            return replace(nobody, error=clean(str(error)), retryable=isinstance(error, Unreachable))
        except (Exception, SystemExit) as error:  # an adapter that exits must not take the node with it
            log.exception("run.crashed")
            return replace(nobody, error=clean(f"the adapter broke: {type(error).__name__}: {error}"))

    async def _work(self, active: Active, known: brief.Collected) -> Outcome:
        claimed = active.claimed
        soul = await self._soul(known.spec)
        given = self._brief(claimed, known, soul.text)
        writer = RunLogWriter(self._db, claimed.run_id, claimed.token, self._home.config.runs.log_limit_bytes)
        context = Context(
            db=self._db,
            brain=self._brain,
            warden=self._warden,
            viewer=known.viewer,
            writer=writer,
            run_id=claimed.run_id,
            token=claimed.token,
            home=self._home.root,
            workspace=self._workspace(claimed),
            limits=self._limits(known),
            config=dict(known.spec.adapter_config),
            team=known.team,
        )
        adapter = self._registry(claimed.adapter)
        if active.stopped is not None:  # the driver may turn a cancel into the error of the session that was lost meanwhile
            raise asyncio.CancelledError
        if not self.lease_valid():  # frozen since the claim: another node may have done the work by now
            raise StaleToken(claimed.run_id, claimed.token)
        flushing = asyncio.create_task(writer.keep_flushing())
        try:
            async with asyncio.timeout(context.limits.timeout_s + BACKSTOP_S):
                result = _storable(await adapter.run(given, context))
        except TimeoutError as error:
            raise AdapterTimeout(
                f"adapter {claimed.adapter!r} did not stop at its timeout of {context.limits.timeout_s:g} s"
            ) from error
        finally:
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
            await asyncio.shield(writer.close())
        answer, copied = await self._read(result, [*briefing.texts(given), *context.heard])
        return Outcome(
            RunState.SUCCEEDED,
            known.viewer,
            trust=self._trust.get(claimed.agent, Trust.OBSERVED),
            answer=answer,
            copied=copied,
            usage=result.usage,
            notes=result.notes,
            exit_code=result.exit_code,
            soul_hash=soul.sha256,
        )

    @staticmethod
    def _stopped(stopped: Stopped, nobody: Outcome) -> Outcome | None:
        if stopped.mode is None:
            return None
        error = f"stopped by {stopped.by}"
        return replace(nobody, status=RunState.CANCELLED, error=error, cancel=stopped.mode, cancelled_by=stopped.by)

    async def prepare(self, batch: Sequence[Active]) -> None:
        """Read what a batch of claimed runs is to know, all together."""
        async with self._db.reading() as session:
            known = await brief.collect(session, [active.claimed for active in batch])
        for active in batch:
            active.known = known[active.claimed.run_id]

    async def _prepared(self, active: Active) -> brief.Collected:
        """Return what the run is to know, patiently where the batch could not be read; a plan begins."""
        claimed = active.claimed
        if active.known is None:
            found = await self._db.retrying(lambda session: brief.collect(session, [claimed]), timeout_s=BRIEFING_S)
            active.known = found[claimed.run_id]
        active.known = await self._remembering(active.known)
        if active.known.task is not None and active.known.task.kind is TaskKind.PLAN:
            await self._db.retrying(lambda session: runs.start_goal(session, claimed.run_id, claimed.token), timeout_s=BRIEFING_S)
        return active.known

    async def _remembering(self, known: brief.Collected) -> brief.Collected:
        """Add what the brain knows, as patiently: a database that is away for a moment is no failure of the run's."""
        deadline = time.monotonic() + BRIEFING_S
        while True:
            try:
                return await brief.remembering(self._brain, known, limit=self._home.config.brain.recall_limit)
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RECALL_AGAIN_S)

    async def _read(self, result: RunResult, told: Sequence[str]) -> tuple[Answer, frozenset[str]]:
        """A short answer is read at once; a long one in a thread, so that the loop goes on."""
        said = (result.text, *(action.content for action in result.actions if isinstance(action, Remember)))
        if sum(map(len, (*said, *told))) < INLINE_CHARS:
            return reading.read(result, told)
        return await asyncio.to_thread(reading.read, result, told)

    async def _soul(self, spec: AgentSpec) -> souls.Soul:
        """Render the soul from its file as it is now, off the loop; again only when the file or the agent has changed."""
        company = self._home.config.company
        key = (spec.digest, souls.fingerprint(spec, home=self._home.root))
        if key not in self._souls:
            self._souls[key] = await asyncio.to_thread(
                souls.render, spec, home=self._home.root, company=company, language=company.language, timezone=company.timezone
            )
            while len(self._souls) > SOULS_KEPT:
                self._souls.pop(next(iter(self._souls)))
        return self._souls[key]

    def _brief(self, claimed: Claimed, known: brief.Collected, soul: str) -> Briefing:
        company, spec = self._home.config.company, known.spec
        return briefing.build(
            run_id=str(claimed.run_id),
            token=str(claimed.token),
            agent=BriefingAgent(name=spec.name, role=spec.role, title=spec.title, skills=spec.skills, team=spec.team),
            company=BriefingCompany(name=company.name, goal=company.goal),
            goal=known.goal,
            task=known.task,
            comments=known.comments,
            inputs=known.inputs,
            memories=known.memories,
            reason=claimed.reason,
            soul=soul,
        )

    def _limits(self, known: brief.Collected) -> RunLimits:
        config = self._home.config.runs
        return RunLimits(timeout_s=known.spec.timeout_s or config.timeout_s, idle_timeout_s=config.idle_timeout_s)

    def _workspace(self, claimed: Claimed) -> Path:
        """One folder a task, so that a second attempt finds what the first has left; one a run where there is no task."""
        name = f"task-{claimed.task_id}" if claimed.task_id is not None else f"run-{claimed.run_id}"
        return self._home.workspaces / name


def _storable(result: RunResult) -> RunResult:
    """Return a result that PostgreSQL takes, whatever an adapter put into it; its text is cleaned where it is parsed."""
    return replace(
        result,
        actions=tuple(type(one).model_validate(clean_json(one.model_dump())) for one in result.actions),
        usage=tuple(replace(one, model=clean(one.model)) for one in result.usage),
        notes=tuple(map(clean, result.notes)),
    )
