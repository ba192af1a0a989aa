"""What score differences say: probabilities and their calibration, the best temperature, and margins of tied pairs."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.evaluate.shares import Share, amount, percent, plain

CLOSE = math.log(3)
"""A margin below it gives neither side a probability above 3/4."""


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin of the calibration curve: mean predicted probability, share that held, predictions in it."""

    predicted: float
    observed: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """What a reward says of pairs that people call a tie.

    close       tied pairs with |margin| < log 3
    decided     the same share of the pairs that are no ties
    separation  how often a tied pair has the smaller |margin| than a decided one, half where they are equal: 1/2 for a
                reward that cannot tell ties
    unscored    tied pairs with a score that is not finite: in no figure
    """

    margins: tuple[float, ...]
    close: Share
    decided: Share
    separation: float
    unscored: int

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, value and note, as a table shows them."""
        lost = f"; {self.unscored} unscored" if self.unscored else ""
        note = f"|margin| < log 3, {self.close.evidence}{lost}; of the other pairs {percent(self.decided.rate)}"
        return [
            ("tied pairs that are close", percent(self.close.rate), note),
            ("  told from the others", percent(self.separation), "a tied pair has the smaller |margin|; guessing 50%"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return {
            **self.close.to_dict("close"),
            **self.decided.to_dict("decided_close"),
            **plain({"separation": self.separation}),
            "unscored": self.unscored,
        }


def tied_report(tied: Sequence[float], decided: Sequence[float]) -> Tied:
    """Margins of tied pairs, NaN where there is none, beside finite ones of decided pairs."""
    margins = [m for m in tied if math.isfinite(m)]
    ordered = sorted(abs(m) for m in decided)
    wins = [
        1 - (bisect.bisect_left(ordered, abs(m)) + bisect.bisect_right(ordered, abs(m))) / (2 * len(ordered))
        for m in margins
    ]
    return Tied(
        margins=tuple(margins),
        close=Share.of([abs(m) < CLOSE for m in margins]),
        decided=Share.of([m < CLOSE for m in ordered]),
        separation=mean(wins) if wins else math.nan,
        unscored=len(tied) - len(margins),
    )


def softplus(x: float) -> float:
    """`log(1 + e^x)` without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x: float) -> float:
    """`1 / (1 + e^-x)` without overflow."""
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1.0 + small)


def calibration_bins(margins: Sequence[float], bins: int = 10) -> tuple[Bin, ...]:
    """Non-empty equal-width bins of p over both orders of every pair: (p, 1) and (1 - p, 0)."""
    inside: dict[int, list[tuple[float, float]]] = {}
    for margin in margins:
        for p, label in ((sigmoid(margin), 1.0), (sigmoid(-margin), 0.0)):
            inside.setdefault(min(bins - 1, int(p * bins)), []).append((p, label))
    return tuple(
        Bin(mean([p for p, _ in points]), mean([label for _, label in points]), len(points))
        for _, points in sorted(inside.items())
    )


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Mean over predictions of |predicted - observed| of their bin (Naeini 2015)."""
    total = sum(b.count for b in bins)
    return math.fsum(b.count * abs(b.predicted - b.observed) for b in bins) / total


def best_temperature(margins: Sequence[float]) -> float:
    """The T > 0 of lowest mean `-log sigmoid(m / T)`: convex in 1 / T, so its slope is bisected.

    Infinite where the mean margin is 0 or less, as no scale helps scores that point the wrong way; 0 where no margin is
    negative, as the NLL then falls with T for ever.
    """
    largest = max(map(abs, margins))
    if mean(margins) <= 0 or largest == 0:
        return math.inf
    if min(margins) >= 0:
        return 0.0
    unit = [m / largest for m in margins]
    low, high = 0.0, 1.0
    while _rises(unit, high) < 0 and high < 1e300:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _rises(unit, middle) < 0 else (low, middle)
    return largest / high


def scaled_nll(margins: Sequence[float], temperature: float) -> float:
    """Mean `-log sigmoid(m / T)`; at T = 0 its limit."""
    if temperature == 0:
        return mean([0.0 if m > 0 else math.log(2) if m == 0 else math.inf for m in margins])
    return mean([softplus(-m / temperature) for m in margins])


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Quantiles by linear interpolation between ordered values."""
    ordered = sorted(values)
    places = [share * (len(ordered) - 1) for share in shares]
    return [
        ordered[math.floor(x)] + (x - math.floor(x)) * (ordered[math.ceil(x)] - ordered[math.floor(x)]) for x in places
    ]


def mean(values: Sequence[float]) -> float:
    """Exactly rounded mean."""
    return math.fsum(values) / len(values)


def describe(margins: Sequence[float]) -> str:
    """Quartiles and tails of margins in words."""
    low, quarter, _, most, high = quantiles(margins, (0.05, 0.25, 0.5, 0.75, 0.95))
    return f"half lie in [{amount(quarter)}, {amount(most)}], nine in ten in [{amount(low)}, {amount(high)}]"


def _rises(margins: Sequence[float], inverse: float) -> float:
    """Slope of the mean NLL in 1 / T."""
    return -mean([m * sigmoid(-inverse * m) for m in margins])
