"""The report on a goal as Markdown: what was asked, what each task gave, what failed and why, time and cost.

Pure, and without a model: it quotes, it does not judge. Bounded, whatever the results are. None means unknown and is said
so; it is never counted as zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from opencognit import textclean
from opencognit.contracts import BriefingInput
from opencognit.states import TaskState

RESULTS_LIMIT = 24_000
"""Characters that the quoted results of all tasks share."""
RESULT_BOUNDS = (240, 6_000)
"""The least and the most that one result gets of them."""
LINE_LIMIT = 500
FILES_LISTED = 20

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def compose(
    goal_title: str,
    goal_description: str,
    inputs: Sequence[BriefingInput],
    *,
    questions: Sequence[str] = (),
) -> str:
    """Return the report on a goal, whose tasks' outcomes are `inputs` in the order they should stand.

    A task's `cost_usd` of 0 says that it used nothing that costs, None that its price is unknown. `questions` are those
    that the board has not answered.
    """
    done = [one for one in inputs if one.status is TaskState.DONE]
    cancelled = [one for one in inputs if one.status is TaskState.CANCELLED]
    waiting = [one for one in inputs if one.status is not TaskState.DONE and one.status is not TaskState.CANCELLED]
    share = max(RESULT_BOUNDS[0], min(RESULT_BOUNDS[1], RESULTS_LIMIT // max(1, len(done))))
    parts = [f"# {_line(goal_title)}", _summary(done, waiting, cancelled, questions)]
    if goal_description.strip():
        parts += ["## Asked", _quote(goal_description, 1_500)]
    if done:
        parts += ["## Done", *(_outcome(one, share) for one in done)]
    if waiting:
        parts += ["## Not done", "\n".join(_undone(one) for one in waiting)]
    if cancelled:
        parts += ["## Skipped", "\n".join(_undone(one) for one in cancelled)]
    if questions:
        parts += ["## Questions to the board", "\n".join(f"- {_line(question)}" for question in questions)]
    parts += ["## Time and cost", _totals(inputs)]
    return "\n\n".join(parts) + "\n"


def duration(seconds: float | None) -> str:
    """Write seconds for a person: "0.4 s", "3 min 05 s", "2 h 10 min"; None is "unknown"."""
    if seconds is None:
        return "unknown"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def cost(usd: Decimal | None) -> str:
    """Write an amount for a person: None is "unknown", 0 is "no cost"."""
    if usd is None:
        return "unknown"
    if not usd:
        return "no cost"
    return f"${usd:.4f}" if usd >= Decimal("0.0001") else "under $0.0001"


def _summary(
    done: Sequence[BriefingInput],
    waiting: Sequence[BriefingInput],
    cancelled: Sequence[BriefingInput],
    questions: Sequence[str],
) -> str:
    total = len(done) + len(waiting) + len(cancelled)
    if not total:
        return "No task was made for this goal."
    said = [f"{len(done)} of {total} task{'s' if total > 1 else ''} done"]
    said += [f"{len(waiting)} not done"] if waiting else []
    said += [f"{len(cancelled)} skipped"] if cancelled else []
    said += [f"{len(questions)} question{'s' if len(questions) > 1 else ''} open"] if questions else []
    return ", ".join(said) + "."


def _outcome(one: BriefingInput, share: int) -> str:
    result = _quote(one.result, share) if one.result.strip() else "> (it gave no text)"
    files = [f"- file `{_line(file.path)}`, {file.size} bytes" for file in one.files[:FILES_LISTED]]
    if len(one.files) > FILES_LISTED:
        files.append(f"- and {len(one.files) - FILES_LISTED} more files")
    head = f"### {_line(one.title)}\n\nBy {_line(one.agent or 'an unknown agent')}, {_spent(one)}."
    return "\n\n".join([head, result, *(["\n".join(files)] if files else [])])


def _undone(one: BriefingInput) -> str:
    why = _line(one.reason) or "no reason was given"
    return f"- **{_line(one.title)}** (task {one.task_id}, {one.status}, given to {_line(one.agent or 'nobody')}): {why}"


def _spent(one: BriefingInput) -> str:
    price = cost(one.cost_usd)
    return f"time {duration(one.duration_s)}, {price if one.cost_usd == 0 else f'cost {price}'}"


def _totals(inputs: Sequence[BriefingInput]) -> str:
    """Sum what is known; a task that is not done and shows neither time nor a cost has never run."""
    ran = [one for one in inputs if one.status is TaskState.DONE or one.duration_s is not None or one.cost_usd]
    times = [one.duration_s for one in ran if one.duration_s is not None]
    costs = [one.cost_usd for one in ran if one.cost_usd is not None]
    time_said = _total(duration(sum(times)), len(times), len(ran))
    cost_said = _total(cost(sum(costs, Decimal(0))), len(costs), len(ran))
    return f"- Working time: {time_said}\n- Cost: {cost_said}"


def _total(known: str, count: int, of: int) -> str:
    """Say a sum of `count` known values among `of`."""
    if count == of:
        return known if of else "none"
    if not count:
        return "unknown"
    return f"{known} for {count} of {of} tasks; unknown for the other {of - count}"


def _line(text: str) -> str:
    line = " ".join(_CONTROL.sub(" ", textclean.strip_ansi(text)).split())
    return line if len(line) <= LINE_LIMIT else line[: LINE_LIMIT - 1] + "…"


def _quote(text: str, limit: int) -> str:
    """Quote the head of `text`, so that its own headings and fences stay inside; control characters are dropped."""
    clean = _CONTROL.sub("", textclean.strip_ansi(text).replace("\r\n", "\n")).strip("\n")
    rest = len(clean) - limit
    lines = clean[:limit].rstrip().split("\n")
    lines += ["", f"… ({rest} characters more, see the task)"] if rest > 0 else []
    return "\n".join(f"> {line}".rstrip() for line in lines)
