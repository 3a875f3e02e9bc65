"""The CEO that plans by rules: a goal's checklist becomes tasks, each with the best fitting expert and the reason why.

Deterministic and without a model; what nobody can do becomes a question to the board, never a guess. Decides only: its
answer is actions, which the engine checks and applies. Must not touch a table, a file or the clock. Planning with a model
(`planner = "llm"`) is not in this version, and it says so.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from opencognit import checklist, matching, reporting
from opencognit.contracts import (
    Action,
    AskBoard,
    BlockTask,
    Briefing,
    BriefingGoal,
    BriefingInput,
    CreateTask,
    Report,
    RunContext,
    RunResult,
    TeamMember,
)
from opencognit.errors import AdapterFailed
from opencognit.states import TaskKind, TaskState

OPTIONS = ("hire", "assign", "skip")
"""What the board can answer about an item that nobody can do."""
LISTED = 20
"""So many tasks or problems are named in the plan's summary."""
_KEYS = ("planner", "adapter")


class CeoAdapter:
    """Plans, reports and answers by rules."""

    name = "ceo"

    def check(self, config: dict[str, Any]) -> str | None:
        """Return None if `[adapter_config]` asks for the rules planner, else what is wrong with it."""
        for key in config:
            if key not in _KEYS:
                near = get_close_matches(key, _KEYS, n=1)
                return f"unknown key {key!r} in [adapter_config]: {f'did you mean {near[0]!r}?' if near else 'remove it'}"
        planner = config.get("planner", "rules")
        if planner == "llm":
            return 'planner = "llm" is not in this version, which plans by rules only: set planner = "rules"'
        return None if planner == "rules" else f'planner is {planner!r}, which does not exist: set planner = "rules"'

    async def run(self, briefing: Briefing, context: RunContext) -> RunResult:
        """Answer the task by its kind; raises AdapterFailed where the configuration or the briefing is wrong."""
        if problem := self.check(context.config):
            raise AdapterFailed(f"agent {briefing.agent.name!r}: {problem}")
        task, goal = briefing.task, briefing.goal
        if task is None or task.kind is TaskKind.CHAT:
            result = RunResult(_introduce(briefing.agent.name, context.team))
        elif task.kind is TaskKind.PLAN or task.kind is TaskKind.REPORT:
            if goal is None:
                raise AdapterFailed(f"task {task.id!r} ({task.kind}) belongs to no goal: cancel it with `task cancel {task.id}`")
            if task.kind is TaskKind.PLAN:
                # Matching a long checklist is a second of arithmetic, which must not hold up the node's loop.
                result = await asyncio.to_thread(plan, goal, briefing.inputs, context.team, ceo=briefing.agent.name)
            else:
                text = reporting.compose(goal.title, goal.description, briefing.inputs)
                result = RunResult("Reported to the board.", actions=(Report(text=text),))
        else:
            reason = f"{briefing.agent.name} only plans, and by rules: `task assign {task.id} AGENT` gives it to an expert"
            result = RunResult(reason, actions=(BlockTask(task_id=task.id, reason=reason),))
        await context.log(result.text.split("\n", 1)[0] + "\n")
        return result


def plan(goal: BriefingGoal, existing: Sequence[BriefingInput], team: Sequence[TeamMember], *, ceo: str) -> RunResult:
    """Turn the goal's checklist into tasks. Without one the goal itself is the only item.

    `existing` are the goal's tasks so far: an item whose title one of them has is not made again, unless that one was
    cancelled or is the CEO's own. A plan may come out empty; its text says why.
    """
    listed = checklist.parse(goal.description)
    notes = list(listed.problems)
    if listed.plain and listed.items:
        count = len(listed.items)
        notes.append(
            f"there is no checkbox: the plain list's {count} lines were taken as the items; `- [ ]` says which are meant"
        )
    if listed.too_many:
        return _refuse(goal, len(listed.open), notes)
    whole = checklist.Item(number=1, line=1, title=goal.title, description=goal.description)
    kept = [one for one in existing if one.status is not TaskState.CANCELLED and one.agent != ceo]
    draft = _Draft(list(team), ceo, kept)
    for item in listed.ordered() if listed.items else (whole,):
        draft.add(item, alone=not listed.items)
    return RunResult(_inert(draft.summary(notes)), actions=tuple(draft.actions), notes=tuple(notes))


def _refuse(goal: BriefingGoal, count: int, notes: Sequence[str]) -> RunResult:
    question = (
        f"Goal {goal.id} has {count} open items, and a plan takes at most {checklist.ITEM_LIMIT}, so nothing was planned. "
        f"Post it in parts with `opencognit goal post`, then `opencognit goal cancel {goal.id}`."
    )
    return RunResult(
        f"Nothing planned: {count} open items are too many.", actions=(AskBoard(question=question),), notes=tuple(notes)
    )


@dataclass(slots=True)
class _Draft:
    """A plan in the making. Loads grow with each task given out, so that equals share the work."""

    team: list[TeamMember]
    ceo: str
    existing: Sequence[BriefingInput]
    actions: list[Action] = field(default_factory=list)
    ids: dict[int, str] = field(default_factory=dict)
    kept: int = 0
    made: int = 0
    given: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)

    def add(self, item: checklist.Item, *, alone: bool) -> None:
        """Make the item's task, unless the goal has it; all that it comes after must have been added."""
        if there := self._existing(item.title):
            self.ids[item.number] = there.task_id
            self.kept += 1
            return
        found = self._find(item)
        self.made += 1
        self.ids[item.number] = f"new-{self.made}"
        task = CreateTask(
            title=item.title,
            description=item.description,
            assignee=found.agent,
            priority=item.priority,
            after=tuple(self.ids[number] for number in item.after),
            reason=found.reason,
        )
        self.actions.append(task)
        if found.agent is None:
            self._ask(item, found.reason, alone=alone)
        else:
            self._give(item, found.agent)

    def _existing(self, title: str) -> BriefingInput | None:
        """Return the goal's task of this title; of several equal ones each stands for one item."""
        wanted = _key(title)
        same = [one for one in self.existing if _key(one.title) == wanted]
        place = self.taken[wanted]
        self.taken[wanted] += 1
        return same[place] if place < len(same) else None

    def _find(self, item: checklist.Item) -> matching.Match:
        """Match by the title; only where that says nothing, by the description too."""
        texts = [item.title] if item.skills or item.assignee or not item.description else [item.title, item.description]
        for text in (texts[0], "\n".join(texts)):
            found = matching.match(text, skills=item.skills, assignee=item.assignee, team=self.team, exclude=(self.ceo,))
            if found.agent:
                break
        return found

    def _give(self, item: checklist.Item, agent: str) -> None:
        self.team = [replace(one, load=one.load + 1) if one.name == agent else one for one in self.team]
        self.given.append(f"{item.title} → {agent}")

    def _ask(self, item: checklist.Item, why: str, *, alone: bool) -> None:
        which = "Nobody can do this goal" if alone else f"Nobody can do item {item.number}"
        question = (
            f"{which}, '{item.title}': {why}.\n"
            "hire: add an agent with such a skill as agents/NAME.toml, then give it the task with `opencognit task assign`.\n"
            "assign: name in the note the agent that shall do it all the same.\n"
            f"skip: {'the goal' if alone else 'the item'} is left out and its task cancelled."
        )
        self.actions.append(AskBoard(question=question, options=OPTIONS, task_id=self.ids[item.number]))
        self.unmatched.append(f"{item.title} → nobody: {why}")

    def summary(self, notes: Sequence[str]) -> str:
        """Say the plan to a person; the first line alone says how much it is."""
        counts = [_count(len(self.given), "task")] if self.given else []
        counts += [f"{_count(len(self.unmatched), 'question')} to the board"] if self.unmatched else []
        counts += [f"{self.kept} of the goal's tasks kept"] if self.kept else []
        head = f"Planned: {'; '.join(counts)}." if counts else "Nothing to do: every item of the checklist is checked."
        lines = _bounded([*self.unmatched, *self.given])
        return "\n".join([head, *lines, *(["To note:", *_bounded(notes)] if notes else [])])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _bounded(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines[:LISTED]] + ([f"- and {len(lines) - LISTED} more"] if len(lines) > LISTED else [])


def _key(title: str) -> str:
    return " ".join(title.casefold().split())


def _inert(text: str) -> str:
    """Keep what the board wrote from being read as this run's own tags or actions."""
    return re.sub(r"\[(?=REMEMBER:)", "(", text, flags=re.IGNORECASE).replace("```", "'''").replace("~~~", "---")


def _introduce(name: str, team: Sequence[TeamMember]) -> str:
    others = [one for one in team if one.name != name]
    states = [f"{one.name} (load {one.load}{'' if one.available else ', paused or in error'})" for one in others[:LISTED]]
    more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
    known = f"The team: {', '.join(states)}{more}." if states else "I see no team in this run."
    return (
        f"I am {name}, and I plan by rules, without a model, so I cannot hold a conversation. I split a goal's checklist "
        "into tasks, give each to the best fitting agent, ask the board about what nobody can do, and report when a goal ends. "
        f"{known}"
    )
