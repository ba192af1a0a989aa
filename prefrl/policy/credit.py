"""From scored rollouts to training rows: advantages, reductions and pairs, as the algorithm's parts say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prefrl.policy.advantages import centred, reduction_weights, scaled, spread
from prefrl.policy.algorithms import Algorithm
from prefrl.policy.losses import kl_estimate
from prefrl.types import Rollout, Row, Score

TotalOf = Callable[[Tensor], Tensor]  # sums a tensor over all processes


@dataclass(frozen=True, slots=True)
class Scored:
    """A rollout that counts: scored, with at least one sampled token, and not masked as overlong."""

    rollout: Rollout
    score: Score
    ref_logps: Tensor | None = None  # (n,) log-probs under the reference, when the algorithm needs them


def countable(rollouts: Sequence[Rollout], scores: Sequence[Score], overlong: str) -> list[Scored]:
    """The rollouts that enter baseline, loss and means; errored ones never do."""
    return [
        Scored(rollout, score)
        for rollout, score in zip(rollouts, scores, strict=True)
        if score.ok and any(rollout.mask) and not (overlong == "mask" and rollout.truncated)
    ]


def group_ids(scored: Sequence[Scored]) -> Tensor:
    """Integer ids (B,) of the rollouts' groups; equal exactly for equal group names."""
    names = {name: i for i, name in enumerate(dict.fromkeys(s.rollout.group for s in scored))}
    return torch.tensor([names[s.rollout.group] for s in scored], dtype=torch.long)


def weighted_rows(scored: Sequence[Scored], algorithm: Algorithm, budget: int, total_of: TotalOf) -> list[Row]:
    """One row per rollout with its `rl` and `ref_kl` streams; the reduction is folded into both.

    Args:
        scored: the countable rollouts.
        budget: the generation budget in tokens, the constant of the `constant` reduction.
        total_of: sums over processes, so that denominators are global.
    """
    advantages = _advantages(scored, algorithm)
    groups = group_ids(scored)
    lengths = torch.tensor([sum(s.rollout.mask) for s in scored])
    counts = torch.tensor([len(scored), int(lengths.sum()), len(groups.unique())], dtype=torch.float64)
    weights = reduction_weights(lengths, groups, algorithm.reduction, budget, total_of(counts)).float()
    rows = []
    for item, advantage, weight in zip(scored, advantages, weights, strict=True):
        row = _row(item)
        row.streams["rl"] = advantage.float() * weight
        if algorithm.kl.coef and algorithm.kl.place == "loss":
            row.streams["ref_kl"] = torch.full((len(row.mask),), float(weight) * algorithm.kl.coef)
        rows.append(row)
    return rows


def _advantages(scored: Sequence[Scored], algorithm: Algorithm) -> list[Tensor]:
    """Per-token advantages (n,) of every rollout; sequence-level and step-level events are kept apart."""
    groups = group_ids(scored).tolist()
    taxed = algorithm.kl.coef > 0 and algorithm.kl.place == "reward"
    finals = [
        (i, s.rollout.last_sampled, (s.score.value or 0.0) - (_kl_penalty(s, algorithm.kl.coef) if taxed else 0.0))
        for i, s in enumerate(scored)
        if taxed or s.score.value is not None
    ]
    steps = [(i, token, reward) for i, s in enumerate(scored) for token, reward in s.score.steps]
    result = [torch.zeros(len(s.rollout.mask), dtype=torch.float64) for s in scored]
    for events in (finals, steps):
        if not events:
            continue
        owner = torch.tensor([e[0] for e in events])
        tokens = torch.tensor([e[1] for e in events])
        rewards = torch.tensor([e[2] for e in events], dtype=torch.float64)
        group = torch.tensor([groups[e[0]] for e in events])
        advantage = centred(rewards, owner, group, algorithm.credit.baseline)
        advantage = scaled(advantage, rewards, group, algorithm.credit.scale)
        for i in owner.unique().tolist():
            mine = owner == i
            result[i] += spread(advantage[mine], tokens[mine], len(result[i]))
    return result


def _kl_penalty(item: Scored, coef: float) -> float:
    """`coef * sum_t (log pi - log ref)` over sampled tokens: the KL paid in the reward."""
    assert item.ref_logps is not None, "the KL in the reward needs reference log-probs"
    mask = torch.tensor(item.rollout.mask)
    old = torch.tensor(item.rollout.logps)
    return coef * float(kl_estimate(old, item.ref_logps, "k1")[mask].sum())


def paired_rows(scored: Sequence[Scored], label_smoothing: float, total_of: TotalOf) -> list[Row]:
    """The best and the worst rollout of every group as a pair; groups without a difference make none."""
    members: dict[str, list[Scored]] = {}
    for item in scored:
        members.setdefault(item.rollout.group, []).append(item)
    rows: list[Row] = []
    for atom, group in enumerate(members.values()):
        best = max(group, key=lambda s: s.score.total)
        worst = min(group, key=lambda s: s.score.total)
        if best.score.total > worst.score.total:
            for item, side in ((best, 1), (worst, -1)):
                row = _row(item)
                row.atom, row.side, row.label = atom, side, 1.0 - label_smoothing
                rows.append(row)
    count = total_of(torch.tensor([len(rows) / 2], dtype=torch.float64)).clamp(min=1.0)
    for row in rows:
        row.weight = 1.0 / float(count)
    return rows


def _row(item: Scored) -> Row:
    rollout = item.rollout
    row = Row(
        prompt_ids=rollout.prompt_ids,
        completion_ids=rollout.completion_ids,
        mask=rollout.mask,
        observations=rollout.observations,
        streams={"old_logps": torch.tensor(rollout.logps, dtype=torch.float32)},
    )
    if item.ref_logps is not None:
        row.streams["ref_logps"] = item.ref_logps
    return row
