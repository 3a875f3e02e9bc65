"""`memory export` and `memory import`: all that the company knows as a file, and back. Owns the file, not what a line says."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from shutil import copyfileobj
from typing import IO, TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import Json, opens_company
from opencognit.errors import InvalidInput, Refused

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from opencognit.brain import Imported
    from opencognit.daemon import Opened

STREAM = "-"


@opens_company
async def export(
    company: Opened,
    file: Annotated[
        str, typer.Argument(metavar="F", help="The file to write, readable by its owner alone; - is standard output.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")] = False,
    as_json: Json = False,
) -> None:
    """Write all memories as JSON Lines, retired ones too. The file is there when it is whole, or not at all."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    if file == STREAM and as_json:
        raise InvalidInput("--json", "has no place where standard output carries the memories: name a file, or leave it out")
    count = 0
    if file == STREAM:
        async with company.db.transaction() as session, aclosing(brain.export(session, viewer=BOARD)) as lines:
            async for line in lines:
                output.json_text(line)
                count += 1
        output.note(f"{_memories(count)} written")
        return
    with _written_whole(Path(file), force) as stream:
        async with company.db.transaction() as session, aclosing(brain.export(session, viewer=BOARD)) as lines:
            async for line in lines:
                stream.write(line.encode() + b"\n")
                count += 1
    if as_json:
        output.json_document({"file": file, "memories": count})
    else:
        output.write(f"{_memories(count)} written to {output.line(file)}")


@contextmanager
def _written_whole(path: Path, force: bool) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` once the block has ended well; mode 0600, since it holds private memories.

    Raises Refused where there is one already, also where it came meanwhile.
    """
    there = f"{str(path)!r} is there already: name another file, or overwrite it with --force"
    if path.exists() and not path.is_file():
        raise InvalidInput("F", f"{str(path)!r} is no file: name one, or - for standard output")
    if path.exists() and not force:
        raise Refused(there)
    path = path.resolve()  # a link stays one: what it names is written
    if not path.parent.is_dir():
        raise InvalidInput("F", f"the folder {str(path.parent)!r} is not there: make it first")
    descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
        if force:
            Path(scratch).replace(path)
        else:
            _place_new(Path(scratch), path)
    except FileExistsError as error:
        raise Refused(there) from error
    finally:
        Path(scratch).unlink(missing_ok=True)


def _place_new(scratch: Path, path: Path) -> None:
    """Give the file its name; raises FileExistsError where something has it."""
    try:
        os.link(scratch, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(path) from None
        scratch.replace(path)


@opens_company
async def import_(
    company: Opened,
    file: Annotated[str, typer.Argument(metavar="F", help="The file to read, JSON Lines; - is standard input.")],
    as_json: Json = False,
) -> None:
    """Take in memories from JSON Lines: all of them, or none where a line is wrong. What is known already merges."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    with _read_again(file) as source:

        async def read(session: AsyncSession) -> Imported:
            source.seek(0)
            return await brain.import_(session, source, viewer=BOARD)

        try:
            imported = await company.db.retrying(read)
        except InvalidInput as error:
            raise InvalidInput(f"{file} {error.field}", f"{error.problem}; nothing was imported") from error
    if as_json:
        output.json_document({"file": file, **imported.shape()})
    else:
        _tell(imported)
    for key, unknown in imported.unknown.items():
        where = f"{unknown.lines} lines, first in line" if unknown.lines > 1 else "line"
        output.note(f"unknown key {json.dumps(output.line(key), ensure_ascii=False)} in {where} {unknown.first}: left out")
    if imported.more_unknown:
        output.note(f"other unknown keys in {_many(imported.more_unknown, 'line')}: left out")
    if imported.loose:
        told = f"{_many(imported.loose, 'relation')} to memories that are not in the file, first in line {imported.loose_line}"
        output.note(f"{told}: left out")


def _tell(imported: Imported) -> None:
    known = f", {imported.known} known already" if imported.known else ""
    output.write(f"{_memories(imported.stored)} imported{known}; {_many(imported.edges, 'relation')} drawn")


def _memories(count: int) -> str:
    return f"{count} memory" if count == 1 else f"{count} memories"


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


@contextmanager
def _read_again(name: str) -> Iterator[IO[bytes]]:
    """Yield the file; what comes through a pipe is put into one first, since no transaction shall wait for who fills it."""
    with tempfile.TemporaryFile() as kept:
        if name == STREAM:
            if sys.stdin is None:
                raise InvalidInput("standard input", "is closed: send the memories into it, or name a file")
            copyfileobj(sys.stdin.buffer, kept)
        else:
            if Path(name).is_dir():
                raise InvalidInput("F", f"{name!r} is a folder: name a file in it")
            with Path(name).open("rb") as stream:
                if stream.seekable():
                    yield stream
                    return
                copyfileobj(stream, kept)
        kept.seek(0)
        yield kept
