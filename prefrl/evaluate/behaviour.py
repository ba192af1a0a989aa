"""How annotators go about it: sides, speed, ties, runs of one answer, and answers that are known.

Every function takes live labels and gives figures by person, with the verdict at the thresholds that are asked for.
A verdict is about the figures, not about the person: somebody who reads fast is not careless for it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prefrl.data.comparisons import Label
from prefrl.errors import ConfigError
from prefrl.evaluate.ratings import by_person, is_choice
from prefrl.evaluate.statistics import Interval, binomial_test, clopper_pearson

# Median of |z| of a normal distribution: a median absolute deviation divided by it estimates the standard deviation.
_MAD = 0.6745


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on a figure is remarked upon.

    level      chance of remarking on anybody at all where nobody has a side or a run; split among all people
    gold       least share of known answers that are to be given
    gold_least known answers without which there is no verdict
    tie        most of all answers that may be ties or two bad ones, beyond doubt
    speed      robust standard deviations of the log seconds, below or above everybody else's median
    least      labels without which there is no verdict on ties and speed
    """

    level: float = 0.01
    gold: float = 0.7
    gold_least: int = 5
    tie: float = 0.6
    speed: float = 2.0
    least: int = 20

    def __post_init__(self) -> None:
        for name in ("level", "gold", "tie"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ConfigError(f"threshold {name} is {getattr(self, name)}; expected a number between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How often a person chose what was shown as A, of the labels that chose a side.

    p_value  exact and two-sided, that a person without a side would be as far from half
    """

    chosen_a: int
    decided: int
    interval: Interval
    p_value: float
    flagged: bool

    @property
    def rate(self) -> float:
        """Share of A; NaN where no side was chosen."""
        return self.chosen_a / self.decided if self.decided else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Active seconds a label.

    untimed  labels that say no time: in no figure
    z        of the median of the logarithms, by median and median absolute deviation of everybody else's
    verdict  fast, slow or nothing
    """

    timed: int
    untimed: int
    median_seconds: float
    z: float
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Some labels out of others, with the exact interval of their share."""

    count: int
    total: int
    interval: Interval
    verdict: str

    @property
    def rate(self) -> float:
        """count / total; NaN of nothing."""
        return self.count / self.total if self.total else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The longest row of one answer, as shown; p_value bounds the chance of one as long."""

    answer: str
    length: int
    p_value: float
    flagged: bool


def shown(label: Label) -> str:
    """The outcome as the person saw it: a or b in place of first or second."""
    if label.outcome not in ("first", "second"):
        return label.outcome
    return "a" if (label.outcome == "first") != bool(label.details.get("exchanged", False)) else "b"


def side_bias(labels: Sequence[Label], thresholds: Thresholds | None = None) -> dict[str, Side]:
    """Whether people prefer a side: sides are drawn by chance, so that without a bias A is chosen half the time.

    Labels that do not say how their item was shown (`details.exchanged`) are left out.
    """
    decided = [x for x in labels if x.outcome in ("first", "second") and "exchanged" in x.details]
    people = by_person(decided)
    level = (thresholds or Thresholds()).level / max(1, len(people))
    found = {}
    for person, theirs in people.items():
        a, total = sum(shown(x) == "a" for x in theirs), len(theirs)
        p_value = binomial_test(a, total)
        found[person] = Side(
            chosen_a=a,
            decided=total,
            interval=clopper_pearson(a, total),
            p_value=p_value,
            flagged=p_value < level,
        )
    return found


def speed(labels: Sequence[Label], thresholds: Thresholds | None = None) -> dict[str, Speed]:
    """How quick people are beside everybody else; skips, which need no reading, are not timed."""
    limits = thresholds or Thresholds()
    people = by_person(x for x in labels if x.outcome != "skip")
    logs = {person: [math.log(ms) for x in theirs if (ms := _active(x)) > 0] for person, theirs in people.items()}
    found = {}
    for person, mine in logs.items():
        others = [value for other, values in logs.items() if other != person for value in values]
        z = _robust_z(statistics.median(mine), others) if mine else math.nan
        enough = min(len(mine), len(others)) >= limits.least
        far = enough and abs(z) > limits.speed
        found[person] = Speed(
            timed=len(mine),
            untimed=len(people[person]) - len(mine),
            median_seconds=math.exp(statistics.median(mine)) / 1000 if mine else math.nan,
            z=z,
            verdict=("fast" if z < 0 else "slow") if far else "",
        )
    return found


def ties(labels: Sequence[Label], thresholds: Thresholds | None = None) -> dict[str, Count]:
    """How often people say neither (a tie, or both bad) of two answers; the verdict is always_tie or nothing."""
    limits = thresholds or Thresholds()
    neither = ("tie", "both_bad")
    people = by_person(x for x in labels if x.outcome in ("first", "second", *neither))
    found = {}
    for person, theirs in people.items():
        count = sum(x.outcome in neither for x in theirs)
        interval = clopper_pearson(count, len(theirs))
        always = len(theirs) >= limits.least and interval[0] > limits.tie
        found[person] = Count(count=count, total=len(theirs), interval=interval, verdict="always_tie" if always else "")
    return found


def gold(labels: Sequence[Label], answers: Mapping[str, str], thresholds: Thresholds | None = None) -> dict[str, Count]:
    """How often people give the known answer.

    The verdict is pass where the share is reached, fail where it is missed beyond doubt (by the whole interval),
    unclear between the two, and too_few where there are not enough known answers to say.

    Args:
        labels: live labels; a skip gives no answer and is not counted.
        answers: outcome by item.
        thresholds: least share, and how many are needed.
    """
    limits = thresholds or Thresholds()
    people = by_person(x for x in labels if x.item in answers and x.outcome != "skip")
    found = {}
    for person, theirs in people.items():
        right, total = sum(x.outcome == answers[x.item] for x in theirs), len(theirs)
        interval = clopper_pearson(right, total)
        verdict = "pass" if right >= limits.gold * total else "fail" if interval[1] < limits.gold else "unclear"
        found[person] = Count(
            count=right,
            total=total,
            interval=interval,
            verdict=verdict if total >= limits.gold_least else "too_few",
        )
    return found


def straight_lining(labels: Sequence[Label], thresholds: Thresholds | None = None) -> dict[str, Run]:
    """The longest row of one answer as it was shown, in the order of labelling.

    With p the share of that answer among everybody else's (1/2 at least for a side), a row of L among n answers has at
    most the chance (n - L + 1) p^L.
    """
    people = {person: list(map(shown, said)) for person, said in by_person(filter(is_choice, labels)).items()}
    level = (thresholds or Thresholds()).level / max(1, len(people))
    totals = Counter(itertools.chain.from_iterable(people.values()))
    found = {}
    for person, theirs in people.items():
        rows = [(answer, len(list(row))) for answer, row in itertools.groupby(theirs)]
        answer, length = max(rows, key=lambda row: row[1])
        others = totals.total() - len(theirs)
        rate = (totals[answer] - theirs.count(answer)) / others if others else 1.0
        rate = max(rate, 0.5) if answer in ("a", "b") else rate
        p_value = min(1.0, (len(theirs) - length + 1) * rate**length)
        found[person] = Run(answer=answer, length=length, p_value=p_value, flagged=p_value < level)
    return found


def _active(label: Label) -> float:
    value = label.details.get("active_ms")
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _robust_z(value: float, others: Sequence[float]) -> float:
    """How many robust standard deviations above the median of others; NaN where these have no spread."""
    if not others:
        return math.nan
    centre = np.median(others)
    spread = float(np.median(np.abs(np.asarray(others) - centre))) / _MAD
    return (value - float(centre)) / spread if spread else math.nan
