"""`memory`: what the company knows. The board sees all of it, and what it writes is verified."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import memory_files, memory_views, output, values
from opencognit.cli.common import Json, opens_company
from opencognit.errors import InvalidInput, NotFound
from opencognit.states import MemoryType, Relation, Scope, Trust

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from opencognit.contracts import Viewer
    from opencognit.daemon import Opened
    from opencognit.models import Memory
    from opencognit.shapes import Shape

app = typer.Typer(
    help="The company's memory: write, recall, show, relate, archive, restore, summarise; export, import; diary, stats."
)

ROOM_LIMIT = 100

Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's number.")]


@app.command()
@opens_company
async def write(
    company: Opened,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is to be remembered.")],
    type_: Annotated[MemoryType, typer.Option("--type", help="What kind of knowledge it is.")] = MemoryType.FACT,
    room: Annotated[str, typer.Option(metavar="R", help="Where it belongs.")] = "general",
    scope: Annotated[Scope, typer.Option(help="Who sees it; the board itself has neither team nor private memory.")] = Scope.ORG,
    entity: Annotated[
        list[str] | None, typer.Option(metavar="KIND:KEY[:ROLE]", help="What it is about; may be repeated.")
    ] = None,
    confidence: Annotated[float, typer.Option(metavar="X", help="How sure it is, 0 to 1.")] = 0.7,
    as_json: Json = False,
) -> None:
    """Store a memory. The same text again is the same memory, with more evidence."""
    from opencognit import brain
    from opencognit.contracts import BOARD, MemoryDraft

    await brain.learn(company.db)
    draft = MemoryDraft(
        content=text,
        type=type_,
        room=_room(room) or "general",
        scope=scope,
        confidence=values.fraction("--confidence", confidence),
        entities=tuple(values.entity("--entity", one) for one in entity or ()),
    )
    async with company.db.transaction() as session:
        stored = await brain.write(session, draft, viewer=BOARD, trust=Trust.VERIFIED)
        memory = await brain.get(session, stored.id, viewer=BOARD)
        [shape] = await _shaped(session, [memory])
    if as_json:
        output.json_document({**shape, "merged": stored.merged})
    elif stored.merged:
        output.write(f"memory {stored.id} knows that already: its evidence grew")
    else:
        output.write(f"memory {stored.id} stored in {output.line(memory.room)}")


@app.command()
@opens_company
async def recall(
    company: Opened,
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="A question or words; none: the newest.")] = None,
    entity: Annotated[str | None, typer.Option(metavar="KIND:KEY", help="Only what names this.")] = None,
    type_: Annotated[list[MemoryType] | None, typer.Option("--type", help="Only of this kind; may be repeated.")] = None,
    room: Annotated[str | None, typer.Option(metavar="R", help="Only of this room.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many, 1 to 200.")] = 10,
    as_agent: Annotated[str | None, typer.Option("--as", metavar="AGENT", help="See only what this agent sees.")] = None,
    as_json: Json = False,
) -> None:
    """Find memories, the best first."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    about = values.entity("--entity", entity) if entity is not None else None
    await brain.learn(company.db)
    embedder = await asyncio.to_thread(brain.embedder_of, company.home) if query is not None else None
    async with company.db.transaction() as session:
        viewer = await _viewer(session, as_agent) if as_agent is not None else BOARD
    hits = await brain.Brain(company.db, embedder).recall(
        query,
        entity=(about.kind, about.key) if about is not None else None,
        types=type_,
        room=_room(room),
        limit=limit,
        viewer=viewer,
    )
    async with company.db.transaction() as session:
        memories = await _shaped(session, [hit.memory for hit in hits])
    if as_json:
        found = zip(memories, hits, strict=True)
        shown = [
            {"memory": shape, "score": hit.score, "mode": hit.mode, "why": hit.why, "warning": hit.warning}
            for shape, hit in found
        ]
        output.json_document({"hits": shown, "incomplete": hits.incomplete})
        return
    if hits.incomplete:
        output.note(hits.incomplete)
    for hit in hits:
        if hit.warning is not None:
            output.note(f"memory {hit.memory.id} {hit.warning}")
    head = ("id", "score", "type", "room", "trust", "by", "content")
    rows = (
        (str(one.id), f"{hit.score:.2f}", one.type, one.room, one.trust, _by(one), one.content)
        for hit in hits
        for one in [hit.memory]
    )
    output.table(head, rows, empty="nothing found")


def _by(memory: Memory) -> str:
    return memory.source_agent or "board"


def _room(room: str | None) -> str | None:
    if room is not None and (not room.strip() or len(room) > ROOM_LIMIT):
        raise InvalidInput("--room", f"{room[:40]!r} is no room: give 1 to {ROOM_LIMIT} characters")
    return room


async def _viewer(session: AsyncSession, name: str) -> Viewer:
    from opencognit.contracts import Viewer
    from opencognit.work import roster

    agent = await roster.get(session, name)
    return Viewer(agent=agent.name, team=agent.spec.get("team"))


async def _shaped(session: AsyncSession, memories: Sequence[Memory]) -> list[Shape]:
    from opencognit import brain
    from opencognit.contracts import BOARD
    from opencognit.work import shapes

    entities = await brain.entities_of(session, [one.id for one in memories], viewer=BOARD)
    return [shapes.memory(one, entities[one.id]) for one in memories]


@app.command()
@opens_company
async def show(company: Opened, ident: Id, as_json: Json = False) -> None:
    """Show a memory with what it is about and what it is tied to."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    async with company.db.transaction() as session:
        memory = await brain.get(session, _row_id(ident), viewer=BOARD)
        edges = await brain.edges_of(session, memory.id, viewer=BOARD)
        [shape] = await _shaped(session, [memory])
    if as_json:
        told = [{"source_id": str(a), "relation": relation, "target_id": str(b)} for a, relation, b in edges]
        output.json_document({**shape, "evidence": memory.evidence, "relations": told})
        return
    source = shape["source"]
    origin = "".join(f", {name[:-3]} {source[name]}" for name in ("run_id", "task_id") if source[name] is not None)
    pairs = [
        ("content", memory.content),
        ("type", memory.type),
        ("room", memory.room),
        ("scope", memory.scope + (f" ({memory.owner})" if memory.owner else "")),
        ("trust", memory.trust),
        ("lifecycle", memory.lifecycle),
        ("confidence", f"{memory.confidence:g}, seen {memory.evidence} times"),
        ("context", memory.context),
        ("from", f"{_by(memory)}{origin}, {output.when(memory.created_at, company.home)}"),
        ("about", "\n".join(f"{one['kind']}:{one['key']} ({one['role']})" for one in shape["entities"])),
        ("relations", "\n".join(f"{a} {relation} {b}" for a, relation, b in edges)),
    ]
    output.fields(f"memory {memory.id}", pairs)


@app.command()
@opens_company
async def relate(
    company: Opened,
    ident: Id,
    relation: Annotated[Relation, typer.Argument(metavar="RELATION", help=f"One of {', '.join(Relation)}.")],
    target: Annotated[str, typer.Argument(metavar="ID", help="The other memory.")],
) -> None:
    """Tie two memories: the first supersedes, supports, ... the second."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    source_id, target_id = _row_id(ident), _row_id(target)
    async with company.db.transaction() as session:
        note = await brain.relate(session, source_id, relation, target_id, viewer=BOARD)
    output.write(f"memory {source_id} {relation} memory {target_id}" + (f" ({note})" if note else ""))


@app.command()
@opens_company
async def archive(company: Opened, ident: Id) -> None:
    """Put a memory away: it is kept, and no longer recalled."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    async with company.db.transaction() as session:
        memory = await brain.archive(session, _row_id(ident), viewer=BOARD)
    output.write(f"memory {memory.id} is {memory.lifecycle}")


@app.command()
@opens_company
async def restore(company: Opened, ident: Id) -> None:
    """Take back that a memory was archived, or that a newer one took its place."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    async with company.db.transaction() as session:
        memory = await brain.restore(session, _row_id(ident), viewer=BOARD)
    output.write(f"memory {memory.id} is {memory.lifecycle}")


@app.command()
@opens_company
async def summarise(
    company: Opened, room: Annotated[str, typer.Argument(metavar="ROOM", help="Whose memories.")], as_json: Json = False
) -> None:
    """Sum up a room in one memory: the newest of each thing that it names. It takes the former summary's place."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    async with company.db.transaction() as session:
        summary = await brain.summarise(session, _room(room) or "general", viewer=BOARD, trust=Trust.VERIFIED)
        memory = await brain.get(session, summary.id, viewer=BOARD)
        [shape] = await _shaped(session, [memory])
    if as_json:
        sources, replaced = (list(map(str, idents)) for idents in (summary.sources, summary.replaced))
        output.json_document({**shape, "sources": sources, "replaced": replaced, "made": summary.made})
        return
    output.write(output.block(memory.content))
    said = "was made" if summary.made else "says that already"
    instead = f", in place of {', '.join(map(str, summary.replaced))}" if summary.replaced else ""
    output.note(f"memory {summary.id} {said}, from {len(summary.sources)} memories{instead}")


def _row_id(text: str) -> int:
    from opencognit.work import tasks

    try:
        return tasks.parse_id("memory", text)
    except NotFound as error:
        raise NotFound("memory", error.ident, "ids are numbers: `opencognit memory recall` shows them") from None


app.command()(memory_views.diary)
app.command()(memory_views.stats)
app.command()(memory_files.export)
app.command("import")(memory_files.import_)
