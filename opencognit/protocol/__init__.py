"""What an agent answers, taken apart (CONTRACT.md, "What an agent answers"). Pure; must not store or run anything.

    answer    which parts become memories and actions, and what is left as text
    scan      where tags, blocks and reasoning count      reasoning  which `<think>` tags are reasoning
    tags      [REMEMBER:room attr=value] content          fences     where Markdown says that text is code
    actions   JSON to checked actions                     silence    the token for "nothing to say"
    problems  how a problem is told                       repetition what the briefing said already

Any text gives an answer: what cannot be read becomes a problem, one line each. Time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from opencognit.contracts import Answer, Remember
from opencognit.errors import InvalidInput
from opencognit.protocol import tags
from opencognit.protocol.actions import parse_actions
from opencognit.protocol.answer import take_apart, without_reasoning
from opencognit.protocol.silence import TOKEN, is_token
from opencognit.textclean import clean

__all__ = ["TOKEN", "is_silent", "parse", "parse_actions", "render_tag"]

_SYNTAX = re.compile(r"\[remember:|</?think|actions|heartbeat_ok", re.IGNORECASE | re.ASCII)


def parse(text: str, *, briefing_texts: Iterable[str] = ()) -> Answer:
    """Take an agent's text apart. What repeats `briefing_texts` is text, not a memory of its own.

    The text that is left is not stripped: it is the agent's, but for what was removed (answer.py has the exact rule).
    """
    text = clean(text)
    return take_apart(text, briefing_texts) if _SYNTAX.search(text) else Answer(text)


def is_silent(text: str) -> bool:
    """Return whether an answer says, apart from reasoning, nothing but the silence token."""
    text = clean(text)
    return is_token(text) or (TOKEN in text.upper() and is_token(without_reasoning(text)))


def render_tag(memory: Remember) -> str:
    """Return the tag that `parse` reads as exactly `memory`; raises InvalidInput for one that no tag can hold.

    A tag cannot hold content with a blank line, another tag, reasoning or an actions block in it, or with white space
    around it: such a memory needs the action `remember`.
    """
    tag = tags.write(memory)
    answer = parse(tag)
    if answer.memories != (memory,) or answer.text:
        raise InvalidInput("memory", "no [REMEMBER:room] tag can hold it unchanged: use the action `remember`")
    return tag
