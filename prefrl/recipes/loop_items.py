"""Items made of the samples of a loop: pairs to learn from, and answers beside those of the start."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence

from prefrl.data.comparisons import Item
from prefrl.recipes.loop_evaluate import COMPARISON
from prefrl.recipes.loop_files import Sample
from prefrl.recipes.loop_policy import checkpoint
from prefrl.types import Prompt


def taken_in_turn(prompts: Sequence[Prompt], count: int, number: int, seed: int) -> list[Prompt]:
    """The prompts of a round: all are shuffled once, then taken in turn, `count` a round; 0 takes all."""
    size = min(count or len(prompts), len(prompts))
    order = random.Random(seed).sample(prompts, len(prompts))
    return [order[((number - 1) * size + i) % len(order)] for i in range(size)]


def by_prompt(samples: Iterable[Sample]) -> list[list[Sample]]:
    """The samples of every prompt together, in the order they came."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.prompt_id, []).append(sample)
    return list(groups.values())


def couples(group: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Every two samples of a prompt."""
    return list(itertools.combinations(group, 2))


def neighbours(group: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Samples two by two, each once."""
    return list(zip(group[::2], group[1::2], strict=True))


def paired(pairs: Iterable[tuple[Sample, Sample]], prompts: Mapping[str, Prompt], overlap: int) -> list[Item]:
    """Pairs of samples as items."""
    return [
        Item(
            prompt=prompts[one.prompt_id],
            first=one.completion,
            second=other.completion,
            round=one.round,
            checkpoints=(one.checkpoint, other.checkpoint),
            overlap=overlap,
        )
        for one, other in pairs
    ]


def compared(
    new: Sequence[Sample], start: Sequence[Sample], prompts: Mapping[str, Prompt], number: int, overlap: int
) -> list[Item]:
    """The answers after a round, each beside the start's to the same prompt."""
    return [
        Item(
            prompt=prompts[one.prompt_id],
            first=one.completion,
            second=other.completion,
            round=number,
            checkpoints=(checkpoint("policy", number), checkpoint("policy", 0)),
            why=COMPARISON,
            overlap=overlap,
        )
        for one, other in zip(new, start, strict=True)
    ]
