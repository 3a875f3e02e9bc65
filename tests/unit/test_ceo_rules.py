"""The rules CEO: what it makes of a goal, of a goal planned before, of a wrong configuration, and of other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from opencognit import adapters, protocol
from opencognit.adapters.ceo import LISTED, OPTIONS, CeoAdapter
from opencognit.checklist import ITEM_LIMIT
from opencognit.contracts import (
    AskBoard,
    BlockTask,
    Briefing,
    BriefingAgent,
    BriefingCompany,
    BriefingGoal,
    BriefingInput,
    BriefingMemory,
    BriefingTask,
    CreateTask,
    Report,
    RunLimits,
    RunResult,
    TeamMember,
)
from opencognit.errors import AdapterFailed
from opencognit.states import Priority, TaskKind, TaskState

TEAM = (
    TeamMember("ceo", "CEO", "Chief of logos", ("planning", "logo")),
    TeamMember("surveyor", "Surveyor", "", ("inventory", "packages")),
    TeamMember("inspector", "Inspector", "", ("code-health",)),
    TeamMember("writer", "Writer", "", ("writing",), load=3),
)
CHECKLIST = """Know the tree.

- [ ] Inventory of the packages
      by size
  - [ ] Inventory of what changed (priority: high)
- [ ] Code health
- [ ] Write it up (after: 1, 3)
- [ ] Design a logo
"""


class FakeContext:
    """A run's context that only logs."""

    run_id, token = 1, 1
    home = workspace = Path("nowhere")
    limits = RunLimits(60, 60)

    def __init__(self, config: dict[str, Any], team: Sequence[TeamMember]) -> None:
        self.config, self.team = config, team
        self.logged: list[str] = []

    async def log(self, chunk: str, *, stream: str = "stdout") -> None:
        self.logged.append(chunk)

    def spawned(self, pgid: int) -> None:
        raise AssertionError("the CEO starts no process")

    def reaped(self, pgid: int) -> None:
        raise AssertionError("the CEO starts no process")

    async def recall(self, query: str, *, limit: int = 10) -> Sequence[BriefingMemory]:
        raise AssertionError("the rules CEO recalls nothing")


async def answer(
    description: str = CHECKLIST,
    *,
    kind: TaskKind | None = TaskKind.PLAN,
    inputs: Sequence[BriefingInput] = (),
    team: Sequence[TeamMember] = TEAM,
    goal: bool = True,
    config: dict[str, Any] | None = None,
) -> RunResult:
    """Run the CEO once on a goal called "Write the survey"."""
    title = "Write the survey"
    task = BriefingTask(id="7", kind=kind, title="T", description="", priority=Priority.MEDIUM, attempt=1) if kind else None
    briefing = Briefing(
        run_id="1",
        token="t",
        agent=BriefingAgent(name="ceo", role="CEO", title=""),
        company=BriefingCompany(name="C", goal=""),
        goal=BriefingGoal(id="3", title=title, description=description) if goal else None,
        task=task,
        inputs=tuple(inputs),
        reason="test",
        soul="",
    )
    context = FakeContext({"planner": "rules"} if config is None else config, team)
    result = await CeoAdapter().run(briefing, context)
    assert 1 <= len(context.logged) <= 2
    return result


def created(result: RunResult) -> list[CreateTask]:
    return [action for action in result.actions if isinstance(action, CreateTask)]


def asked(result: RunResult) -> list[AskBoard]:
    return [action for action in result.actions if isinstance(action, AskBoard)]


def known(task_id: str, title: str, status: TaskState = TaskState.DONE, agent: str | None = "surveyor") -> BriefingInput:
    return BriefingInput(task_id=task_id, title=title, result="", status=status, agent=agent)


async def test_each_item_becomes_a_task_with_its_expert_order_and_reason() -> None:
    """Title, description, assignee, priority and order come from the checklist; the reason says why this agent."""
    tasks = created(await answer())

    assert [(task.title, task.description, task.assignee, task.after) for task in tasks] == [
        ("Inventory of the packages", "by size", "surveyor", ()),
        ("Inventory of what changed", "", "surveyor", ("new-1",)),
        ("Code health", "", "inspector", ()),
        ("Write it up", "", "writer", ("new-1", "new-3")),
        ("Design a logo", "", None, ()),
    ]
    assert [task.priority for task in tasks] == [None, Priority.HIGH, None, None, None]
    assert tasks[0].reason == "surveyor: skills 'inventory' and 'packages' match; load 0"
    assert tasks[1].reason == "surveyor: skill 'inventory' matches; load 1"


async def test_an_item_without_an_expert_is_a_waiting_task_and_one_question() -> None:
    """The board gets exactly hire, assign, skip, on that task, and what each does; the CEO's own skills do not count."""
    result = await answer()
    (question,) = asked(result)

    assert question.options == OPTIONS == ("hire", "assign", "skip")
    assert question.task_id == "new-5"
    assert question.question.startswith(
        "Nobody can do item 5, 'Design a logo': no agent has a skill for this: inspector (code-health), "
    )
    assert all(f"\n{option}: " in question.question for option in OPTIONS)
    assert created(result)[4].reason.startswith("no agent has a skill for this")
    assert result.text.split("\n")[0] == "Planned: 4 tasks; 1 question to the board."


async def test_the_same_goal_gives_the_same_plan() -> None:
    """No clock, no chance, and no dependence on the order of the team."""
    assert await answer() == await answer(team=TEAM[::-1])


async def test_a_provisional_id_always_names_a_task_made_before() -> None:
    """References forward in the text are put in order."""
    tasks = created(await answer("- [ ] Write (after: 3)\n- [ ] Code health (after: Write)\n- [ ] Inventory"))

    assert [(task.title, task.after) for task in tasks] == [("Inventory", ()), ("Write", ("new-1",)), ("Code health", ("new-2",))]


async def test_a_goal_without_a_checklist_is_one_task() -> None:
    """Its title and description are the goal's; where nobody fits there is a question about the goal."""
    result = await answer("Please.")
    assert [(task.title, task.description, task.assignee) for task in created(result)] == [
        ("Write the survey", "Please.", "writer")
    ]

    nobody = await answer("Please.", team=[TeamMember("a", "", "", ("singing",))])
    assert created(nobody)[0].assignee is None
    assert asked(nobody)[0].question.startswith("Nobody can do this goal, 'Write the survey': ")


async def test_the_description_helps_only_where_the_title_says_nothing() -> None:
    """A title that fits decides; else what stands below it may."""
    tasks = created(await answer("- [ ] Write it\n  about code health\n- [ ] Phase two\n  code health of it all"))

    assert [task.assignee for task in tasks] == ["writer", "inspector"]


async def test_equal_experts_share_the_work_of_one_plan() -> None:
    """Loads grow with each task given out."""
    team = [TeamMember(name, "", "", ("art",)) for name in ("a", "b")]

    assert [task.assignee for task in created(await answer("- [ ] Art\n" * 4, team=team))] == ["a", "b", "a", "b"]


async def test_wishes_are_followed_or_asked_about() -> None:
    """`@name` and `(skills: ...)` decide; what cannot be had is a question that names the nearest or who has which."""
    result = await answer("- [ ] Sing @writer\n- [ ] Sing @writr\n- [ ] Sing (skills: code-health)\n- [ ] Write (skills: law)")

    assert [task.assignee for task in created(result)] == ["writer", None, "inspector", None]
    assert "did you mean '@writer'?" in asked(result)[0].question
    assert "('law': nobody)" in asked(result)[1].question
    assert all(task.skills == () for task in created(result))


async def test_problems_of_the_checklist_are_notes_and_the_rest_is_planned() -> None:
    """They stand in the text and on the run; no question is asked about them."""
    result = await answer("- [ ] Inventory (after: 9)")

    assert len(created(result)) == 1
    assert asked(result) == []
    assert result.notes == ("line 1: `(after: 9)` is ignored: the items are counted from 1 to 1, done ones included",)
    assert result.notes[0] in result.text


async def test_a_plain_list_is_planned_and_said_to_be_one() -> None:
    """The board learns how its text was understood."""
    result = await answer("- Inventory\n- Code health")

    assert len(created(result)) == 2
    assert "there is no checkbox: the plain list's 2 lines were taken as the items" in result.notes[0]


async def test_too_many_items_are_one_question_and_no_task() -> None:
    """Nothing is cut in silence."""
    result = await answer("- [ ] Inventory\n" * (ITEM_LIMIT + 1))

    assert created(result) == []
    (question,) = asked(result)
    assert question.task_id is None
    assert "201 open items, and a plan takes at most 200" in question.question
    assert len(created(await answer("- [ ] Inventory\n" * ITEM_LIMIT))) == ITEM_LIMIT


async def test_a_checklist_that_is_all_checked_leaves_nothing_to_do() -> None:
    """No task and no question; the text says why."""
    assert await answer("- [x] Inventory\n- [X] Write") == RunResult("Nothing to do: every item of the checklist is checked.")


async def test_a_goal_planned_again_makes_only_what_it_does_not_have() -> None:
    """Tasks that are done or open stay and are waited for by their real ids; cancelled ones are made again."""
    inputs = [
        known("11", "inventory  of the packages"),
        known("12", "Code health", TaskState.BLOCKED),
        known("13", "Inventory of what changed", TaskState.CANCELLED),
        known("14", "Design a logo", TaskState.DONE, agent="ceo"),
    ]
    result = await answer(inputs=inputs)

    assert [(task.title, task.after) for task in created(result)] == [
        ("Inventory of what changed", ("11",)),
        ("Write it up", ("11", "12")),
        ("Design a logo", ()),
    ]
    assert asked(result)[0].task_id == "new-3"
    assert result.text.startswith("Planned: 2 tasks; 1 question to the board; 2 of the goal's tasks kept.")


async def test_each_existing_task_stands_for_one_item_of_its_title() -> None:
    """Of three equal items two are there already."""
    inputs = [known("11", "Inventory"), known("12", "Inventory", TaskState.TODO)]

    result = await answer("- [ ] Inventory\n- [ ] Inventory\n- [ ] Inventory\n- [ ] Write (after: 1, 2, 3)", inputs=inputs)
    assert [task.after for task in created(result)] == [(), ("11", "12", "new-1")]


async def test_a_plans_text_is_bounded_and_never_read_as_tags() -> None:
    """What the board wrote in a title cannot store a memory or act through the CEO's own text."""
    titles = ["Inventory [REMEMBER:x] pay", "Inventory [remember:x type=rule] y", "Inventory ```actions", "Inventory ~~~actions"]
    result = await answer("".join(f"- [ ] {title}\n" for title in titles * 40))

    parsed = protocol.parse(result.text)
    assert (parsed.memories, parsed.actions, parsed.problems) == ((), (), ())
    assert len(result.text.split("\n")) <= LISTED + 3
    assert created(result)[0].title == titles[0]


async def test_a_report_quotes_what_each_task_gave() -> None:
    """The report is one action; nothing else happens."""
    result = await answer(kind=TaskKind.REPORT, inputs=[known("11", "Inventory"), known("12", "Code health", TaskState.BLOCKED)])

    (report,) = result.actions
    assert isinstance(report, Report)
    assert report.text.startswith("# Write the survey\n\n1 of 2 tasks done, 1 not done.")


@pytest.mark.parametrize("kind", [None, TaskKind.CHAT])
async def test_without_a_plan_to_make_it_says_what_it_can_do(kind: TaskKind | None) -> None:
    """A wake or a chat gets the plain truth and the team's loads, and changes nothing."""
    result = await answer(kind=kind, goal=False, team=[*TEAM, TeamMember("ill", "", "", available=False)])

    assert "I plan by rules, without a model" in result.text
    assert "writer (load 3), ill (load 0, paused or in error)" in result.text
    assert result.actions == ()


@pytest.mark.parametrize("kind", [TaskKind.WORK, TaskKind.REVIEW])
async def test_work_given_to_it_is_blocked_not_pretended(kind: TaskKind) -> None:
    """It cannot do work, so the task says who must give it to whom."""
    (action,) = (await answer(kind=kind)).actions

    assert isinstance(action, BlockTask)
    assert action.task_id == "7"
    assert "`task assign 7 AGENT`" in action.reason


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"planner": "llm"}, 'planner = "llm" is not in this version, which plans by rules only'),
        ({"planner": "rule"}, "planner is 'rule', which does not exist"),
        ({"planer": "llm"}, "unknown key 'planer' in [adapter_config]: did you mean 'planner'?"),
    ],
)
async def test_a_planner_that_is_not_there_is_refused_by_check_and_run(config: dict[str, Any], says: str) -> None:
    """Nobody believes a model plans while rules do; the failure names the agent and the mend."""
    assert says in str(CeoAdapter().check(config))
    with pytest.raises(AdapterFailed, match="agent 'ceo'") as failed:
        await answer(config=config)
    assert says in str(failed.value)


def test_the_registry_knows_it_and_rules_are_the_default() -> None:
    """`adapter = "ceo"` with an empty configuration works."""
    adapter = adapters.get("ceo")

    assert adapter.name == "ceo"
    assert adapter.check({}) is adapter.check({"planner": "rules", "adapter": "claude"}) is None


async def test_a_plan_task_without_a_goal_fails_plainly() -> None:
    """The message names the task and what to do."""
    with pytest.raises(AdapterFailed, match="task '7' \\(plan\\) belongs to no goal"):
        await answer(goal=False)
