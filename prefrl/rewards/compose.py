"""Sources made of sources: weighted sum, gate, clip and running normalisation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.base import Reward, RewardSource, as_source, unique_names, verified_scores
from prefrl.types import Rollout, Score

Term = tuple[RewardSource, float]


def terms_of(source: RewardSource, weight: float = 1.0) -> list[Term]:
    """The (source, weight) terms of `weight * source`; the terms of a weighted sum stay flat."""
    own = source.terms if isinstance(source, WeightedSum) else [(source, 1.0)]
    return [(child, weight * w) for child, w in own]


class WeightedSum(Reward):
    """`sum_k w_k * r_k`, values and steps alike; `0.7 * a + 0.3 * b` makes one.

    Parts: the raw, unweighted total of every component under its name, its own parts as `name/part`.
    Weight 0 makes a component a metric only: its errors do not fail the rollout. An error of any other component
    does. Where a component failed on some rollouts of a batch, `name/error` is 1 on those and 0 on the others.
    """

    def __init__(self, terms: Sequence[tuple[Any, float]]) -> None:
        if not terms:
            raise ConfigError("a weighted sum of no rewards; give at least one")
        self.terms: list[Term] = [(as_source(source), float(weight)) for source, weight in terms]
        for source, weight in self.terms:
            if not math.isfinite(weight):
                raise ConfigError(f"the weight of reward {source.name!r} is {weight}; expected a finite number")
        self.children = tuple(source for source, _ in self.terms)
        self.name = " + ".join(f"{weight:g}*{source.name}" for source, weight in self.terms)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        names = unique_names(self.children)
        columns = [verified_scores(child, rollouts) for child in self.children]
        weights = [weight for _, weight in self.terms]
        flaky = {name for name, column in zip(names, columns, strict=True) if not all(s.ok for s in column)}
        return [self._combine(names, weights, row, flaky) for row in zip(*columns, strict=True)]

    @staticmethod
    def _combine(names: Sequence[str], weights: Sequence[float], row: Sequence[Score], flaky: set[str]) -> Score:
        value: float | None = None
        steps: dict[int, float] = {}
        parts: dict[str, float] = {}
        for name, weight, score in zip(names, weights, row, strict=True):
            if not score.ok and weight != 0:
                errors = {f"{n}/error": float(n == name) for n in flaky}
                return Score(error=f"component {name!r}: {score.error}", parts=errors)
            parts.update(_parts(name, score))
            if name in flaky:
                parts[f"{name}/error"] = float(not score.ok)
            if weight == 0:
                continue
            if score.value is not None:
                value = (value or 0.0) + weight * score.value
            for index, reward in score.steps:
                steps[index] = steps.get(index, 0.0) + weight * reward
        if value is None and not steps:  # metrics only: nothing is paid
            value = 0.0
        return Score(value=value, steps=tuple(sorted(steps.items())), parts=parts)


class Gate(Reward):
    """The source's score where the gate's total is at least `threshold`, the value `otherwise` elsewhere.

    An error of the gate fails the rollout; an error of the source does where the gate is open.
    Parts: both totals under their names, and `gate_open`.
    """

    def __init__(self, source: Any, by: Any, threshold: float, otherwise: float = 0.0) -> None:
        self.source, self.by = as_source(source), as_source(by)
        self.threshold, self.otherwise = threshold, otherwise
        self.children = (self.source, self.by)
        self.name = self.source.name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        inner, gate = (verified_scores(child, rollouts) for child in self.children)
        return [self._gated(score, key) for score, key in zip(inner, gate, strict=True)]

    def _gated(self, score: Score, key: Score) -> Score:
        name, by = unique_names(self.children)
        if not key.ok:
            return Score.failed(f"gate {by!r}: {key.error}")
        is_open = key.total >= self.threshold
        parts = {**_parts(name, score), **_parts(by, key), "gate_open": float(is_open)}
        if not is_open:
            return Score(value=self.otherwise, parts=parts)
        return replace(score, parts=parts) if score.ok else score


class Clip(Reward):
    """The value, and every step reward, limited to [low, high]; the part `raw` keeps the total before."""

    def __init__(self, source: Any, low: float, high: float) -> None:
        if not low <= high:
            raise ConfigError(f"clip: got [{low}, {high}]; expected low <= high")
        self.source = as_source(source)
        self.low, self.high = low, high
        self.children = (self.source,)
        self.name = self.source.name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self._clipped(score) if score.ok else score for score in verified_scores(self.source, rollouts)]

    def _clipped(self, score: Score) -> Score:
        return Score(
            value=None if score.value is None else self._limit(score.value),
            steps=tuple((index, self._limit(reward)) for index, reward in score.steps),
            parts={"raw": score.total, **score.parts},
        )

    def _limit(self, x: float) -> float:
        return min(max(x, self.low), self.high)


class Normalise(Reward):
    """`(total - mean) / std` with the running mean and standard deviation of all rollouts scored so far.

    Welford's update with the batch, then normalisation by the result; steps are divided by std, the
    mean is taken off the value. While std is 0 (one score, or all equal) only the mean is subtracted.
    `update=False` freezes the statistics: for evaluation, after `load_state_dict`.
    """

    def __init__(self, source: Any, *, update: bool = True) -> None:
        self.source = as_source(source)
        self.frozen = not update
        self.count, self.mean, self.m2 = 0, 0.0, 0.0
        self.children = (self.source,)
        self.name = self.source.name

    @property
    def std(self) -> float:
        """Population standard deviation so far; 0 when it is not larger than rounding noise."""
        std = math.sqrt(self.m2 / self.count) if self.count else 0.0
        return std if std > 1e-9 * abs(self.mean) else 0.0

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = verified_scores(self.source, rollouts)
        if not self.frozen:
            for score in scores:
                if score.ok:
                    self._include(score.total)
        scale = 1.0 / (self.std or 1.0)
        return [self._normalised(score, scale) if score.ok else score for score in scores]

    def _include(self, x: float) -> None:
        self.count += 1
        delta = x - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (x - self.mean)

    def _normalised(self, score: Score, scale: float) -> Score:
        return Score(
            value=((score.value or 0.0) - self.mean) * scale,
            steps=tuple((index, reward * scale) for index, reward in score.steps),
            parts={"raw": score.total, **score.parts},
        )

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


def _parts(name: str, score: Score) -> dict[str, float]:
    """A component's total under its name and its parts below it; nothing when it failed."""
    if not score.ok:
        return {}
    return {name: score.total, **{f"{name}/{part}": value for part, value in score.parts.items()}}
