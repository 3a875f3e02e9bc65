"""How many texts go through a model at once: alike in length, bounded in tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

TOKENS = 1024
"""Tokens of one batch, padding included. Larger ones are slower on a CPU (measured: 4096 costs half as much time again) and
take more memory for good."""
TEXTS = 512
"""Texts that are split into tokens before the first of them is run."""


def spans(count: int) -> Iterator[slice]:
    """Yield the parts of a long list that are worked off one after the other."""
    for start in range(0, count, TEXTS):
        yield slice(start, min(start + TEXTS, count))


def by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield every index once, in batches of like length: the longest times their number is at most TOKENS, or it is one."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
