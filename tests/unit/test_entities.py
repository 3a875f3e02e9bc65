"""What a text is about is found without a model, in German and English; what is not there is never found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opencognit.brain import patterns
from opencognit.brain.addresses import coin_address
from opencognit.brain.entities import LIMIT, READ_LIMIT, Known, canonical, extract
from opencognit.brain.fingerprints import fingerprint
from opencognit.contracts import TEXT_LIMIT, EntityRef
from opencognit.errors import ConfigError
from opencognit.states import EntityRole

SET = patterns.default()
KINDS = {
    "amount", "coin_address", "date", "email", "error", "file", "ip", "ticker", "ticket", "url", "user", "uuid", "version",
}  # fmt: skip


def found(text: str, known: Known | None = None) -> list[tuple[str, str]]:
    refs = extract(text) if known is None else extract(text, known)
    assert all(one.role is EntityRole.MENTIONED for one in refs)
    return [(one.kind, one.key) for one in refs]


# --- the pattern set ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", SET.patterns, ids=lambda each: f"{each.kind or 'guard'}: {each.regexes[0].pattern[:30]!r}")
def test_the_pattern_set_does_what_its_examples_say(pattern: patterns.Pattern) -> None:
    """With all other patterns beside it: each example gives its key, no counter-example gives the kind at all."""
    for text, key in pattern.examples:
        assert (pattern.kind, key) in found(text), text
    for text in pattern.counter_examples:
        assert [name for name in found(text) if name[0] == pattern.kind] == [], text


def test_every_kind_has_examples_of_both_sorts() -> None:
    assert {each.kind for each in SET.patterns if each.kind} == KINDS
    assert all(each.examples and each.counter_examples for each in SET.patterns if each.kind)


GOOD = """
[words.colour]
red = "1"
[fragments]
digit = '[0-9]'
[[pattern]]
kind = "ticket"
canonical = "ticket"
regex = ['(?P<word>X)-(?&digit)']
"""


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("regex =", "regexes ="), 9, "unknown key 'regexes'.*did you mean 'regex'"),
        (("[words.colour]", "[word.colour]"), 2, "unknown key 'word'.*did you mean 'words'"),
        (("(?&digit)", "(?&digits)"), 9, "names the fragment 'digits'.*did you mean 'digit'"),
        (("(?P<word>X)", "(?P<word>X"), 9, "is not valid: missing \\)"),
        (("(?P<word>X)-(?&digit)", "(?&digit)*"), 9, "matches the empty text"),
        (("'[0-9]'", "'(?&digit)'"), 9, "fragments that use each other"),
        (('canonical = "ticket"', 'canonical = "tickt"'), 8, "no canonicaliser 'tickt'.*did you mean 'ticket'"),
        (('canonical = "ticket"', ""), 6, "kind and canonical go together"),
        (('kind = "ticket"', 'kind = "Ticket"'), 7, "is stored as 'ticket'"),
        (("(?P<word>X)", "X"), 10, "needs a group"),
        (("regex = ['(?P<word>X)-(?&digit)']", "regex = []"), 9, "expected a list of at least 1"),
        (('canonical = "ticket"', 'canonical = "ticket"\nclaims = "some"'), 9, "'some' is not a choice"),
        (('canonical = "ticket"', 'canonical = "ticket"\nexamples = [["X-1"]]'), 9, "a text and its key"),
        (("[[pattern]]", "[pattern]"), 6, "pattern: expected a list, found a table"),
        (("red = ", "red "), 3, "not valid TOML"),
    ],
)  # fmt: skip
def test_a_wrong_pattern_set_is_refused_with_its_line(change: tuple[str, str], line: int, message: str) -> None:
    """Nothing is dropped in silence: a typo in the data is found when it is read."""
    text = GOOD + 'refused = ["Y"]\n'
    assert change[0] in text
    patterns.parse(text, Path("set.toml"))
    with pytest.raises(ConfigError, match=message) as caught:
        patterns.parse(text.replace(*change), Path("set.toml"))
    assert (caught.value.line, str(caught.value.path)) == (line, "set.toml")


def test_a_kind_has_one_canonicaliser() -> None:
    other = GOOD + "[[pattern]]\nkind = 'ticket'\ncanonical = 'user'\nregex = ['y']\n"
    with pytest.raises(ConfigError, match="canonicaliser 'ticket' above"):
        patterns.parse(other, Path("set.toml"))


# --- one spelling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key", "spellings"),
    [
        ("email", "ann@example.com", ("Ann@Example.COM", "mailto:ann@example.com", "ＡＮＮ@example.com")),
        ("url", "https://a.example/X", ("HTTPS://A.example:443/X/", "https://a.example/X#y", "https://a.example/X/?utm_a=1&gclid=2")),
        ("url", "http://a.example:443/x?q=1", ("http://u:p@A.EXAMPLE.:443/x?q=1", "http://a.example:443/x/?q=1&token=geheim")),
        ("user", "ann", ("@Ann", "ann", " ANN ")),
        ("file", "src/main.py", ("./src/main.py", "src//x/../main.py:12", "src\\main.py", "src/main.py:3:4")),
        ("file", "C:/A/b.txt", ("c:\\A\\b.txt", "C:/A//b.txt")),
        ("version", "1.2.3-rc.1", ("v1.2.3-rc.1", "V1.2.3-RC.1", "version 1.2.3-rc.1")),
        ("date", "2026-03-03", ("3. März 2026", "3. Ma\u0308rz 2026", "03.03.26", "2026/03/03", "2026-03-03T10:00Z")),
        ("date", "2026-03-03", ("MARCH 3RD, 2026", "3 mar 2026", "3rd of March 2026", "3. Mrz. 2026")),
        ("date", "1999-12-31", ("31.12.99", "31. Dezember 1999", "Dec 31, 1999", "31/12/1999", "12/31/1999")),
        ("amount", "1234.5 EUR", ("1.234,50 €", "€1,234.50", "EUR 1234,5", "1 234,50 Euro", "1'234.50 EUR")),
        ("amount", "20000 USD", ("$20k", "20k USD", "US$ 20,000.00", "20 Tsd. Dollar")),
        ("amount", "1.2340 BTC", ("1.2340 BTC", "₿1,2340")),
        ("ticket", "ABC-12", ("abc-12", "ABC-12")),
        ("ticket", "#12", ("GH-12", "#12", "gh-012")),
        ("ticker", "MSFT", ("$msft", "NASDAQ:MSFT", "nyse: msft")),
        ("ip", "2001:db8::1", ("2001:0DB8:0:0::1", "2001:db8::1")),
        ("uuid", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", ("3F2504E0-4F89-41D3-9A0C-0305E82C3301",)),
        ("coin_address", "0x" + "ab" * 20, ("0x" + "aB" * 20, "0X" + "AB" * 20)),
        ("error", "KeyError: <str>", ("KeyError: 'a'", "builtins.KeyError: 'b'", "KeyError: \"c\".")),
        ("error", "TimeoutError", ("asyncio.TimeoutError", "asyncio.TimeoutError.", "TimeoutError:")),
        ("service", "tel", ("℡", "Tel", "ＴＥＬ")),
        ("service", "billing api", ("Billing  API", "BILLING\u00a0API", " billing\tapi ")),
    ],
)  # fmt: skip
def test_spellings_of_one_thing_are_one_entity(kind: str, key: str, spellings: tuple[str, ...]) -> None:
    for spelling in (key, *spellings):
        assert canonical(kind.upper(), spelling) == (kind, key)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("url", "https://a.example/x", "https://a.example/X"),
        ("url", "https://a.example/x", "http://a.example/x"),
        ("file", "README.md", "docs/README.md"),
        ("amount", "12 EUR", "12 USD"),
        ("error", "KeyError: 'a'", "ValueError: 'a'"),
        ("error", "ValueError: no user", "ValueError: no goal"),
        ("ticker", "LSE:BP", "NYSE:BP"),
    ],
)
def test_different_things_stay_different(kind: str, one: str, other: str) -> None:
    assert canonical(kind, one) != canonical(kind, other)


@pytest.mark.parametrize(
    ("kind", "key", "stored"),
    [
        ("date", "Ostern 2026", "ostern 2026"),
        ("url", "http://[x", "http://[x"),
        ("amount", "Viel", "viel"),
        ("coin_address", "So1anaKeepsItsCase", "So1anaKeepsItsCase"),
        ("file", ".", "."),
        ("version", "10.000.000", "10.000.000"),
        ("user", "@", "@"),
    ],
)
def test_a_key_that_is_not_what_its_kind_says_is_kept(kind: str, key: str, stored: str) -> None:
    """Whoever names an entity on purpose is believed."""
    assert canonical(kind, key) == (kind, stored)


def test_coin_addresses_are_checked_by_their_sum() -> None:
    """The vectors of BIP 173 and BIP 350, sums that are right over a wrong length or padding, and one changed character."""
    valid = (
        "BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4",
        "bc1pw508d6qejxtdg4y5r3zarvary0c5xw7kw508d6qejxtdg4y5r3zarvary0c5xw7kt5nd6y",
        "BC1SW50QGDZ25J",
        "bc1zw508d6qejxtdg4y5r3zarvaryvaxxpcs",
        "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
        "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
        "1111111111111111111114oLvT2",
    )
    assert all(coin_address(one) for one in valid)
    invalid = (
        "bc1p38j9r5y49hruaue7wxjce0updqjuyyx0kh56v8s25huc6995vvpql3jow4",
        "bc1q0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqh2y7hd",
        "BC1QR508D6QEJXTDG4Y5R3ZARVARYV98GJ9P",
        "bc1zw508d6qejxtdg4y5r3zarvaryvqyzf3du",
        "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7v07qwwzcrf",
        "bc1qppppppppppppppppppppppppppppppppppppppppppppppppppp3ppw3nn",
        "bc1ppppppppppju4czg",
        "bc1Qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
        "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb",
        "11111111111111111111114oLvT2",
    )
    assert [one for one in invalid if coin_address(one)] == []


def test_no_secret_of_an_address_becomes_a_key() -> None:
    """A key is shown, indexed and compared wherever entities are."""
    (name,) = found("postgresql://app:hunter2@db.intern/x?password=hunter2&sslmode=require&X-Amz-Signature=hunter2")
    assert name == ("url", "postgresql://db.intern/x?sslmode=require")


# --- errors ---------------------------------------------------------------------------------------------------------------

SAME_ERRORS = {
    "ValueError: run <n> not found for <str> in <path>": (
        "ValueError: run 17 not found for 'ann' in /srv/a/b.py:3",
        "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n    g()\n"
        "ValueError: run 90123 not found for 'bob' in /opt/c/d.py:77\n",
        "2026-03-03 10:00:00,123 ERROR worker-3 app.runner.ValueError: run 4 not found"
        ' for "ann" in C:\\srv\\x.py. Danach war Ruhe.',
        "\x1b[1;31mValueError\x1b[0m: run 5 not found for 'x' in ~/data/runs",
    ),
    "IllegalStateException: lock <id> held since <time> by node-<n> at <n>": (
        'Exception in thread "main" java.lang.IllegalStateException: lock 3f2504e0-4f89-41d3-9a0c-0305e82c3301'
        " held since 2026-03-03T10:00:00Z by node-1 at 0x7ffe\n\tat a.B.c(B.java:1)",
        "Caused by: de.firma.IllegalStateException: lock 00000000-4f89-41d3-9a0c-0305e82c3301"
        " held since 2025-01-01 23:59:59 by node-22 at 0x1\n",
    ),
    "TypeError: fetch <url> failed for <email>": (
        "Uncaught TypeError: fetch https://a.example/x?y=1 failed for ann@example.com\n    at run (a.js:1:2)",
        "(TypeError: fetch http://b.example failed for bob@example.org)",
    ),
    "panic: runtime error: index out of range [<n>] with length <n>": (
        "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\nmain.main()",
        "worker: panic: runtime error: index out of range [0] with length 0",
    ),
    "panic: called `Option::unwrap()` on a `None` value": (
        "thread 'main' panicked at src/main.rs:4:5:\ncalled `Option::unwrap()` on a `None` value\nnote: run with x",
        "thread 'tokio-1' (812) panicked at src/lib.rs:40:15:\ncalled `Option::unwrap()` on a `None` value",
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", SAME_ERRORS)
def test_one_error_has_one_key_whatever_its_run_line_or_value(key: str) -> None:
    """From tracebacks of Python, Java, JavaScript, Go and Rust and from log lines."""
    for text in SAME_ERRORS[key]:
        assert [name for name in found(text) if name[0] == "error"] == [("error", key)], text


def test_each_error_of_a_chain_is_found() -> None:
    chain = (
        "Traceback (most recent call last):\nKeyError: 'x'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\napp.errors.RoomMissing: no room 'x'\n"
    )
    assert found(chain) == [("error", "KeyError: <str>"), ("error", "RoomMissing: no room <str>")]


def test_code_that_names_an_error_has_no_message_of_it() -> None:
    code = "try:\n    x()\nexcept ValueError: pass\nexcept (OSError, KeyError) as error:\n    raise MyError(error)\n"
    assert found(code) == [("error", "ValueError"), ("error", "OSError"), ("error", "KeyError")]


def test_a_long_message_keeps_its_beginning_and_whole_words() -> None:
    for gap in range(8):
        ((_, key),) = found("ValueError: " + "x" * gap + " wort 17" * 200)
        assert 300 < len(key) < 512
        assert set(key.split()) <= {"ValueError:", "x" * gap, "wort", "<n>"}


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ("a-5'x'", "a-<n>'x'"),
        ("<n>'x' <n>5", "<n>'x' <n>5"),
        ("user_5 in v2 of x86 at 1.5,7", "user_<n> in v2 of x86 at <n>"),
        ("can't open 'x', isn't \"y\"", "can't open <str>, isn't <str>"),
        ("rows 1, 2, 3 of [4]", "rows <n> of [<n>]"),
    ],
)
def test_a_placeholder_is_a_part_of_a_word_like_what_it_stands_for(message: str, key: str) -> None:
    """So that reading it again changes nothing, and apostrophes and names with digits stay."""
    assert fingerprint(f"E: {message}") == f"E: {key}"
    assert fingerprint(f"E: {key}") == f"E: {key}"


# --- whole texts ----------------------------------------------------------------------------------------------------------

TEXTS = {
    "Ann (ann.meier@firma.de) hat am 3. März 2026 OPS-42 geschlossen; der Export in config/export.toml kostet 1.234,56 €.": [
        ("email", "ann.meier@firma.de"),
        ("date", "2026-03-03"),
        ("ticket", "OPS-42"),
        ("file", "config/export.toml"),
        ("amount", "1234.56 EUR"),
    ],
    "We moved from v1.2.3 to Python 3.12 on March 3, 2026 (acme/billing#99, https://Docs.example.com/up/?utm_source=x#a).": [
        ("version", "1.2.3"),
        ("version", "3.12"),
        ("date", "2026-03-03"),
        ("ticket", "acme/billing#99"),
        ("url", "https://docs.example.com/up"),
    ],
    "@jürgen: NASDAQ:MSFT und $AAPL fielen um 2,5 %; 0,5 BTC gingen an 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa.": [
        ("user", "jürgen"),
        ("ticker", "MSFT"),
        ("ticker", "AAPL"),
        ("amount", "0.5 BTC"),
        ("coin_address", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"),
    ],
    "The proxy at 10.0.0.1:8080 dropped run 3f2504e0-4f89-41d3-9a0c-0305e82c3301 with ConnectionResetError: [Errno 104] reset.": [
        ("ip", "10.0.0.1"),
        ("uuid", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"),
        ("error", "ConnectionResetError: [Errno <n>] reset"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_memory_gives_its_entities_in_their_order(text: str) -> None:
    assert found(text) == TEXTS[text]


@pytest.mark.parametrize(
    "text",
    [
        "Der Umsatz stieg um 2,5 Prozent, und/oder 24/7 mit UTF-8, SHA-256, ISO-8601 und COVID-19.",
        "Siehe Kapitel 1.2.3 und § 4.5.6 (ca. 10.000.000 Zeilen).",
        "At 12:30:45 the #1 reason was TCP/IP: 3.14 of 10 requests (v2) met /healthz, i.e. 1/2 of all; GPT-4 and Node.js agreed.",
        "Wir haben am Montag entschieden, den Bericht kurz zu halten; alle z.B. lesen nur den Anfang. Punkt 3. 4. fehlt.",
        "Keep the summary short because readers skip the long one, e.g. on phones. Error handling is fine, no exceptions.",
        "x = a@b; $1, $2 and $PATH; const y = arr[0].map(z => z.json)",
        "",
        " \n\t ",
    ],
)
def test_ordinary_text_gives_nothing(text: str) -> None:
    """A wrong entity ties together what has nothing in common."""
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("https://x.example/a/b.py?mail=ann@example.com&d=2026-03-03#v1.2.3", [("url", "https://x.example/a/b.py?mail=ann@example.com&d=2026-03-03")]),
        ("ann@example.com", [("email", "ann@example.com")]),
        ("logs/2026-03-03/v1.2.3/app.log", [("file", "logs/2026-03-03/v1.2.3/app.log")]),
        ("Version 1.2.3.4 von 192.168.1.4", [("version", "1.2.3.4"), ("ip", "192.168.1.4")]),
        ("am 3. Ma\u0308rz 2026", [("date", "2026-03-03")]),
        ("am 03.03.2026 für 3.032,02 €", [("date", "2026-03-03"), ("amount", "3032.02 EUR")]),
        ("react@18.2.0 von @ann", [("version", "18.2.0"), ("user", "ann")]),
        ("feature/ABC-1-x und GH-12", [("ticket", "ABC-1"), ("ticket", "#12")]),
    ],
)  # fmt: skip
def test_what_is_a_part_of_something_else_is_not_found_beside_it(text: str, names: list[tuple[str, str]]) -> None:
    """One piece of text has one reading."""
    assert found(text) == names


def test_each_entity_counts_once_at_its_first_mention() -> None:
    assert found("#12, OPS-1, GH-12, fixes #12, ops-1") == [("ticket", "#12"), ("ticket", "OPS-1")]


def test_the_first_ones_count_where_there_are_too_many() -> None:
    """However they are mixed, and the same ones every time."""
    text = " ".join(f"OPS-{n} v1.{n}.0 https://a.example/{n}" for n in range(1, 200))
    names = found(text)
    assert len(names) == LIMIT
    assert names[:4] == [("ticket", "OPS-1"), ("version", "1.1.0"), ("url", "https://a.example/1"), ("ticket", "OPS-2")]
    assert names == found(text)
    assert names[-1] == ("version", f"1.{LIMIT // 3 + 1}.0")


def test_what_the_end_of_reading_cuts_is_no_entity() -> None:
    """Half an address is another address."""
    url = "https://a.example/first"
    assert found("x" * (READ_LIMIT - 10) + " " + url) == []
    assert found("x" * (READ_LIMIT - 1 - len(url)) + " " + url) == [("url", url)]
    assert found("x " * (READ_LIMIT // 2) + url) == []


@pytest.mark.parametrize("noise", ["\0", "\ud800", "\ufdfa", "\x1b[31m", "\u202e", "A\u0308"])
def test_odd_characters_hide_nothing_and_break_nothing(noise: str) -> None:
    assert ("ticket", "OPS-42") in found(f"{noise} OPS-42 {noise} kostet {noise}")


# --- known names ----------------------------------------------------------------------------------------------------------

KNOWN = Known(
    {
        "Billing API": ("service", "billing api"),
        "billing": ("team", "billing"),
        "Köhler-Süßmann": ("person", "köhler-süssmann"),
        "Mu\u0308ller": ("person", "müller"),
        "ann": ("agent", "ann"),
        "qa": ("agent", "qa"),
        "C++": ("thing", "c++"),
        "das": ("thing", "das"),
        "2026": ("year", "2026"),
        "Nova": ("project", "nova"),
        "NOVA": ("ship", "nova"),
    }
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Die Billing-API und die BILLING api", [("service", "billing api")]),
        ("billing zahlt", [("team", "billing")]),
        ("Frau KOEHLER SUESSMANN", [("person", "köhler-süssmann")]),
        ("Ko\u0308hler-Su\u0308ssmann", [("person", "köhler-süssmann")]),
        ("Müller und Mueller", [("person", "müller")]),
        ("Billing\nAPI", [("service", "billing api")]),
        ("get_billing_api() und billing_api", [("service", "billing api")]),
        ("We do billing. API calls are others", [("team", "billing")]),
        ("Billing\n\nAPI", [("team", "billing")]),
        ("billing, API", [("team", "billing")]),
        ("billings, rebilling, billing_job, my_billing, self.billing, billing.py2", []),
        ("https://a.example/x?team=billing&q=ann", [("url", "https://a.example/x?team=billing&q=ann")]),
        ("ann@billing.example", [("email", "ann@billing.example")]),
        ("docs/billing/ann.md", [("file", "docs/billing/ann.md")]),
        ("@ann und @bob", [("agent", "ann"), ("user", "bob")]),
        ("qa ist kurz, @qa nicht", [("agent", "qa")]),
        ("das C++ von 2026", []),
        ("Nova und @nova", [("user", "nova")]),
        ("Ann's Plan", [("agent", "ann")]),
        ("planner, Hannah", []),
    ],
)  # fmt: skip
def test_known_names_are_found_word_for_word(text: str, names: list[tuple[str, str]]) -> None:
    """The longest at its place, in any case and umlaut spelling; short, common and ambiguous names only where they are meant."""
    assert found(text, KNOWN) == names


def test_known_names_come_out_as_they_are_stored() -> None:
    """Whatever the caller brings: one form, and nothing that could not be stored."""
    odd = Known({"erstes Ding": ("Thing", " Erstes  DING "), "zweites Ding": ("x" * 65, "y"), "drittes Ding": ("k", " ")})
    assert found("Erstes Ding, zweites Ding, drittes Ding", odd) == [("thing", "erstes ding")]


# --- time -----------------------------------------------------------------------------------------------------------------

HOSTILE = (
    "a", "a.", "a@", "a@b.", "a@b.de", "1", "1.", "1,", "1.1.1 ", "10.0.0.1 ", "http://", "http://(", "http://a(", "/", "a/",
    "../", "a/a.", "a.py", "/etc/", "c:\\", "$", "$A", "`$", "```", "A-", "ABC-1 ", "#1", "a/b#", "'", '"', "Error: ", "a.b.",
    "aError", "XError: '", '"XError: "', "(XError: (", "AaError", "thread 'x' panicked at 'a', ", "panic: a\n", "1k€", "€1",
    "1 EUR ", "1. März ", "März 1", "Version 1.", "v1.", "ssh -a ", "x@y:", "::", "2000:", "1-", "12345678-1234-", "bc1q", "3A",
    "0x", "@a\n", "a=", "color: #", "Kapitel 1.", "\n", " ", "\t\n", "_", "-", "ä", "A\u0308", "\ufdfa", "\ud800", "\x1b[",
    "billing ", "known a b ",
)  # fmt: skip
NAMES = Known({"billing " * 11: ("x", "1"), "known a b c d": ("x", "2"), **{f"billing {n}": ("x", str(n)) for n in range(500)}})
FACTOR = 8
MOST = 3 * FACTOR
"""Linear is FACTOR and some noise; quadratic is FACTOR squared."""


def growth(run: Callable[[str], object], unit: str, size: int = 4000) -> float:
    """Return how many times longer a text FACTOR times as long takes, the best of a few tries."""
    best = float("inf")
    small, large = (unit * size)[:size], (unit * size * FACTOR)[: size * FACTOR]
    for _ in range(4):
        started = time.process_time()
        for _ in range(3):
            run(small)
        once = time.process_time()
        run(large)
        best = min(best, (time.process_time() - once) / max((once - started) / 3, 1e-5))
        if best < MOST:
            break
    return best


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    """Whatever it repeats: no pattern reads the same characters again and again."""
    assert growth(lambda text: extract(text, NAMES), unit) < MOST


def test_the_measure_of_growth_sees_a_quadratic_pattern() -> None:
    text = "[[pattern]]\nkind = 'email'\ncanonical = 'email'\nregex = ['[a-z]+@[a-z]+']\n"
    slow = patterns.parse(text, Path("slow.toml"))
    assert growth(lambda text: extract(text, patterns=slow), "a", 500) > MOST


def test_of_a_megabyte_as_much_is_read_as_of_what_the_index_reads() -> None:
    """A hostile memory of the largest size costs no more than its beginning."""
    text = "10.0.0.1 OPS-1 a.b/c.py " * (TEXT_LIMIT // 24)
    begun = time.process_time()
    extract(text[:READ_LIMIT])
    middle = time.process_time()
    assert extract(text) == tuple(
        EntityRef(kind=kind, key=key) for kind, key in (("ip", "10.0.0.1"), ("ticket", "OPS-1"), ("file", "a.b/c.py"))
    )
    assert time.process_time() - middle < 3 * (middle - begun)
