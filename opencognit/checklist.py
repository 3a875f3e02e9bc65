"""Reading a goal's text as a list of items to plan. Owns the grammar and the order of items; knows no agent and no task.

What counts as an item
    A list line with a checkbox (`- [ ]`, `* [ ]`, `+ [ ]`, `1. [ ]`, `1) [ ]`), at any depth. Only where the text has no
    checkbox at all, the lines of a plain list count instead, if there are at least two at its outermost level; what is
    nested under those is detail and stays in their descriptions. Nothing in a code fence, an HTML comment or a quotation
    is an item. `[x]` is done: it keeps its number, but nothing waits for it (`[-]` and `[~]`, called off, likewise).
Order
    A nested item comes after the item above it that it is nested under; `(after: 2, 3)` adds others. Items are numbered
    from 1, top to bottom, done ones included; `(after: Survey)` names one by the beginning of its title. Numbers written
    in the list itself (`1.`, `2.`) give no order.
Attributes, at the end of the line, in any order
    `(after: 1, 2)` `(skills: a, b)` `(priority: high)` `@agent-name`. Other parentheses stay in the title.

Whatever cannot be understood becomes a line in `problems`; its item stays. Nothing is cut in silence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from textwrap import dedent

from opencognit.states import Priority

ITEM_LIMIT = 200
"""More open items than this are not planned: the board is asked to split the goal."""
DEPTH_LIMIT = 50
TAIL_LIMIT = 20
"""So many parentheses and names at the end of a line are looked at."""
TITLE_LIMIT = 500
"""As in contracts.py (a test compares them): a longer title is cut and stands whole in the description."""

_ITEM = re.compile(
    r" *(?P<bullet>[-*+]|(?P<label>\d{1,9})[.)])(?P<gap>[ \t]+)(?:\[(?P<mark>[ xX~-]?)\](?:[ \t]+|$))?(?P<text>.*)"
)
_FENCE = re.compile(r" *(?P<mark>`{3,}|~{3,})(?P<info>.*)")
_RULE = re.compile(r" *([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_ENDS_PARAGRAPH = re.compile(r" *(?:#{1,6}(?:[ \t]|$)|>)")
_ATTRIBUTES = ("after", "skills", "skill", "priority")
_ATTRIBUTE = re.compile(rf"\((?:{'|'.join(_ATTRIBUTES)})\s*:[^()]*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Item:
    """One line to plan. `after` holds the numbers of open items that it waits for, the one it is nested under first."""

    number: int
    line: int
    title: str
    description: str = ""
    done: bool = False
    depth: int = 0
    parent: int | None = None
    after: tuple[int, ...] = ()
    skills: tuple[str, ...] = ()
    priority: Priority | None = None
    assignee: str | None = None


@dataclass(frozen=True, slots=True)
class Checklist:
    """All items in the order of the text. `plain`: there was no checkbox, a plain list was taken instead."""

    items: tuple[Item, ...] = ()
    problems: tuple[str, ...] = ()
    plain: bool = False

    @property
    def open(self) -> tuple[Item, ...]:
        """The items still to be done."""
        return tuple(item for item in self.items if not item.done)

    @property
    def too_many(self) -> bool:
        """Whether there are more open items than one plan may have; their `(after: ...)` was not read then."""
        return len(self.open) > ITEM_LIMIT

    def ordered(self) -> tuple[Item, ...]:
        """Return the open items so that each stands behind all that it waits for, else in the order of the text."""
        waiting, ready = list(self.open), []
        placed: set[int] = set()
        while waiting:
            item = next(item for item in waiting if placed.issuperset(item.after))  # exists: `after` has no cycle
            waiting.remove(item)
            placed.add(item.number)
            ready.append(item)
        return tuple(ready)


@dataclass(slots=True)
class _Draft:
    """A list line while the text is read; `indent` is its bullet's column, `content` that of its text."""

    line: int
    indent: int
    content: int
    title: str
    done: bool
    label: int | None  # the number written in the list itself
    depth: int = 0
    parent: _Draft | None = None
    body: list[str] = field(default_factory=list)
    number: int = 0
    references: list[str] = field(default_factory=list)
    waits: list[_Draft] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)
    priority: Priority | None = None
    assignee: str | None = None


def parse(text: str) -> Checklist:
    """Read `text`; without a checklist the result has no items."""
    lines = [_indent_with_spaces(line) for line in re.split(r"\r\n|\r|\n", text)]
    reader = _Reader(lines, boxes=True)
    plain = not reader.drafts
    if plain:
        reader = _Reader(lines, boxes=False)
        if len(reader.drafts) < 2:
            return Checklist(problems=tuple(reader.problems))
    drafts, problems = reader.drafts, reader.problems
    for number, draft in enumerate(drafts, start=1):
        draft.number = number
        _read_attributes(draft, problems)
        _settle_title(draft, problems)
    drafts = [draft for draft in drafts if draft.title]
    _order(drafts, problems)
    return Checklist(tuple(_item(draft) for draft in drafts), tuple(problems), plain)


def _indent_with_spaces(line: str) -> str:
    body = line.lstrip(" \t")
    return line[: len(line) - len(body)].expandtabs(4) + body.rstrip()


def _column(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class _Reader:
    """One pass over the lines: which of them are items, what is nested under what, whose description a line is."""

    def __init__(self, lines: list[str], *, boxes: bool) -> None:
        self.drafts: list[_Draft] = []
        self.problems: list[str] = []
        self._lines, self._boxes = lines, boxes
        self._open: list[_Draft] = []  # the last item and those that it is nested under
        self._after_blank = False
        self._strays: list[int] = []
        self._too_deep = 0
        position = 0
        while position < len(lines):
            position = self._block(position) or self._line(position)
        if self._too_deep:
            self.problems.append(f"line {self._too_deep}: nested deeper than {DEPTH_LIMIT} levels: taken as level {DEPTH_LIMIT}")
        if self._strays:
            n, first = len(self._strays), self._strays[0]
            self.problems.append(
                f"line {first}: {n} plain list line(s) beside the checkboxes are not planned: begin them with `- [ ]`"
            )

    def _block(self, start: int) -> int | None:
        """Pass over a code fence or comment that begins at `start`; return the line behind it, None: there is none."""
        line = self._lines[start]
        if (fence := _FENCE.match(line)) and not ("`" in fence["mark"] and "`" in fence["info"]):
            closing = re.compile(rf" *{re.escape(fence['mark'][0])}{{{len(fence['mark'])},}}$")
            end = self._end(start + 1, closing) or self._unclosed(start, "code fence")
        elif line.lstrip().startswith("<!--"):
            end = self._end(start, re.compile(".*-->")) or self._unclosed(start, "comment")
        else:
            return None
        self._leave(_column(line))
        for text in self._lines[start:end]:
            self._describe(text)
        self._after_blank = False
        return end

    def _end(self, start: int, closing: re.Pattern[str]) -> int | None:
        numbers = range(start, len(self._lines))
        return next((number + 1 for number in numbers if closing.match(self._lines[number])), None)

    def _unclosed(self, start: int, what: str) -> int:
        self.problems.append(f"line {start + 1}: the {what} is never closed: nothing behind it was read as an item")
        return len(self._lines)

    def _line(self, number: int) -> int:
        line = self._lines[number]
        found = None if _RULE.match(line) else _ITEM.match(line)
        if found and self._is_item(found):
            self._start(number + 1, found)
        elif not line:
            self._describe("")
        else:
            lazy = not (self._after_blank or found or _ENDS_PARAGRAPH.match(line))
            if not lazy:
                depth = len(self._open)
                self._leave(_column(line))
                if found and depth and not self._open and not self._after_blank and self._boxes:
                    self._strays.append(number + 1)
                if self._after_blank and len(self._open) < depth:
                    self._describe("")  # the blank line went to the item that has just been left
            self._describe(line)
        self._after_blank = not line
        return number + 1

    def _is_item(self, found: re.Match[str]) -> bool:
        if self._boxes:
            return found["mark"] is not None
        outermost = not self.drafts or found.start("bullet") < self.drafts[0].indent + 2
        return outermost and bool(found["text"])

    def _start(self, line: int, found: re.Match[str]) -> None:
        indent = found.start("bullet")
        self._leave(indent if self._boxes else 0)
        label = int(found["label"]) if found["label"] else None
        done = (found["mark"] or " ") != " "
        draft = _Draft(line, indent, found.end("gap"), found["text"].strip(), done, label)
        if len(self._open) > DEPTH_LIMIT:
            self._too_deep = self._too_deep or line
            del self._open[DEPTH_LIMIT:]
        draft.depth, draft.parent = len(self._open), self._open[-1] if self._open else None
        self._open.append(draft)
        self.drafts.append(draft)

    def _leave(self, column: int) -> None:
        """Close the items that a line beginning at `column` is not nested under (two columns make a level)."""
        while self._open and column < self._open[-1].indent + 2:
            self._open.pop()

    def _describe(self, line: str) -> None:
        if self._open:
            draft = self._open[-1]
            draft.body.append(line[min(_column(line), draft.content) :])


def _read_attributes(draft: _Draft, problems: list[str]) -> None:
    """Take the attributes off the end of the draft's title; other parentheses there stay where they are."""
    rest, kept, found = draft.title, "", False
    for _ in range(TAIL_LIMIT):
        tail = rest.rstrip(" \t.,;")
        start, word = tail.rfind("("), tail[max(tail.rfind(" "), tail.rfind("\t")) + 1 :]
        if tail.endswith(")") and start >= 0 and ")" not in tail[start:-1]:
            taken = _take(draft, tail[start + 1 : -1], problems)
        elif re.fullmatch(r"@[^\W_][\w-]*", word):
            start, taken = len(tail) - len(word), True
            _take_name(draft, word[1:], problems)
        else:
            break
        before = tail[:start].rstrip()
        rest, kept, found = before, kept if taken else rest[len(before) :] + kept, found or taken
    if found:
        draft.title = (rest + kept).strip()
    if misplaced := _ATTRIBUTE.search(draft.title):
        problems.append(f"line {draft.line}: {misplaced[0]!r} is not at the end of its line: it was left in the title")


def _take(draft: _Draft, inner: str, problems: list[str]) -> bool:
    """Read `inner` of a parenthesis as an attribute; False: it is none."""
    name, colon, value = inner.partition(":")
    name, value = name.strip().casefold(), value.strip()
    if not colon or name not in _ATTRIBUTES:
        if colon and (near := get_close_matches(name, _ATTRIBUTES, n=1, cutoff=0.8)):
            problems.append(f"line {draft.line}: '({inner})' was left in the title: did you mean `({near[0]}: ...)`?")
        return False
    parts = [part for part in (part.strip(" \t`'\"") for part in re.split("[,;]", value)) if part]
    if not parts:
        problems.append(f"line {draft.line}: `({name}: )` names nothing: it is ignored")
    elif name == "after" and len(parts) > ITEM_LIMIT:
        problems.append(f"line {draft.line}: `(after: ...)` with {len(parts)} items is ignored: name at most {ITEM_LIMIT}")
    elif name == "after":
        draft.references[:0] = dict.fromkeys(parts)
    elif name == "priority":
        _take_priority(draft, value, problems)
    else:
        draft.skills[:0] = [part for part in dict.fromkeys(parts) if part not in draft.skills]
    return True


def _take_priority(draft: _Draft, value: str, problems: list[str]) -> None:
    if value.casefold() not in list(Priority):
        problems.append(f"line {draft.line}: {value!r} is no priority: it is ignored; write one of {', '.join(Priority)}")
    elif draft.priority not in (None, Priority(value.casefold())):
        problems.append(f"line {draft.line}: two priorities, {value.casefold()!r} and '{draft.priority}': the last one counts")
    else:
        draft.priority = Priority(value.casefold())


def _take_name(draft: _Draft, name: str, problems: list[str]) -> None:
    if draft.assignee not in (None, name.casefold()):
        problems.append(f"line {draft.line}: two agents, '@{name}' and '@{draft.assignee}': the last one counts")
    else:
        draft.assignee = name.casefold()


def _settle_title(draft: _Draft, problems: list[str]) -> None:
    """Give a draft without a title the first line below it, and cut a title that is too long."""
    while draft.body and not draft.title:
        draft.title = draft.body.pop(0).strip()
    if not draft.title and not draft.done:
        problems.append(f"line {draft.line}: an item without a title is left out")
    if len(draft.title) > TITLE_LIMIT:
        draft.body[:0] = [draft.title, ""]
        draft.title = draft.title[: TITLE_LIMIT - 1].rstrip() + "…"


def _order(drafts: list[_Draft], problems: list[str]) -> None:
    """Fill `waits`: what a draft is nested under, then what its `(after: ...)` names, never in a circle."""
    for draft in drafts:
        above = draft.parent
        while above and not above.title:
            above = above.parent
        draft.parent = above
        if above and not above.done:
            draft.waits.append(above)
    if sum(not draft.done for draft in drafts) > ITEM_LIMIT:
        return
    for draft in drafts:
        for reference in draft.references:
            target = _target(draft, reference, drafts, problems)
            if target is None or target.done or target in draft.waits:
                continue
            if _waits_for(target, draft):
                problems.append(
                    f"line {draft.line}: `(after: {reference})` is ignored: {target.title!r} itself waits for this item"
                )
            else:
                draft.waits.append(target)


def _target(draft: _Draft, reference: str, drafts: list[_Draft], problems: list[str]) -> _Draft | None:
    """Return the draft that `reference` names, None: none, or not one alone."""
    where, plain = f"line {draft.line}: `(after: {reference})`", reference.lstrip("#")
    if plain.isdecimal():
        found = [other for other in drafts if str(other.number) == plain.lstrip("0")]
        if not found:
            last = drafts[-1].number
            problems.append(f"{where} is ignored: the items are counted from 1 to {last}, done ones included")
            return None
        _warn_of_label(where, found[0], int(plain), drafts, problems)
    else:
        wanted = reference.casefold()
        starting = [other for other in drafts if other.title.casefold().startswith(wanted)]
        found = [other for other in starting if other.title.casefold() == wanted] or starting
        if len(found) != 1:
            how = f"the titles of {len(found)} items begin" if found else "no item's title begins"
            problems.append(f"{where} is ignored: {how} like that; write the item's number, counted from the top")
            return None
    if found[0] is draft:
        problems.append(f"{where} is ignored: an item cannot wait for itself")
        return None
    return found[0]


def _warn_of_label(where: str, target: _Draft, number: int, drafts: list[_Draft], problems: list[str]) -> None:
    labelled = [other for other in drafts if other.label == number and other is not target]
    if labelled and target.label != number:
        taken, other = target.title, labelled[0].title
        problems.append(
            f"{where} was read as item {number} from the top, {taken!r}, not as {other!r}, which is numbered {number}"
        )


def _waits_for(start: _Draft, wanted: _Draft) -> bool:
    """Say whether `start` is `wanted` or waits for it, at once or by way of others."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        draft = stack.pop()
        if draft is wanted:
            return True
        if draft.number not in seen:
            seen.add(draft.number)
            stack.extend(draft.waits)
    return False


def _item(draft: _Draft) -> Item:
    return Item(
        number=draft.number,
        line=draft.line,
        title=draft.title,
        description=dedent("\n".join(draft.body)).strip("\n"),
        done=draft.done,
        depth=draft.depth,
        parent=draft.parent.number if draft.parent else None,
        after=() if draft.done else tuple(other.number for other in draft.waits),
        skills=tuple(draft.skills),
        priority=draft.priority,
        assignee=draft.assignee,
    )
