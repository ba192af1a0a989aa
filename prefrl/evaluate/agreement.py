"""How far people agree on preference pairs, and so how high a reward can score on the judgement of one person.

A vote is 1 for the first side, 2 for the second and 0 for neither. Which side comes first is arbitrary, so every pair
enters in both orders.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.data.splits import prompt_key
from prefrl.evaluate.shares import number, percents, plain
from prefrl.evaluate.statistics import Interval, proportion_interval
from prefrl.types import Pair

FIRST, SECOND, NEITHER = 1, 2, 0
_SWAPPED = {FIRST: SECOND, SECOND: FIRST, NEITHER: NEITHER}

Votes = Sequence[int]
"""The votes on one pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of people on pairs that two or more of them judged; NaN where `undefined` says why.

    pairs          pairs with two votes or more
    votes          votes on them
    neither        of these, votes for neither side
    repeated       judgements by someone who had judged the same pair before: in no figure
    best           share of votes for a side that the majority of all agrees with: no reward that gives one answer a
                   pair can agree with more of them
    leave_one_out  share of votes for a side that the majority of the other people agrees with; half where they split
    pairwise       share of pairs of votes that are equal
    alpha          Krippendorff's alpha for nominal values: 1 is perfect agreement, 0 what chance gives
    undefined      why there are no figures
    """

    pairs: int = 0
    votes: int = 0
    neither: int = 0
    repeated: int = 0
    best: float = math.nan
    leave_one_out: float = math.nan
    interval: Interval = (0.0, 1.0)
    pairwise: float = math.nan
    alpha: float = math.nan
    undefined: str = ""

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, value and note, as a table shows them."""
        if self.undefined:
            return [("agreement of people", "not defined", f"because {self.undefined}")]
        neither = f", {self.neither} of them for neither side" if self.neither else ""
        repeated = f"; {self.repeated} repeated judgements left out" if self.repeated else ""
        basis = f"{self.votes} votes on {self.pairs} pairs{neither}{repeated}"
        other = f"one person and the majority of the others {percents(self.interval)}"
        return [
            ("ceiling", _percent(self.best), f"no reward can agree with more single votes; {basis}"),
            ("leave-one-out agreement", _percent(self.leave_one_out), other),
            ("pairwise agreement", _percent(self.pairwise), "two people on the same pair"),
            ("Krippendorff's alpha", number(self.alpha), "1 is perfect agreement, 0 is chance"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        if self.undefined:
            return {"undefined": self.undefined}
        return {
            "pairs": self.pairs,
            "votes": self.votes,
            "neither": self.neither,
            "repeated": self.repeated,
            **plain({"best": self.best, "leave_one_out": self.leave_one_out}),
            "leave_one_out_interval": list(self.interval),
            **plain({"pairwise": self.pairwise, "alpha": self.alpha}),
        }


def agreement(units: Sequence[Votes], *, repeated: int = 0) -> Agreement:
    """Agreement of votes; a unit is the votes on one pair, and one of a single vote says nothing.

    The leave-one-out interval resamples pairs, as the votes on one are not independent.
    """
    several = [unit for unit in units if len(unit) > 1]
    if not several:
        return Agreement(repeated=repeated, undefined="no pair was judged by two people")
    votes = [(index, unit, vote) for index, unit in enumerate(several) for vote in unit]
    sided = [(index, unit, vote) for index, unit, vote in votes if vote != NEITHER]
    outcomes = [_agrees(vote, unit, others=True) for _, unit, vote in sided]
    couples = [a == b for unit in several for a, b in itertools.combinations(unit, 2)]
    return Agreement(
        pairs=len(several),
        votes=len(votes),
        neither=len(votes) - len(sided),
        repeated=repeated,
        best=_mean([_agrees(vote, unit) for _, unit, vote in sided]),
        leave_one_out=_mean(outcomes),
        interval=proportion_interval(outcomes, groups=[index for index, _, _ in sided]),
        pairwise=_mean([float(equal) for equal in couples]),
        alpha=krippendorff_alpha(several),
    )


def krippendorff_alpha(units: Sequence[Votes]) -> float:
    """Krippendorff's alpha for nominal values, over both orders of every pair: see `coefficients.alpha_of`.

    The coincidence matrix is averaged with that of the exchanged sides. NaN when all votes are for neither side.
    """
    import numpy as np

    from prefrl.evaluate.coefficients import alpha_of, coincidences

    several = [unit for unit in units if len(unit) > 1]
    votes = np.array([[unit.count(value) for value in _SWAPPED] for unit in several], dtype=np.float64)
    sums = sum((coincidences(counts) for counts in votes), np.zeros((len(_SWAPPED), len(_SWAPPED))))
    exchanged = [list(_SWAPPED).index(other) for other in _SWAPPED.values()]
    both = (sums + sums[np.ix_(exchanged, exchanged)]) / 2
    return float(alpha_of(both.reshape(1, -1))[0])


def pair_agreement(pairs: Sequence[Pair]) -> Agreement:
    """Agreement on pairs with a column `votes` (lists of 0, 1 and 2), or on rows of one pair by several annotators."""
    columns = [pair.prompt.columns.get("votes") for pair in pairs]
    given = [value for value in columns if value is not None]
    if given:
        units = [_parsed(value) for value in given]
        wrong = next((value for value, unit in zip(given, units, strict=True) if unit is None), None)
        if wrong is not None:
            return Agreement(
                undefined=f"the column votes has {str(wrong)[:40]!r}; expected lists of 1, 2 and 0 (neither)"
            )
        return agreement([unit for unit in units if unit is not None])
    if not any(pair.annotator for pair in pairs):
        return Agreement(undefined="the data has neither a column votes nor a column annotator")
    return _by_annotators(pairs)


def _by_annotators(pairs: Sequence[Pair]) -> Agreement:
    units: dict[tuple[str, str, str], dict[str, int]] = {}
    repeated = 0
    for pair in (pair for pair in pairs if pair.annotator):
        sides = sorted((pair.chosen.text, pair.rejected.text))
        votes = units.setdefault((prompt_key(pair), sides[0], sides[1]), {})
        repeated += pair.annotator in votes
        votes.setdefault(pair.annotator, _vote(pair, chosen_first=pair.chosen.text == sides[0]))
    return agreement([list(votes.values()) for votes in units.values()], repeated=repeated)


def _vote(pair: Pair, *, chosen_first: bool) -> int:
    if pair.tie >= 0.5 or pair.label == 0.5:
        return NEITHER
    return FIRST if (pair.label > 0.5) == chosen_first else SECOND


def _agrees(vote: int, unit: Votes, *, others: bool = False) -> float:
    """Whether the majority of a unit, or of the `others` in it, is for the side of `vote`; 1/2 when they are split."""
    lead = unit.count(vote) - unit.count(_SWAPPED[vote]) - others
    return 0.5 if lead == 0 else float(lead > 0)


def _parsed(value: Any) -> list[int] | None:
    """Votes as they stand in tables: a list of numbers or texts, or the text of such a list; None for all else."""
    try:
        listed = json.loads(value) if isinstance(value, str) else value
        votes = [int(vote) for vote in listed if vote is not None]
    except (TypeError, ValueError):
        return None
    return votes if set(votes) <= set(_SWAPPED) else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _percent(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "undefined"
