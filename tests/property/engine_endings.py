"""The ways in which a run of the model ends, and what its agent says at its end. Draws, but does nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from opencognit.contracts import Action, Answer, AskBoard, BlockTask, Comment, CompleteTask, CreateTask, Remember, Report
from opencognit.states import CancelMode, RunState, TaskKind
from tests.property.engine_world import AGENTS, Look, Row

FAILED = {"status": RunState.FAILED, "error": "no"}
ENDINGS: dict[str, dict[str, Any]] = {
    "done": {},
    "said nothing": {},
    "split": {},
    "given away": {},
    "blocked": {},
    "asked": {},
    "remembered": {},
    "failed": FAILED,
    "busy": {**FAILED, "retryable": True},
    "timed out": {"status": RunState.TIMED_OUT, "error": "slow", "retryable": True},
    **{mode.value: {"status": RunState.CANCELLED, "cancel": mode, "error": "stopped"} for mode in CancelMode},
}


def answer(seen: Look, run: Row, how: str, data: st.DataObject | None) -> Answer:
    """Return what the agent of `run` says; without `data` nothing that would have to be chosen."""
    match how:
        case "said nothing":
            return Answer("")
        case "remembered":
            return Answer("done", memories=(Remember(content=f"run {run['id']} was here", room="r"),))
        case _:
            kind = seen.tasks[run["task_id"]]["kind"] if run["task_id"] is not None else None
            return Answer("done", actions=tuple(_actions(seen, kind, how, data)))


def _actions(seen: Look, kind: str | None, how: str, data: st.DataObject | None) -> list[Action]:
    match how:
        case "blocked" if kind is not None:
            return [BlockTask(reason="cannot")]
        case "asked" if kind is not None:
            return [AskBoard(question="which?", options=("this", "that"))]
        case "split" if data is not None:
            who = st.sampled_from([*AGENTS, None])
            return [_part(data.draw(who)), _part(data.draw(who), *(["new-1"] if data.draw(st.booleans()) else []))]
        case "given away" if data is not None:
            other = str(data.draw(st.sampled_from(list(seen.tasks))))
            return [Comment(task_id=other, text="over to you"), CompleteTask(task_id=other, result="x")]
        case "done" if kind == TaskKind.PLAN:
            return [_part("ann"), _part("bob", "new-1")]
        case "done" if kind == TaskKind.REPORT:
            return [Report(text="all is well")]
        case _:
            return []


def _part(assignee: str | None, *after: str) -> CreateTask:
    return CreateTask(title="part", assignee=assignee, skills=() if assignee else ("juggling",), after=after)
