"""Sources made of sources: weighted sum, audit, gate, minimum, product and clip."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from prefrl.errors import ConfigError
from prefrl.rewards.base import Reward, RewardSource, as_source, unique_names, verified_scores
from prefrl.types import Rollout, Score

Term = tuple[RewardSource, float]
LEFT_OUT = "not in the share that is audited"


def terms_of(source: RewardSource, weight: float = 1.0) -> list[Term]:
    """The (source, weight) terms of `weight * source`; the terms of a weighted sum stay flat."""
    own = source.terms if isinstance(source, WeightedSum) else [(source, float(not isinstance(source, Audit)))]
    return [(child, weight * w) for child, w in own]


class Audit(Reward):
    """A source that is measured and never learnt from; in a sum its weight is 0.

    What it says can be trusted for as long as nothing optimizes it: a slower or dearer verifier, a second reward model,
    a judge. The metrics of the other sources say how each agrees with this one.

    Args:
        source: what judges.
        share: share of the rollouts that it sees, for one that is slow or dear. Which ones follows from prompt and text
            alone; the others are left out of its figures, and are no errors.

    Raises:
        ConfigError: a share outside (0, 1].
    """

    def __init__(self, source: Any, share: float = 1.0) -> None:
        if not 0.0 < share <= 1.0:
            raise ConfigError(f"an audit of the share {share} of the answers; expected a number in (0, 1]")
        self.source = as_source(source)
        self.share = share
        self.children = (self.source,)
        self.name = self.source.name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        seen = [in_share(f"{rollout.prompt.id}|{rollout.text}", self.share) for rollout in rollouts]
        scores = iter(verified_scores(self.source, [r for r, mine in zip(rollouts, seen, strict=True) if mine]))
        return [next(scores) if mine else Score.failed(LEFT_OUT) for mine in seen]


def in_share(text: str, share: float) -> bool:
    """Whether a text is one of a share of all texts; the same answer every time."""
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


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
            if weight and isinstance(source, Audit):
                raise ConfigError(
                    f"the weight of reward {source.name!r} is {weight:g}, but it is an audit, which is never learnt "
                    "from; leave the weight out, or take audit away"
                )
        if sum(isinstance(source, Audit) for source, _ in self.terms) > 1:
            raise ConfigError("two rewards are audits; expected one. Leave audit away and set weight: 0 on the others")
        self.children = tuple(source for source, _ in self.terms)
        self.name = " + ".join(f"{weight:g}*{source.name}" for source, weight in self.terms)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        names = unique_names(self.children)
        columns = [verified_scores(child, rollouts) for child in self.children]
        weights = [weight for _, weight in self.terms]
        flaky = {
            name
            for name, column in zip(names, columns, strict=True)
            if not all(s.ok or s.error == LEFT_OUT for s in column)
        }
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
            parts.update(named_parts(name, score))
            if name in flaky:
                parts[f"{name}/error"] = float(not score.ok and score.error != LEFT_OUT)
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
        parts = {**named_parts(name, score), **named_parts(by, key), "gate_open": float(is_open)}
        if not is_open:
            return Score(value=self.otherwise, parts=parts)
        return replace(score, parts=parts) if score.ok else score


class Fold(Reward):
    """One number of the totals of several sources, paid at the end; see `minimum` and `product`.

    Parts: the total of every source under its name. An error of any source fails the rollout.
    """

    def __init__(self, sources: Sequence[Any], how: Literal["min", "product"]) -> None:
        if len(sources) < 2:
            raise ConfigError(f"{how} of {len(sources)} rewards; expected two or more")
        self.how: Literal["min", "product"] = how
        self.sources = self.children = tuple(as_source(source) for source in sources)
        self.name = f"{how}({', '.join(source.name for source in self.children)})"

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        names = unique_names(self.children)
        columns = [verified_scores(child, rollouts) for child in self.children]
        return [self._folded(names, row) for row in zip(*columns, strict=True)]

    def _folded(self, names: Sequence[str], row: Sequence[Score]) -> Score:
        for name, score in zip(names, row, strict=True):
            if not score.ok:
                return Score.failed(f"component {name!r}: {score.error}")
        totals = [score.total for score in row]
        parts = {key: x for name, score in zip(names, row, strict=True) for key, x in named_parts(name, score).items()}
        return Score(value=min(totals) if self.how == "min" else math.prod(totals), parts=parts)


def minimum(sources: Sequence[Any]) -> Fold:
    """The lowest total of several sources: good is what is good in every respect, so scales must be alike."""
    return Fold(sources, "min")


def product(sources: Sequence[Any]) -> Fold:
    """The product of totals: of rewards in [0, 1] a soft "and". Negative rewards turn the sign of the others."""
    return Fold(sources, "product")


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


def named_parts(name: str, score: Score) -> dict[str, float]:
    """A component's total under its name and its parts below it; nothing when it failed."""
    if not score.ok:
        return {}
    return {name: score.total, **{f"{name}/{part}": value for part, value in score.parts.items()}}
