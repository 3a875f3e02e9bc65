"""What an agent answers, taken apart (CONTRACT.md, "What an agent answers"). Pure; must not store or run anything.

    answer    which parts become memories and actions, and what is left as text
    scan      where tags, blocks and reasoning count      reasoning  which `<think>` tags are reasoning
    tags      [REMEMBER:room attr=value] content          fences     where Markdown says that text is code
    actions   JSON to checked actions                     silence    the token for "nothing to say"
    problems  how a problem is told                       repetition what the run was told already
    echoes    what of it was copied in longer pieces

Any text gives an answer: what cannot be read becomes a problem, one line each. Time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opencognit.contracts import Action, Answer, Remember
from opencognit.errors import InvalidInput
from opencognit.protocol import answer as answers
from opencognit.protocol import tags
from opencognit.protocol.actions import parse_actions
from opencognit.protocol.echoes import copied
from opencognit.protocol.repetition import Told
from opencognit.protocol.silence import TOKEN, is_token
from opencognit.textclean import clean

__all__ = ["TOKEN", "copied", "is_silent", "parse", "parse_actions", "render_tag", "without_repeats"]

_SYNTAX = re.compile(r"\[remember:|</?think|actions|heartbeat_ok", re.IGNORECASE | re.ASCII)


def parse(text: str, *, briefing_texts: Iterable[str] = ()) -> Answer:
    """Take an agent's text apart. What repeats `briefing_texts` is text, not a memory of its own.

    The text that is left is not stripped: it is the agent's, but for what was removed (answer.py has the exact rule).
    """
    text = clean(text)
    return answers.take_apart(text, briefing_texts) if _SYNTAX.search(text) else Answer(text)


def without_repeats(actions: Sequence[Action], *, briefing_texts: Iterable[str]) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    """Return the actions but those that would remember what `briefing_texts` say, and one line for each of these."""
    return answers.without_repeats(actions, Told(briefing_texts))


def is_silent(text: str) -> bool:
    """Return whether an answer says, apart from reasoning, nothing but the silence token."""
    text = clean(text)
    return is_token(text) or (TOKEN in text.upper() and is_token(answers.without_reasoning(text)))


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
