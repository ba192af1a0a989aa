"""Pairs and ranked lists as training rows, for reward models and for direct preference optimization."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from prefrl.data.chat import encode_completion
from prefrl.data.reading import Read, keep_within
from prefrl.model.language import LanguageModel
from prefrl.model.reward_scorer import RewardScorer
from prefrl.types import Completion, Pair, Ranking, Row

# The rows of one judgement: the chosen and the rejected side of a pair, or a ranked list.
Rows = tuple[Row, ...]


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


def reward_rows(
    judgements: Sequence[Pair | Ranking], model: RewardScorer, annotators: Mapping[str, int] | None = None
) -> list[Rows]:
    """The rows of every judgement, scored at their last token: chosen and rejected, or a ranked list in its order.

    Args:
        judgements: pairs and ranked lists.
        model: encodes what is scored.
        annotators: index by name; those not in it are nobody in particular.
    """
    result = []
    for atom, judged in enumerate(judgements):
        rows = _sides(judged, model)
        for row in rows:
            row.atom, row.weight = atom, judged.weight
            row.annotator = (annotators or {}).get(judged.annotator, -1)
        result.append(rows)
    return result


def _sides(judged: Pair | Ranking, model: RewardScorer) -> Rows:
    if isinstance(judged, Ranking):
        placed = zip(judged.completions, judged.ranks, strict=True)
        return tuple(replace(model.encode(judged.prompt, completion), rank=rank) for completion, rank in placed)
    rows = model.encode(judged.prompt, judged.chosen), model.encode(judged.prompt, judged.rejected)
    for row, side in zip(rows, (1, -1), strict=True):
        row.side, row.label, row.margin, row.tie = side, judged.label, judged.margin, judged.tie
    return rows


def fitting(rows: Sequence[Rows], limit: int, max_dropped_fraction: float) -> Read[Rows]:
    """Judgements whose longest row fits; the others are counted, never cut."""
    lengths = [max(len(row.prompt_ids) + len(row.completion_ids) for row in judged) for judged in rows]
    what = "prompt and completion (max_tokens)"
    return keep_within(rows, lengths, limit, what, max_dropped_fraction=max_dropped_fraction)


def weighted(judgements: Sequence[Rows]) -> list[Row]:
    """The rows of a batch, weights divided by their sum: the loss is a weighted mean over pairs and ranked lists.

    They are copies, as the same rows come back in the next pass with their own weights.
    """
    total = sum(rows[0].weight for rows in judgements) or 1.0  # judgements that all weigh 0 stay at 0
    return [replace(row, weight=row.weight / total) for rows in judgements for row in rows]


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
