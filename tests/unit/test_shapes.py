"""The JSON shapes: the contract's keys, ids and money as strings, times in UTC, None for what is unknown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from opencognit.contracts import EntityRef
from opencognit.models import Agent, Approval, Comment, Event, Goal, Memory, Node, Run, RunLog, Task
from opencognit.states import EntityRole
from opencognit.work import shapes

AT = datetime(2026, 1, 31, 9, 30, 0, 5, timezone(timedelta(hours=2)))
TOLD = "2026-01-31T07:30:00.000005Z"

CONTRACT = {
    "goal": "id,title,description,priority,status,budget_usd,created_at,ended_at",
    "task": (
        "id,kind,goal_id,parent_id,after,title,description,status,priority,assignee,reason,attempt,result,files,comments,lock"
    ),
    "run": "id,task_id,agent,adapter,status,reason,started_at,ended_at,cost_usd,tokens_in,tokens_out,soul_hash,error",
    "approval": "id,kind,subject,question,options,status,decision,note",
    "memory": (
        "id,type,room,scope,team,trust,lifecycle,confidence,content,context,source,entities,valid_from,valid_to,created_at"
    ),
    "event": "id,type,at,subject,actor,data",
    "node": "id,pid,host,capacity,running",
}


def goal(**fields: Any) -> Goal:
    plain = {"id": 7, "title": "t", "description": "", "priority": "low", "status": "open", "reason": "", "created_at": AT}
    return Goal(**{**plain, **fields})


def task(**fields: Any) -> Task:
    plain = {"id": 8, "kind": "work", "title": "t", "description": "", "skills": ["a"], "status": "todo", "priority": "low"}
    return Task(**{**plain, "reason": "", "attempt": 0, "files": [], "created_at": AT, **fields})


def run(**fields: Any) -> Run:
    plain = {"id": 9, "agent": "a", "adapter": "bash", "status": "running", "reason": "", "attempt": 1, "started_at": AT}
    return Run(**{**plain, "notes": [], **fields})


def memory(**fields: Any) -> Memory:
    plain = {"id": 4, "type": "fact", "room": "r", "scope": "org", "owner": "", "trust": "observed", "lifecycle": "active"}
    return Memory(**{**plain, "confidence": 0.7, "content": "c", "context": "", "created_at": AT, **fields})


APPROVAL = {
    "id": 3,
    "kind": "question",
    "subject": "s",
    "question": "q",
    "options": ["a"],
    "status": "pending",
    "asked_by": "ceo",
}
EVENT = {"id": 2, "type": "goal.posted", "at": AT, "subject_kind": "goal", "subject_id": "7", "subject_title": "t"}
SHAPED = {
    "goal": lambda: shapes.goal(goal()),
    "task": lambda: shapes.task(task()),
    "run": lambda: shapes.run(run()),
    "approval": lambda: shapes.approval(Approval(**APPROVAL, created_at=AT)),
    "memory": lambda: shapes.memory(memory()),
    "event": lambda: shapes.event(Event(**EVENT, actor="board", data={"priority": "low"})),
    "node": lambda: shapes.node(Node(id="n", pid=1, host="h", capacity=8), running=2),
}


@pytest.mark.parametrize("kind", CONTRACT)
def test_every_shape_has_the_contracts_keys_and_is_json(kind: str) -> None:
    shaped = SHAPED[kind]()
    assert CONTRACT[kind].split(",") == [key for key in shaped if key in CONTRACT[kind].split(",")]
    assert json.loads(json.dumps(shaped)) == shaped
    assert isinstance(shaped["id"], str)


def test_times_are_utc_with_z_and_unknown_ones_stay_none() -> None:
    assert shapes.time(AT) == TOLD
    assert shapes.time(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000000Z"
    assert shapes.time(None) is None
    assert shapes.goal(goal())["ended_at"] is None


@pytest.mark.parametrize(
    ("amount", "told"),
    [
        (Decimal("5"), "5.000000"),
        (Decimal("0.012345"), "0.012345"),
        (Decimal("1E+3"), "1000.000000"),
        (Decimal(0), "0.000000"),
        (None, None),
    ],
)
def test_money_is_a_decimal_string_and_unknown_is_not_zero(amount: Decimal | None, told: str | None) -> None:
    assert shapes.money(amount) == told
    assert shapes.run(run(cost_usd=amount))["cost_usd"] == told


def test_a_tasks_ids_comments_and_predecessors() -> None:
    comment = Comment(id=5, author="board", text="hello", created_at=AT)
    shaped = shapes.task(task(goal_id=7, parent_id=6), after=[1, 2], comments=[comment])
    assert (shaped["goal_id"], shaped["parent_id"], shaped["after"]) == ("7", "6", ["1", "2"])
    assert shaped["comments"] == [{"id": "5", "author": "board", "text": "hello", "created_at": TOLD}]


def test_a_lock_says_who_holds_the_task_and_no_lock_is_null() -> None:
    assert shapes.task(task())["lock"] is None
    held = task(execution_run_id=9, execution_agent_key="a", execution_locked_at=AT, lock_expires_at=AT + timedelta(minutes=30))
    assert shapes.task(held)["lock"] == {
        "run_id": "9",
        "agent": "a",
        "locked_at": TOLD,
        "expires_at": "2026-01-31T08:00:00.000005Z",
    }


def test_a_memory_names_its_team_only_where_a_team_sees_it() -> None:
    assert shapes.memory(memory(scope="team", owner="blue"))["team"] == "blue"
    assert shapes.memory(memory(scope="agent_private", owner="ada"))["team"] is None


def test_a_memorys_source_and_entities() -> None:
    about = EntityRef(kind="person", key="ada", role=EntityRole.SUBJECT)
    shaped = shapes.memory(memory(source_agent="scribe", source_run_id=9, source_task_id=8), [about])
    assert shaped["source"] == {"agent": "scribe", "run_id": "9", "task_id": "8"}
    assert shaped["entities"] == [{"kind": "person", "key": "ada", "role": "subject"}]


@pytest.mark.parametrize(
    ("stored", "running", "told"), [("idle", 0, "idle"), ("idle", 1, "running"), ("paused", 1, "paused"), ("error", 0, "error")]
)
def test_an_agent_is_running_by_its_runs_unless_a_person_must_act(stored: str, running: int, told: str) -> None:
    """`running` is never stored; a pause is told even while the last run finishes."""
    row = Agent(name="a", adapter="bash", status=stored, status_reason="", present=True, spec={"role": "r", "skills": ["s"]})
    shaped = shapes.agent(row, running=running, load=3)
    assert (shaped["status"], shaped["running"], shaped["load"]) == (told, running, 3)
    assert (shaped["role"], shaped["skills"], shaped["team"]) == ("r", ["s"], None)


def test_a_piece_of_a_log() -> None:
    shaped = shapes.log_piece(RunLog(run_id=9, seq=0, token=1, stream="stderr", chunk="x", at=AT))
    assert shaped == {"seq": 0, "stream": "stderr", "at": TOLD, "text": "x"}
