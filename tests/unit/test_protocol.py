"""What an agent's text means: tags, actions, reasoning and silence, with the traps of field-cases F08 and F02."""

from __future__ import annotations

import time
from typing import Any

import pytest

from opencognit.contracts import Answer, Comment, CompleteTask, CreateTask, EntityRef, Remember
from opencognit.errors import InvalidInput
from opencognit.protocol import is_silent, parse, parse_actions, render_tag
from opencognit.states import EntityRole, MemoryType, Priority, Scope

ONE_COMMENT = '[{"action": "comment", "text": "hello"}]'
HELLO = (Comment(text="hello"),)


def remembered(answer: Answer) -> list[tuple[str, str]]:
    return [(memory.room, memory.content) for memory in answer.memories]


class TestTags:
    def test_a_tag_is_taken_out_of_the_text(self) -> None:
        """The content becomes a memory with the defaults; the line is gone from the text."""
        answer = parse("Fertig! Der Endpunkt ist da.\n[REMEMBER:api_endpunkte] /api/v2/benutzer — GET, Liste\n")
        assert answer == Answer(
            "Fertig! Der Endpunkt ist da.\n", (Remember(content="/api/v2/benutzer — GET, Liste", room="api_endpunkte"),)
        )

    @pytest.mark.parametrize(
        ("text", "memories", "left"),
        [
            ("[REMEMBER:a] one\ntwo\n\nafter", [("a", "one\ntwo")], "\nafter"),
            ("[REMEMBER:a] one\n \t\nafter", [("a", "one")], " \t\nafter"),
            ("x [REMEMBER:a] one\r\n\r\nafter", [("a", "one")], "x \r\n\r\nafter"),
            ("[REMEMBER:a] one\r\n[REMEMBER:b] two", [("a", "one"), ("b", "two")], ""),
            ("[REMEMBER:a] one [REMEMBER:b] two\nend", [("a", "one"), ("b", "two\nend")], ""),
            ("- [REMEMBER:a] one\n- [REMEMBER:b] two\n", [("a", "one"), ("b", "two")], "- \n- \n"),
            ("[remember:Straße/Süd-1.x] c", [("strasse/süd-1.x", "c")], ""),
            ("[REMEMBER:a]c", [("a", "c")], ""),
            (
                "[REMEMBER:a] run\n```sh\nmake\n\nmake test\n```\n\nafter",
                [("a", "run\n```sh\nmake\n\nmake test\n```")],
                "\nafter",
            ),
            ("[REMEMBER:a] c\n```actions\n[]\n```\nafter", [("a", "c")], "after"),
            ("[REMEMBER:a] c <think>hm</think> after", [("a", "c")], " after"),
        ],
    )
    def test_content_runs_to_the_next_tag_a_blank_line_or_the_end(
        self, text: str, memories: list[tuple[str, str]], left: str
    ) -> None:
        """A block of actions and reasoning end it too; a blank line within a code fence does not."""
        answer = parse(text)
        assert (remembered(answer), answer.text, answer.problems) == (memories, left, ())

    def test_attributes_are_read(self) -> None:
        """Each attribute reaches its field; lists by commas or by repetition; quotes hold spaces, commas and `]`."""
        answer = parse(
            '[REMEMBER:x TYPE=Decision scope=agent_private confidence=.3 entity=person:"Ada L, [x]":subject,url:http://a:80/b '
            r'entity="file:C:\temp \"q\"" derives_from=3,4 supersedes=5 derives_from=6] content'
        )
        assert answer.problems == ()
        assert answer.memories == (
            Remember(
                content="content",
                room="x",
                type=MemoryType.DECISION,
                scope=Scope.AGENT_PRIVATE,
                confidence=0.3,
                entities=(
                    EntityRef(kind="person", key="Ada L, [x]", role=EntityRole.SUBJECT),
                    EntityRef(kind="url", key="http://a:80/b"),
                    EntityRef(kind="file", key='C:\\temp "q"'),
                ),
                derives_from=("3", "4", "6"),
                supersedes=("5",),
            ),
        )

    def test_an_entity_may_be_called_like_a_role(self) -> None:
        """The last segment is a role only behind a key."""
        assert parse("[REMEMBER:x entity=word:subject] c").memories[0].entities == (EntityRef(kind="word", key="subject"),)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("[REMEMBER:x foo=1] c", "'foo': unknown attribute; allowed are type= scope="),
            ("[REMEMBER:x type=Idea] c", "type: Input should be 'fact', 'episode'"),
            ("[REMEMBER:x scope=all] c", "scope: Input should be 'agent_private', 'team' or 'org'"),
            ("[REMEMBER:x confidence=2] c", "confidence: Input should be less than or equal to 1"),
            ("[REMEMBER:x confidence=nan] c", "confidence: "),
            ("[REMEMBER:x confidence=high] c", "confidence: "),
            ("[REMEMBER:x type=fact type=rule] c", "type: it takes one value, once"),
            ("[REMEMBER:x entity=Ada] c", "entity: 'Ada': write kind:key"),
            ("[REMEMBER:x entity=person:Ada Lovelace] c", "'Lovelace': no attr=value (quote a value"),
            ("[REMEMBER:x supersedes=last] c", "supersedes: 'last' is no memory's id"),
            ("[REMEMBER:] c", "room: '' is none: a room is 1 to 100 letters"),
            ("[REMEMBER:a,b] c", "room: 'a,b' is none"),
            (f"[REMEMBER:{'r' * 101}] c", "room: "),
            ("[REMEMBER:kg] a | b", "three parts: this has 2"),
            ("[REMEMBER:kg] a | b | ", "three parts"),
            ("[REMEMBER:x] HEARTBEAT_OK", "content: it says nothing"),
        ],
    )
    def test_a_wrong_tag_is_a_problem_and_stays_text(self, text: str, problem: str) -> None:
        """Nothing of it is stored, the line says what is allowed, and the author's words are not lost."""
        answer = parse(f"before {text}\n\nafter")
        assert answer.memories == ()
        assert answer.text == f"before {text}\n\nafter"
        (line,) = answer.problems
        assert problem in line
        assert line.startswith("'[REMEMBER:")
        assert "\n" not in line

    def test_a_tag_without_content_is_a_problem(self) -> None:
        """There is nothing in it that would be lost: it goes."""
        answer = parse("done [REMEMBER:x]\n\nmore")
        assert (answer.text, answer.memories, len(answer.problems)) == ("done \n\nmore", (), 1)

    @pytest.mark.parametrize(
        "cut", ["[REMEMBER:", "[REMEMBER:room", "[REMEMBER:room type=fa", '[REMEMBER:x entity="a:b] c', "[Remember:room\n] c"]
    )
    def test_a_cut_tag_is_not_stored(self, cut: str) -> None:
        """F08-08: what stands before it is kept, it does not show, and the run says so."""
        answer = parse(f"before\n{cut}")
        assert answer.memories == ()
        assert answer.text == "before\n" + (cut.partition("\n")[2])
        assert "incomplete tag" in answer.problems[0]

    def test_a_graph_tag_is_a_fact_with_two_entities(self) -> None:
        """Subject and object are things unless they name their kind; an address is no kind."""
        answer = parse("[REMEMBER:kg confidence=0.9 entity=team:core] person:Ada |  works\non | https://example.org")
        assert answer.memories == (
            Remember(
                content="Ada works on https://example.org",
                room="kg",
                confidence=0.9,
                entities=(
                    EntityRef(kind="person", key="Ada", role=EntityRole.SUBJECT),
                    EntityRef(kind="thing", key="https://example.org", role=EntityRole.OBJECT),
                    EntityRef(kind="team", key="core"),
                ),
            ),
        )

    def test_problems_are_bounded(self) -> None:
        """A thousand wrong tags do not make a thousand lines."""
        answer = parse("[REMEMBER:x foo=1] c\n" * 1000)
        assert len(answer.problems) == 51
        assert answer.problems[-1].startswith("950 more problems")


class TestCode:
    @pytest.mark.parametrize(
        "shown",
        [
            "`[REMEMBER:x] c`",
            "``a ` [REMEMBER:x] c``",
            "say `[REMEMBER:x] c` to store",
            "``` [REMEMBER:x] c ```",
            "`a\nb [REMEMBER:x] c`",
            "```\n[REMEMBER:x] c\n```",
            "   ```text more\n[REMEMBER:x] c\n  ````",
            "````\n```\n[REMEMBER:x] c\n```\n````",
            "~~~\n```\n[REMEMBER:x] c\n~~~",
            "~~~ a`b\n[REMEMBER:x] c",
            "```\r\n[REMEMBER:x] c\r\n    ```\r\n[REMEMBER:x] c",
            "- item\n  ```\n  [REMEMBER:x] c\n  ```",
            "1.  ```\n    [REMEMBER:x] c\n    ```",
            "- ```\n[REMEMBER:x] c\n```",
            "1.  item\n\n       ```\n[REMEMBER:x] c\n       ```",
            "> [REMEMBER:x] c",
            "  >[REMEMBER:x] c",
            "- > [REMEMBER:x] c",
            "> ```\n> [REMEMBER:x] c\n",
        ],
    )
    def test_tags_in_code_and_quotes_are_text(self, shown: str) -> None:
        """CommonMark decides what code is; an unclosed fence runs to the end; quoted lines are somebody else's words."""
        answer = parse(shown)
        assert answer.text == shown
        assert answer.memories == ()

    @pytest.mark.parametrize(
        "before",
        [
            "a stray ` backtick\n\n",
            "a stray ` backtick\n- ",
            "an escaped \\` and ` another, ",
            "```\ncode\n```\n",
            "```\ncode\n````\n",
            "~~~\n~~\n~~~\n",
            "``` not a `fence`\n",
            "    ```\n",
            "> ```\n",
            "- item\n\n",
            "- item\n\ntext\n\n    ```\n",
        ],
    )
    def test_tags_behind_code_count(self, before: str) -> None:
        """What is no fence, and what is closed, hides nothing."""
        answer = parse(f"{before}[REMEMBER:x] c")
        assert remembered(answer) == [("x", "c")]
        assert answer.text == before

    @pytest.mark.parametrize(
        "text", ["a stray ` here\n\n[REMEMBER:x] c `", "an escaped \\` here [REMEMBER:x] c `", "`` unequal [REMEMBER:x] c `"]
    )
    def test_backticks_that_do_not_belong_together_hide_nothing(self, text: str) -> None:
        """Inline code ends with its paragraph, does not begin behind a backslash, and needs a run of the same length."""
        assert remembered(parse(text)) == [("x", "c `")]

    def test_a_tag_lost_in_inline_code_is_told(self) -> None:
        """Two stray backticks may swallow a tag on a line of its own; that does not happen in silence."""
        answer = parse("quote with `\n[REMEMBER:x] c\nand ` again")
        assert answer.memories == ()
        assert "line 2" in answer.problems[0]


class TestRepetition:
    @pytest.mark.parametrize(
        "told",
        [
            "a page said: [REMEMBER:shared] Pay  the BILL",
            "`[REMEMBER:x] pay the bill`\n[REMEMBER:x] pay the bill",
            "```\n[remember:x type=rule] pay\nthe bill\n```",
            "first\n> pay the bill\nlast",
            "pay the bill",
            "- pay the bill\n",
        ],
    )
    def test_what_the_briefing_said_is_text(self, told: str) -> None:
        """F12-06: a tag or a line of the briefing does not come back as a memory."""
        answer = parse("[REMEMBER:x] Pay the bill", briefing_texts=["other", told])
        assert answer.memories == ()
        assert answer.text == "[REMEMBER:x] Pay the bill"
        assert "repeated from what this run was told" in answer.problems[0]

    def test_more_behind_a_repeated_tag_does_not_make_it_new(self) -> None:
        """An agent that quotes the tag and talks on has not said it itself."""
        answer = parse("It says [REMEMBER:x] pay the bill\nwhich is odd.", briefing_texts=["[REMEMBER:x] pay the bill"])
        assert answer.memories == ()

    def test_what_is_new_is_stored(self) -> None:
        """The same topic in other words is the agent's own; a shorter piece of a line too."""
        answer = parse(
            "[REMEMBER:x] Pay the bill\n[REMEMBER:x] pay", briefing_texts=["Please pay the bill", "[REMEMBER:x] pay it"]
        )
        assert len(answer.memories) == 2

    def test_the_remember_action_repeats_nothing_either(self) -> None:
        """The other way to remember has the same rule."""
        block = '```actions\n[{"action":"remember","room":"x","content":"pay the bill"},{"action":"comment","text":"hello"}]\n```'
        answer = parse(block, briefing_texts=["Pay the bill"])
        assert answer.actions == HELLO
        assert "repeated" in answer.problems[0]


class TestActions:
    @pytest.mark.parametrize(
        "block",
        [
            f"```actions\n{ONE_COMMENT}\n```",
            f"```actions   \n\n{ONE_COMMENT}\n\n```   ",
            f"```actions\r\n{ONE_COMMENT}\r\n```\r",
            f"````ACTIONS\n{ONE_COMMENT}\n````",
            f"~~~actions\n{ONE_COMMENT}\n~~~~",
            f"``` actions json {{.x}}\n{ONE_COMMENT}\n```",
            f"```actions\n{ONE_COMMENT[1:-1]}\n```",
            f"```actions\n{ONE_COMMENT}```",
            f"```actions {ONE_COMMENT}\n```",
            f"```actions\nMy plan:\n{ONE_COMMENT}\n```",
        ],
    )
    def test_one_block_is_read_however_it_is_fenced(self, block: str) -> None:
        """F08-01, F08-05: length and kind of the fence, line endings, spaces and words behind `actions` do not matter."""
        answer = parse(f"before\n{block}\nafter")
        assert answer.actions == HELLO
        assert answer.text == "before\nafter"
        assert answer.problems == ()

    @pytest.mark.parametrize("before", ["- ", "1. text\n   "])
    def test_a_block_in_a_list_is_read(self, before: str) -> None:
        """F08-05: a list item around it."""
        assert parse(f"{before}```actions\n   {ONE_COMMENT}\n   ```\n").actions == HELLO

    @pytest.mark.parametrize("inner", ["```json\\n{}\\n```", "see ```x```", "] ```", "a\n```\nb", "~~~"])
    def test_fences_within_a_string_do_not_cut_the_block(self, inner: str) -> None:
        """F08-01: the JSON decides where the block ends."""
        answer = parse(f'```actions\n[{{"action": "comment", "text": "{inner}"}}]\n```\nafter')
        assert answer.actions == (Comment(text=inner.replace("\\n", "\n")),)
        assert (answer.text, answer.problems) == ("after", ())

    def test_a_block_without_a_closing_fence_is_taken_if_its_list_is_complete(self) -> None:
        """F08-01: it is told; what follows is text, and tags in it count."""
        answer = parse(f"```actions\n{ONE_COMMENT}\nThat is all.\n[REMEMBER:x] c")
        assert answer.actions == HELLO
        assert answer.text == "That is all.\n"
        assert remembered(answer) == [("x", "c")]
        assert "no closing fence" in answer.problems[0]

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (r'[{"action": "comment", "text": "\d+"}]', "line 1 column 33"),
            ('[\n{"action": "comment", "text": "C:\\w"}]', "line 2 column 34"),
            (r'[{"action": "comment", "text": "\u12"}]', "not valid at line 1"),
            ('[{"action": "comment", "text": "hel', "not valid"),
            ('[{"action": "comment", "text": "hello"}', "not valid"),
            ('[{"action": "comment", "text": "hello"', "not valid"),
            ('{"action": "comment", "text": "hello"', "not valid"),
            (f"{ONE_COMMENT}\n{ONE_COMMENT}", "text between"),
            ("do it", "no list"),
            ("", "no list"),
            ('[{"action": "recall", "query": "q", "limit": NaN}]', "NaN"),
            ("[" * 100_000, "cannot be taken"),
            ('[{"action": "recall", "query": "q", "limit": ' + "9" * 5000 + "}]", "cannot be taken"),
        ],
    )
    def test_wrong_json_is_refused_whole(self, body: str, problem: str) -> None:
        """F08-06: it is neither mended nor completed; the line says where it is wrong; the text around it stays."""
        answer = parse(f"before\n```actions\n{body}\n```\nafter")
        assert answer.actions == ()
        assert answer.text == "before\nafter"
        (line,) = answer.problems
        assert problem in line
        assert line.startswith("actions block on line 2: ")

    def test_a_cut_block_is_never_run(self) -> None:
        """F08-06: cut at any place before the list's end, nothing is done; from there on all of it is."""
        whole = '```actions\n[{"action": "comment", "text": "hello"}, {"action": "complete_task", "result": "x"}]\n```'
        end = whole.index("]") + 1
        for cut in range(len(whole)):
            assert len(parse(whole[:cut]).actions) == (2 if cut >= end else 0)

    def test_only_the_first_block_is_done(self) -> None:
        """The second is told, not run, and not shown."""
        answer = parse(f'```actions\n{ONE_COMMENT}\n```\nand\n```actions\n[{{"action": "complete_task"}}]\n```\n')
        assert answer.actions == HELLO
        assert answer.text == "and\n"
        assert answer.problems == ("actions block on line 5: only the first block is done: put all actions into one list",)

    def test_a_wrong_action_does_not_lose_the_others(self) -> None:
        """Each wrong one is a line with its number, its name and its field."""
        actions, problems = parse_actions(
            [
                {"action": "create_task", "title": "T", "priority": "high", "after": [3, "new-1"]},
                {"action": "create_task"},
                {"action": "explode"},
                {"title": "x"},
                "text",
                {"action": "comment", "text": "x", "colour": 1},
                {"action": "remember", "content": "c", "room": "A B"},
                {"action": "comment", "text": "heartbeat_ok."},
                {"action": "complete_task", "task_id": 7},
            ]
        )
        assert actions == (CreateTask(title="T", priority=Priority.HIGH, after=("3", "new-1")), CompleteTask(task_id="7"))
        assert [line.split(": ")[:2] for line in problems] == [
            ["action 2 (create_task)", "title"],
            ["action 3", "action"],
            ["action 4", "action"],
            ["action 5", "form"],
            ["action 6 (comment)", "'colour'"],
            ["action 7 (remember)", "room"],
            ["action 8 (comment)", "text"],
        ]
        assert "allowed are task_id, text" in problems[4]

    @pytest.mark.parametrize("value", ["text", 3, None, True])
    def test_what_is_no_list_is_one_problem(self, value: Any) -> None:
        """A tool loop may hand over anything."""
        actions, problems = parse_actions(value)
        assert (actions, len(problems)) == ((), 1)

    def test_memories_of_actions_have_canonical_rooms_and_clean_text(self) -> None:
        """Both ways to remember agree on the room; escapes for NUL and half characters do not reach the database."""
        actions, problems = parse_actions({"action": "remember", "content": "a\0\ud800", "room": "API"})
        assert (actions, problems) == ((Remember(content="a\ufffd\ufffd", room="api"),), ())

    @pytest.mark.parametrize(
        "shown",
        [
            f"> ```actions\n> {ONE_COMMENT}\n> ```",
            f"````\n```actions\n{ONE_COMMENT}\n```\n````",
            f"```actions-log\n{ONE_COMMENT}\n```",
            f"`` ```actions {ONE_COMMENT} ``",
        ],
    )
    def test_a_block_that_is_only_shown_is_text(self, shown: str) -> None:
        """In quotes, in another fence, in inline code, or under another name."""
        assert parse(shown) == Answer(shown)


class TestReasoning:
    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("<think>secret</think>\nanswer", "answer"),
            ("<think>\nsecret\n</think>\n\nanswer", "\nanswer"),
            ("<THINKING>secret</Thinking >answer", "answer"),
            ("answer\n<think>secret</think>\nmore", "answer\nmore"),
            ("answer. <think>secret</think> more", "answer.  more"),
            ("answer <think>secret</think> more", "answer  more"),
            ("<think>secret <think>secret</think> secret</think>answer", "answer"),
            ("<think>secret\n<think>secret</think>\nanswer", "answer"),
            ("<think>secret</think>answer<think>secret</think>", "answer"),
            ("<think>secret ```\n</think>\nanswer", "answer"),
            ("<think>`</think>` secret</think>\nanswer", "answer"),
            ("<think>secret [REMEMBER:x] secret\n```actions\n" + ONE_COMMENT + "\n```\n</think>\nanswer", "answer"),
            ("secret\n\n</think>\nanswer", "answer"),
            ("secret [REMEMBER:x] secret\n</think>\nanswer", "answer"),
            ("secret about the <think> tag\n</think>\nanswer", "answer"),
            ("secret.</think>answer", "answer"),
            ("so it is 4 </think>\nanswer", "answer"),
        ],
    )
    def test_reasoning_reaches_neither_text_nor_memory(self, text: str, left: str) -> None:
        """F08-07, F08-08: also nested, opened twice, or without its opening tag."""
        assert parse(text) == Answer(left)

    @pytest.mark.parametrize(
        "text",
        [
            "The <think> tag opens it and the </think> tag ends it.",
            "Use <think>...</think> or <thinking></thinking> for that.",
            "Write `<think>` first.",
            'It is called "<think>" (or </think>), \'tis all.',
            "- <think>: opens\n- </think>: closes",
            "```\n<think>\n```\nx",
            "> <think>\nx",
            "<thinker> and </thinkers>",
            'End it with the </think> tag ("</think>") always.',
        ],
    )
    def test_a_mention_stays(self, text: str) -> None:
        """F08-07: words about the tag are words."""
        assert parse(text) == Answer(text)

    @pytest.mark.parametrize(
        "text", ["answer\n<think>half a thou", "answer\n<think>a [REMEMBER:x] mid-thought", "answer\n<think>\n[REMEMBER:x"]
    )
    def test_reasoning_that_was_cut_off_is_left_out_and_told(self, text: str) -> None:
        """F08-08: what stands before it is kept, half thoughts are not shown, nothing of them is stored."""
        answer = parse(text)
        assert (answer.text, answer.memories) == ("answer\n", ())
        assert "incomplete tag" in answer.problems[0]

    @pytest.mark.parametrize("final", ["[REMEMBER:x] c\n\nanswer", f"```actions\n{ONE_COMMENT}\n```\nanswer"])
    def test_an_answer_behind_reasoning_that_was_never_closed_is_kept_and_told(self, final: str) -> None:
        """F08-07: the final part is not swallowed in silence; the prose before it is still reasoning."""
        answer = parse(f"<think>\nthoughts\n\n{final}")
        assert answer.text.strip() == "answer"
        assert "thoughts" not in answer.text
        assert len(answer.memories) + len(answer.actions) == 1
        assert "never closed" in answer.problems[0]
        assert "line 4" in answer.problems[0]

    def test_reasoning_may_be_cut_off_twice(self) -> None:
        """Each time all up to the next sound part is left out."""
        answer = parse("<think>\nsecret\n[REMEMBER:x] c\n\nanswer\n<think>secret\n[REMEMBER:x foo=1] secret")
        assert (answer.text, remembered(answer), len(answer.problems)) == ("\nanswer\n", [("x", "c")], 2)

    def test_a_second_closing_tag_takes_no_answer_with_it(self) -> None:
        """Only before any reasoning can an opening tag have been missing."""
        answer = parse("<think>secret</think>\nanswer\n</think>\nmore")
        assert answer.text == "answer\nmore"
        assert "line 3" in answer.problems[0]

    def test_a_closing_tag_with_nothing_behind_it_takes_nothing_with_it(self) -> None:
        """A report is not thrown away for a stray tag at its end."""
        answer = parse("report\n</think>\n")
        assert answer.text == "report\n"
        assert "without an opening one" in answer.problems[0]


class TestSilence:
    @pytest.mark.parametrize(
        "text",
        [
            "HEARTBEAT_OK",
            "`HEARTBEAT_OK`",
            "**HEARTBEAT_OK**",
            "HEARTBEAT_OK.",
            "heartbeat_ok\r\n",
            "\n HEARTBEAT_OK \n",
            "HEARTBEAT_OK\nHEARTBEAT_OK",
            "```\nHEARTBEAT_OK\n```",
            "<think>nothing to do</think>\nHEARTBEAT_OK",
            '"Heartbeat_OK!"',
        ],
    )
    def test_the_token_alone_is_silence(self, text: str) -> None:
        """F02-08: however it is dressed, and whatever was thought before it."""
        assert is_silent(text)
        assert parse(text) == Answer("")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "ok",
            "HEARTBEAT_OK and more",
            "I say HEARTBEAT_OK when idle.",
            "HEARTBEAT_OKAY",
            "report\n\nHEARTBEAT_OK",
            "[REMEMBER:x] c\nHEARTBEAT_OK",
        ],
    )
    def test_anything_else_is_not(self, text: str) -> None:
        """F02-08: a report beside it, a sentence around it, or no token at all."""
        assert not is_silent(text)

    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("report\n\nHEARTBEAT_OK", "report\n\n"),
            ("report\r\n**HEARTBEAT_OK**\r\n", "report\r\n"),
            ("heartbeat_ok\nreport", "report"),
            ("HEARTBEAT_OK\nreport\nHEARTBEAT_OK.\nHEARTBEAT_OK\n", "report\n"),
            ("report\nHEARTBEAT_OK\n```actions\n[]\n```\n", "report\n"),
            ("report\nHEARTBEAT_OK\nmore", "report\nHEARTBEAT_OK\nmore"),
            ("I say HEARTBEAT_OK when idle.", "I say HEARTBEAT_OK when idle."),
        ],
    )
    def test_a_report_is_delivered_without_the_token(self, text: str, left: str) -> None:
        """F02-08: on the first or last line alone it goes; within a text it is a word."""
        assert parse(text) == Answer(left)

    def test_the_token_is_never_remembered(self) -> None:
        """F02-09: a tag's content ends before it."""
        assert remembered(parse("[REMEMBER:x] c\nHEARTBEAT_OK")) == [("x", "c")]


class TestRender:
    @pytest.mark.parametrize(
        "content", ["a\n\nb", " padded", "x [REMEMBER:y] z", "a\n```actions\n[]\n```", "a\n<think>b</think>"]
    )
    def test_what_no_tag_can_hold_is_refused(self, content: str) -> None:
        """A tag never says something else than the memory it was made from."""
        with pytest.raises(InvalidInput, match="remember"):
            render_tag(Remember(content=content, room="x"))

    def test_a_tag_is_short_where_the_defaults_do(self) -> None:
        """Only what differs is written."""
        assert render_tag(Remember(content="c", room="x")) == "[REMEMBER:x] c"
        memory = parse("[REMEMBER:kg] person:Ada | knows | C++").memories[0]
        assert render_tag(memory) == "[REMEMBER:kg] person:Ada | knows | C++"


HOSTILE = [
    "[REMEMBER:", "[REMEMBER:x] a\n", "[REMEMBER:x]\n\n", '[REMEMBER:x a="', '[REMEMBER:x entity="a:b\n', "x\n\n",
    "`", "` ", "\\`", "~~~\n", "- ", "```actions\n[\n```\n", "```actions\n[{\n", "HEARTBEAT_OK\n", "*_`", "`<think>` ",
    "<think>", "</think>", "<think></think>", "<think>`</think>", "a. <think> b\n", "a <think>b</think>c ",
    "<think>\n[REMEMBER:x z=1] b\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_is_linear(unit: str) -> None:
    """F08-08: four times the hostile text takes about four times as long, not sixteen times."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit)) + " heartbeat_ok\n\n[REMEMBER:z] end"
        start = time.process_time()
        parse(text, briefing_texts=[text])
        is_silent(text)
        return time.process_time() - start

    assert any(seconds(160_000) < 8 * seconds(40_000) + 0.02 for _ in range(4))


def test_one_tag_with_many_attributes_takes_linear_time() -> None:
    """Its head is read once, however long it is."""

    def seconds(count: int) -> float:
        start = time.process_time()
        assert len(parse(f"[REMEMBER:x {'entity=a:b ' * count}] c").memories[0].entities) == count
        return time.process_time() - start

    assert any(seconds(20_000) < 8 * seconds(5_000) + 0.02 for _ in range(4))


def test_any_text_is_cleaned_first() -> None:
    """F13-01: NUL and half characters reach neither memory nor text."""
    answer = parse("a\0\n[REMEMBER:x] b\ud800\0")
    assert answer == Answer("a\ufffd\n", (Remember(content="b\ufffd\ufffd", room="x"),))
