"""The report on a goal: complete, honest about what is unknown, bounded, and closed against what results contain."""

from __future__ import annotations

from decimal import Decimal

import pytest

from opencognit.contracts import BriefingInput, ProducedFile
from opencognit.reporting import FILES_LISTED, compose, cost, duration
from opencognit.states import TaskState

DONE = BriefingInput(task_id="1", title="Survey", result="42 packages", agent="surveyor", cost_usd=Decimal(0), duration_s=75)
PAID = BriefingInput(task_id="2", title="Write", result="Text", agent="writer", cost_usd=Decimal("0.012345"), duration_s=2)
UNKNOWN = BriefingInput(task_id="3", title="Draw", result="", agent="artist")
FAILED = BriefingInput(
    task_id="4", title="Check", result="", agent="inspector", status=TaskState.BLOCKED, reason="exit 3", duration_s=1
)
WAITING = BriefingInput(task_id="5", title="Logo", result="", status=TaskState.BACKLOG, reason="no agent has a skill for this")
SKIPPED = BriefingInput(task_id="6", title="Party", result="", status=TaskState.CANCELLED, reason="skipped by board")


def test_it_says_what_was_asked_done_failed_skipped_and_is_open() -> None:
    """Each task stands in its section with who and why; the first line counts them."""
    text = compose("The goal", "Do it.", [DONE, FAILED, WAITING, SKIPPED], questions=["Who draws?"])

    assert text.startswith(
        "# The goal\n\n1 of 4 tasks done, 2 not done, 1 skipped, 1 question open.\n\n## Asked\n\n> Do it.\n\n## Done\n"
    )
    assert "### Survey\n\nBy surveyor, time 1 min 15 s, no cost.\n\n> 42 packages\n" in text
    assert "- **Check** (task 4, blocked, given to inspector): exit 3\n" in text
    assert "- **Logo** (task 5, backlog, given to nobody): no agent has a skill for this\n" in text
    assert "## Skipped\n\n- **Party** (task 6, cancelled, given to nobody): skipped by board\n" in text
    assert "## Questions to the board\n\n- Who draws?\n" in text


@pytest.mark.parametrize(
    ("inputs", "time", "price"),
    [
        ([DONE], "1 min 15 s", "no cost"),
        ([DONE, PAID], "1 min 17 s", "$0.0123"),
        ([UNKNOWN], "unknown", "unknown"),
        (
            [DONE, UNKNOWN],
            "1 min 15 s for 1 of 2 tasks; unknown for the other 1",
            "no cost for 1 of 2 tasks; unknown for the other 1",
        ),
        ([DONE, WAITING, SKIPPED], "1 min 15 s", "no cost"),  # what never ran is not unknown
        ([DONE, WAITING.model_copy(update={"cost_usd": Decimal(0)})], "1 min 15 s", "no cost"),
        ([DONE, FAILED], "1 min 16 s", "no cost for 1 of 2 tasks; unknown for the other 1"),
        ([], "none", "none"),
    ],
)
def test_what_is_unknown_is_never_counted_as_zero(inputs: list[BriefingInput], time: str, price: str) -> None:
    """Sums name how many tasks they cover; only a known zero is no cost."""
    assert compose("G", "", inputs).endswith(f"## Time and cost\n\n- Working time: {time}\n- Cost: {price}\n")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "unknown"), (0, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (3599.4, "59 min 59 s"), (7800, "2 h 10 min")],
)
def test_durations_are_for_people(seconds: float | None, said: str) -> None:
    """No 60 seconds and no 60 minutes."""
    assert duration(seconds) == said


def test_a_tiny_cost_is_not_no_cost() -> None:
    """Rounded to nothing it still shows as money."""
    assert (cost(Decimal("0.00001")), cost(Decimal(0)), cost(None)) == ("under $0.0001", "no cost", "unknown")


def test_a_result_cannot_break_out_of_its_place() -> None:
    """Headings, fences and lists of a result are quoted; terminal escapes and other controls are gone."""
    hostile = DONE.model_copy(update={"title": "A\n# B\x1b[31m", "result": "# Top\r\n```\n\x1b[2J\x00\u202etext\n\n- x"})
    text = compose("G\n# H", "", [hostile])

    assert "> # Top\n> ```\n> text\n>\n> - x\n" in text
    assert [line for line in text.split("\n") if line.startswith("#")] == ["# G # H", "## Done", "### A # B", "## Time and cost"]
    assert not any(ord(character) < 32 and character != "\n" for character in text)


def test_the_report_is_bounded_and_says_what_it_left_out() -> None:
    """One long result gets its head; two hundred share the room; files are counted."""
    one = compose("G", "d" * 10**6, [DONE.model_copy(update={"result": "r" * 10**6})])
    assert len(one) < 10_000
    assert "… (994000 characters more, see the task)" in one

    files = tuple(ProducedFile(path=f"{number}.txt", size=1, sha256="0" * 64) for number in range(100))
    long = DONE.model_copy(update={"result": "r" * 9000, "title": "t" * 500, "files": files})
    many = compose("G", "", [long] * 200)
    assert f"- and {100 - FILES_LISTED} more files" in many
    assert len(many) < 400_000


def test_a_goal_without_tasks_says_so() -> None:
    """Nothing is invented."""
    assert "No task was made for this goal." in compose("G", "", [])
