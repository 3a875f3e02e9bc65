"""`memory export`, `import`, `diary` and `stats`: files that are whole or not there, and errors that name their line."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain import portable, portable_merge
from opencognit.cli import memory_files
from opencognit.config import Home
from opencognit.errors import Refused, Unreachable
from tests.cli_kit import Cli
from tests.conftest import MakeHome

EXPERT = 'adapter = "bash"\nteam = "blue"\n[adapter_config]\ncommand = "true"'


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home(agents={"ceo": 'adapter = "ceo"', "scribe": EXPERT})


@pytest.fixture
def cli(home: Home) -> Cli:
    return Cli(home.root)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_exported_comes_in_again(cli: Cli, tmp_path: Path) -> None:
    """By file and by pipe the same lines; the file is for its owner alone, and importing it here says nothing new."""
    cli.ok("memory", "write", "Ada prefers Tee mit Süßstoff", "--entity", "person:Ada:subject")
    cli.ok("memory", "write", "Ada prefers coffee")
    cli.ok("memory", "relate", "2", "supersedes", "1")
    file = tmp_path / "out" / "memories.jsonl"
    file.parent.mkdir()
    assert cli.ok("memory", "export", str(file), "--json").json == {"file": str(file), "memories": 2}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert _files(file.parent) == ["memories.jsonl"]
    piped = cli.ok("memory", "export", "-")
    assert (piped.out, piped.err) == (file.read_text(), "2 memories written\n")
    first, second = map(json.loads, piped.out.splitlines())
    assert (first["content"], first["lifecycle"]) == ("Ada prefers Tee mit Süßstoff", "superseded")
    assert second["relations"][0]["target_id"] == first["id"]
    nothing = {"stored": 0, "known": 2, "relations": 0, "relations_left_out": 0, "unknown_keys": []}
    assert cli.ok("memory", "import", str(file), "--json").json == {"file": str(file), **nothing}
    assert (
        cli.ok("memory", "import", "-", stdin=file.read_bytes()).out
        == "0 memories imported, 2 known already; 0 relations drawn\n"
    )
    assert cli.ok("memory", "export", "-").out == piped.out


def test_an_export_is_json_where_the_terminal_is_narrow(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("memory", "write", "Süß \N{PILE OF POO}")
    monkeypatch.setattr("opencognit.cli.output._is_narrow", lambda: True)
    out = cli.ok("memory", "export", "-").out
    assert out.isascii()
    assert json.loads(out)["content"] == "Süß \N{PILE OF POO}"


def test_an_export_overwrites_nothing_unasked(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("precious")
    cli.refuses(4, "is there already: name another file, or overwrite it with --force", "memory", "export", str(file))
    assert file.read_text() == "precious"
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    cli.ok("memory", "write", "tea")
    assert cli.ok("memory", "export", str(link), "--force").out == f"1 memory written to {link}\n"
    assert link.is_symlink()
    assert json.loads(file.read_text())["content"] == "tea"
    cli.refuses(2, "is no file: name one, or - for standard output", "memory", "export", str(tmp_path), "--force")
    cli.refuses(2, "is not there: make it first", "memory", "export", str(tmp_path / "no" / "out.jsonl"))
    cli.refuses(2, "--json: has no place where standard output carries the memories", "memory", "export", "-", "--json")


@pytest.mark.parametrize("force", [True, False])
def test_an_export_that_breaks_off_leaves_no_file_and_spoils_none(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    cli.ok("memory", "write", "tea")
    cli.ok("memory", "write", "coffee")
    folder = tmp_path / "out"
    folder.mkdir()
    if force:
        (folder / "m.jsonl").write_text("precious")
    shape, told = portable._shape, []

    def breaks(row: object) -> dict[str, object]:
        told.append(row)
        if len(told) == 2:
            raise Unreachable("the server is gone")
        return shape(row)

    monkeypatch.setattr(portable, "_shape", breaks)
    cli.refuses(5, "the server is gone", "memory", "export", str(folder / "m.jsonl"), *["--force"] * force)
    assert _files(folder) == (["m.jsonl"] if force else [])
    assert not force or (folder / "m.jsonl").read_text() == "precious"


def test_a_file_that_comes_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"

    def write() -> None:
        with memory_files._written_whole(file, False) as stream:
            stream.write(b"new")
            file.write_text("precious")

    with pytest.raises(Refused, match="is there already"):
        write()
    assert file.read_text() == "precious"
    assert _files(tmp_path) == ["m.jsonl"]


def test_a_file_is_placed_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", none_here)
    file = tmp_path / "m.jsonl"
    with memory_files._written_whole(file, False) as stream:
        stream.write(b"new")
    assert (file.read_bytes(), _files(tmp_path)) == (b"new", ["m.jsonl"])


def test_an_import_takes_all_or_nothing_and_names_the_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"content": "good"}\n{"content": "bad", "confidence": 3}\n')
    told = f"{file} line 2: confidence: 3: input should be less than or equal to 1; nothing was imported"
    cli.refuses(2, told, "memory", "import", str(file))
    cli.refuses(2, "- line 1: is no JSON", "memory", "import", "-", stdin=b"hello\n")
    cli.refuses(2, "is a folder: name a file in it", "memory", "import", str(tmp_path))
    cli.refuses(1, "no such file", "memory", "import", str(tmp_path / "nowhere.jsonl"))
    assert cli.ok("memory", "stats", "--json").json["memories"] == 0


def test_what_was_left_out_is_said_beside_the_answer(cli: Cli) -> None:
    lines = (
        b'{"content": "one", "colour": 1}\n{"content": "two", "colour": 2, "\\u001b[31mred": 1}\n'
        b'{"content": "three", "relations": [{"relation": "supports", "target_id": "99"}]}\n'
    )
    said = cli.ok("memory", "import", "-", "--json", stdin=lines)
    assert said.json["unknown_keys"] == [
        {"key": "colour", "lines": 2, "first_line": 1},
        {"key": "\x1b[31mred", "lines": 1, "first_line": 2},
    ]
    assert said.json["relations_left_out"] == 1
    assert said.err.splitlines() == [
        'unknown key "colour" in 2 lines, first in line 1: left out',
        'unknown key "red" in line 2: left out',
        "1 relation to memories that are not in the file, first in line 3: left out",
    ]


def test_an_import_whose_server_goes_away_begins_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first line, also of what came through a pipe."""
    merge, tries = portable_merge.merge, []

    async def goes_away_once(session: AsyncSession) -> tuple[int, int]:
        tries.append(session)
        if len(tries) == 1:
            raise Unreachable("the server is gone")
        return await merge(session)

    monkeypatch.setattr(portable_merge, "merge", goes_away_once)
    assert cli.ok("memory", "import", "-", "--json", stdin=b'{"content": "tea"}\n').json["stored"] == 1
    assert len(tries) == 2


def test_an_import_reads_a_pipe_that_has_a_name(cli: Cli, tmp_path: Path) -> None:
    """`memory import <(zcat export.gz)`: what cannot be read twice is kept first."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_text, args=('{"content": "through a pipe"}\n',))
    writer.start()
    assert cli.ok("memory", "import", str(fifo)).out == "1 memory imported; 0 relations drawn\n"
    writer.join()


def test_stats_count_what_is_stored(cli: Cli) -> None:
    cli.ok("memory", "write", "tea", "--type", "rule", "--room", "kitchen")
    told = cli.ok("memory", "stats", "--json").json
    assert (told["memories"], told["scopes"], told["types"]) == (1, {"org": 1}, {"rule": 1})
    assert told["backlog"] == {"uncounted": 1, "unembedded": 1, "given_up": 0}
    shown = cli.ok("memory", "stats").out
    assert "memories:" in shown
    assert "1 kitchen" in shown
    assert "1 not counted, 1 without a vector" in shown


def test_a_diary_of_somebody_who_has_not_run(cli: Cli) -> None:
    assert cli.ok("memory", "diary", "scribe", "--json").json == {"items": []}
    said = cli.ok("memory", "diary", "scribe")
    assert (said.out, said.err) == ("", "scribe has not run yet\n")
    cli.refuses(3, "no agent 'scripe': did you mean 'scribe'?", "memory", "diary", "scripe")
    cli.refuses(2, "limit: is 0: give 1 to 200", "memory", "diary", "scribe", "--limit", "0")
