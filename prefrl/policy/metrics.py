"""Figures of one batch of rollouts: rewards and their parts, lengths, groups, drift, staleness."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prefrl.policy.advantages import UNIFORM_TOLERANCE, TotalOf, moments
from prefrl.policy.credit import Scored, countable, group_ids, has_signal, ref_gap, teacher_gap
from prefrl.policy.parts import OverlongSpec
from prefrl.types import Rollout, Score


def rollout_metrics(rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, float]:
    """Rewards and their parts, lengths, stop reasons, groups and errors of one batch, as scored."""
    scored = countable(rollouts, scores, OverlongSpec(), budget=0)
    lengths = [sum(r.mask) for r in rollouts]
    metrics = {
        "length/mean": _mean(lengths),
        "length/max": float(max(lengths, default=0)),
        "errors": _mean([not s.ok for s in scores]),
        "entropy": -_mean([p for r in rollouts for p, m in zip(r.logps, r.mask, strict=True) if m]),
    }
    if any(len(r.turns) > 1 for r in rollouts):
        metrics["turns/mean"] = _mean([len(r.turns) for r in rollouts])
    for reason in {r.stop for r in rollouts}:
        metrics[f"stop/{reason.value}"] = _mean([r.stop is reason for r in rollouts])
    metrics |= _parts(scores)
    if not scored:
        return metrics
    totals = torch.tensor([s.score.total for s in scored], dtype=torch.float64)
    metrics["reward/mean"] = float(totals.mean())
    metrics["reward/std"] = float(totals.std(correction=0))
    groups = group_ids(scored)
    compared = len(groups.unique()) < len(groups)  # groups of one have no signal of their own to report
    return metrics | (group_metrics(totals, groups, has_signal(scored)) if compared else {})


def _parts(scores: Sequence[Score]) -> dict[str, float]:
    """Mean of every reward part over the rollouts that have it; error rates over all."""
    names = {part for s in scores for part in s.parts}
    having = {name: [s.parts[name] for s in scores if name in s.parts and (s.ok or _is_error(name))] for name in names}
    return {
        f"reward/part/{name}": sum(values) / len(scores) if _is_error(name) else _mean(values)
        for name, values in having.items()
        if values
    }


def _is_error(part: str) -> bool:
    return part.rpartition("/")[2] == "error"


def group_metrics(totals: Tensor, groups: Tensor, signal: Tensor) -> dict[str, float]:
    """Fractions of groups: uniform or mixed and, where all rewards lie in [0, 1], all-fail and all-pass.

    Args:
        totals: (B,) total rewards.
        groups: (B,) group ids.
        signal: (B,) whether the rollout's group can teach, see `has_signal`.
    """
    fraction = {"all_fail": 0, "all_pass": 0, "uniform": 0, "mixed": 0}
    names = groups.unique()
    unit = bool(((totals >= -UNIFORM_TOLERANCE) & (totals <= 1.0 + UNIFORM_TOLERANCE)).all())
    for group in names:
        mine = groups == group
        if bool(signal[mine].any()):
            fraction["mixed"] += 1
            continue
        fraction["uniform"] += 1
        first = float(totals[mine][0])
        fraction["all_fail"] += abs(first) <= UNIFORM_TOLERANCE
        fraction["all_pass"] += abs(first - 1.0) <= UNIFORM_TOLERANCE
    if not unit:
        del fraction["all_fail"], fraction["all_pass"]
    return {f"groups/{name}": count / len(names) for name, count in fraction.items()}


def staleness(rollouts: Sequence[Rollout], version: int) -> dict[str, float]:
    """How many updates ago the rollouts were sampled."""
    ages = [version - r.version for r in rollouts]
    return {"staleness/mean": _mean(ages), "staleness/max": float(max(ages, default=0))}


def sequence_kl(scored: Sequence[Scored], total_of: TotalOf) -> float:
    """Mean over all processes' rollouts of `sum_t log pi - log ref`: KL to the reference in nats per answer."""
    gaps = [float(ref_gap(item).sum()) for item in scored]
    total, count = total_of(torch.tensor([sum(gaps), len(gaps)], dtype=torch.float64)).tolist()
    return float(total / max(1.0, count))


def sampled_teacher_kl(scored: Sequence[Scored], total_of: TotalOf) -> float:
    """Mean over all processes' sampled tokens of `log pi - log q`: KL to the teacher in nats per token, estimated."""
    gap = sum(float(teacher_gap(item).sum()) for item in scored)
    tokens = sum(sum(item.rollout.mask) for item in scored)
    total, count = total_of(torch.tensor([gap, tokens], dtype=torch.float64)).tolist()
    return float(total / max(1.0, count))


def explained_variance(values: Tensor, returns: Tensor, total_of: TotalOf) -> float:
    """`1 - Var(R - V) / Var(R)`: 1 for a perfect critic, 0 for a constant one; NaN where returns do not vary."""
    _, spread = moments(returns, total_of)
    _, error = moments(returns - values, total_of)
    return 1.0 - (error / spread) ** 2 if spread else float("nan")


def with_sample_size(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics with the effective sample size of the importance ratios, `(sum w)^2 / (N sum w^2)`, in (0, 1]."""
    square = metrics.pop("ratio/mean_square", 0.0)
    return metrics | ({"ratio/ess": metrics["ratio/mean"] ** 2 / square} if square > 0 else {})


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values)) if values else 0.0
