"""A source's rewards on another scale: fixed, running, of the group, ranks, or a sigmoid.

The linear kinds (`Standardise`, `Normalise`, `GroupNormalise`) take the mean off the value and divide value and steps
by the standard deviation. The others (`GroupRank`, `Sigmoid`) map the total and pay the result as one value at the end.
The part `raw` keeps the total before. A rollout that failed is in no mean, deviation or rank.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import fmean, pstdev
from typing import Any

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.base import Reward, as_source, verified_scores
from prefrl.types import Rollout, Score

# Rewards that differ by less than this, relative to their size or to 1 if that is more, are equal up to float noise.
TOLERANCE = 1e-6


class Standardise(Reward):
    """`(total - mean) / std` with a given mean and standard deviation, such as those of a reward model's own data."""

    def __init__(self, source: Any, mean: float = 0.0, std: float = 1.0) -> None:
        if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
            raise ConfigError(f"normalise: mean={mean}, std={std}; expected a finite mean and a positive std")
        self.source = as_source(source)
        self.mean, self.std = mean, std
        self.children = (self.source,)
        self.name = self.source.name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = verified_scores(self.source, rollouts)
        return [_linear(score, self.mean, self.std) if score.ok else score for score in scores]


class Normalise(Reward):
    """`(total - mean) / std` with the running mean and standard deviation of all rollouts scored so far.

    Welford's update with the batch, then normalisation by the result; steps are divided by std, the
    mean is taken off the value. While std is 0 (one score, or all equal) only the mean is subtracted.
    `update=False`, or `frozen` around a call, leaves the statistics as they are: for evaluation. Where none were
    learnt yet, those of the first batch scored so stand in, for all such batches alike, and are never learnt from.
    """

    def __init__(self, source: Any, *, update: bool = True) -> None:
        self.source = as_source(source)
        self._update = update
        self.count, self.mean, self.m2 = 0, 0.0, 0.0
        self._borrowed: tuple[float, float] | None = None  # mean and std before anything was learnt
        self.children = (self.source,)
        self.name = self.source.name

    @property
    def std(self) -> float:
        """Population standard deviation so far; 0 when it is not larger than rounding noise."""
        std = math.sqrt(self.m2 / self.count) if self.count else 0.0
        return std if std > 1e-9 * abs(self.mean) else 0.0

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = verified_scores(self.source, rollouts)
        mean, std = self._statistics([score.total for score in scores if score.ok])
        return [_linear(score, mean, std or 1.0) if score.ok else score for score in scores]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The statistics stay as they are within."""
        before, self._update = self._update, False
        try:
            yield
        finally:
            self._update = before

    def _statistics(self, totals: Sequence[float]) -> tuple[float, float]:
        """Mean and standard deviation for a batch, which is learnt from first unless they are frozen."""
        if self._update:
            for total in totals:
                self._include(total)
        if self.count or not totals:
            return self.mean, self.std
        if self._borrowed is None:
            self._borrowed = fmean(totals), (0.0 if is_uniform(totals) else pstdev(totals))
        return self._borrowed

    def _include(self, x: float) -> None:
        self.count += 1
        delta = x - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (x - self.mean)

    def state_dict(self) -> dict[str, Any]:
        """Count, mean and sum of squared deviations, and the state of the source."""
        own = {"count": self.count, "mean": self.mean, "m2": self.m2}
        return {"running": own, "children": super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "running" not in state:
            raise RewardError(f"the saved state of reward {self.name!r} holds no running mean; got {sorted(state)}")
        running = state["running"]
        self.count, self.mean, self.m2 = running["count"], running["mean"], running["m2"]
        super().load_state_dict(state["children"])


class GroupNormalise(Reward):
    """`(total - mean) / std` with the mean and population standard deviation of the rollout's group.

    In a group of equal totals, or of one rollout, every reward and step is exactly 0. The part `uniform` is 1 there and
    0 elsewhere, so its mean is the share of rollouts that this source says nothing about.
    """

    def __init__(self, source: Any) -> None:
        self.source = as_source(source)
        self.children = (self.source,)
        self.name = self.source.name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return _by_group(rollouts, verified_scores(self.source, rollouts), _group_z)


class GroupRank(Reward):
    """Place of the total in its group, from 0 (the lowest) to 1 (the highest).

    `(rank - 1) / (n - 1)`, equal totals sharing the mean of their ranks: the share of the others that the rollout
    beats, ties counting half. 1/2 throughout a uniform group.
    """

    def __init__(self, source: Any) -> None:
        self.source = as_source(source)
        self.children = (self.source,)
        self.name = self.source.name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return _by_group(rollouts, verified_scores(self.source, rollouts), _group_rank)


class Sigmoid(Reward):
    """`1 / (1 + exp(-(total - centre) / scale))`, in (0, 1): no single reward can outweigh all others."""

    def __init__(self, source: Any, centre: float = 0.0, scale: float = 1.0) -> None:
        if not (math.isfinite(centre) and math.isfinite(scale) and scale > 0):
            raise ConfigError(f"normalise: centre={centre}, scale={scale}; expected a finite centre, a positive scale")
        self.source = as_source(source)
        self.centre, self.scale = centre, scale
        self.children = (self.source,)
        self.name = self.source.name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = verified_scores(self.source, rollouts)
        return [_mapped(s, sigmoid((s.total - self.centre) / self.scale)) if s.ok else s for s in scores]


NORMALISERS: dict[str, Callable[..., Reward]] = {
    "fixed": Standardise,
    "running": Normalise,
    "group": GroupNormalise,
    "rank": GroupRank,
    "sigmoid": Sigmoid,
}


@contextmanager
def frozen(source: Any) -> Iterator[None]:
    """No running statistics of a source, or of what it is made of, move within: for evaluation."""
    with ExitStack() as stack:
        for part in _parts(source):
            if isinstance(part, Normalise):
                stack.enter_context(part.frozen())
        yield


def _parts(source: Any) -> Iterator[Any]:
    yield source
    for child in getattr(source, "children", ()):
        yield from _parts(child)


def sigmoid(x: float) -> float:
    """The logistic function, without overflow at either end."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def is_uniform(totals: Sequence[float]) -> bool:
    """Whether numbers are all equal, exactly or up to float noise."""
    high, low = max(totals), min(totals)
    return high - low <= TOLERANCE * max(1.0, abs(high), abs(low))


def _by_group(
    rollouts: Sequence[Rollout], scores: Sequence[Score], rescale: Callable[[list[Score]], list[Score]]
) -> list[Score]:
    """The scores with those that are usable rescaled, group by group."""
    groups: dict[str, list[int]] = {}
    for place, (rollout, score) in enumerate(zip(rollouts, scores, strict=True)):
        if score.ok:
            groups.setdefault(rollout.group, []).append(place)
    result = list(scores)
    for places in groups.values():
        for place, score in zip(places, rescale([scores[place] for place in places]), strict=True):
            result[place] = score
    return result


def _group_z(scores: list[Score]) -> list[Score]:
    totals = [score.total for score in scores]
    if is_uniform(totals):
        return [_mapped(score, 0.0, uniform=1.0) for score in scores]
    mean, std = fmean(totals), pstdev(totals)
    return [_linear(score, mean, std, uniform=0.0) for score in scores]


def _group_rank(scores: list[Score]) -> list[Score]:
    totals = [score.total for score in scores]
    if is_uniform(totals):
        return [_mapped(score, 0.5) for score in scores]
    ordered = sorted(totals)
    # The mean of the first and the last place of equals, counted from 0.
    places = [(bisect_left(ordered, total) + bisect_right(ordered, total) - 1) / 2 for total in totals]
    return [_mapped(score, place / (len(totals) - 1)) for score, place in zip(scores, places, strict=True)]


def _linear(score: Score, mean: float, std: float, **parts: float) -> Score:
    return Score(
        value=((score.value or 0.0) - mean) / std,
        steps=tuple((index, reward / std) for index, reward in score.steps),
        parts={"raw": score.total, **score.parts, **parts},
    )


def _mapped(score: Score, value: float, **parts: float) -> Score:
    return Score(value=value, parts={"raw": score.total, **score.parts, **parts})
