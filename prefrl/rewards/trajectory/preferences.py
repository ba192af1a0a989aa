"""Which of two fragments is better: the likelihood of such labels, and programs that give them. Functions on tensors.

    P(first) = noise / 2 + (1 - noise) sigmoid((R(first) - R(second)) / temperature),   R = sum_t discount^t r_t

R counts from the fragment's own first step (Christiano et al., arXiv 1706.03741, with Bradley and Terry, 1952).
Fragments are of one length: the sum of a longer one would be larger for its length alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from prefrl.rewards.trajectory.fragments import true_rewards
from prefrl.types import Rollout


@dataclass(frozen=True, slots=True)
class Preference:
    """Two fragments and the probability `label` that the first is the better one: 1, 0, a share of votes, 1/2 a tie."""

    first: Rollout
    second: Rollout
    label: float


def discounted(rewards: Tensor, discount: float = 1.0) -> Tensor:
    """Returns (..., F) of rewards (..., F, k): sum over steps of discount^t r_t, t from 0."""
    powers = discount ** torch.arange(rewards.shape[-1], dtype=rewards.dtype, device=rewards.device)
    return rewards @ powers


def preference_loss(gap: Tensor, label: Tensor, noise: float = 0.0) -> Tensor:
    """`-p log P - (1 - p) log(1 - P)` of every comparison, shaped as `gap`.

    Args:
        gap: (P,) return of the first less that of the second; or (M, P) of M reward nets.
        label: (P,) probability p that the first is better.
        noise: share of labels that are given at random, P = noise / 2 + (1 - noise) sigmoid(gap). It bounds what one
            wrong label can cost, as a person errs also where the difference is plain.
    """
    return -label * _log_preferred(gap, noise) - (1.0 - label) * _log_preferred(-gap, noise)


def _log_preferred(gap: Tensor, noise: float) -> Tensor:
    if not noise:
        return logsigmoid(gap)
    blind = torch.full_like(gap, math.log(noise / 2.0))
    return torch.logaddexp(blind, math.log1p(-noise) + logsigmoid(gap))


def preferred(gap: Tensor, noise: float = 0.0) -> Tensor:
    """P(first) at a gap of returns."""
    return noise / 2.0 + (1.0 - noise) * torch.sigmoid(gap)


def agreement(gap: Tensor, label: Tensor) -> Tensor:
    """Share of decided comparisons (label other than 1/2) in which the sign of the gap agrees; a gap of 0 is half.

    NaN where none is decided.
    """
    decided = label != 0.5
    right = torch.where(gap == 0, 0.5, ((gap > 0) == (label > 0.5)).to(gap.dtype))
    return (right * decided).sum(-1) / (decided.sum() if bool(decided.any()) else math.nan)


def synthetic_labels(
    pairs: Sequence[tuple[Rollout, Rollout]],
    *,
    seed: int,
    temperature: float = 1.0,
    discount: float = 1.0,
    tie_width: float = 0.0,
    flip: float = 0.0,
) -> list[Preference]:
    """Labels by what the environment paid.

    Args:
        pairs: fragments to compare.
        seed: of the draws; the same seed gives the same labels.
        temperature: the first is preferred with probability sigmoid(difference of returns / temperature); 0 always
            takes the better one.
        discount: of the returns.
        tie_width: returns at most so far apart are a tie.
        flip: share of decided labels that are turned around.
    """
    first, second = (true_rewards([pair[side] for pair in pairs]) for side in (0, 1))
    gap = discounted(first, discount) - discounted(second, discount)
    generator = torch.Generator().manual_seed(seed)
    drawn, turned = torch.rand(2, len(gap), generator=generator, dtype=torch.float64)
    chance = (gap > 0).double() if temperature == 0 else torch.sigmoid(gap / temperature)
    label = (drawn < chance).double()
    label = torch.where(turned < flip, 1.0 - label, label)
    # Without a temperature equal returns cannot be told apart, whatever the width.
    tied = (gap.abs() <= tie_width) if tie_width or temperature == 0 else torch.zeros_like(gap, dtype=torch.bool)
    label = torch.where(tied, 0.5, label)
    return [Preference(*pair, float(p)) for pair, p in zip(pairs, label, strict=True)]
