"""Coefficients of agreement: raw, Cohen's, Fleiss' and Krippendorff's, with bootstrap intervals over items.

Ratings say what each person said of each item. Where agreement by chance would be perfect, or where nobody can be
compared with anybody, a coefficient is not defined and says why: it is never a 1, a 0 or an exception.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefrl.evaluate.statistics import Interval, proportion_interval

Value: TypeAlias = str | int
Ratings: TypeAlias = Mapping[str, Mapping[str, Value]]
"""Item -> person -> what the person said of the item."""

Level = Literal["nominal", "ordinal"]
Array: TypeAlias = NDArray[np.float64]

_RESAMPLES = 1000
_CHUNK = 4_000_000  # most counts drawn at a time: 32 MB
_MOST_UNDEFINED = 0.05  # of the resamples: with more of them left out, the rest no longer stand for the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A coefficient with its 95% interval; NaN where `undefined` says why.

    interval   percentile bootstrap over items; None where resampling cannot tell: too few items, or all of them alike
    items      items that were rated by two people
    votes      ratings of these
    """

    name: str
    value: float = math.nan
    interval: Interval | None = None
    items: int = 0
    votes: int = 0
    undefined: str = ""

    def __str__(self) -> str:
        if self.undefined:
            return f"not defined because {self.undefined}"
        interval = f"[{self.interval[0]:z.2f}, {self.interval[1]:z.2f}]" if self.interval else "no interval"
        return f"{self.value:z.2f} {interval}"


def raw_agreement(ratings: Ratings) -> Coefficient:
    """Share of pairs of ratings of one item that are equal; what chance gives is in it."""
    several = _several(ratings)
    if reason := _incomparable(ratings, several):
        return Coefficient(name="raw agreement", undefined=reason)
    equal = [
        (float(one == other), index)
        for index, said in enumerate(several)
        for one, other in itertools.combinations(said.values(), 2)
    ]
    outcomes, groups = [hit for hit, _ in equal], [index for _, index in equal]
    return Coefficient(
        name="raw agreement",
        value=math.fsum(outcomes) / len(outcomes),
        interval=proportion_interval(outcomes, groups=groups),
        items=len(several),
        votes=sum(map(len, several)),
    )


def cohen_kappa(ratings: Ratings, first: str, second: str) -> Coefficient:
    """Cohen's kappa of two people, `(p_o - p_e) / (1 - p_e)`, over the items that both rated (Cohen, 1960)."""
    shared = [{first: said[first], second: said[second]} for said in ratings.values() if {first, second} <= said.keys()]
    return _cohen_of(shared, first, second)


def cohen_kappas(ratings: Ratings, people: Collection[str] | None = None) -> dict[tuple[str, str], Coefficient]:
    """Cohen's kappa of every two of these people, or of all, in the order of their names."""
    known = {person for said in ratings.values() for person in said}
    wanted = sorted(known if people is None else known & set(people))
    shared: dict[tuple[str, str], list[dict[str, Value]]] = {pair: [] for pair in itertools.combinations(wanted, 2)}
    chosen = set(wanted)
    for said in ratings.values():
        for one, other in itertools.combinations(sorted(said.keys() & chosen), 2):
            shared[one, other].append({one: said[one], other: said[other]})
    return {pair: _cohen_of(items, *pair) for pair, items in shared.items()}


def _cohen_of(shared: Sequence[Mapping[str, Value]], first: str, second: str) -> Coefficient:
    def table(said: Mapping[str, Value], index: Mapping[Value, int]) -> Array:
        cells = np.zeros((len(index), len(index)))
        cells[index[said[first]], index[said[second]]] = 1.0
        return cells.ravel()

    ratings = {str(place): said for place, said in enumerate(shared)}
    none = f"{first} and {second} rated no item in common" if not shared else ""
    return _coefficient("Cohen's kappa", ratings, table, _cohen, none)


def fleiss_kappa(ratings: Ratings) -> Coefficient:
    """Fleiss' kappa (1971), for any people and, as Gwet has it (2014), any number of them an item.

    `p_e` is the sum of squares of each value's mean share of an item's ratings, `p_o` the mean share of equal pairs.
    """

    def shares(said: Mapping[str, Value], index: Mapping[Value, int]) -> Array:
        counts = _counts(said, index)
        n = counts.sum()
        return np.concatenate([counts / n, [(counts * (counts - 1)).sum() / (n * (n - 1)), 1.0]])

    return _coefficient("Fleiss' kappa", ratings, shares, _fleiss)


def krippendorff(ratings: Ratings, level: Level = "nominal") -> Coefficient:
    """Krippendorff's alpha, `1 - D_observed / D_expected`, for any number of people an item (Krippendorff, 2004).

    Args:
        ratings: of numbers, for an ordinal alpha.
        level: nominal takes all differing values as equally far apart; ordinal as far as the ratings between them.
    """

    def pairs(said: Mapping[str, Value], index: Mapping[Value, int]) -> Array:
        return coincidences(_counts(said, index)).ravel()

    return _coefficient(f"Krippendorff's alpha, {level}", ratings, pairs, lambda sums: alpha_of(sums, level))


def coincidences(counts: Array) -> Array:
    """Ordered pairs of one item's n ratings, (K, K), each counted 1 / (n - 1); `counts` (K,) of each value."""
    return (np.outer(counts, counts) - np.diag(counts)) / (counts.sum() - 1)


def alpha_of(sums: Array, level: Level = "nominal") -> Array:
    """Krippendorff's alpha (R,) of summed coincidences (R, K * K); NaN where all ratings have one value.

    The ordinal distance of c and k is the number of ratings from the one to the other, those at the ends counted half.
    """
    size = math.isqrt(sums.shape[-1])
    observed = sums.reshape(-1, size, size)
    totals = observed.sum(2)
    n = totals.sum(1)
    if level == "ordinal":
        middle = totals.cumsum(1) - totals / 2
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    else:
        distance = np.broadcast_to(1.0 - np.eye(size), observed.shape)
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum((1, 2))
    return 1 - _ratio((n - 1) * (observed * distance).sum((1, 2)), expected)


def _cohen(sums: Array) -> Array:
    size = math.isqrt(sums.shape[-1])
    table = sums.reshape(-1, size, size)
    n = table.sum((1, 2))
    expected = (table.sum(1) * table.sum(2)).sum(1) / n**2
    return _corrected(np.trace(table, axis1=1, axis2=2) / n, expected)


def _fleiss(sums: Array) -> Array:
    items = sums[:, -1]
    return _corrected(sums[:, -2] / items, ((sums[:, :-2] / items[:, None]) ** 2).sum(1))


def _corrected(observed: Array, expected: Array) -> Array:
    # 1 - p_e is 0 up to rounding where every rating has the same value.
    room = 1 - expected
    return _ratio(observed - expected, np.where(room > 1e-12, room, 0.0))


def _ratio(above: Array, below: Array) -> Array:
    """The quotient, NaN where it is one by 0."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below != 0)


def _coefficient(
    name: str,
    ratings: Ratings,
    row: Callable[[Mapping[str, Value], Mapping[Value, int]], Array],
    statistic: Callable[[Array], Array],
    reason: str = "",
) -> Coefficient:
    """A coefficient that is a function of sums over items: `row` is one item's part of the sums."""
    several = _several(ratings)
    items, votes = len(several), sum(map(len, several))
    reason = reason or _incomparable(ratings, several) or _constant(several)
    if reason:
        return Coefficient(name=name, items=items, votes=votes, undefined=reason)
    values = sorted({value for said in several for value in said.values()}, key=lambda v: (isinstance(v, str), v))
    index = {value: position for position, value in enumerate(values)}
    rows = np.stack([row(said, index) for said in several])
    value = float(statistic(rows.sum(0, keepdims=True))[0])
    return Coefficient(name=name, value=value, interval=_bootstrap(rows, statistic), items=items, votes=votes)


def _bootstrap(rows: Array, statistic: Callable[[Array], Array], resamples: int = _RESAMPLES) -> Interval | None:
    """Percentile interval over resampled items; None without spread, which would not be certainty."""
    rng, size = np.random.default_rng(0), len(rows)
    kinds, frequency = np.unique(rows, axis=0, return_counts=True)  # equal items are drawn together
    step = max(1, _CHUNK // len(kinds))
    found = np.concatenate(
        [
            statistic(rng.multinomial(size, frequency / size, min(step, resamples - start)) @ kinds)
            for start in range(0, resamples, step)
        ]
    )
    defined = found[np.isfinite(found)]
    if len(defined) < (1 - _MOST_UNDEFINED) * resamples or np.ptp(defined) < 1e-12:
        return None
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def _counts(said: Mapping[str, Value], index: Mapping[Value, int]) -> Array:
    return np.bincount([index[value] for value in said.values()], minlength=len(index)).astype(np.float64)


def _several(ratings: Ratings) -> list[Mapping[str, Value]]:
    return [said for said in ratings.values() if len(said) > 1]


def _incomparable(ratings: Ratings, several: Sequence[Mapping[str, Value]]) -> str:
    if several:
        return ""
    people = {person for said in ratings.values() for person in said}
    if not people:
        return "nobody rated anything yet"
    if len(people) == 1:
        return f"{people.pop()} is the only one who rated anything"
    return "no item was rated by two people"


def _constant(several: Sequence[Mapping[str, Value]]) -> str:
    values = {value for said in several for value in said.values()}
    if len(values) > 1:
        return ""
    return f"every rating is {values.pop()!r}: without another value, chance would agree as well"
