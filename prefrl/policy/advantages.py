"""Credit: from scores to an advantage per sampled token. Pure functions on tensors.

A rollout's rewards are *events* `(token, reward)`: a sequence-level score is one event at the last sampled
token, step scores are events at their tokens. Two families of credit read them:

compared  each event is compared with the events of the same kind of other rollouts, then

              A_t = sum over events at t' >= t of gamma^(t' - t) (r_t' - baseline) / scale

          With one terminal event a rollout this is the usual `(R - baseline) / scale` on every token; with
          step events it is the process supervision of DeepSeekMath (arXiv 2402.03300, section 4.1.3).
own       a rollout is judged by its own rewards alone: reward-to-go, or generalized advantage estimation
          with a critic. Time counts decisions: sampled tokens, or turns; never observation tokens.

`groups` (E,) and `rollouts` (E,) are integer ids; only equality matters, never position.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["none", "batch_mean", "ema", "group_mean", "leave_one_out", "critic"]
Scale = Literal["none", "group_std", "batch_std", "whiten"]
Level = Literal["token", "turn"]
Reduction = Literal["token_mean", "sequence_mean", "sequence_sum", "constant", "prompt_mean"]
TotalOf = Callable[[Tensor], Tensor]  # sums a tensor over all processes

# Rewards that differ by less than this, relative to their size or to 1 if that is more, are equal up to float noise.
UNIFORM_TOLERANCE = 1e-6


def _alone(local: Tensor) -> Tensor:
    return local


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


def reaches(total: float, threshold: float) -> bool:
    """Whether a reward reaches a threshold, up to float noise: ten steps of .1 reach 1."""
    return total >= threshold - UNIFORM_TOLERANCE


def moments(values: Tensor, total_of: TotalOf = _alone) -> tuple[float, float]:
    """Mean and *population* standard deviation over all processes; a deviation that is float noise is exactly 0."""
    total, count = total_of(torch.stack([values.double().sum(), values.new_tensor(float(len(values))).double()]))
    mean = float(total / count.clamp(min=1.0))
    square = total_of(((values.double() - mean) ** 2).sum()[None])
    std = float((square[0] / count.clamp(min=1.0)).sqrt())
    return mean, 0.0 if std <= UNIFORM_TOLERANCE * max(1.0, abs(mean)) else std


def centred(
    rewards: Tensor,
    rollouts: Tensor,
    groups: Tensor,
    baseline: Baseline,
    *,
    ema: float = math.nan,
    total_of: TotalOf = _alone,
) -> Tensor:
    """`rewards - baseline`, per event (E,).

    batch_mean     mean over all events of all processes
    ema            the given running mean of earlier batches, which leaves the gradient unbiased; the batch's own
                   mean while it is NaN
    group_mean     mean over the group's events (GRPO, Dr. GRPO)
    leave_one_out  mean over the events of the *other* rollouts of the group (RLOO, arXiv 2402.14740)
    none, critic   0

    A group with fewer than two rollouts that count has nothing to compare with: group baselines give exactly 0
    there. Uniform groups give exactly 0 under group baselines, a uniform batch under `batch_mean`.
    """
    assert rewards.shape == rollouts.shape == groups.shape and rewards.ndim == 1, "all (E,)"
    if baseline in ("none", "critic"):
        return rewards
    if baseline in ("batch_mean", "ema"):
        mean, std = moments(rewards, total_of)
        if baseline == "ema" and not math.isnan(ema):
            return rewards - ema
        return rewards - mean if std else torch.zeros_like(rewards)
    ones = torch.ones_like(rewards)
    total, count = _sums(rewards, groups), _sums(ones, groups)
    own, own_count = _sums(rewards, rollouts), _sums(ones, rollouts)
    comparable = count > own_count
    if baseline == "leave_one_out":
        total, count = total - own, (count - own_count).clamp(min=1.0)
    return torch.where(comparable & ~uniform(rewards, groups), rewards - total / count, torch.zeros_like(rewards))


def scaled(advantages: Tensor, rewards: Tensor, groups: Tensor, scale: Scale, total_of: TotalOf = _alone) -> Tensor:
    """Divide by the *population* standard deviation of the rewards, of the group or of all processes' events.

    Where it is 0 the advantage stays as it is. `whiten` works on tokens, later: nothing happens here.
    """
    if scale in ("none", "whiten"):
        return advantages
    if scale == "batch_std":
        _, deviation = moments(rewards, total_of)
        return advantages / deviation if deviation else advantages
    count = _sums(torch.ones_like(rewards), groups)
    difference = rewards - _sums(rewards, groups) / count
    std = (_sums(difference * difference, groups) / count).sqrt()
    return torch.where(uniform(rewards, groups), advantages, advantages / std.clamp(min=torch.finfo(std.dtype).tiny))


def whitened(advantages: Sequence[Tensor], masks: Sequence[Sequence[bool]], total_of: TotalOf = _alone) -> list[Tensor]:
    """`(A - mean) / std` over all sampled tokens of all processes (REINFORCE++, arXiv 2501.03262); 0 at other tokens.

    Args:
        advantages: one (n_i,) tensor a rollout.
        masks: (n_i,) True on its sampled tokens.
    """
    sampled = [torch.tensor(mask) for mask in masks]
    parts = [a[m] for a, m in zip(advantages, sampled, strict=True)]
    mean, std = moments(torch.cat(parts) if parts else torch.zeros(0), total_of)
    return [
        torch.where(m, (a - mean) / std, 0.0) if std else torch.zeros_like(a)
        for a, m in zip(advantages, sampled, strict=True)
    ]


def decisions(mask: Sequence[bool], turns: Sequence[tuple[int, int]], level: Level) -> list[list[int]]:
    """Token indices of each decision of a rollout: every sampled token, or the sampled tokens of every turn.

    `turns` are (start, end) spans; without any, the whole rollout is one turn. Spans without a sampled token make
    no decision.
    """
    if level == "token":
        return [[i] for i, sampled in enumerate(mask) if sampled]
    spans = turns or ((0, len(mask)),)
    found = [[i for i in range(start, end) if mask[i]] for start, end in spans]
    return [tokens for tokens in found if tokens]


def per_decision(events: Sequence[tuple[int, float]], of: Sequence[Sequence[int]]) -> list[float]:
    """Reward of each decision: that of an event belongs to the last decision begun by then, or to the first one."""
    starts = [tokens[0] for tokens in of]
    rewards = [0.0] * len(of)
    for token, reward in events:
        rewards[max(0, bisect_right(starts, token) - 1)] += reward
    return rewards


def to_tokens(values: Sequence[float], of: Sequence[Sequence[int]], length: int) -> Tensor:
    """Per-token values (length,): each decision's on all of its tokens, 0 elsewhere."""
    result = torch.zeros(length, dtype=torch.float64)
    spread = [value for value, tokens in zip(values, of, strict=True) for _ in tokens]
    result[[token for tokens in of for token in tokens]] = torch.tensor(spread, dtype=torch.float64)
    return result


def rewards_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """`R_d = r_d + gamma R_(d+1)` over decisions."""
    return list(accumulate(reversed(rewards), lambda later, reward: reward + gamma * later))[::-1]


def gae(
    rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float, bootstrap: float = 0.0
) -> list[float]:
    """Generalized advantage estimation (arXiv 1506.02438) over decisions.

    delta_d = r_d + gamma V_(d+1) - V_d,  A_d = delta_d + gamma lam A_(d+1)

    Args:
        rewards: (D,) reward of each decision.
        values: (D,) value of the history before each decision.
        bootstrap: value of the history after the last one: 0 where the episode ended, the critic's where it was cut.
    """
    advantages, later, following = [], 0.0, bootstrap
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        later = reward + gamma * following - value + gamma * lam * later
        following = value
        advantages.append(later)
    return advantages[::-1]


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
