"""`python -m benchmarks.recall --data DIR`: how well the brain finds, by the measure that DIR's README defines.

Everything goes through the brain's public functions on real PostgreSQL. The fusions that the brain does not use (the greater
score, reciprocal ranks) are made here, of what its two legs return.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import rig
from benchmarks.figures import Figure, line
from opencognit import brain
from opencognit.brain import Brain, Indexer
from opencognit.config.sections import Brain as Settings
from opencognit.contracts import BOARD, MemoryDraft
from opencognit.db import Database, application_role
from opencognit.states import Trust

LEGS = 200
RRF_K = 60  # Cormack 2009
MODES = ("text", "vector", "greater score", "RRF", "hybrid")
ADVERSARIAL = 5

Scores = dict[int, float]
Ranked = dict[str, list[int]]


@dataclass(slots=True)
class Means:
    """Means of named figures."""

    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def add(self, values: Mapping[str, float]) -> None:
        self.count += 1
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def get(self, name: str) -> float:
        return self.sums[name] / max(self.count, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with locomo-dev.json and xquad-en-de-dev.json")
    parser.add_argument("--embedder", default="onnx", help="[brain] embedder (onnx)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as models, rig.server() as server:
        embedder = brain.open_embedder(Settings(embedder=options.embedder), Path(models))
        for figure in _figures(server, embedder, options.data):
            print(line(figure), flush=True)


def _figures(server: str, embedder: Any, data: Path) -> Iterator[Figure]:
    means: dict[str, Means] = {mode: Means() for mode in MODES}
    for conversation in json.loads((data / "locomo-dev.json").read_text()):
        with rig.database(server) as url:
            asyncio.run(_conversation(url, embedder, conversation, means))
    yield from _dialogues(means)
    xquad = json.loads((data / "xquad-en-de-dev.json").read_text())
    for passages in ("en", "de"):
        with rig.database(server) as url:
            yield from asyncio.run(_passages(url, embedder, xquad, passages))


def _dialogues(means: Mapping[str, Means]) -> Iterator[Figure]:
    others = {name: max(one.get(name) for mode, one in means.items() if mode != "hybrid") for name in ("recall@10",)}
    for mode in MODES:
        values = {name: means[mode].get(name) for name in ("recall@5", "recall@10", "any@5")}
        text = " ".join(f"{value:.3f}" for value in values.values())
        what = f"dialogues, {mode}: recall@5, recall@10, session any@5"
        if mode != "hybrid":
            yield Figure(what, text)
            continue
        met = values["recall@10"] >= max(0.72, others["recall@10"]) and values["any@5"] >= 0.94
        yield Figure(what, text, ".72 .94", met)


async def _filled(url: str, embedder: Any, memories: Iterable[MemoryDraft]) -> tuple[Database, Brain, list[int]]:
    """Return an open brain with these memories, counted and embedded, and their ids in order."""
    db = Database(url, role=application_role(url))
    async with db.transaction() as session:
        ids = [(await brain.write(session, draft, viewer=BOARD, trust=Trust.OBSERVED)).id for draft in memories]
    indexer = Indexer(db, embedder)
    await indexer.adopt()
    await indexer.catch_up()
    return db, Brain(db, embedder), ids


async def _ranked(knowing: Brain, question: str, limit: int) -> Ranked:
    vector = await knowing.encode(question)
    hybrid = await knowing.recall(question, embedding=vector, limit=limit, viewer=BOARD)
    found = {"hybrid": [hit.memory.id for hit in hybrid]}
    legs: dict[str, Scores] = {}
    async with knowing.db.transaction() as session:
        for mode, query, embedding in (("text", question, None), ("vector", None, vector)):
            if mode == "vector" and vector is None:
                continue
            hits = await brain.recall(session, query, embedding=embedding, limit=LEGS, viewer=BOARD)
            legs[mode] = {hit.memory.id: hit.score for hit in hits}
            found[mode] = list(legs[mode])[:limit]
    found["greater score"] = _fused(legs.values(), lambda _, share: share, max)[:limit]
    found["RRF"] = _fused(legs.values(), lambda rank, _: 1 / (RRF_K + rank), sum)[:limit]
    return found


def _fused(legs: Iterable[Scores], value: Callable[[int, float], float], join: Callable[[list[float]], float]) -> list[int]:
    """Return the ids by what `join` makes of each leg's value of (rank from 1, score as a share of the leg's best)."""
    values: dict[int, list[float]] = {}
    for leg in legs:
        best = max(leg.values(), default=1.0) or 1.0
        for rank, (ident, score) in enumerate(leg.items(), 1):
            values.setdefault(ident, []).append(value(rank, score / best))
    return sorted(values, key=lambda ident: -join(values[ident]))


async def _conversation(url: str, embedder: Any, conversation: Any, means: Mapping[str, Means]) -> None:
    turns = conversation["turns"]
    db, knowing, ids = await _filled(url, embedder, _turns(turns))
    # The same words said twice are one memory: it stands for all its turns.
    of_memory: dict[int, list[Any]] = {}
    for ident, turn in zip(ids, turns, strict=True):
        of_memory.setdefault(ident, []).append(turn)
    session_of = {turn["id"]: turn["session"] for turn in turns}
    for asked in conversation["questions"]:
        evidence = set(asked["evidence"])
        if asked["category"] == ADVERSARIAL or not evidence:
            continue
        for mode, found in (await _ranked(knowing, asked["question"], 50)).items():
            ranked = [turn for ident in found for turn in of_memory[ident]]
            means[mode].add(_scores(ranked, evidence, session_of))
    await db.close()


def _turns(turns: Sequence[Any]) -> Iterator[MemoryDraft]:
    before: Any = None
    for turn in turns:
        said = f"{before['speaker']}: {before['text']}" if before and before["session"] == turn["session"] else ""
        yield MemoryDraft(content=f"{turn['speaker']}: {turn['text']}", context=f"[{turn['date']}] {said}")
        before = turn


def _scores(ranked: Sequence[Any], evidence: set[str], session_of: Mapping[str, int]) -> dict[str, float]:
    sessions = list(dict.fromkeys(turn["session"] for turn in ranked))[:5]
    found = [turn["id"] for turn in ranked]
    return {
        **{f"recall@{k}": len(evidence & set(found[:k])) / len(evidence) for k in (5, 10)},
        "any@5": float(bool(set(sessions) & {session_of[one] for one in evidence if one in session_of})),
    }


async def _passages(url: str, embedder: Any, xquad: Any, language: str) -> list[Figure]:
    db, knowing, ids = await _filled(url, embedder, (MemoryDraft(content=one) for one in xquad["passages"][language]))
    figures = []
    for asked_in in ("en", "de"):
        means = {mode: Means() for mode in MODES}
        for question in xquad["questions"]:
            right = ids[question["passage"]]
            for mode, found in (await _ranked(knowing, question[asked_in], 50)).items():
                means[mode].add({f"R@{k}": float(right in found[:k]) for k in (1, 5)})
        better = max(means[mode].get("R@1") for mode in ("text", "vector") if means[mode].count)
        for mode in MODES:
            if means[mode].count:
                at_1, at_5 = means[mode].get("R@1"), means[mode].get("R@5")
                met = at_1 >= max(0.93, better) if mode == "hybrid" and asked_in == language == "de" else None
                target = "" if met is None else f".93, {better:.3f}"
                what = f"{asked_in} questions on {language} passages, {mode}: R@1, R@5"
                figures.append(Figure(what, f"{at_1:.3f} {at_5:.3f}", target, met))
    await db.close()
    return figures


if __name__ == "__main__":
    main()
