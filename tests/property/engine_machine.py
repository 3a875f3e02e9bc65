"""A company under three nodes, a board and an adversary, as a state machine: the rules of the engine's model.

Each rule is one verb of the engine, with what it promises by itself; what must be true after all of them is
engine_invariants.py's. One verb at a time: the races are the hammer's (tests/chaos/test_hammer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.contracts import Usage
from opencognit.engine import heartbeat
from opencognit.errors import InvalidInput, Refused, StaleToken
from opencognit.states import ApprovalState, CancelMode, GoalState, Priority, RunState, TaskState, WakeupSource
from opencognit.work import approvals, claims, closing, goals, intake, locks, roster, runs, steering, wakeups
from opencognit.work import company as board
from opencognit.work.claims import Claimed
from tests.integration import company
from tests.property import engine_invariants
from tests.property.engine_endings import ENDINGS, answer
from tests.property.engine_world import AGENTS, LEASE_S, LIMITS, SPECS, TTL_S, Look, Row, World

GOALS, TASKS = 2, 10
"""So much is posted; agents make more."""
STILL = "still running"
ROUNDS = 60
"""So many claims empty any company that a machine can make."""
ATTEMPTS = 5
"""So many are enough for any task to be given up."""
LAPSE = "UPDATE runs SET lease_expires_at = now() - interval '1 s' WHERE id = :id"
DUE = "UPDATE wakeups SET not_before = now() WHERE status = 'queued' AND task_id = :id"


@dataclass(frozen=True)
class Held:
    """A claim as the node remembers it, whatever has become of it since."""

    node: str
    claimed: Claimed

    @property
    def pair(self) -> tuple[int, int]:
        return self.claimed.run_id, self.claimed.token


class Engine(RuleBasedStateMachine):
    """Three nodes, a board, four agents and an adversary."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.world.reset()
        self.seen: Look = self.world.look()
        self.held: list[Held] = []
        self.taken: list[Claimed] = []
        self.pieces = 0
        self.sound = True

    # --- what a step needs ---------------------------------------------------------------------------------------

    def do(self, verb: Callable[[AsyncSession], Any]) -> Any:
        self.sound = False
        return self.world.do(verb)

    def person(self, verb: Callable[[AsyncSession], Any]) -> None:
        """Do what a person asks for; a refusal changes nothing."""
        try:
            self.do(verb)
        except (Refused, InvalidInput):
            self.unchanged()

    def unchanged(self) -> None:
        assert self.world.look() == self.seen, "something was written that should not have been"

    @invariant()
    def holds(self) -> None:
        now = self.world.look()
        engine_invariants.check(self.seen, now)
        self.seen, self.sound = now, True

    def live(self, node: str | None = None) -> list[Held]:
        running = {run["id"]: run["token"] for run in self.seen.running()}
        return [one for one in self.held if running.get(one.claimed.run_id) == one.claimed.token and node in (None, one.node)]

    def any_task(self, data: st.DataObject) -> Row:
        return self.seen.tasks[data.draw(st.sampled_from(list(self.seen.tasks)))]

    @staticmethod
    def _one(data: st.DataObject, held: list[Held]) -> Held:
        return held[data.draw(st.integers(0, len(held) - 1))]

    # --- work comes in -------------------------------------------------------------------------------------------

    @initialize(busy=st.booleans())
    def begin(self, busy: bool) -> None:
        """Some tasks; with them perhaps a goal that is planned, and a task that is done and one on which a run is."""
        for agent, priority in (("ann", Priority.MEDIUM), ("bob", Priority.LOW), ("bob", Priority.CRITICAL)):
            self.do(partial(intake.create, title="first", assignee=agent, priority=priority, by="board"))
        if busy:
            self.post()
            self.holds()
            for claimed in self._claim("A", 3):
                self.holds()
                if claimed.agent != "bob":
                    self._finish(Held("A", claimed), "done")

    @precondition(lambda self: len(self.seen.goals) < GOALS)
    @rule()
    def post(self) -> None:
        self.person(lambda session: goals.post(session, "a goal"))

    @precondition(lambda self: len(self.seen.tasks) < TASKS)
    @rule(data=st.data(), agent=st.sampled_from([*AGENTS, None]), priority=st.sampled_from(Priority))
    def make(self, data: st.DataObject, agent: str | None, priority: Priority) -> None:
        goal_id = data.draw(st.sampled_from([None, *self.seen.goals]))
        after = data.draw(st.lists(st.sampled_from(list(self.seen.tasks)), max_size=2, unique=True))
        self.person(
            lambda session: intake.create(
                session, "more", assignee=agent, goal_id=goal_id, after=after, priority=priority, by="board"
            )
        )

    @rule(data=st.data(), by=st.sampled_from(["board", "board", *AGENTS]))
    def comment(self, data: st.DataObject, by: str) -> None:
        """The board's word wakes the assignee of whatever can run; an agent's own wakes nobody."""
        task = self.any_task(data)
        self.do(lambda session: steering.comment(session, task["id"], "please", by=by))
        now = self.world.look()
        if by == task["assignee"]:
            assert now.wakeups == self.seen.wakeups, "an agent woke itself"
        elif by == "board" and task["assignee"] and task["status"] != TaskState.BACKLOG and not self.seen.is_called_off(task):
            assert (task["assignee"], task["id"], True) in {(w["agent"], w["task_id"], w["talk"]) for w in now.queued()}

    @rule(
        data=st.data(),
        source=st.sampled_from([*WakeupSource, *[WakeupSource.MENTION] * 5]),
        delay_s=st.sampled_from([0.0, 600.0]),
        alone=st.booleans(),
    )
    def ask(self, data: st.DataObject, source: WakeupSource, delay_s: float, alone: bool) -> None:
        """A wish joins the queued one of the same subject, or is queued."""
        task = self.any_task(data)
        agent = task["assignee"]
        if agent is None or alone or source is WakeupSource.MENTION:
            agent = data.draw(st.sampled_from(AGENTS))
        task_id = None if alone else task["id"]
        if source is WakeupSource.BOARD and alone:
            self.person(lambda session: roster.wake(session, agent, by="board"))
            return
        if task_id is not None and agent != task["assignee"] and source not in wakeups.TALK:
            return
        ident = self.do(lambda session: wakeups.request(session, agent, source, task_id=task_id, delay_s=delay_s))
        now, before = self.world.look().wakeups[ident], self.seen.wakeups.get(ident)
        assert now["count"] == (before["count"] + 1 if before is not None else 1)

    # --- nodes ---------------------------------------------------------------------------------------------------

    @rule(data=st.data(), hows=st.lists(st.sampled_from([*ENDINGS, *[STILL] * len(ENDINGS)]), min_size=4, max_size=4))
    def work(self, data: st.DataObject, hows: list[str]) -> None:
        """A node claims; about half of it is done at once."""
        node = data.draw(st.sampled_from("ABC"))
        self.claim(node, len(hows))
        for claimed, how in zip(self.taken, hows, strict=False):
            self.holds()
            if how is not STILL:
                self._finish(Held(node, claimed), how, data)

    @rule(node=st.sampled_from("ABC"), capacity=st.integers(1, 3))
    def claim(self, node: str, capacity: int) -> None:
        """A node takes what comes first, as much as it has room for, and nothing only when there is nothing."""
        possible = self.seen.claimable()
        taken = self._claim(node, capacity)
        assert len(taken) <= capacity
        now = self.world.look()
        answered = {now.runs[run.run_id]["id"] for run in taken}
        started = {w["id"] for w in now.wakeups.values() if w["run_id"] in answered}
        assert started <= {wakeup["id"] for wakeup in possible}, "something was started that should wait"
        if possible and possible[0]["id"] not in started:  # two were spoken to about one task: one of them goes first
            assert possible[0]["task_id"] in {run.task_id for run in taken} - {None}, f"passed over: {possible[0]}"

    def _claim(self, node: str, capacity: int) -> list[Claimed]:
        taken = self.do(
            lambda session: claims.claim(session, node, capacity=capacity, lease_s=LEASE_S, ttl_s=TTL_S, limits=LIMITS)
        )
        self.held += [Held(node, one) for one in taken]
        self.taken = list(taken)
        return self.taken

    @rule(node=st.sampled_from("ABC"), thief=st.sampled_from("ABC"))
    def renew(self, node: str, thief: str) -> None:
        """A node renews what it owns and what has not lapsed; it never renews another's."""
        live, lapsed = self.live(node), self.world.lapsed(locks=False)
        mine = [one.pair for one in self.held if one.node == node]
        kept = self.do(lambda session: locks.renew(session, node, mine, lease_s=LEASE_S))
        assert kept.keys() == {one.claimed.run_id for one in live} - lapsed
        if thief != node:
            assert self.do(lambda session: locks.renew(session, thief, mine, lease_s=9e9)) == {}
        for pair in mine:
            self._log(pair, kept=self.seen.runs[pair[0]]["token"] == pair[1])
        wrong = [(run_id, token + 1) for run_id, token in mine]
        assert self.do(lambda session: locks.renew(session, node, wrong, lease_s=9e9)) == {}

    def _log(self, pair: tuple[int, int], *, kept: bool) -> None:
        """A piece of a log is stored while its run is on, under its token."""
        kept = kept and self.seen.runs[pair[0]]["status"] == RunState.RUNNING
        self.pieces += 1
        assert self.do(lambda session: runs.append_log(session, *pair, self.pieces, "stdout", "said")) == kept

    @rule(
        seconds=st.sampled_from([0.0, 10.0, 10.0, 40.0, 400.0, 1800.0]), then=st.sampled_from(["reap", "reap", "beat", "nothing"])
    )
    def tick(self, seconds: float, then: str) -> None:
        """Time passes: for nobody, for the reaper, or for the heartbeat."""
        self.sound = False
        self.world.advance(seconds)
        if then == "reap":
            self._reap()
        elif then == "beat":
            self._beat()

    def _reap(self) -> None:
        """Exactly what has lapsed is taken over, and what a person wanted of it happens."""
        lapsed = self.world.lapsed()
        assert self.world.run(heartbeat.reap(self.world.db)) == len(lapsed)
        now = self.world.look()
        assert all(now.runs[run_id]["status"] == RunState.LOST for run_id in lapsed)
        assert all(now.runs[run_id]["token"] != self.seen.runs[run_id]["token"] for run_id in lapsed), "its old token still fits"
        for run_id in lapsed:
            self._obeyed(now, run_id)
        assert self.world.lapsed() == set()

    def _beat(self) -> None:
        """A beat finds nothing that was forgotten, because nothing is."""
        self.world.run(heartbeat.beat(self.world.db))
        now = self.world.look()
        assert now.tasks == self.seen.tasks
        assert now.wakeups.keys() == self.seen.wakeups.keys()

    # --- endings -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.live())
    @rule(data=st.data(), how=st.sampled_from(list(ENDINGS)))
    def finish(self, data: st.DataObject, how: str) -> None:
        """Lock, run, wakeup and task end together, in a state that says what happened."""
        held = self._one(data, self.live())
        self._finish(held, how, data)
        now = self.world.look()
        status = ENDINGS[how].get("status", RunState.SUCCEEDED)
        wished = self.seen.runs[held.claimed.run_id]["cancel_mode"] is not None and status != RunState.SUCCEEDED
        assert now.runs[held.claimed.run_id]["status"] == (RunState.CANCELLED if wished else status)
        self._obeyed(now, held.claimed.run_id)

    def _finish(self, held: Held, how: str, data: st.DataObject | None = None) -> None:
        fields = dict(ENDINGS[how])
        if "status" not in fields:
            fields["usage"] = (Usage(call_no=1, model="m", cost_usd=None, tokens_in=1, tokens_out=1),)
        run = self.seen.runs[held.claimed.run_id]
        said = answer(self.seen, run, how, data)
        self.sound = False
        self.world.run(company.finish(self.world.db, held.claimed, said, **fields))

    def _obeyed(self, now: Look, run_id: int) -> None:
        """What a person asked for while a run was on has happened when it has ended, however it ended."""
        run, mode = now.runs[run_id], self.seen.runs[run_id]["cancel_mode"]
        if run["task_id"] is None or run["resumes_status"] is not None or mode is None:
            return
        status = now.tasks[run["task_id"]]["status"]
        if mode == CancelMode.TASK:
            assert status in engine_invariants.ENDED, f"a cancelled task is {status}"
        elif mode == CancelMode.RUN and run["status"] != RunState.SUCCEEDED:
            assert status == TaskState.BLOCKED, f"the task of a cancelled run is {status}"

    @precondition(lambda self: self.live())
    @rule(data=st.data(), off=st.sampled_from([0, 0, 1]))
    def finish_together(self, data: st.DataObject, off: int) -> None:
        """The node's bookkeeper closes plain runs at once; what is not its own or not plain is left out."""
        live = self.live()
        picked = data.draw(st.lists(st.integers(0, len(live) - 1), min_size=1, max_size=3, unique=True))
        chosen = [live[index] for index in picked]
        given = [closing.Plain(run_id, token + off, "done", 0, None, ()) for run_id, token in (one.pair for one in chosen)]
        closed = self.do(lambda session: closing.close(session, given))
        plain = {run.claimed.run_id for run in chosen if self._is_plain(self.seen.runs[run.claimed.run_id])}
        assert closed == (set() if off else plain)
        if not closed:
            self.unchanged()

    def _is_plain(self, run: Row) -> bool:
        """Whether nothing follows from the run's end but what follows from every end."""
        if run["task_id"] is None:
            return True
        task = self.seen.tasks[run["task_id"]]
        asked = {one["task_id"] for one in self.seen.approvals.values() if one["status"] == ApprovalState.PENDING}
        first = run["resumes_status"] is None and task["attempt"] <= 1
        return first and task["about_id"] is None and task["id"] not in asked

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(list(ENDINGS)))
    def finish_late(self, data: st.DataObject, how: str) -> None:
        """Whoever has lost its run writes nothing; whoever repeats a booking changes nothing."""
        held = self._one(data, self.held)
        if held in self.live():
            held = Held(held.node, replace(held.claimed, token=held.claimed.token - 1))
        self._write_late(held, how, data)

    def _write_late(self, held: Held, how: str, data: st.DataObject) -> None:
        run = self.seen.runs[held.claimed.run_id]
        try:
            self._finish(held, how, data)
            assert run["token"] == held.claimed.token, "a stale token was let through"
        except StaleToken:
            assert run["token"] != held.claimed.token
        given = [closing.Plain(*held.pair, "late", 0, None, ())]
        assert self.do(lambda session: closing.close(session, given)) == set()
        self._log(held.pair, kept=False)
        self.unchanged()

    @precondition(lambda self: self.live())
    @rule(data=st.data(), node=st.sampled_from("ABC"), how=st.sampled_from(list(ENDINGS)))
    def freeze(self, data: st.DataObject, node: str, how: str) -> None:
        """A node stands still past its lease, its work is taken over and begun anew, and then it goes on as if nothing were."""
        frozen = self._one(data, self.live())
        self.sound = False
        self.world.advance(LEASE_S + 1)
        self._reap()
        self.holds()
        self._claim(node, 3)
        self.holds()
        self._write_late(frozen, how, data)

    @precondition(lambda self: any(self._is_due_again(held) for held in self.live()))
    @rule(data=st.data(), how=st.sampled_from(["busy", "timed out", "lost"]))
    def give_up(self, data: st.DataObject, how: str) -> None:
        """A task goes wrong at every attempt until nobody tries it again: then somebody has been told."""
        held: Held | None = self._one(data, [held for held in self.live() if self._is_due_again(held)])
        assert held is not None
        task_id = held.claimed.task_id
        for _ in range(ATTEMPTS):
            if how == "lost":
                self._lose(held)
            else:
                self._finish(held, how)
            self.holds()
            self.do(lambda session: session.execute(text(DUE), {"id": task_id}))
            self._claim(held.node, len(self.seen.queued()) + 1)
            self.holds()
            held = next((one for one in self.live() if one.claimed.task_id == task_id), None)
            if held is None:
                return

    def _lose(self, held: Held) -> None:
        self.do(lambda session: session.execute(text(LAPSE), {"id": held.claimed.run_id}))
        self._reap()

    def _is_due_again(self, held: Held) -> bool:
        run = self.seen.runs[held.claimed.run_id]
        return run["task_id"] is not None and run["resumes_status"] is None and run["cancel_mode"] is None

    # --- people --------------------------------------------------------------------------------------------------

    @rule(who=st.sampled_from(["company", "files", *AGENTS]), on=st.sampled_from([True, True, False]))
    def switch(self, who: str, on: bool) -> None:
        """Pause or resume somebody or all, or let the files of two agents be gone for a while."""
        self.sound = False
        match who:
            case "company":
                self.do(lambda session: (board.resume if on else board.pause)(session, by="board"))
            case "files":
                self.world.staff(SPECS if on else ("ceo", "bob"))
            case _:
                self.do(lambda session: (roster.resume if on else roster.pause)(session, who, by="board"))

    @rule(data=st.data(), what=st.sampled_from(["cancel", "retry", "release", "assign", "stop", "goal"]))
    def decide(self, data: st.DataObject, what: str) -> None:
        """A person's word about a task, about the run that is on it, or about its goal."""
        task = self.any_task(data)
        match what:
            case "cancel" | "retry" | "release":
                verb = {"cancel": steering.cancel, "retry": steering.retry, "release": steering.release}[what]
                self.person(lambda session: verb(session, task["id"], by="board"))
                if what == "cancel" and task["status"] not in engine_invariants.ENDED and task["execution_run_id"] is not None:
                    run = self.world.look().runs[task["execution_run_id"]]
                    assert run["cancel_mode"] == CancelMode.TASK, "a weaker wish came first"
            case "assign":
                agent = data.draw(st.sampled_from(AGENTS))
                self.person(lambda session: steering.assign(session, task["id"], agent, by="board"))
            case "stop" if task["execution_run_id"] is not None:
                self.person(lambda session: runs.cancel(session, task["execution_run_id"], by="board"))
            case "goal" if task["goal_id"] is not None:
                turn = data.draw(st.sampled_from([goals.cancel, goals.reopen]))
                self.person(lambda session: turn(session, task["goal_id"], by="board"))

    @precondition(lambda self: self.seen.approvals)
    @rule(data=st.data(), yes=st.booleans(), option=st.integers(1, 3))
    def answer_question(self, data: st.DataObject, yes: bool, option: int) -> None:
        ident = data.draw(st.sampled_from(list(self.seen.approvals)))
        if yes:
            self.person(lambda session: approvals.approve(session, ident, option=str(option), note="bob", by="board"))
        else:
            self.person(lambda session: approvals.reject(session, ident, by="board"))

    # --- the end -------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Let the company run by itself: it comes to rest, with everything ended or waiting for somebody who is named."""
        if not self.sound:
            return
        for who in ("company", "files", *AGENTS):
            self.switch(who, True)
        for _ in range(ROUNDS):
            self.holds()
            for held in self.live():
                mode = self.seen.runs[held.claimed.run_id]["cancel_mode"]
                self._finish(held, mode or "said nothing")
            self.world.run(heartbeat.beat(self.world.db))
            if not self._claim("A", 10):
                self.holds()
                if not any(wakeup["id"] in self.seen.late for wakeup in self.seen.queued()):
                    break
                self.world.advance(1000.0)
        else:
            raise AssertionError("the company does not come to rest")
        self._at_rest()

    def _at_rest(self) -> None:
        now = self.seen
        assert now.running() == []
        assert now.claimable() == []
        assert all(now.tasks[wakeup["task_id"]]["status"] == TaskState.BACKLOG for wakeup in now.queued()), now.queued()
        resting = (*engine_invariants.ENDED, TaskState.BLOCKED, TaskState.BACKLOG)
        assert all(task["status"] in resting for task in now.tasks.values())
        assert all(task["execution_run_id"] is None and task["lock_expires_at"] is None for task in now.tasks.values())
        resting_goals = (GoalState.ACHIEVED, GoalState.CANCELLED, GoalState.BLOCKED)
        assert all(goal["status"] in resting_goals for goal in now.goals.values()), now.goals
