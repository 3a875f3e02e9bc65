"""What counts as an item of a goal's checklist, what belongs to it, and in which order items come."""

from __future__ import annotations

import pytest

from opencognit import contracts
from opencognit.checklist import DEPTH_LIMIT, ITEM_LIMIT, TITLE_LIMIT, Checklist, parse
from opencognit.states import Priority


def titles(plan: Checklist) -> list[str]:
    return [item.title for item in plan.items]


@pytest.mark.parametrize("bullet", ["-", "*", "+", "1.", "1)", "12."])
def test_every_kind_of_list_line_with_a_checkbox_is_an_item(bullet: str) -> None:
    """Markdown's bullets and numbers all count, checked or not."""
    plan = parse(f"Intro\n\n{bullet} [ ] Open\n{bullet} [x] Small\n{bullet} [X] Large\n{bullet} [] Sloppy\n")

    assert titles(plan) == ["Open", "Small", "Large", "Sloppy"]
    assert [item.done for item in plan.items] == [False, True, True, False]
    assert plan.problems == ()
    assert not plan.plain


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Write a report.", "- only one bullet", "-not a list\n-nor this", "* * *\n- - -", "# A\n## B"]
)
def test_a_text_without_a_list_has_no_items(text: str) -> None:
    """Prose, rules, headings and a single bullet are a goal, not a checklist."""
    assert parse(text) == Checklist()


def test_a_plain_list_counts_only_where_there_is_no_checkbox() -> None:
    """Two plain bullets make a checklist; beside a checkbox they do not, and the board is told."""
    assert titles(parse("Please:\n- Survey\n- Write\n\nand\n\n1. Publish\n")) == ["Survey", "Write", "Publish"]
    assert parse("- Survey\n- Write").plain

    mixed = parse("- [ ] Survey\n- Write\n")
    assert titles(mixed) == ["Survey"]
    assert mixed.problems == ("line 2: 1 plain list line(s) beside the checkboxes are not planned: begin them with `- [ ]`",)


def test_what_is_nested_under_a_plain_item_is_detail() -> None:
    """In a plain list only the outermost lines are items; the rest stays readable in their descriptions."""
    plan = parse("  - Survey\n    - by size\n      - and age\n  - Write")

    assert [(item.title, item.description) for item in plan.items] == [("Survey", "- by size\n  - and age"), ("Write", "")]


def test_items_of_a_plain_list_never_wait_for_each_other() -> None:
    """However crookedly it is indented, only checkboxes nest."""
    assert [(item.title, item.after) for item in parse("  - A\n- B\n   - C").items] == [("A", ()), ("B", ()), ("C", ())]


@pytest.mark.parametrize("step", ["  ", "   ", "    ", "\t"])
def test_a_nested_item_comes_after_the_item_above_it(step: str) -> None:
    """Two, three, four spaces or a tab make a level; siblings do not wait for each other."""
    plan = parse(f"- [ ] A\n{step}- [ ] B\n{step}{step}- [ ] C\n{step}- [ ] D\n- [ ] E")

    assert [(item.title, item.depth, item.after) for item in plan.items] == [
        ("A", 0, ()),
        ("B", 1, (1,)),
        ("C", 2, (2,)),
        ("D", 1, (1,)),
        ("E", 0, ()),
    ]


def test_numbered_nesting_and_a_step_back_to_an_odd_column_find_the_right_parent() -> None:
    """A line is nested under the nearest item that begins at least two columns before it."""
    plan = parse("1. [ ] A\n     - [ ] B\n   - [ ] C\n10. [ ] D\n - [ ] E")

    assert [item.parent for item in plan.items] == [None, 1, 1, None, None]


def test_nothing_waits_for_a_done_item_but_it_keeps_its_number() -> None:
    """`[x]` is left out of the plan, counted, and never waited for, neither as parent nor by number."""
    plan = parse("- [x] A\n  - [ ] B\n- [-] Called off\n- [ ] C (after: 1, 2, 3)")

    assert [(item.number, item.after) for item in plan.open] == [(2, ()), (4, (2,))]


def test_indented_text_and_lazy_lines_are_the_description() -> None:
    """Text under an item is its description, dedented; text of the item above goes there, text of none is nobody's."""
    plan = parse("- [ ] A\n  first\n\n      code\n- [ ] B\nlazy\n  - [ ] C\n\n  of B\n\nnobody's\n")

    assert [item.description for item in plan.items] == ["first\n\n    code", "lazy\n\nof B", ""]


def test_line_endings_do_not_matter() -> None:
    """CRLF and bare CR read like LF; other separators of Unicode are part of the text."""
    text = "- [ ] A\u2028B (after: 2)\n  text\n- [ ] C\n"

    assert parse(text.replace("\n", "\r\n")) == parse(text) == parse(text.replace("\n", "\r"))
    assert titles(parse(text)) == ["A\u2028B", "C"]


@pytest.mark.parametrize("mark", ["```", "~~~~", "```python"])
def test_nothing_in_a_fence_a_comment_or_a_quotation_is_an_item(mark: str) -> None:
    """Examples are not work; a fence under an item belongs to its description."""
    closing = mark.removesuffix("python")
    fence = f"{mark}\n- [ ] No\n{closing}\n"
    plan = parse(
        f"{fence}<!-- - [ ] No\n- [ ] No -->\n> - [ ] No\n- [ ] Yes\n"
        + "".join(f"  {line}\n" for line in fence.splitlines())
        + "- [ ] Too"
    )

    assert titles(plan) == ["Yes", "Too"]
    assert plan.items[0].description == fence.strip()
    assert plan.problems == ()


def test_a_fence_that_is_never_closed_is_told() -> None:
    """Items swallowed by a forgotten fence are not lost in silence."""
    plan = parse("- [ ] A\n```\n- [ ] B\n")

    assert titles(plan) == ["A"]
    assert plan.problems == ("line 2: the code fence is never closed: nothing behind it was read as an item",)


def test_attributes_come_off_the_end_in_any_order() -> None:
    """All four are read, whatever stands between them, and other parentheses stay in the title."""
    plan = parse("- [ ] One\n- [ ] Build (the thing) @Bob (Priority: HIGH) (fast) (skills: python, `c++`; python) (after: #1).\n")
    item = plan.items[1]

    assert item.title == "Build (the thing) (fast)"
    assert (item.assignee, item.priority, item.skills, item.after) == ("bob", Priority.HIGH, ("python", "c++"), (1,))
    assert plan.problems == ()


@pytest.mark.parametrize(
    "title", ["Call f(x)", "Write to a@example.org", "Ask @bob about it", "Fix (see: notes)", "Look at (a (b))", "Go."]
)
def test_what_is_no_attribute_stays_in_the_title(title: str) -> None:
    """Parentheses, addresses and mentions within the sentence are text."""
    plan = parse(f"- [ ] {title}")

    assert (titles(plan), plan.problems) == ([title], ())


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("(after: 99)", "`(after: 99)` is ignored: the items are counted from 1 to 4"),
        ("(after: 0)", "`(after: 0)` is ignored"),
        ("(after: 2)", "an item cannot wait for itself"),
        ("(after: nowhere)", "no item's title begins like that"),
        ("(after: thi)", "the titles of 2 items begin like that"),
        ("(after: third)", "'Third' itself waits for this item"),
        ("(after: )", "names nothing"),
        ("(priority: soon)", "'soon' is no priority: it is ignored; write one of low, medium, high, critical"),
        ("(priority: low) (priority: high)", "two priorities"),
        ("@amy @bob", "two agents"),
        ("(priorty: high)", "did you mean `(priority: ...)`?"),
        ("(after: 1) now", "'(after: 1)' is not at the end of its line"),
    ],
)
def test_an_attribute_that_cannot_be_done_is_told_and_the_item_stays(attribute: str, says: str) -> None:
    """Each problem names the line; the plan goes on without that attribute."""
    plan = parse(f"- [ ] First\n- [ ] Two {attribute}\n  - [ ] Third\n- [ ] Thing")

    assert len(plan.problems) == 1
    assert plan.problems[0].startswith("line 2: ")
    assert says in plan.problems[0]
    assert plan.items[1].title.startswith("Two")
    assert plan.items[1].after == ()


def test_of_a_circle_only_the_reference_that_closes_it_is_dropped() -> None:
    """References forward are allowed; the one that would close a circle is ignored, and the plan has an order."""
    plan = parse("- [ ] A (after: 3)\n- [ ] B (after: 1)\n- [ ] C (after: 2)")

    assert [item.after for item in plan.items] == [(3,), (1,), ()]
    assert [item.title for item in plan.ordered()] == ["C", "A", "B"]
    assert plan.problems == ("line 3: `(after: 2)` is ignored: 'B' itself waits for this item",)


def test_a_title_names_an_item_and_an_exact_one_wins() -> None:
    """`(after: Survey)` is the item of that very title, though others begin like it."""
    plan = parse("- [ ] Survey more\n- [ ] Survey\n- [ ] Write (after: survey)\n- [ ] End (after: wri)")

    assert [item.after for item in plan.items] == [(), (), (2,), (3,)]


def test_a_number_that_the_list_itself_gives_to_another_line_is_told() -> None:
    """Nested lines shift the count: whoever meant the written number learns what was understood."""
    plan = parse("1. [ ] Plan\n   - [ ] Detail\n2. [ ] Build\n3. [ ] Ship (after: 2)")

    assert plan.items[3].after == (2,)
    assert "was read as item 2 from the top, 'Detail', not as 'Build'" in plan.problems[0]


def test_an_item_without_a_title_takes_the_line_below_or_is_left_out() -> None:
    """An empty line is told; what is nested under it hangs on the item above."""
    plan = parse("- [ ] A\n  - [ ]\n    - [ ] B\n- [ ] @bob\n  Title below\n- [x]\n")

    assert [(item.number, item.title, item.parent) for item in plan.items] == [
        (1, "A", None),
        (3, "B", 1),
        (4, "Title below", None),
    ]
    assert plan.items[2].assignee == "bob"
    assert plan.problems == ("line 2: an item without a title is left out",)


def test_a_long_title_is_cut_and_stands_whole_in_the_description() -> None:
    """The limit is the one of tasks; nothing is lost."""
    long = "word " * 200
    plan = parse(f"- [ ] {long}\n  and more")

    assert TITLE_LIMIT == contracts.TITLE_LIMIT
    assert len(plan.items[0].title) <= TITLE_LIMIT
    assert plan.items[0].description == f"{long.strip()}\n\nand more"


def test_too_many_items_are_seen_and_not_cut() -> None:
    """The limit is of open items; done ones do not count."""
    full = "- [ ] A\n" * ITEM_LIMIT

    assert not parse(full + "- [x] done\n").too_many
    plan = parse(full + "- [ ] B\n" * 800)
    assert plan.too_many
    assert len(plan.items) == ITEM_LIMIT + 800
    assert parse("- [ ] A (after: 9999)\n" * (ITEM_LIMIT + 1)).problems == ()  # their order is nobody's concern then


def test_very_deep_nesting_is_held_at_a_level_and_told_once() -> None:
    """A thousand levels stay in order, at most DEPTH_LIMIT deep."""
    plan = parse("".join(f"{'  ' * level}- [ ] L{level}\n" for level in range(150)))

    assert max(item.depth for item in plan.items) == DEPTH_LIMIT
    assert len(plan.problems) == 1
    assert [item.number for item in plan.ordered()] == list(range(1, 151))


@pytest.mark.parametrize("text", ["(" * 9, ")" * 9, "@a " * 9, "(a) " * 9, "```\n", "<!--\n", "- ", "- [ ] a (after: 1)\n"])
def test_hostile_texts_are_read_in_linear_time(text: str) -> None:
    """Ten times the text may take about ten times as long, not a hundred times."""
    from time import perf_counter

    def once(times: int) -> float:
        many = "- [ ] " + text * times
        start = perf_counter()
        parse(many)
        return perf_counter() - start

    small, large = min(once(300) for _ in range(3)), min(once(3000) for _ in range(3))
    assert large < 60 * max(small, 1e-4)
