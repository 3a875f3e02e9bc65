"""Properties of the checklist reader: whatever the text, nothing is lost, nothing waits in a circle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opencognit.checklist import TITLE_LIMIT, Checklist, parse

WORDS = st.text("abcdefghij äöüß", min_size=1, max_size=20).map(str.strip).filter(bool)
LINES = st.one_of(
    st.text(max_size=40),
    st.tuples(
        st.sampled_from(["", " ", "  ", "    ", "\t"]), st.sampled_from(["- [ ] ", "* [x] ", "1. [ ] ", "- ", "```", "> "]), WORDS
    ).map("".join),
    st.builds("- [ ] {} (after: {})".format, WORDS, st.lists(st.integers(0, 12).map(str), max_size=4).map(", ".join)),
)
TEXTS = st.lists(LINES, max_size=25).map("\n".join)


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, str, bool]]:
    """A well-formed nested checklist: (depth, title, done) per line."""
    rows: list[tuple[int, str, bool]] = []
    for _ in range(draw(st.integers(1, 15))):
        deepest = rows[-1][0] + 1 if rows else 0
        rows.append((draw(st.integers(0, min(deepest, 6))), draw(WORDS), draw(st.booleans())))
    return rows


def render(rows: list[tuple[int, str, bool]], step: str, bullet: str) -> str:
    return "".join(f"{step * depth}{bullet} [{'x' if done else ' '}] {title}\n" for depth, title, done in rows)


@given(TEXTS)
def test_any_text_gives_a_plan_that_can_be_carried_out(text: str) -> None:
    """No text raises; each open item is ordered once, behind all it waits for; titles are set and bounded."""
    plan = parse(text)

    ordered = plan.ordered()
    assert sorted(item.number for item in ordered) == [item.number for item in plan.open]
    placed: set[int] = set()
    for item in ordered:
        assert placed.issuperset(item.after)
        placed.add(item.number)
    for item in plan.items:
        assert 0 < len(item.title) <= TITLE_LIMIT
        assert len(set(item.after)) == len(item.after)
    assert parse(text) == plan


@given(trees(), st.sampled_from(["  ", "   ", "    ", "\t"]), st.sampled_from(["-", "*", "+", "1.", "2)"]))
def test_a_written_tree_is_read_back(rows: list[tuple[int, str, bool]], step: str, bullet: str) -> None:
    """Titles, states and nesting survive every indentation and bullet; an open parent is waited for, a done one not."""
    plan = parse(render(rows, step, bullet))

    assert [(item.depth, item.title, item.done) for item in plan.items] == rows
    for item in plan.items:
        above = [other for other in plan.items[: item.number - 1] if other.depth == item.depth - 1]
        parent = above[-1] if above else None
        assert item.parent == (parent.number if parent else None)
        assert item.after == ((parent.number,) if parent and not parent.done and not item.done else ())


@given(TEXTS)
def test_line_endings_change_nothing(text: str) -> None:
    """A text reads the same with LF, CRLF or CR."""
    plain = text.replace("\r", "")

    assert parse(plain.replace("\n", "\r\n")) == parse(plain) == parse(plain.replace("\n", "\r"))


@given(st.lists(st.text("abc -[]x*+1.", max_size=20).filter(lambda line: "```" not in line), max_size=10))
def test_nothing_inside_a_fence_is_an_item(lines: list[str]) -> None:
    """Whatever a closed fence holds, there is no checklist in it."""
    assert parse("\n".join(["```", *lines, "```"])) == Checklist()


@given(trees(), st.data())
def test_references_only_ever_add_order(rows: list[tuple[int, str, bool]], data: st.DataObject) -> None:
    """With references at random each is either kept, needless because its target is done, or told as a problem."""
    wanted = [data.draw(st.lists(st.integers(1, len(rows)), max_size=3, unique=True)) for _ in rows]
    lines = render(rows, "  ", "-").splitlines()
    text = "\n".join(
        line + (f" (after: {', '.join(map(str, refs))})" if refs else "") for line, refs in zip(lines, wanted, strict=True)
    )

    plan = parse(text)
    for item, refs in zip(plan.items, wanted, strict=True):
        for ref in refs:
            kept = ref in item.after or item.done or plan.items[ref - 1].done
            told = any(f"line {item.line}: `(after: {ref})`" in problem for problem in plan.problems)
            assert kept or told
    assert len(plan.ordered()) == len(plan.open)
