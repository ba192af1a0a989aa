"""Counts out of totals with their intervals, and how figures of a reward are written in words."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.evaluate.statistics import Interval, proportion_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A count out of a total, with the 95% interval of its rate; NaN when the total is 0."""

    correct: int
    total: int
    interval: Interval

    @classmethod
    def of(cls, hits: Sequence[bool], groups: Sequence[Hashable] | None = None) -> Share:
        """How many of `hits` are true; `groups` names the prompt of each, and widens the interval as it should."""
        outcomes = [float(hit) for hit in hits]
        return cls(correct=sum(hits), total=len(hits), interval=proportion_interval(outcomes, groups=groups))

    @property
    def rate(self) -> float:
        """correct / total."""
        return self.correct / self.total if self.total else math.nan

    @property
    def evidence(self) -> str:
        """Counts and interval in words."""
        return f"{self.correct} of {self.total} {percents(self.interval)}" if self.total else "no pairs"

    @property
    def short(self) -> str:
        """Rate and total in words, for narrow tables."""
        return f"{self.rate:.1%} of {self.total}" if self.total else "no pairs"

    def to_dict(self, name: str) -> dict[str, Any]:
        """Rate, interval and counts under `name`, as JSON has them."""
        return {
            name: self.rate if self.total else None,
            f"{name}_interval": list(self.interval) if self.total else None,
            f"{name}_counts": [self.correct, self.total],
        }


def percents(interval: Interval) -> str:
    """An interval in percent, in brackets."""
    return f"[{interval[0]:.1%}, {interval[1]:.1%}]"


def percent(value: float) -> str:
    """A rate in percent; one of nothing says so."""
    return f"{value:.1%}" if math.isfinite(value) else "no pairs"


def number(value: float) -> str:
    """Three digits after the point, and no sign before a zero; a figure that does not exist says so."""
    return f"{value:z.3f}" if math.isfinite(value) else "undefined"


def amount(value: float) -> str:
    """As `number`, but a tiny one is a power of ten: the unit of a score may be any."""
    return f"{value:.1e}" if 0 < abs(value) < 5e-4 else number(value)


def plain(values: Mapping[str, float]) -> dict[str, float | None]:
    """Figures as JSON has them: one that is not finite is None."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
