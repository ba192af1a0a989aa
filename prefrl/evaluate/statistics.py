"""Intervals and tests for proportions, means and correlations.

Samples of one prompt are not independent: pass `groups` and the interval resamples prompts, not samples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefrl.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Interval = tuple[float, float]

_RESAMPLES = 2000
_CHUNK = 1_000_000  # most indices drawn at a time: 8 MB


def wilson(successes: float, total: int, level: float = 0.95) -> Interval:
    """Wilson score interval of a proportion (Wilson 1927); (0, 1) when there is nothing to count.

    `successes` may be fractional: ties counted half vary less than coin flips, so the interval is then
    wider than it must be, never narrower.
    """
    _check_counts(successes, total, level)
    if total == 0:
        return 0.0, 1.0
    z = statistics.NormalDist().inv_cdf(0.5 + level / 2)
    rate, spread = successes / total, z * z / total
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / total + spread / total / 4) / (1 + spread)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == total else min(1.0, centre + half)
    return low, high


def clopper_pearson(successes: int, total: int, level: float = 0.95) -> Interval:
    """Exact binomial interval (Clopper and Pearson 1934): covers at least `level`, often more."""
    from scipy.special import betaincinv

    _check_counts(successes, total, level)
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, total - successes + 1, tail))
    high = 1.0 if successes == total else float(betaincinv(successes + 1, total - successes, 1 - tail))
    return low, high


def binomial_test(successes: int, total: int, rate: float = 0.5) -> float:
    """Exact two-sided p-value: total probability of all counts no likelier than `successes` under `rate`."""
    _check_counts(successes, total, 0.95)
    if not 0.0 < rate < 1.0:
        raise DataError(f"rate is {rate}; expected a number strictly between 0 and 1.")
    logs = [_log_binomial(k, total, rate) for k in range(total + 1)]
    bound = logs[successes] + 1e-7  # equal probabilities differ by rounding
    return min(1.0, math.fsum(math.exp(value) for value in logs if value <= bound))


@dataclass(frozen=True, slots=True)
class SignTest:
    """A paired comparison: how often the first was better, and how surprising that is if neither is.

    p_value  exact and two-sided; ties say nothing and are left out, but counted
    """

    wins: int
    losses: int
    ties: int
    p_value: float


def sign_test(first: Sequence[float], second: Sequence[float]) -> SignTest:
    """Exact sign test of paired values.

    Raises:
        DataError: the lengths differ, or a value is not finite.
    """
    _check_pairs(first, second)
    wins = sum(a > b for a, b in zip(first, second, strict=True))
    losses = sum(a < b for a, b in zip(first, second, strict=True))
    return SignTest(wins, losses, len(first) - wins - losses, binomial_test(wins, wins + losses))


@dataclass(frozen=True, slots=True)
class WinRate:
    """Share of comparisons won, a tie counted half, with its 95% interval; NaN over no comparison."""

    rate: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int

    @property
    def total(self) -> int:
        """Number of comparisons."""
        return self.wins + self.ties + self.losses

    def __str__(self) -> str:
        counts = f"{self.wins} won, {self.ties} tied, {self.losses} lost"
        return f"{self.rate:.1%} [{self.low:.1%}, {self.high:.1%}] ({counts})"


def win_rate(outcomes: Sequence[float], *, groups: Sequence[Hashable] | None = None, level: float = 0.95) -> WinRate:
    """Win rate of 1 (win), 0.5 (tie) and 0 (loss).

    Args:
        outcomes: one per comparison.
        groups: the prompt of each comparison, when prompts are compared more than once.
        level: coverage of the interval.

    Raises:
        DataError: an outcome is none of the three.
    """
    if wrong := [value for value in outcomes if value not in (0.0, 0.5, 1.0)]:
        raise DataError(f"{wrong[0]} is no outcome; expected 1 (win), 0.5 (tie) or 0 (loss).")
    wins, losses = sum(v == 1.0 for v in outcomes), sum(v == 0.0 for v in outcomes)
    rate = sum(outcomes) / len(outcomes) if outcomes else math.nan
    low, high = proportion_interval(outcomes, groups=groups, level=level)
    return WinRate(rate, low, high, wins, len(outcomes) - wins - losses, losses)


def proportion_interval(
    outcomes: Sequence[float], *, groups: Sequence[Hashable] | None = None, level: float = 0.95
) -> Interval:
    """Interval of a mean of outcomes in [0, 1]: Wilson, or a cluster bootstrap when a group repeats.

    When all groups have the same mean the bootstrap has no spread, which is not certainty: the interval
    is then Wilson's over groups.
    """
    if groups is None or len(set(groups)) == len(outcomes):
        return wilson(sum(outcomes), len(outcomes), level)
    sums, counts = _clusters(outcomes, groups)
    means = [s / c for s, c in zip(sums, counts, strict=True)]
    if max(means) - min(means) < 1e-12:
        return wilson(means[0] * len(means), len(means), level)
    return bootstrap_mean(outcomes, groups=groups, level=level)


def bootstrap_mean(
    values: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    level: float = 0.95,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of the mean; the same seed gives the same numbers.

    Args:
        values: finite numbers.
        groups: resample these as wholes (cluster bootstrap), for several values per prompt.
        level: coverage of the interval.
        resamples: number of resampled means.
        seed: of the resampling.

    Raises:
        DataError: no value, a value that is not finite, or not one group per value.
    """
    import numpy as np

    _check_finite(values)
    if not values:
        raise DataError("No values to resample; expected at least one.")
    groups = range(len(values)) if groups is None else groups
    sums, counts = (np.array(part, dtype=np.float64) for part in _clusters(values, groups))
    means = _resampled_means(sums, counts, resamples, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def pearson(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson correlation; NaN when a side does not vary or there are fewer than two points.

    Raises:
        DataError: the lengths differ, or a value is not finite.
    """
    _check_pairs(x, y)
    if len(x) < 2:
        return math.nan
    dx, dy = _centred(x), _centred(y)
    if dx is None or dy is None:
        return math.nan
    covariance = math.fsum(a * b for a, b in zip(dx, dy, strict=True))
    scale = math.sqrt(math.fsum(a * a for a in dx)) * math.sqrt(math.fsum(b * b for b in dy))
    return max(-1.0, min(1.0, covariance / scale))


def _centred(values: Sequence[float]) -> list[float] | None:
    """Deviations from the mean in units of the largest, or None when they are nothing but rounding."""
    mean = math.fsum(values) / len(values)
    centred = [value - mean for value in values]
    largest = max(abs(value) for value in centred)
    if largest <= 1e-12 * max(abs(value) for value in values):
        return None
    return [value / largest for value in centred]


def _clusters(values: Sequence[float], groups: Sequence[Hashable]) -> tuple[list[float], list[int]]:
    """Sum and size of every group, in order of first appearance."""
    if len(groups) != len(values):
        raise DataError(f"Got {len(values)} values and {len(groups)} groups; expected one group per value.")
    sums: dict[Hashable, float] = {}
    counts: dict[Hashable, int] = {}
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums.get(group, 0.0) + value
        counts[group] = counts.get(group, 0) + 1
    return list(sums.values()), list(counts.values())


def _resampled_means(
    sums: NDArray[np.float64], counts: NDArray[np.float64], resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    import numpy as np

    size, means = len(sums), []
    for start in range(0, resamples, rows := max(1, _CHUNK // size)):
        picked = rng.integers(0, size, (min(rows, resamples - start), size))
        means.append(sums[picked].sum(axis=1) / counts[picked].sum(axis=1))
    return np.concatenate(means)


def _log_binomial(k: int, n: int, rate: float) -> float:
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return choose + k * math.log(rate) + (n - k) * math.log1p(-rate)


def _check_counts(successes: float, total: int, level: float) -> None:
    if not 0 <= successes <= total:
        raise DataError(f"Got {successes} successes of {total}; expected 0 <= successes <= total.")
    if not 0.0 < level < 1.0:
        raise DataError(f"level is {level}; expected a number strictly between 0 and 1, such as 0.95.")


def _check_finite(values: Sequence[float]) -> None:
    if wrong := sum(not math.isfinite(value) for value in values):
        raise DataError(f"{wrong} of {len(values)} values are not finite; leave them out and count them first.")


def _check_pairs(first: Sequence[float], second: Sequence[float]) -> None:
    if len(first) != len(second):
        raise DataError(f"Got {len(first)} and {len(second)} values; expected pairs.")
    _check_finite(first)
    _check_finite(second)
