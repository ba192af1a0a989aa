"""Pairs as training rows, for reward models and for direct preference optimization."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from prefrl.data.chat import encode_completion
from prefrl.data.reading import Read, keep_within
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.reward_model import RewardModel
from prefrl.types import Completion, Pair, Row

Rows = tuple[Row, Row]  # the chosen and the rejected side of a pair


def policy_rows(pairs: Sequence[Pair], model: LanguageModel) -> list[Rows]:
    """Chosen and rejected rows of every pair; completions that carry the ids they were sampled with keep them."""

    def row(pair: Pair, completion: Completion, side: int, atom: int) -> Row:
        ids = tuple(encode_completion(model.tokenizer, pair.prompt, completion))
        return Row(
            prompt_ids=model.encode(pair.prompt),
            completion_ids=ids,
            mask=(True,) * len(ids),
            atom=atom,
            side=side,
            label=pair.label,
            weight=pair.weight,
            streams={} if completion.logps is None else {"ref_logps": torch.tensor(completion.logps)},
        )

    return [(row(p, p.chosen, 1, i), row(p, p.rejected, -1, i)) for i, p in enumerate(pairs)]


def reward_rows(pairs: Sequence[Pair], model: RewardModel) -> list[Rows]:
    """Chosen and rejected rows of every pair, scored at their last token."""
    result = []
    for atom, pair in enumerate(pairs):
        sides = model.encode(pair.prompt, pair.chosen), model.encode(pair.prompt, pair.rejected)
        for row, side in zip(sides, (1, -1), strict=True):
            row.atom, row.side, row.label = atom, side, pair.label
            row.margin, row.weight = pair.margin, pair.weight
        result.append(sides)
    return result


def fitting(rows: Sequence[Rows], limit: int, max_dropped_fraction: float) -> Read[Rows]:
    """Pairs whose longer side fits; the others are counted, never cut."""
    lengths = [max(len(row.prompt_ids) + len(row.completion_ids) for row in pair) for pair in rows]
    return keep_within(rows, lengths, limit, "prompt and completion", max_dropped_fraction=max_dropped_fraction)


def weighted(pairs: Sequence[Rows]) -> list[Row]:
    """The rows of a batch of pairs, their weights divided by the sum: the loss is a weighted mean over pairs."""
    total = sum(chosen.weight for chosen, _ in pairs)
    rows = []
    for chosen, rejected in pairs:
        for row in (chosen, rejected):
            # A copy, as the same rows come back in the next pass with their own weights.
            rows.append(
                Row(
                    prompt_ids=row.prompt_ids,
                    completion_ids=row.completion_ids,
                    mask=row.mask,
                    streams=row.streams,
                    atom=row.atom,
                    side=row.side,
                    weight=chosen.weight / total,
                    label=row.label,
                    margin=row.margin,
                )
            )
    return rows


def passes(pairs: Sequence[Rows], batch_size: int, epochs: int, seed: int) -> list[list[list[Rows]]]:
    """The batches of every pass. All pairs of a prompt go together, so that a completion in several is computed once.

    A batch is full once it holds `batch_size` pairs; keeping the pairs of a prompt in one update also avoids
    fitting the same completions several times in a row (arXiv 2203.02155, section 3.5).
    """
    groups: dict[tuple[int, ...], list[Rows]] = {}
    for pair in pairs:
        groups.setdefault(pair[0].prompt_ids, []).append(pair)
    rng = random.Random(seed)
    plan = []
    for _ in range(epochs):
        batches: list[list[Rows]] = [[]]
        for group in rng.sample(list(groups.values()), len(groups)):
            if len(batches[-1]) >= batch_size:
                batches.append([])
            batches[-1] += group
        plan.append(batches)
    return plan


def add_reference(pairs: Sequence[Rows], engine: Engine) -> None:
    """Compute the reference log-probs of every row once."""
    rows = [row for pair in pairs for row in pair]
    for row, logps in zip(rows, engine.logps(rows, "reference"), strict=True):
        row.streams["ref_logps"] = logps.to(torch.float32)
