"""What a finished reward model says of ties, and what its members say of each other, on judgements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

import torch

from prefrl.model.reward_scorer import Judged, RewardScorer
from prefrl.policy.judgement import LabelModel
from prefrl.types import Pair

Sides = tuple[Judged, Judged]


def judge_pairs(model: RewardScorer, pairs: Sequence[Pair]) -> list[Sides]:
    """What every member says of both sides; completions over the model's `max_tokens` are unscored."""
    prompts = [pair.prompt for pair in pairs for _ in range(2)]
    texts = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
    found = model.judge(prompts, texts, max_tokens=model.record.max_tokens)
    return list(zip(found[::2], found[1::2], strict=True))


def tie_figures(judged: Sequence[Sides], pairs: Sequence[Pair], labels: LabelModel) -> dict[str, Any]:
    """`tie_shares`: mean predicted probability of a tie and the share there was, of the scored pairs.

    Empty where ties have no probability of their own, or no pair is scored.
    """
    scored = [(a.mean - b.mean, pair.tie) for (a, b), pair in zip(judged, pairs, strict=True) if a.scores and b.scores]
    if not labels.models_ties or not scored:
        return {}
    predicted = labels.tie_probability(torch.tensor([gap for gap, _ in scored], dtype=torch.float64))
    observed = fmean(tie for _, tie in scored)
    return {"tie_shares": {"predicted": float(predicted.mean()), "observed": observed, "pairs": len(scored)}}


def ensemble_figures(judged: Sequence[Sides], pairs: Sequence[Pair]) -> dict[str, Any]:
    """`ensemble`: members, mean spread, and `[right, total]` for the thirds of the decided pairs by rising spread.

    The spread of a pair is the standard deviation over members of its score difference. Empty for a single model, or
    where no decided pair is scored.
    """
    decided = [
        ([x - y for x, y in zip(a.scores, b.scores, strict=True)], pair.label > 0.5)
        for (a, b), pair in zip(judged, pairs, strict=True)
        if a.scores and b.scores and pair.label != 0.5 and pair.tie < 0.5
    ]
    if not decided or len(decided[0][0]) < 2:
        return {}
    found = sorted((pstdev(gaps), fmean(gaps) > 0 if first else fmean(gaps) < 0) for gaps, first in decided)
    cuts = [third * len(found) // 3 for third in range(4)]
    thirds = [[right for _, right in found[low:high]] for low, high in pairwise(cuts)]
    return {
        "ensemble": {
            "members": len(decided[0][0]),
            "spread": fmean(spread for spread, _ in found),
            "accuracy_by_spread": [[sum(part), len(part)] for part in thirds],
        }
    }
