"""Takes an answer apart: which events of a scan become memories and actions, and what is left as text.

What is removed, to the character: a stored tag from its `[` to the end of its content; a tag that carries nothing (cut
off, or without content); every actions block; reasoning; the silence token's line at either end. If nothing is left of
the lines on which it stood, their last line ending goes too. All else stays as it is, also a tag that is refused: its
author's words are not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from opencognit.contracts import Action, Answer, Remember
from opencognit.errors import InvalidInput
from opencognit.protocol import tags
from opencognit.protocol.actions import parse_actions
from opencognit.protocol.problems import bounded, excerpt
from opencognit.protocol.repetition import Told
from opencognit.protocol.scan import ActionsBlock, Event, Reasoning, Scan, Silence, Tag, scan
from opencognit.protocol.silence import is_token

Span = tuple[int, int]
REPEATED = "repeated from what this run was told, not stored"


@dataclass(frozen=True, slots=True)
class _TagReading:
    """What a tag came to: a memory or a problem, and what goes from the text (None: it stays)."""

    memory: Remember | None = None
    problem: str = ""
    removed: Span | None = None


@dataclass(slots=True)
class _Draft:
    """An answer in the making; problems carry their position, so that they come out in the order of the text."""

    removed: list[Span] = field(default_factory=list)
    silences: list[Span] = field(default_factory=list)
    memories: list[Remember] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    blocks: int = 0


def take_apart(text: str, briefing_texts: Iterable[str]) -> Answer:
    """Return the answer that `text`, already clean, is."""
    found = scan(text)
    told = Told(briefing_texts)
    draft = _Draft(problems=found.problems)
    events = _close_reasoning(text, found, told, draft)
    for index, event in enumerate(events):
        if isinstance(event, Tag):
            _take(draft, event, _read_tag(text, found, event, _stop(events, index, text), told))
        elif isinstance(event, ActionsBlock):
            _do_block(draft, event, found, told)
        elif isinstance(event, Reasoning):
            draft.removed.append((event.bound, len(text) if event.end is None else event.end))
        elif isinstance(event, Silence):
            draft.silences.append((event.bound, event.end))
    problems = [problem for _, problem in sorted(draft.problems, key=lambda item: item[0])]
    return Answer(_remaining(text, draft), tuple(draft.memories), tuple(draft.actions), bounded(problems))


def without_repeats(actions: Sequence[Action], told: Told) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    """Return the actions that are to be done, and one line for each that would remember what was told."""
    kept: list[Action] = []
    problems: list[str] = []
    for action in actions:
        if isinstance(action, Remember) and told.repeats(action.content):
            problems.append(f"remember {excerpt(action.content)}: {REPEATED}")
        else:
            kept.append(action)
    return tuple(kept), tuple(problems)


def without_reasoning(text: str) -> str:
    """Return `text`, already clean, without its reasoning."""
    spans = [event for event in scan(text).events if isinstance(event, Reasoning)]
    return "".join(_kept(text, [(span.bound, len(text) if span.end is None else span.end) for span in spans]))


def _stop(events: list[Event], index: int, text: str) -> int:
    """Return where the content of the tag at `index` ends: where the next thing begins."""
    return events[index + 1].bound if index + 1 < len(events) else len(text)


def _take(draft: _Draft, tag: Tag, reading: _TagReading) -> None:
    if reading.memory is not None:
        draft.memories.append(reading.memory)
    if reading.problem:
        draft.problems.append((tag.start, reading.problem))
    if reading.removed is not None:
        draft.removed.append(reading.removed)


def _read_tag(text: str, found: Scan, tag: Tag, stop: int, told: Told) -> _TagReading:
    head = tags.header(text, tag.start, min(stop, tag.line_end))
    if head is None:
        end = min(stop, tag.line_end)
        where = f"{excerpt(text[tag.start : end])} on line {found.lines.number(tag.start)}"
        return _TagReading(problem=f"{where}: incomplete tag, no `]` on its line: not stored", removed=(tag.start, end))
    where = f"{excerpt(head.group())} on line {found.lines.number(tag.start)}"
    span = (tag.start, _without_line_ending(text, head.end(), stop))
    content = text[head.end() : stop]
    try:
        memory = tags.read(head[1], content)
    except InvalidInput as problem:
        return _TagReading(problem=f"{where}: {problem}", removed=None if content.strip() else span)
    if told.repeats(content) or told.repeats(memory.content):
        return _TagReading(problem=f"{where}: {REPEATED}")
    return _TagReading(memory=memory, removed=span)


def _without_line_ending(text: str, start: int, stop: int) -> int:
    """Return where `text[start:stop]` ends without the one line ending that it may end with."""
    if stop > start and text[stop - 1] == "\n":
        stop -= 1
    if stop > start and text[stop - 1] == "\r":
        stop -= 1
    return stop


def _do_block(draft: _Draft, block: ActionsBlock, found: Scan, told: Told) -> None:
    draft.removed.append((block.bound, block.end))
    draft.blocks += 1
    where = f"actions block on line {found.lines.number(block.bound)}"
    note = partial(_note, draft, block.bound)
    if draft.blocks > 1:
        note(f"{where}: only the first block is done: put all actions into one list")
        return
    if block.refused:
        note(f"{where}: {block.refused}")
        return
    if block.note:
        note(f"{where}: {block.note}")
    actions, problems = parse_actions(block.value)
    kept, repeats = without_repeats(actions, told)
    for problem in (*problems, *repeats):
        note(problem)
    draft.actions += kept


def _note(draft: _Draft, position: int, problem: str) -> None:
    draft.problems.append((position, problem))


def _close_reasoning(text: str, found: Scan, told: Told, draft: _Draft) -> list[Event]:
    """Return the events with reasoning that was never closed ended: before the first sound tag or block on a line of
    its own, since then an answer followed it, else with the text, since then the model was cut off in mid-thought.
    """
    events: list[Event] = []
    index = 0
    while index < len(found.events):
        event = found.events[index]
        index += 1
        if isinstance(event, Reasoning) and event.end is None:
            while index < len(found.events) and not _is_sound(text, found, told, index):
                index += 1
            event = Reasoning(event.bound, found.events[index].bound if index < len(found.events) else len(text))
            draft.problems.append((event.bound, _never_closed(event, found, len(text))))
        events.append(event)
    return events


def _never_closed(event: Reasoning, found: Scan, length: int) -> str:
    where = f"reasoning on line {found.lines.number(event.bound)} was never closed (incomplete tag)"
    if event.end is None or event.end == length:
        return f"{where}: all that follows was left out"
    return f"{where}: from line {found.lines.number(event.end)} on it was taken as the answer"


def _is_sound(text: str, found: Scan, told: Told, index: int) -> bool:
    """Return whether the event is a tag on its own line that is stored, or a block with an action that is done."""
    event = found.events[index]
    if isinstance(event, ActionsBlock):
        return not event.refused and bool(parse_actions(event.value)[0])
    if not isinstance(event, Tag) or event.bound != found.lines.starts[found.lines.at(event.start)]:
        return False
    return _read_tag(text, found, event, _stop(found.events, index, text), told).memory is not None


def _remaining(text: str, draft: _Draft) -> str:
    """Return what is left of the text: nothing if all that is left is the silence token."""
    removed = sorted(draft.removed)
    kept = "".join(_kept(text, removed))
    if is_token(kept):
        return ""
    outer = _outer(text, removed, draft.silences)
    return "".join(_kept(text, sorted((*removed, *outer)))) if outer else kept


def _outer(text: str, removed: list[Span], silences: list[Span]) -> list[Span]:
    """Return the silence lines with nothing but white space and other such lines before them, or behind them."""
    first = _leading(text, removed, silences)
    last = _leading(text, removed[::-1], silences[len(first) :][::-1], backwards=True)
    return first + last


def _leading(text: str, removed: list[Span], silences: list[Span], *, backwards: bool = False) -> list[Span]:
    found: list[Span] = []
    position, index = (len(text) if backwards else 0), 0
    for silence in silences:
        while index < len(removed) and (removed[index] > silence if backwards else removed[index] < silence):
            if _between(text, position, removed[index], backwards).strip():
                return found
            position, index = removed[index][0 if backwards else 1], index + 1
        if _between(text, position, silence, backwards).strip():
            return found
        found.append(silence)
        position = silence[0 if backwards else 1]
    return found


def _between(text: str, position: int, span: Span, backwards: bool) -> str:
    return text[span[1] : position] if backwards else text[position : span[0]]


def _kept(text: str, removed: list[Span]) -> Iterable[str]:
    """Yield the pieces between the removed spans; a line of which nothing is left goes with its line ending."""
    position = 0
    for start, end in _merged(removed):
        yield text[position:start]
        position = end
        if start == 0 or text[start - 1] in "\r\n":
            position += 2 if text.startswith("\r\n", end) else 1 if text[end : end + 1] in ("\r", "\n") else 0
    yield text[position:]


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
