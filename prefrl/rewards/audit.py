"""What each component of a reward contributes, and whether what is optimized still agrees with what is not.

Everything that concerns learning is computed within groups, as the advantage is: each contribution `w_k r_k` minus
its mean over the group. Where no group has two rollouts the batch is the group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from prefrl.rewards.base import RewardSource, unique_names
from prefrl.rewards.compose import Audit, Clip, WeightedSum
from prefrl.rewards.constraint import Constraint
from prefrl.rewards.normalise import GroupNormalise, GroupRank, Normalise, Sigmoid, Standardise, is_uniform
from prefrl.types import Rollout, Score

NOISE = 1e-12  # of the variance of the parts, what rounding leaves of a sum that cancels


def source_metrics(source: RewardSource, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, float]:
    """Figures of the reward and of every component of a weighted sum (or constraint), read off scored rollouts.

    Of component NAME, as `source/NAME/...`, of its totals before weighting:

        mean, std, min, max   over the rollouts it could score, before it is normalised and clipped
        errors                share of rollouts it could not score
        share                 share of the variance of the advantage: cov(c_k, sum_j c_j) / var(sum_j c_j) with c the
                              weighted contributions minus their group means. Shares sum to 1; one is negative where a
                              component works against the others. Only where several components are paid
        corr_total, corr_length, corr_audit   correlation with the whole reward, the number of sampled tokens, and the
                              audit, all minus their group means

    Of the whole reward: `reward/corr_length`, `reward/corr_audit`. `audit/mean` is the mean of the audit. A correlation
    with something that does not vary is left out, for it is not defined.

    The reward passes an answer that gets full marks, 1, from the component of the largest weight (from each of them
    where several have it), whatever is added for length or form. Where those components and the audit lie in [0, 1],
    `audit/passed` and `audit/failed` count the audited rollouts that the reward passes and fails,
    `audit/false_positives` those of the first that the audit fails, `audit/false_negatives` those of the second that it
    passes. Rescaled and clipped components count as they were before.

    Args:
        source: the reward that gave the scores.
        rollouts, scores: one score per rollout, in the same order.
    """
    terms = source.terms if isinstance(source, WeightedSum | Constraint) else []
    names = unique_names([child for child, _ in terms])
    good = [i for i, score in enumerate(scores) if score.ok]
    groups = [rollouts[i].group for i in good]
    centred = _Centred(groups)
    totals = centred([scores[i].total for i in good])
    lengths = centred([float(sum(rollouts[i].mask)) for i in good])
    columns = {name: [score.parts.get(name) for score in scores] for name in names}
    rescaled = {name for name, (child, _) in zip(names, terms, strict=True) if _is_rescaled(child)}
    raw = columns | {name: [score.parts.get(f"{name}/raw") for score in scores] for name in rescaled}
    audit = next((name for name, (child, _) in zip(names, terms, strict=True) if isinstance(child, Audit)), None)
    judged = centred([columns[audit][i] for i in good]) if audit is not None else None
    metrics = _named("reward", corr_length=_correlation(totals, lengths), corr_audit=_correlation(totals, judged))
    if audit is not None and (found := [x for x in columns[audit] if x is not None]):
        metrics["audit/mean"] = fmean(found)
        largest = max(weight for _, weight in terms)
        main = [raw[name] for name, (_, weight) in zip(names, terms, strict=True) if weight == largest > 0]
        metrics |= _confusion([([column[i] for column in main], raw[audit][i]) for i in good])
    for name in names:
        mine = centred([columns[name][i] for i in good])
        metrics |= _spread(name, raw[name], scores)
        metrics |= _named(
            f"source/{name}",
            corr_total=_correlation(mine, totals),
            corr_length=_correlation(mine, lengths),
            corr_audit=None if name == audit else _correlation(mine, judged),
        )
    paid = {name: weight for name, (_, weight) in zip(names, terms, strict=True) if weight}
    contributions = {name: centred([_times(columns[name][i], w) for i in good]) for name, w in paid.items()}
    return metrics | {f"source/{name}/share": share for name, share in variance_shares(contributions).items()}


def _confusion(both: Sequence[tuple[Sequence[float | None], float | None]]) -> dict[str, float]:
    """How often reward and audit pass the same answers; nothing where either is no share of full marks."""
    judged = [([x for x in reward if x is not None], audit) for reward, audit in both if reward and audit is not None]
    if not judged or not all(-NOISE <= value <= 1.0 + NOISE for reward, audit in judged for value in (*reward, audit)):
        return {}
    passed = [(min(reward, default=0.0) >= 1.0 - NOISE, audit >= 1.0 - NOISE) for reward, audit in judged]
    counts = {
        "passed": sum(reward for reward, _ in passed),
        "failed": sum(not reward for reward, _ in passed),
        "false_positives": passed.count((True, False)),
        "false_negatives": passed.count((False, True)),
    }
    return {f"audit/{name}": float(count) for name, count in counts.items()}


def variance_shares(contributions: dict[str, list[float | None]]) -> dict[str, float]:
    """Share of each component in the variance of their sum, `sum_i c_ki t_i / sum_i t_i^2` with `t = sum_k c_k`.

    Contributions are centred. Empty for fewer than two components, and where the sum does not vary
    beyond rounding.
    """
    if len(contributions) < 2:
        return {}
    rows = [row for row in zip(*contributions.values(), strict=True) if None not in row]
    sums = [math.fsum(x for x in row if x is not None) for row in rows]
    variance = math.fsum(t * t for t in sums)
    if variance <= NOISE * math.fsum(x * x for row in rows for x in row if x is not None):
        return {}
    shares = (
        math.fsum((row[k] or 0.0) * t for row, t in zip(rows, sums, strict=True)) for k in range(len(contributions))
    )
    return dict(zip(contributions, (share / variance for share in shares), strict=True))


def _is_rescaled(source: RewardSource) -> bool:
    """Whether the part `raw` has what the source said before it was normalised or clipped."""
    inner = source.source if isinstance(source, Audit) else source
    return isinstance(inner, Clip | Standardise | Normalise | GroupNormalise | GroupRank | Sigmoid)


class _Centred:
    """Takes the mean of their group off numbers; None stays None and is in no mean."""

    def __init__(self, groups: Sequence[str]) -> None:
        compared = len(set(groups)) < len(groups)
        self.groups = list(groups) if compared else ["all"] * len(groups)

    def __call__(self, values: Sequence[float | None]) -> list[float | None]:
        members: dict[str, list[float]] = {}
        for group, value in zip(self.groups, values, strict=True):
            if value is not None:
                members.setdefault(group, []).append(value)
        means = {group: fmean(found) for group, found in members.items()}
        # Equal numbers have no spread, whatever rounding says of them and of their mean.
        flat = {group for group, found in members.items() if is_uniform(found)}
        return [
            None if x is None else 0.0 if group in flat else x - means[group]
            for group, x in zip(self.groups, values, strict=True)
        ]


def _spread(name: str, column: Sequence[float | None], scores: Sequence[Score]) -> dict[str, float]:
    """Mean, deviation, extremes and error rate of one component.

    A component that is paid fails the whole score, which then names it. What the others said of that rollout is not
    kept; they do not count as failed there.
    """
    found = [x for x in column if x is not None]
    failed = sum(_failed_by(name, score) for score in scores)
    metrics = {"errors": failed / len(scores)} if scores else {}
    if found:
        metrics |= {"mean": fmean(found), "std": pstdev(found), "min": min(found), "max": max(found)}
    return {f"source/{name}/{key}": value for key, value in metrics.items()}


def _failed_by(name: str, score: Score) -> bool:
    if score.ok:
        return score.parts.get(f"{name}/error") == 1.0
    return (score.error or "").startswith(f"component {name!r}:")


def _correlation(xs: Sequence[float | None], ys: Sequence[float | None] | None) -> float | None:
    """Pearson correlation of centred numbers where both are there; None where either does not vary."""
    pairs = [(x, y) for x, y in zip(xs, ys or (), strict=ys is not None) if x is not None and y is not None]
    xx, yy = math.fsum(x * x for x, _ in pairs), math.fsum(y * y for _, y in pairs)
    if not (xx and yy):
        return None
    return max(-1.0, min(1.0, math.fsum(x * y for x, y in pairs) / math.sqrt(xx) / math.sqrt(yy)))


def _named(prefix: str, **values: float | None) -> dict[str, float]:
    return {f"{prefix}/{key}": value for key, value in values.items() if value is not None}


def _times(value: Any, weight: float) -> float | None:
    return None if value is None else weight * value
