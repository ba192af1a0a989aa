"""From scores of steps to one number for a solution, or to a reward for every step. Pure functions.

How step scores s_1 .. s_K become rewards r_1 .. r_K:

    potential  r_k = gamma s_k - s_(k-1) (Ng et al., 1999). At gamma 1 the sum is s_K - s_0, of however many steps
    additive   r_k = s_k. The sum grows with every step that is not worthless: a policy learns to write more of them
    min_form   r_k = w_k s_k, w = softmax(-s / T): about the lowest score, at the step that has it (arXiv 2504.15275)
    group      r_k = s_k minus the mean of the k-th scores of the group
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Aggregate = Literal["min", "product", "mean", "last", "first_below"]
Placement = Literal["potential", "additive", "min_form", "group", "sequence"]


def first_below(scores: Sequence[float], threshold: float) -> int:
    """Index of the first score below the threshold; -1 if there is none."""
    return next((at for at, score in enumerate(scores) if score < threshold), -1)


def aggregated(scores: Sequence[float], how: Aggregate, threshold: float = 0.5) -> float:
    """One number for a solution of at least one step.

    The product falls with every step (.95^20 = .36), and so does the minimum in expectation: both like short solutions.

    Args:
        scores: P(fine) of its steps.
        how: min, product, mean, last, or first_below: the share of the steps before the first one below the threshold.
        threshold: of first_below.
    """
    if how == "min":
        return min(scores)
    if how == "product":
        return math.prod(scores)
    if how == "mean":
        return sum(scores) / len(scores)
    if how == "last":
        return scores[-1]
    found = first_below(scores, threshold)
    return 1.0 if found < 0 else found / len(scores)


def potential(scores: Sequence[float], start: float, gamma: float = 1.0) -> list[float]:
    """`gamma s_k - s_(k-1)` with s_0 = `start`: .3, then .6, .4 and 0, are rewarded by +.3, -.2 and -.4."""
    return [gamma * score - before for score, before in zip(scores, (start, *scores), strict=False)]


def min_form(scores: Sequence[float], temperature: float) -> list[float]:
    """Each score times its softmax weight at -s / T; at T = 0 the first lowest score alone, where it stands."""
    low = min(scores)
    if temperature == 0:
        place = scores.index(low)
        return [score if at == place else 0.0 for at, score in enumerate(scores)]
    weights = [math.exp((low - score) / temperature) for score in scores]
    return [weight * score / sum(weights) for weight, score in zip(weights, scores, strict=True)]


def group_centred(scores: Sequence[Sequence[float]], groups: Sequence[str]) -> list[list[float]]:
    """Each score minus the mean of the scores of its group at the same index; a step that no other has gets 0."""
    columns: dict[tuple[str, int], list[float]] = {}
    for own, group in zip(scores, groups, strict=True):
        for at, score in enumerate(own):
            columns.setdefault((group, at), []).append(score)
    means = {key: sum(column) / len(column) for key, column in columns.items()}
    return [
        [score - means[group, at] for at, score in enumerate(own)] for own, group in zip(scores, groups, strict=True)
    ]


def group_starts(scores: Sequence[Sequence[float]], groups: Sequence[str], alone: float) -> list[float]:
    """s_0 of every rollout: the mean last score of its group, which is what the group thinks of the prompt.

    The potential rewards of a group then sum to 0, so that a baseline that is taken off every *step* takes off nothing
    and cannot pay for more of them, or for fewer. `alone` where fewer than two of a group have a step.
    """
    ends: dict[str, list[float]] = {}
    for own, group in zip(scores, groups, strict=True):
        if own:
            ends.setdefault(group, []).append(own[-1])
    means = {group: sum(last) / len(last) for group, last in ends.items() if len(last) > 1}
    return [means.get(group, alone) for group in groups]
