"""Text from outside becomes text that a database takes and people can read, and nothing valid changes."""

from __future__ import annotations

import json
import time

import pytest

from opencognit.textclean import clean, clean_json, decode, head_and_tail, join_head_and_tail, strip_ansi


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("a\0b", "a\ufffdb"),
        ("half \ud83d end", "half \ufffd end"),
        ("other half \ude00 end", "other half \ufffd end"),
        ("swapped \ude00\ud83d", "swapped \ufffd\ufffd"),
        ("pair \ud83d\ude00", "pair \U0001f600"),
        ("two highs \ud83d\ud83d\ude00", "two highs \ufffd\U0001f600"),
    ],
)
def test_what_postgres_refuses_is_replaced(dirty: str, expected: str) -> None:
    """F13-01: NUL and lone halves become U+FFFD, halves that belong together become their character."""
    assert clean(dirty) == expected
    expected.encode()


@pytest.mark.parametrize("text", ["", "plain", "emoji \U0001f600", "literal \\u0000 and \\ud83d", "\x01\x1b\x7f", "Grüße\r\n"])
def test_valid_text_is_unchanged(text: str) -> None:
    """F13-01: emoji, literal backslash-u text and other control characters are the author's."""
    assert clean(text) == text


def test_json_is_cleaned_at_any_depth() -> None:
    """Keys and values, in lists, tuples and objects; other values stay, also thousands of levels down."""
    value = {"k\0": ["\ud800", ("x\0", 1, None, True, 2.5)]}
    assert clean_json(value) == {"k\ufffd": ["\ufffd", ["x\ufffd", 1, None, True, 2.5]]}
    assert value == {"k\0": ["\ud800", ("x\0", 1, None, True, 2.5)]}
    deep: object = "\0"
    for _ in range(50_000):
        deep = [deep]
    cleaned = clean_json(deep)
    for _ in range(50_000):
        cleaned = cleaned[0]
    assert cleaned == "\ufffd"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"plain\r\nlines\r\n", "plain\r\nlines\r\n"),
        ("Grüße \U0001f600".encode(), "Grüße \U0001f600"),
        ("Grüße".encode("latin-1"), "Gr\ufffd\ufffde"),
        ("Grüße".encode("utf-16"), "Grüße"),
        (b"\xfe\xff" + "Grüße".encode("utf-16-be"), "Grüße"),
        (b"\xff\xfea\0b", "a\ufffd"),
        (b"\xef\xbb\xbfmarked", "marked"),
        (b"nul\0", "nul\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    ],
)
def test_output_of_a_process_is_decoded(raw: bytes, expected: str) -> None:
    """F07-03: whatever a process prints becomes storable text; nothing raises."""
    assert decode(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2K\x1b[1;5Hmoved", "moved"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bplain", "plain"),
        ("\x9b31mred", "red"),
        ("a [31m b", "a [31m b"),
        ("unfinished \x1b]0;title", "unfinished 0;title"),
    ],
)
def test_terminal_escapes_are_removed(raw: str, expected: str) -> None:
    """Colours, titles and links go, text that only looks like them stays, an unfinished one takes no text with it."""
    assert strip_ansi(raw) == expected


def test_short_text_is_not_cut() -> None:
    """Up to the limit, in bytes, nothing is left out."""
    assert head_and_tail("äää", 6) == "äää"
    assert head_and_tail(b"abc", 3) == "abc"
    assert head_and_tail("", 0) == ""


@pytest.mark.parametrize("limit", range(30))
@pytest.mark.parametrize("as_bytes", [False, True])
def test_the_cut_is_at_whole_characters_and_counted(limit: int, as_bytes: bool) -> None:
    """F07-03, F07-06: no character is split at any limit; kept and left out are together what there was."""
    text = "aä€\U0001f600" * 5
    result = head_and_tail(text.encode() if as_bytes else text, limit)
    head, marker, tail = result.split("\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    missing = int(marker.removeprefix("[... ").removesuffix(" bytes left out ...]"))
    assert missing == len(text.encode()) - len((head + tail).encode())
    assert limit - 6 <= len((head + tail).encode()) <= limit


def test_other_encodings_are_decoded_before_the_cut() -> None:
    """UTF-16 with its mark is text in the head and in the tail."""
    assert head_and_tail("abcdef".encode("utf-16"), 4) == "ab\n[... 2 bytes left out ...]\nef"


def test_invalid_bytes_at_the_cut_are_kept_as_replacements() -> None:
    """What is no cut character (latin-1, a binary dump) is not mistaken for one and swallowed."""
    assert join_head_and_tail(b"ab\xff", b"\xffcd", 7) == "ab\ufffd\n[... 7 bytes left out ...]\n\ufffdcd"


@pytest.mark.parametrize("unit", ["\x1b]", "\x1b[0;", "\ud800", "\0", "\x1b[" + "0" * 50, "\x1bP"])
def test_time_is_linear(unit: str) -> None:
    """F07-06: four times the hostile text takes about four times as long, not sixteen times."""
    assert any(_seconds(unit, 240_000) < 8 * _seconds(unit, 60_000) + 0.02 for _ in range(4))


def _seconds(unit: str, size: int) -> float:
    text = unit * (size // len(unit))
    start = time.process_time()
    strip_ansi(clean(text))
    head_and_tail(text, 1000)
    return time.process_time() - start


def test_cleaned_text_survives_json() -> None:
    """What was cleaned can be written as UTF-8 JSON."""
    assert json.loads(json.dumps(clean("a\0\ud800"), ensure_ascii=False).encode()) == "a\ufffd\ufffd"
