"""Reads what an adapter's result says, held against all that the run was told. Pure; may take long for a long text."""

from __future__ import annotations

from collections.abc import Sequence

from opencognit import protocol
from opencognit.contracts import Answer, RunResult


def read(result: RunResult, told: Sequence[str]) -> tuple[Answer, frozenset[str]]:
    """Return the answer, native actions first, without memories that only repeat `told`, and which contents were copied."""
    said = protocol.parse(result.text, briefing_texts=told)
    actions, repeats = protocol.without_repeats(result.actions, briefing_texts=told)
    answer = Answer(said.text, said.memories, (*actions, *said.actions), (*repeats, *said.problems))
    return answer, protocol.copied((one.content for one in answer.remembered), told)
