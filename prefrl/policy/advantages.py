"""Credit: from scores to a weight per sampled token. Pure functions on tensors.

A rollout's rewards are *events* `(token, reward)`: a sequence-level score is one event at the last sampled
token, step scores are events at their tokens. Baseline and scale are taken over events of the same kind, and

    A_t = sum over events at t' >= t of (r_t' - baseline) / scale

With one terminal event a rollout this is the usual `(R - baseline) / scale` on every token; with step
events it is the process supervision of DeepSeekMath (arXiv 2402.03300, section 4.1.3).

`groups` (E,) and `rollouts` (E,) are integer ids; only equality matters, never position.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["none", "batch_mean", "group_mean", "leave_one_out"]
Scale = Literal["none", "group_std", "batch_std"]
Reduction = Literal["token_mean", "sequence_mean", "sequence_sum", "constant", "prompt_mean"]

# Rewards of a group that differ by less than this (relative to their size) are equal up to float noise.
UNIFORM_TOLERANCE = 1e-6


def _sums(values: Tensor, ids: Tensor) -> Tensor:
    """Sum of `values` over equal `ids`, given back at every entry."""
    _, inverse = ids.unique(return_inverse=True)
    totals = values.new_zeros(int(inverse.max()) + 1 if len(inverse) else 0)
    return totals.index_add(0, inverse, values)[inverse]


def uniform(rewards: Tensor, groups: Tensor) -> Tensor:
    """True where all rewards of the entry's group are equal, exactly or up to float noise.

    `[0.9] * 8` in float32 and `[0.1] * 3` in float64 are uniform though their computed std is not 0.
    """
    assert rewards.shape == groups.shape and rewards.ndim == 1, "rewards (E,), groups (E,)"
    _, inverse = groups.unique(return_inverse=True)
    count = int(inverse.max()) + 1 if len(inverse) else 0
    high = rewards.new_full((count,), -torch.inf).scatter_reduce(0, inverse, rewards, "amax")
    low = rewards.new_full((count,), torch.inf).scatter_reduce(0, inverse, rewards, "amin")
    size = torch.maximum(high.abs(), low.abs()).clamp(min=1.0)
    return ((high - low) <= UNIFORM_TOLERANCE * size)[inverse]


def centred(rewards: Tensor, rollouts: Tensor, groups: Tensor, baseline: Baseline) -> Tensor:
    """`rewards - baseline`, per event (E,).

    none           0
    batch_mean     mean over all events
    group_mean     mean over the group's events (GRPO, Dr. GRPO)
    leave_one_out  mean over the events of the *other* rollouts of the group (RLOO, arXiv 2402.14740)

    A group with fewer than two rollouts has nothing to compare with: group baselines give exactly 0 there.
    Uniform groups give exactly 0 under group baselines.
    """
    assert rewards.shape == rollouts.shape == groups.shape and rewards.ndim == 1, "all (E,)"
    if baseline == "none" or len(rewards) == 0:
        return rewards
    if baseline == "batch_mean":
        return rewards - rewards.mean()
    ones = torch.ones_like(rewards)
    total, count = _sums(rewards, groups), _sums(ones, groups)
    own, own_count = _sums(rewards, rollouts), _sums(ones, rollouts)
    if baseline == "leave_one_out":
        total, count = total - own, count - own_count
        centre = total / count.clamp(min=1.0)
    else:
        centre = total / count
    comparable = _sums(ones, groups) > own_count
    return torch.where(comparable & ~uniform(rewards, groups), rewards - centre, torch.zeros_like(rewards))


def scaled(advantages: Tensor, rewards: Tensor, groups: Tensor, scale: Scale) -> Tensor:
    """Divide by the *population* standard deviation of the rewards; where that is 0 the advantage stays as it is."""
    if scale == "none" or len(rewards) == 0:
        return advantages
    ids = groups if scale == "group_std" else torch.zeros_like(groups)
    count = _sums(torch.ones_like(rewards), ids)
    deviation = rewards - _sums(rewards, ids) / count
    std = (_sums(deviation * deviation, ids) / count).sqrt()
    return torch.where(uniform(rewards, ids), advantages, advantages / std.clamp(min=torch.finfo(std.dtype).tiny))


def spread(advantages: Tensor, tokens: Tensor, length: int) -> Tensor:
    """Per-token advantages (length,) of one rollout: each event counts for all tokens up to and including its own."""
    at = torch.zeros(length, dtype=advantages.dtype).index_add(0, tokens, advantages)
    return at.flip(0).cumsum(0).flip(0)


def reduction_weights(lengths: Tensor, groups: Tensor, reduction: Reduction, constant: int, total: Tensor) -> Tensor:
    """Weight of each sampled token of a rollout, so that the loss is a plain sum over tokens.

    token_mean     1 / all sampled tokens                        (DAPO)
    sequence_mean  1 / (rollouts * own length)                   (GRPO)
    sequence_sum   1 / rollouts                                  (REINFORCE, RLOO)
    constant       1 / (rollouts * constant)                     (Dr. GRPO; constant = the token budget)
    prompt_mean    1 / (groups * tokens of the group)

    Args:
        lengths: (B,) sampled tokens of each rollout.
        groups: (B,) group ids.
        total: (3,) rollouts, tokens and groups of the whole batch over all processes.

    Returns:
        (B,) one weight per rollout, for each of its tokens.
    """
    assert lengths.shape == groups.shape and total.shape == (3,), "lengths (B,), groups (B,), total (3,)"
    rollouts, tokens, prompts = total.clamp(min=1.0).unbind()
    lengths = lengths.to(total.dtype)
    if reduction == "token_mean":
        return torch.ones_like(lengths) / tokens
    if reduction == "sequence_mean":
        return 1.0 / (rollouts * lengths.clamp(min=1.0))
    if reduction == "sequence_sum":
        return torch.ones_like(lengths) / rollouts
    if reduction == "constant":
        return torch.full_like(lengths, 1.0 / constant) / rollouts
    return 1.0 / (prompts * _sums(lengths, groups).clamp(min=1.0))
