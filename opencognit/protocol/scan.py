"""One walk over an agent's text that finds where tags, actions blocks and reasoning count. Must not read what they say.

The order of precedence: reasoning, then fences and quoted lines, then inline code, then tags. Text in fences, in inline
code and in quoted lines (`> ...`: somebody else's words) gives no events at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opencognit.errors import InvalidInput
from opencognit.protocol import reasoning
from opencognit.protocol.actions import find_json, is_actions
from opencognit.protocol.fences import SPACES, InlineCode, Lines, ListItems, Opening, opening
from opencognit.protocol.silence import is_token

_INLINE = re.compile(r"`+|<(/?)think(?:ing)?[ \t]*+>|\[remember:", re.IGNORECASE | re.ASCII)
_TEXT = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class Tag:
    """`[REMEMBER:` at `start`. What stands before ends at `bound`: the line's start where only a list marker precedes."""

    start: int
    bound: int
    line_end: int


@dataclass(frozen=True, slots=True)
class Blank:
    """A blank line."""

    bound: int


@dataclass(frozen=True, slots=True)
class Silence:
    """A line that is nothing but the silence token."""

    bound: int
    end: int


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning from `bound` to `end`; None: it was never closed."""

    bound: int
    end: int | None


@dataclass(frozen=True, slots=True)
class ActionsBlock:
    """A fenced block of actions: its JSON, or why there is none to take; `note` is what was odd about a taken one."""

    bound: int
    end: int
    value: object = None
    refused: str = ""
    note: str = ""


Event = Tag | Blank | Silence | Reasoning | ActionsBlock


@dataclass(slots=True)
class Scan:
    """What a text holds, in order, and what was wrong on the way (position, problem)."""

    lines: Lines
    events: list[Event] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)


def scan(text: str) -> Scan:
    """Find everything in `text` that may count; linear in its length."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.paragraph_ends = self.lines.paragraph_ends()
        self.code = InlineCode(text)
        self.pairs = reasoning.Pairs(text)
        self.items = ListItems()
        self.found = Scan(self.lines)
        self.code_start = self.code_end = 0
        self.reasoned = self.has_actions = False

    def run(self) -> Scan:
        index, position = 0, 0
        while index < len(self.lines):
            index, position = self._line(index, position)
        return self.found

    def _next(self, index: int) -> tuple[int, int]:
        """Go to a line's beginning."""
        return index, self.lines.starts[index] if index < len(self.lines) else len(self.text)

    def _line(self, index: int, position: int) -> tuple[int, int]:
        """Take in what is left of line `index` from `position` on; return where to go on."""
        end = self.lines.ends[index]
        first = self._behind_spaces(position, end)
        if first == end:
            if position == self.lines.starts[index]:
                self._add_blank(position)
            return self._next(index + 1)
        own, indent = self.items.place(self.text, position, end)
        if self.text.startswith(">", own):
            return self._next(index + 1)
        fence = opening(self.text, own, end, index) if indent <= 3 else None
        if fence is not None:
            return self._fence(fence, position if own == first else own, indent)
        if is_token(self.text, position, end):
            self.found.events.append(Silence(position, end))
            return self._next(index + 1)
        return self._inline(index, position, first, own)

    def _behind_spaces(self, start: int, end: int) -> int:
        match = SPACES.match(self.text, start, end)
        return match.end() if match else start

    def _add_blank(self, position: int) -> None:
        if not self.found.events or not isinstance(self.found.events[-1], Blank):
            self.found.events.append(Blank(position))

    def _fence(self, fence: Opening, start: int, indent: int) -> tuple[int, int]:
        """Pass over a fenced block, and note it if it holds actions."""
        closer = self._closer(fence, fence.line + 1, indent)
        if not is_actions(self.text, fence.info, self.lines.ends[fence.line]):
            return self._next(closer + 1)
        block = self._actions(fence, start, closer, indent)
        self.has_actions = True
        self.found.events.append(block)
        index = self.lines.at(block.end)
        return (index, block.end) if block.end < self.lines.ends[index] else self._next(index + 1)

    def _closer(self, fence: Opening, index: int, indent: int) -> int:
        """Return the line that closes `fence`, from line `index` on; the number of lines if none does."""
        while index < len(self.lines):
            start, end = self.lines.starts[index], self.lines.ends[index]
            own = self._behind_spaces(start, end)
            if own - start <= indent + 3 and fence.closed_by(self.text, own, end):
                return index
            index += 1
        return index

    def _actions(self, fence: Opening, start: int, closer: int, indent: int) -> ActionsBlock:
        """Return the block; its JSON decides where it ends, since a string in it may look like a closing fence."""
        end = self.lines.ends[min(closer, len(self.lines) - 1)]
        if self.has_actions:  # only the first is done: the others are not worth reading
            return ActionsBlock(start, end, refused="it is not the first")
        stop = self.lines.starts[closer] if closer < len(self.lines) else len(self.text)
        try:
            value, json_end = self._json(fence, stop)
        except InvalidInput as problem:
            return ActionsBlock(start, end, refused=str(problem))
        glued = re.compile(rf"\s*+{fence.fence[0]}{{{len(fence.fence)},}}+[ \t]*+(?=[\r\n]|\Z)").match(self.text, json_end)
        if glued:
            return ActionsBlock(start, glued.end(), value)
        closer = self._closer(fence, self.lines.at(json_end), indent)
        if closer < len(self.lines):
            refused = "there is text between the end of its list and the closing fence; nothing of it was done"
            return ActionsBlock(start, self.lines.ends[closer], refused=refused)
        return ActionsBlock(start, json_end, value, note="it has no closing fence; its list is complete and was taken")

    def _json(self, fence: Opening, stop: int) -> tuple[object, int]:
        body = self._next(fence.line + 1)[1]
        if self.text[body:stop].strip():
            return find_json(self.text, body, stop)
        return find_json(self.text, fence.info, self.lines.ends[fence.line])

    def _inline(self, index: int, position: int, first: int, own: int) -> tuple[int, int]:
        """Find the tags in what is left of a line of prose, whose first character is `first`, behind list markers `own`."""
        end = self.lines.ends[index]
        for match in _INLINE.finditer(self.text, position, end):
            at, char = match.start(), match.group()[0]
            if at < self.code_end:
                if char == "[" and at == first and self.code_start < position:
                    self._note(at, "it is inside inline code that begins on an earlier line: left as text")
            elif char == "`":
                code_end = self.code.end(at, match.end(), self.paragraph_ends[index])
                if code_end is not None:
                    self.code_start, self.code_end = at, code_end
            elif char == "[":
                self.found.events.append(Tag(at, position if at == own else at, end))
            elif (resume := self._think(match, (first, end))) is not None:
                return self.lines.at(resume), resume
        return self._next(index + 1)

    def _note(self, position: int, problem: str) -> None:
        number = self.lines.number(position)
        self.found.problems.append((position, f"[REMEMBER: on line {number}: {problem}"))

    def _think(self, tag: re.Match[str], line: tuple[int, int]) -> int | None:
        """Note reasoning that begins, or ends, with this tag; return where to go on if not right behind it."""
        if tag[1]:
            return self._stray_closer(tag, line)
        if not reasoning.opens(self.text, tag, line):
            return None
        end = self.pairs.end(tag.start())
        self.found.events.append(Reasoning(tag.start(), end))
        self.reasoned = True
        return end

    def _stray_closer(self, tag: re.Match[str], line: tuple[int, int]) -> int | None:
        """Deal with a closing tag whose opener was never sent: all before it is reasoning, if text comes behind it."""
        is_alone = reasoning.stands_alone(self.text, tag, line)
        if not is_alone and (self.pairs.is_paired(tag.start()) or not reasoning.closes(self.text, tag, line)):
            return None
        if not self.reasoned and _TEXT.search(self.text, tag.end()):
            self.found.events[:] = [Reasoning(0, tag.end())]
            self.found.problems[:] = []
            self.has_actions = False
        else:
            self.found.events.append(Reasoning(tag.start(), tag.end()))
            number = self.lines.number(tag.start())
            self.found.problems.append((tag.start(), f"{tag.group()} on line {number}: a closing tag without an opening one"))
        self.reasoned = True
        return tag.end()
