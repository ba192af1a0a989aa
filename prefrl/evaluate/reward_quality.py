"""How good a reward is on preference pairs, and whether it beats reading off the length or the words.

Only score differences within a prompt mean anything, so every figure here is of margins
`m = score(chosen) - score(rejected)` and of the probability `p = sigmoid(m)` that chosen is preferred.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prefrl.data.splits import prompt_key
from prefrl.errors import DataError, did_you_mean
from prefrl.evaluate import quality_tables
from prefrl.evaluate.agreement import Agreement, pair_agreement
from prefrl.evaluate.baselines import Baseline, TextPair, length_baselines, text_baselines
from prefrl.evaluate.length_report import LengthReport, length_report
from prefrl.evaluate.margins import (
    Bin,
    Tied,
    best_temperature,
    calibration_bins,
    expected_calibration_error,
    mean,
    scaled_nll,
    sigmoid,
    softplus,
    tied_report,
)
from prefrl.evaluate.shares import Share
from prefrl.evaluate.statistics import Interval, SignTest, clopper_pearson, sign_test
from prefrl.types import Pair

if TYPE_CHECKING:
    from rich.table import Table

SUBSETS = ("subset", "source")
"""Columns that name the subset of a pair where none is asked for."""

_MOST_SUBSETS = 50  # a column with more values names pairs, not subsets, unless it is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardQuality:
    """Figures of a reward over preference pairs.

    accuracy     pairs with score(chosen) > score(rejected), strictly: equal scores are wrong; of the scored pairs
    exact        Clopper-Pearson interval of the accuracy
    ties         pairs with equal scores
    unscored     pairs with a score that is not finite: in no other figure
    undecided    pairs labelled a tie, or 1/2: in no other figure but `tied`
    nll          mean of -log p, in nats; guessing costs log 2 = 0.6931
    brier        mean of (1 - p)^2; guessing costs 0.25
    ece          expected calibration error over both orders of every pair
    margin       mean score difference
    temperature  the scores divided by it have the lowest NLL on these pairs, `scaled_nll`; infinite where none helps
    length       what the reward has to do with length
    baselines    others on the same pairs
    subsets      the same figures for every subset
    unmeasured   subsets without a pair that can be measured, and their pairs
    tied         what the reward says of tied pairs
    agreement    how far people agree on these pairs
    """

    accuracy: Share
    exact: Interval
    ties: int
    unscored: int
    nll: float
    brier: float
    ece: float
    margin: float
    calibration: tuple[Bin, ...]
    temperature: float = math.nan
    scaled_nll: float = math.nan
    undecided: int = 0
    length: LengthReport | None = None
    baselines: tuple[Baseline, ...] = ()
    chosen_scores: tuple[float, ...] = ()
    rejected_scores: tuple[float, ...] = ()
    subsets: Mapping[str, RewardQuality] = field(default_factory=dict)
    unmeasured: Mapping[str, int] = field(default_factory=dict)
    tied: Tied | None = None
    agreement: Agreement | None = None

    @property
    def margins(self) -> list[float]:
        """Score differences of the measured pairs."""
        return [c - r for c, r in zip(self.chosen_scores, self.rejected_scores, strict=True)]

    def at_temperature(self, temperature: float) -> RewardQuality:
        """The figures that the scores divided by `temperature` would have, subsets left out."""
        chosen, rejected = ([s / temperature for s in side] for side in (self.chosen_scores, self.rejected_scores))
        return replace(self, subsets={}, **_probabilities([c - r for c, r in zip(chosen, rejected, strict=True)]))

    def versus(self, baseline: Baseline) -> SignTest:
        """Paired comparison with a baseline, where equal scores are half right for either."""
        return sign_test([0.5 * ((m > 0) - (m < 0) + 1) for m in self.margins], baseline.outcomes)

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, value and note, as a table shows them; 95% intervals are in brackets."""
        return quality_tables.rows(self)

    def table(self, title: str = "Reward quality") -> Table:
        """The figures as a table for the terminal."""
        return quality_tables.table(self, title)

    def tables(self, title: str = "Reward quality") -> list[Table]:
        """The table, then those of the subsets and of the length ratios where there are any."""
        return quality_tables.tables(self, title)

    def to_dict(self, *, nested: bool = False) -> dict[str, Any]:
        """The figures as JSON has them, NaN as None; `nested` adds subsets, length strata and the margins."""
        return quality_tables.to_dict(self, nested=nested)


def evaluate_pairs(
    chosen_scores: Sequence[float],
    rejected_scores: Sequence[float],
    pairs: Sequence[Pair],
    train: Sequence[Pair] = (),
    *,
    subset: str = "",
) -> RewardQuality:
    """Measure a reward on the pairs that it scored, with lengths in characters and prompts as groups.

    A pair labelled below 1/2 is turned round; ties, and labels of exactly 1/2, prefer neither and stand apart.

    Args:
        chosen_scores: score of `chosen` of every pair; NaN where there is none.
        rejected_scores: score of `rejected`.
        pairs: the pairs.
        train: pairs to fit the text baselines on; without them the length baselines stand alone.
        subset: column that names the subset of a pair; `subset` or `source` where it is empty.

    Raises:
        DataError: the columns differ in length, no pair can be measured, or there is no such column.
    """
    if not len(chosen_scores) == len(rejected_scores) == len(pairs):
        sizes = f"{len(chosen_scores)} and {len(rejected_scores)} scores of {len(pairs)} pairs"
        raise DataError(f"Got {sizes}; expected two scores per pair.")
    scored = [(float(c), float(r), pair) for c, r, pair in zip(chosen_scores, rejected_scores, pairs, strict=True)]
    decided = [item if item[2].label > 0.5 else _turned(item) for item in scored if _decided(item[2])]
    if not decided:
        raise DataError(f"All of {len(pairs)} pairs are ties; expected some where one side is preferred.")
    columns = _Columns.of(decided, [pair for pair in train if _decided(pair)])
    quality = columns.quality(range(len(decided)))
    margins = [c - r for c, r, pair in scored if not _decided(pair)]
    names = _subset_names([pair for _, _, pair in decided], subset)
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(name, []).append(index)
    measured = {name: at for name, at in sorted(places.items()) if columns.measurable(at)}
    return replace(
        quality,
        undecided=len(margins),
        tied=tied_report(margins, quality.margins) if margins else None,
        agreement=pair_agreement(pairs),
        subsets={name: columns.quality(at) for name, at in measured.items()},
        unmeasured={name: len(at) for name, at in places.items() if name not in measured},
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Decided pairs as columns: everything `evaluate_scores` asks for, for all of them or some."""

    chosen: list[float]
    rejected: list[float]
    texts: list[TextPair]
    groups: list[str]
    baselines: Sequence[Baseline]

    @classmethod
    def of(cls, decided: Sequence[tuple[float, float, Pair]], train: Sequence[Pair]) -> _Columns:
        groups = [prompt_key(pair) for _, _, pair in decided]
        texts = [_texts(pair) for _, _, pair in decided]
        fitted = [_texts(pair if pair.label > 0.5 else pair.swap()) for pair in train]
        return cls(
            [chosen for chosen, _, _ in decided],
            [rejected for _, rejected, _ in decided],
            texts,
            groups,
            text_baselines(fitted, texts, groups) if fitted else [],
        )

    def measurable(self, at: Sequence[int]) -> bool:
        return any(math.isfinite(self.chosen[i]) and math.isfinite(self.rejected[i]) for i in at)

    def quality(self, at: Sequence[int]) -> RewardQuality:
        return evaluate_scores(
            [self.chosen[i] for i in at],
            [self.rejected[i] for i in at],
            chosen_lengths=[len(self.texts[i][1]) for i in at],
            rejected_lengths=[len(self.texts[i][2]) for i in at],
            groups=[self.groups[i] for i in at],
            baselines=[b.only(at) for b in self.baselines],
        )


def _decided(pair: Pair) -> bool:
    return pair.label != 0.5 and pair.tie < 0.5


def _turned(item: tuple[float, float, Pair]) -> tuple[float, float, Pair]:
    chosen, rejected, pair = item
    return rejected, chosen, pair.swap()


def _texts(pair: Pair) -> TextPair:
    return pair.prompt.question, pair.chosen.text, pair.rejected.text


def _subset_names(pairs: Sequence[Pair], column: str) -> list[str]:
    """The subset of every pair; empty where no column tells at least two apart."""
    known = {name for pair in pairs for name, value in pair.prompt.columns.items() if value is not None}
    if column and column not in known:
        valid = ", ".join(sorted(known)) or "none"
        raise DataError(
            f"No pair has a column {column!r} to tell subsets apart; columns: {valid}.{did_you_mean(column, known)}"
        )
    chosen = column or next((name for name in SUBSETS if name in known), "")
    values = [pair.prompt.columns.get(chosen) for pair in pairs]
    names = ["(none)" if value is None else str(value) for value in values]
    enough = len(set(names)) > 1 and (bool(column) or len(set(names)) <= _MOST_SUBSETS)
    return names if chosen and enough else []


def evaluate_scores(
    chosen_scores: Sequence[float],
    rejected_scores: Sequence[float],
    *,
    chosen_lengths: Sequence[float] | None = None,
    rejected_lengths: Sequence[float] | None = None,
    groups: Sequence[Hashable] | None = None,
    baselines: Sequence[Baseline] = (),
) -> RewardQuality:
    """Measure a reward from its scores alone.

    Args:
        chosen_scores: score of every preferred completion; NaN where there is none.
        rejected_scores: score of the other one.
        chosen_lengths: lengths, in any unit; they add the length figures and length baselines.
        rejected_lengths: as `chosen_lengths`.
        groups: the prompt of every pair, when prompts have several pairs; widens the intervals as it should.
        baselines: others to compare with, from `baselines.text_baselines`.

    Raises:
        DataError: no pair, no pair with two finite scores, or columns of different lengths.
    """
    columns = _columns(chosen_scores, rejected_scores, chosen_lengths, rejected_lengths)
    total = len(chosen_scores)
    names = list(groups) if groups is not None else list(range(total))
    sizes = [*map(len, columns), len(names), *(len(b.outcomes) for b in baselines)]
    if len(set(sizes)) != 1:
        raise DataError(f"Scores, lengths, groups and baselines have {sizes} entries; expected one per pair.")
    kept = [i for i, pair in enumerate(zip(*columns[:2], strict=True)) if all(map(math.isfinite, pair))]
    if not kept:
        raise DataError(f"None of {total} pairs has two finite scores; nothing can be measured.")
    chosen, rejected, *lengths = ([float(column[i]) for i in kept] for column in columns)
    kept_groups = [names[i] for i in kept]
    margins = [c - r for c, r in zip(chosen, rejected, strict=True)]
    accuracy = Share.of([m > 0 for m in margins], kept_groups)
    temperature = best_temperature(margins)
    return RewardQuality(
        accuracy=accuracy,
        exact=clopper_pearson(accuracy.correct, accuracy.total),
        ties=sum(m == 0 for m in margins),
        unscored=total - len(kept),
        margin=mean(margins),
        temperature=temperature,
        scaled_nll=scaled_nll(margins, temperature),
        length=length_report(chosen, rejected, lengths[0], lengths[1], kept_groups) if lengths else None,
        baselines=(
            *(length_baselines(lengths[0], lengths[1], kept_groups) if lengths else ()),
            *(b.only(kept) for b in baselines),
        ),
        chosen_scores=tuple(chosen),
        rejected_scores=tuple(rejected),
        **_probabilities(margins),
    )


def _probabilities(margins: Sequence[float]) -> dict[str, Any]:
    """The figures that read margins as log-odds."""
    calibration = calibration_bins(margins)
    return {
        "nll": mean([softplus(-m) for m in margins]),
        "brier": mean([sigmoid(-m) ** 2 for m in margins]),
        "ece": expected_calibration_error(calibration),
        "calibration": calibration,
    }


def _columns(
    chosen_scores: Sequence[float],
    rejected_scores: Sequence[float],
    chosen_lengths: Sequence[float] | None,
    rejected_lengths: Sequence[float] | None,
) -> list[Sequence[float]]:
    if chosen_lengths is None and rejected_lengths is None:
        return [chosen_scores, rejected_scores]
    if chosen_lengths is None or rejected_lengths is None:
        raise DataError("Got the lengths of one side; give chosen_lengths and rejected_lengths, or neither.")
    return [chosen_scores, rejected_scores, chosen_lengths, rejected_lengths]
