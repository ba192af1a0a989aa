"""Several opinions of one completion made one: the mean, the lowest, or the mean less what they disagree by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any, Literal

from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.base import Reward, as_source, unique_names, verified_scores
from prefrl.types import Rollout, Score

Combine = Literal["mean", "min", "lcb"]
COMBINE = ("mean", "min", "lcb")


def combined(values: Sequence[float], how: Combine, k: float = 1.0) -> float:
    """One number of the members' scores.

    mean  their mean
    min   the lowest (worst-case optimisation, arXiv 2310.02743)
    lcb   mean - k * std, a lower confidence bound; std is the population standard deviation over the members
    """
    if how == "min":
        return min(values)
    return fmean(values) - (k * pstdev(values) if how == "lcb" else 0.0)


def disagreement(values: Sequence[float]) -> dict[str, float]:
    """What the members say on the whole and how far apart they are: the parts `mean`, `std` and `min`."""
    return {"mean": fmean(values), "std": pstdev(values), "min": min(values)}


def check_combine(how: str, k: float) -> None:
    """Refuse an unknown way to combine, or a negative k."""
    if how not in COMBINE:
        raise ConfigError(f"combine is {how!r}; valid: {', '.join(COMBINE)}.{did_you_mean(how, COMBINE)}")
    if not (math.isfinite(k) and k >= 0):
        raise ConfigError(f"k is {k}; expected a number of standard deviations to take off, 0 or more.")


class Ensemble(Reward):
    """Sources that judge the same thing on the same scale, as one cautious judge.

    The value combines their totals; a rollout that one of them could not score fails. Parts: `mean`, `std` and `min`
    over the members.
    """

    def __init__(self, sources: Sequence[Any], combine: Combine = "mean", k: float = 1.0) -> None:
        check_combine(combine, k)
        if len(sources) < 2:
            raise ConfigError(f"an ensemble of {len(sources)} rewards; expected at least 2")
        self.children = tuple(as_source(source) for source in sources)
        self.combine, self.k = combine, k
        self.name = f"ensemble of {len(self.children)}"

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        columns = [verified_scores(child, rollouts) for child in self.children]
        names = unique_names(self.children)
        return [self._one(names, members) for members in zip(*columns, strict=True)]

    def _one(self, names: Sequence[str], members: Sequence[Score]) -> Score:
        failed = next(((name, s.error) for name, s in zip(names, members, strict=True) if not s.ok), None)
        if failed is not None:
            return Score.failed(f"member {failed[0]!r}: {failed[1]}")
        values = [score.total for score in members]
        return Score(value=combined(values, self.combine, self.k), parts=disagreement(values))


def ensemble(sources: Sequence[Any], combine: Combine = "mean", k: float = 1.0) -> Ensemble:
    """Sources on one scale as one: `ensemble([a, b, c], combine="lcb", k=1.0)`.

    Args:
        sources: at least two.
        combine: mean, min, or lcb (mean - k * std).
        k: standard deviations that lcb takes off.

    Raises:
        ConfigError: an unknown way to combine, a negative k, or fewer than two sources.
    """
    return Ensemble(sources, combine, k)
