"""How much of a reward is the length of the text: correlations, and accuracy where length does not help."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.evaluate.shares import Share, number, percent, percents, plain
from prefrl.evaluate.statistics import Interval, pearson

RATIOS = (1.1, 1.25, 1.5, 2.0)
"""Upper ends of the strata: the longer side of a pair has up to so many times the length of the shorter one."""

_Z = 1.959963984540054  # of a 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Pairs whose sides differ in length by about the same factor.

    shorter, longer  accuracy where the chosen side is the shorter or the longer one
    """

    name: str
    shorter: Share
    longer: Share

    @property
    def total(self) -> int:
        """Number of pairs."""
        return self.shorter.total + self.longer.total

    @property
    def balanced(self) -> float:
        """Mean accuracy of the two sides: 1/2 for a reward that reads nothing but length; NaN where one is empty."""
        return (self.shorter.rate + self.longer.rate) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthReport:
    """What a reward has to do with length.

    pooled     correlation of score and length over all completions
    within     correlation of score difference and length difference over both orders of every pair
    shorter    accuracy where the chosen completion is the shorter one
    longer     accuracy where it is the longer one
    equal      accuracy where both are of the same length
    strata     the same by how much the lengths differ
    balanced   accuracy when, in every stratum, both sides count alike: 1/2 for a reward that reads only length
    interval   95% interval of `balanced`
    covered    pairs in `balanced`: those of strata that have both sides
    """

    pooled: float
    within: float
    shorter: Share
    longer: Share
    equal: Share
    strata: tuple[Stratum, ...]
    balanced: float
    interval: Interval
    covered: int

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, value and note, as a table shows them."""
        note = f"both of those alike at every length ratio {percents(self.interval)}, {self.covered} pairs"
        return [
            ("chosen is shorter", percent(self.shorter.rate), f"accuracy there, {self.shorter.evidence}"),
            ("chosen is longer", percent(self.longer.rate), f"accuracy there, {self.longer.evidence}"),
            ("length-balanced", percent(self.balanced), note),
            ("length correlation", number(self.pooled), "score and length, all completions"),
            ("  the same within pairs", number(self.within), "score difference and length difference"),
        ]

    def stratum_rows(self) -> list[tuple[str, int, str, str, str]]:
        """Ratio, pairs, accuracy where chosen is shorter, where it is longer, and balanced."""
        rows = [(s.name, s.total, s.shorter.short, s.longer.short, percent(s.balanced)) for s in self.strata]
        return [("equal", self.equal.total, "", "", self.equal.short), *rows]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return {
            **plain({"length_pooled": self.pooled, "length_within": self.within}),
            **self.shorter.to_dict("chosen_shorter"),
            **self.longer.to_dict("chosen_longer"),
            **self.equal.to_dict("equal_length"),
            **plain({"length_balanced": self.balanced}),
            "length_balanced_interval": list(self.interval) if self.covered else None,
            "length_balanced_pairs": self.covered,
            "length_strata": [
                {
                    "ratio": s.name,
                    **s.shorter.to_dict("shorter"),
                    **s.longer.to_dict("longer"),
                    **plain({"balanced": s.balanced}),
                }
                for s in self.strata
            ],
        }


def length_report(
    chosen: Sequence[float],
    rejected: Sequence[float],
    chosen_lengths: Sequence[float],
    rejected_lengths: Sequence[float],
    groups: Sequence[Hashable],
) -> LengthReport:
    """Measure pairs with finite scores; one entry a pair in every column, lengths of at least 0 in any unit."""
    margins = [c - r for c, r in zip(chosen, rejected, strict=True)]
    gaps = [c - r for c, r in zip(chosen_lengths, rejected_lengths, strict=True)]
    both = [*margins, *(-m for m in margins)], [*gaps, *(-g for g in gaps)]
    cells: dict[tuple[int, int], list[int]] = {}
    for i, (c, r) in enumerate(zip(chosen_lengths, rejected_lengths, strict=True)):
        if c != r:
            cells.setdefault((_stratum(c, r), 1 if c > r else -1), []).append(i)

    def share(at: Sequence[int]) -> Share:
        return Share.of([margins[i] > 0 for i in at], [groups[i] for i in at])

    strata = tuple(
        Stratum(name=name, shorter=share(cells.get((k, -1), ())), longer=share(cells.get((k, 1), ())))
        for k, name in enumerate(_names())
    )
    balanced, interval, covered = _balanced([m > 0 for m in margins], cells, groups)
    return LengthReport(
        pooled=pearson([*chosen, *rejected], [*chosen_lengths, *rejected_lengths]),
        within=pearson(*both),
        shorter=share([i for i, gap in enumerate(gaps) if gap < 0]),
        longer=share([i for i, gap in enumerate(gaps) if gap > 0]),
        equal=share([i for i, gap in enumerate(gaps) if gap == 0]),
        strata=strata,
        balanced=balanced,
        interval=interval,
        covered=covered,
    )


def _names() -> list[str]:
    edges = ["1", *(f"{ratio:g}" for ratio in RATIOS)]
    return [*(f"{low} to {high}" for low, high in itertools.pairwise(edges)), f"over {edges[-1]}"]


def _stratum(one: float, other: float) -> int:
    """Place of a pair by the ratio of its lengths; nothing against something is over every ratio."""
    ratio = max(one, other) / min(one, other) if min(one, other) > 0 else math.inf
    return sum(ratio > edge for edge in RATIOS)


def _balanced(
    hits: Sequence[bool], cells: Mapping[tuple[int, int], Sequence[int]], groups: Sequence[Hashable]
) -> tuple[float, Interval, int]:
    """Accuracy with both sides of every stratum at the same weight, its interval, and how many pairs are in it.

    The variance is that of a stratified mean, linearised, by prompt (Cochran, Sampling Techniques, 5.10); it is never
    taken to be smaller than that of independent pairs with one more hit and one more miss in every cell.
    """
    weights = {
        (k, sign): (len(at) + len(cells[k, -sign])) / 2 for (k, sign), at in cells.items() if (k, -sign) in cells
    }
    total = sum(weights.values())
    if not total:
        return math.nan, (0.0, 1.0), 0
    value, independent = 0.0, 0.0
    by_group: dict[Hashable, float] = {}
    for cell, weight in weights.items():
        at, share = cells[cell], weight / total
        right = sum(hits[i] for i in at)
        rate, safe = right / len(at), (right + 1) / (len(at) + 2)
        value += share * rate
        independent += share**2 * safe * (1 - safe) / len(at)
        for i in at:
            by_group[groups[i]] = by_group.get(groups[i], 0.0) + share * (hits[i] - rate) / len(at)
    half = _Z * math.sqrt(max(independent, math.fsum(u * u for u in by_group.values())))
    return value, (max(0.0, value - half), min(1.0, value + half)), round(total)
