"""Whatever an agent writes: parsing never fails, loses no text, and reads back every tag that it can write."""

from __future__ import annotations

import json

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from opencognit.contracts import Comment, EntityRef, Remember
from opencognit.errors import InvalidInput
from opencognit.protocol import is_silent, parse, parse_actions, render_tag
from opencognit.states import EntityRole, MemoryType, Scope
from opencognit.textclean import clean, clean_json, decode, head_and_tail

PIECES = st.sampled_from(
    [
        "[REMEMBER:", "[remember:room]", "[REMEMBER:x type=fact] ", "[REMEMBER:kg] a | b | c", "]", "|", '"', "\\",
        "`", "``", "```", "~~~", "```actions\n", '[{"action": "comment", ', '"text": "t"}]', "HEARTBEAT_OK",
        "<think>", "</think>", "<thinking>", "</thinking>", "> ", "- ", "1. ", "    ", "word", ".", " ", "\t",
        "\n", "\r\n", "\r", "\n\n", "\0", "\ud800", "\U0001f600", "\u2028", "\x85", "\x1c",
    ]
)  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(PIECES, max_size=40).map("".join)
PLAIN_TEXT = st.text(st.characters(exclude_characters="[`~<\\", exclude_categories=["Cs"])).filter(
    lambda text: "\0" not in text and "heartbeat_ok" not in text.lower()
)
WORDS = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs"], exclude_characters="[`~<\\>"), min_size=1, max_size=40
).filter(lambda text: bool(text.strip()) and "heartbeat" not in text.lower())
LINE = WORDS.map(str.strip)
ROOM = st.text(st.sampled_from("abcäßñ日0-_./"), min_size=1, max_size=20).map(lambda room: room.casefold())
NAME = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=20)
ENTITY = st.builds(EntityRef, kind=NAME.filter(lambda kind: ":" not in kind), key=NAME, role=st.sampled_from(EntityRole))
IDS = st.lists(st.integers(1, 10**12).map(str), max_size=3).map(tuple)
MEMORY = st.builds(
    Remember,
    content=st.lists(LINE, min_size=1, max_size=3).map("\n".join),
    room=ROOM.filter(lambda room: room != "kg"),
    type=st.sampled_from(MemoryType),
    scope=st.sampled_from(Scope),
    confidence=st.floats(0, 1),
    entities=st.lists(ENTITY, max_size=3).map(tuple),
    derives_from=IDS,
    supersedes=IDS,
)


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=2))
@example("[REMEMBER:\ud800", [])
@settings(max_examples=400, deadline=None)
def test_any_text_gives_an_answer(text: str, told: list[str]) -> None:
    """No text raises; what comes out can be stored; each problem is one line; nothing is there that was not said."""
    answer = parse(text, briefing_texts=told)
    for out in (answer.text, *(memory.content for memory in answer.memories), *answer.problems):
        assert clean(out) == out
    assert not any("\n" in problem or "\r" in problem for problem in answer.problems)
    assert is_subsequence(answer.text, clean(text))
    is_silent(text)


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(char in rest for char in part)


@given(PLAIN_TEXT)
@settings(deadline=None)
def test_text_without_any_syntax_is_unchanged(text: str) -> None:
    """Text outside tags is the agent's, to the character: every white space, line ending and control character."""
    answer = parse(text + " actions")  # the word keeps the quick way out from answering
    assert (answer.text, answer.memories, answer.actions, answer.problems) == (text + " actions", (), (), ())


@given(st.lists(PLAIN_TEXT, max_size=4), st.data())
@settings(deadline=None)
def test_taking_out_tags_gives_back_the_text_around_them(paragraphs: list[str], data: st.DataObject) -> None:
    """Tags, blocks and reasoning put as lines of their own between texts leave exactly those texts."""
    around = [quiet(text) for text in paragraphs]
    text, memories, blocks = "", [], 0
    for before in around:
        text += before
        kind = data.draw(st.sampled_from(["tag", "block", "reasoning"]))
        if kind == "tag":
            memory = data.draw(MEMORY)
            memories.append(memory)
            text += f"{render_tag(memory)}\n"
        elif kind == "block":
            blocks += 1
            text += f"```actions\n{json.dumps([{'action': 'comment', 'text': data.draw(WORDS)}])}\n```\n"
        else:
            text += f"<think>{data.draw(PLAIN_TEXT)}</think>\n"
    answer = parse(text)
    assert answer.text == "".join(around)
    assert answer.memories == tuple(memories)
    assert len(answer.actions) == min(blocks, 1)
    assert parse(answer.text).text == answer.text


def quiet(text: str) -> str:
    """Return `text` as lines that end in a blank one, so that no tag's content before it runs into it."""
    return "\n" + "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith(">")) + "\n"


@given(MEMORY)
@example(Remember(content="c", room="x", entities=(EntityRef(kind="a", key="b:subject"), EntityRef(kind="a", key="subject"))))
@settings(deadline=None)
def test_a_rendered_tag_reads_back_as_the_same_memory(memory: Remember) -> None:
    """An ordinary memory always has a tag, whatever its entities are called."""
    assert parse(render_tag(memory)).memories == (memory,)


PART = st.text(st.characters(categories=["L", "N", "Zs"], include_characters=".,;:/#+()"), min_size=1, max_size=20).map(
    lambda text: " ".join(text.split()) or "x"
)


@given(PART, PART, st.from_regex(r"[^\W\d_]\w{1,10}", fullmatch=True))
@settings(deadline=None)
def test_a_rendered_graph_tag_reads_back(subject: str, predicate: str, kind: str) -> None:
    """Subject and object keep their kinds, whatever they look like."""
    (memory,) = parse(f"[REMEMBER:kg] {subject} | {predicate} | {kind}:key").memories
    assert memory.entities[1] == EntityRef(kind=kind, key="key", role=EntityRole.OBJECT)
    assert parse(render_tag(memory)).memories == (memory,)


@given(st.builds(Remember, content=ANY_TEXT.map(clean).filter(bool), room=st.text(min_size=1, max_size=10)))
@settings(deadline=None)
def test_a_tag_never_says_something_else(memory: Remember) -> None:
    """For any memory at all: the tag reads back equal, or there is none."""
    try:
        tag = render_tag(memory)
    except InvalidInput:
        return
    assert parse(tag).memories == (memory,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["action", "title", "text", "task_id", "after", "room", "content", "entities"]), inner)
        | st.fixed_dictionaries(
            {"action": st.sampled_from(["comment", "remember", "create_task", "report"])}, optional={"text": inner}
        )
    ),
)


@given(JSON)
@settings(deadline=None)
def test_any_native_value_gives_actions_and_problems(value: object) -> None:
    """Each item of a list is an action or a problem; nothing raises."""
    actions, problems = parse_actions(value)
    expected = len(value) if isinstance(value, list) else 1
    assert len(actions) + len(problems) == expected


@given(st.text())
@settings(deadline=None)
def test_a_string_in_a_block_arrives_unchanged(text: str) -> None:
    """F08-01: whatever an action says, backticks and line breaks included, does not cut the block that holds it."""
    assume(clean(text) == text and text and "heartbeat" not in text.lower())
    for fence in ("```", "~~~~"):
        block = f"{fence}actions\n{json.dumps([{'action': 'comment', 'text': text}], ensure_ascii=False)}\n{fence}"
        assert parse(block).actions == (Comment(text=text),)


@given(st.text(st.characters(exclude_categories=())))
def test_clean_text_is_stable(text: str) -> None:
    """Cleaning twice is cleaning once; the result is UTF-8; no character of the text is moved or lost."""
    cleaned = clean(text)
    assert clean(cleaned) == cleaned == clean_json([text])[0]
    cleaned.encode()
    assert is_subsequence("".join(char for char in text if char.isprintable()), cleaned)


@given(st.binary(), st.integers(0, 64))
def test_any_bytes_can_be_shown(raw: bytes, limit: int) -> None:
    """F07-03: no output of a process raises; what is stored is valid and bounded."""
    assert clean(decode(raw)) == decode(raw)
    shown = head_and_tail(raw, limit)
    assert clean(shown) == shown
