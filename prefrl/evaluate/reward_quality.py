"""How good a reward is on preference pairs, and whether it beats reading off the length or the words.

Only score differences within a prompt mean anything, so every figure here is of margins
`m = score(chosen) - score(rejected)` and of the probability `p = sigmoid(m)` that chosen is preferred.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prefrl.data.splits import prompt_key
from prefrl.errors import DataError
from prefrl.evaluate.baselines import (
    Baseline,
    TextPair,
    length_baselines,
    text_baselines,
)
from prefrl.evaluate.statistics import (
    Interval,
    SignTest,
    clopper_pearson,
    pearson,
    proportion_interval,
    sign_test,
)
from prefrl.types import Pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin of the calibration curve: mean predicted probability, share that held, predictions in it."""

    predicted: float
    observed: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A count out of a total, with the 95% interval of its rate; NaN when the total is 0."""

    correct: int
    total: int
    interval: Interval

    @property
    def rate(self) -> float:
        """correct / total."""
        return self.correct / self.total if self.total else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardQuality:
    """Figures of a reward over preference pairs.

    accuracy         pairs with score(chosen) > score(rejected), strictly: a tie is wrong; of the scored pairs
    exact            Clopper-Pearson interval of the accuracy
    ties             pairs with equal scores
    unscored         pairs with a score that is not finite: in no other figure
    undecided        pairs labelled 1/2: in no other figure
    nll              mean of -log p, in nats; guessing costs log 2 = 0.6931
    brier            mean of (1 - p)^2; guessing costs 0.25
    ece              expected calibration error over both orders of every pair
    margin           mean score difference
    length_pooled    correlation of score and length over all completions
    length_within    correlation of score difference and length difference over both orders of every pair
    chosen_shorter   accuracy where the chosen completion is the shorter one
    chosen_longer    accuracy where it is the longer one
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
    undecided: int = 0
    length_pooled: float = math.nan
    length_within: float = math.nan
    chosen_shorter: Share | None = None
    chosen_longer: Share | None = None
    baselines: tuple[Baseline, ...] = ()
    chosen_scores: tuple[float, ...] = ()
    rejected_scores: tuple[float, ...] = ()

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, value and note, as a table shows them; 95% intervals are in brackets."""
        rows = [
            ("accuracy", f"{self.accuracy.rate:.1%}", _evidence(self.accuracy)),
            ("ties", str(self.ties), "equal scores, counted as wrong above"),
            ("unscored", str(self.unscored), "with a score that is not finite; in no other figure"),
            ("undecided", str(self.undecided), "labelled 1/2: neither is preferred; in no other figure"),
            ("NLL", _number(self.nll), "nats a pair; guessing costs 0.693"),
            ("Brier", _number(self.brier), "guessing costs 0.25"),
            ("ECE", _number(self.ece), "0 is perfectly calibrated"),
            ("mean margin", _number(self.margin), "score(chosen) - score(rejected)"),
        ]
        for name, share in (
            ("chosen is shorter", self.chosen_shorter),
            ("chosen is longer", self.chosen_longer),
        ):
            if share is not None:
                rows.append((name, _rate(share.rate), f"accuracy there, {_evidence(share)}"))
        if self.chosen_shorter is not None:
            rows.append(("length correlation", _number(self.length_pooled), "score and length, all completions"))
            rows.append(
                (
                    "  the same within pairs",
                    _number(self.length_within),
                    "score difference and length difference",
                )
            )
        for baseline in self.baselines:
            note = f"{_percent(baseline.interval)}; {_verdict(self.versus(baseline))}"
            rows.append((f"baseline: {baseline.name}", _rate(baseline.accuracy), note))
        return rows

    def versus(self, baseline: Baseline) -> SignTest:
        """Paired comparison with a baseline: pairs that only one of the two gets right."""
        pairs = zip(self.chosen_scores, self.rejected_scores, strict=True)
        return sign_test([float(c > r) for c, r in pairs], baseline.outcomes)

    def table(self, title: str = "Reward quality") -> Table:
        """The figures as a table for the terminal."""
        from rich.table import Table

        caption = "95% intervals in brackets; p of paired sign tests"
        table = Table("measure", title=title, title_justify="left", caption=caption, caption_justify="left")
        table.add_column("value", justify="right")
        table.add_column("note", style="dim")
        for row in self.rows():
            table.add_row(*row)
        return table

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them; a NaN is None."""
        figures = {name: getattr(self, name) for name in ("nll", "brier", "ece", "margin")}
        figures |= {"length_pooled": self.length_pooled, "length_within": self.length_within}
        return {
            **_share_dict("accuracy", self.accuracy),
            "accuracy_exact": list(self.exact),
            "ties": self.ties,
            "unscored": self.unscored,
            "undecided": self.undecided,
            **{name: value if math.isfinite(value) else None for name, value in figures.items()},
            **_share_dict("chosen_shorter", self.chosen_shorter),
            **_share_dict("chosen_longer", self.chosen_longer),
            "calibration": [[b.predicted, b.observed, b.count] for b in self.calibration],
            "baselines": {b.name: b.to_dict() | {"p_value": self.versus(b).p_value} for b in self.baselines},
        }

    def calibration_figure(self, title: str = "") -> Figure:
        """Predicted against observed share of pairs, and how many predictions stand behind each point."""
        from prefrl.evaluate import figures

        points = [(b.predicted, b.observed, b.count) for b in self.calibration]
        return figures.calibration(*(list(column) for column in zip(*points, strict=True)), title=title)

    def score_figure(self, title: str = "") -> Figure:
        """Histogram of the scores of chosen and rejected completions."""
        from prefrl.evaluate import figures

        scores = {"chosen": list(self.chosen_scores), "rejected": list(self.rejected_scores)}
        return figures.histogram(scores, xlabel="score", title=title)

    def accuracy_figure(self, title: str = "") -> Figure:
        """Accuracy beside that of the baselines, with intervals."""
        from prefrl.evaluate import figures

        labels = ["this reward", *(b.name for b in self.baselines)]
        values = [self.accuracy.rate, *(b.accuracy for b in self.baselines)]
        intervals = [self.accuracy.interval, *(b.interval for b in self.baselines)]
        return figures.bars(labels, values, intervals, reference=0.5, xlabel="accuracy", title=title)


def evaluate_pairs(
    chosen_scores: Sequence[float],
    rejected_scores: Sequence[float],
    pairs: Sequence[Pair],
    train: Sequence[Pair] = (),
) -> RewardQuality:
    """Measure a reward on the pairs that it scored, with lengths in characters and prompts as groups.

    A pair labelled below 1/2 is turned round; one at exactly 1/2 prefers neither and is only counted.

    Args:
        chosen_scores: score of `chosen` of every pair; NaN where there is none.
        rejected_scores: score of `rejected`.
        pairs: the pairs.
        train: pairs to fit the text baselines on; without them the length baselines stand alone.

    Raises:
        DataError: the columns differ in length, or no pair can be measured.
    """
    if not len(chosen_scores) == len(rejected_scores) == len(pairs):
        sizes = f"{len(chosen_scores)} and {len(rejected_scores)} scores of {len(pairs)} pairs"
        raise DataError(f"Got {sizes}; expected two scores per pair.")
    scored = [
        (float(c), float(r), pair) if pair.label > 0.5 else (float(r), float(c), pair.swap())
        for c, r, pair in zip(chosen_scores, rejected_scores, pairs, strict=True)
        if pair.label != 0.5
    ]
    groups = [prompt_key(pair) for _, _, pair in scored]
    texts = [_texts(pair) for _, _, pair in scored]
    fitted = [_texts(pair if pair.label > 0.5 else pair.swap()) for pair in train if pair.label != 0.5]
    quality = evaluate_scores(
        [chosen for chosen, _, _ in scored],
        [rejected for _, rejected, _ in scored],
        chosen_lengths=[len(chosen) for _, chosen, _ in texts],
        rejected_lengths=[len(rejected) for _, _, rejected in texts],
        groups=groups,
        baselines=text_baselines(fitted, texts, groups) if fitted and texts else (),
    )
    return replace(quality, undecided=len(pairs) - len(scored))


def _texts(pair: Pair) -> TextPair:
    return pair.prompt.question, pair.chosen.text, pair.rejected.text


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
    calibration, accuracy = calibration_bins(margins), _share(margins, kept_groups)
    return RewardQuality(
        accuracy=accuracy,
        exact=clopper_pearson(accuracy.correct, accuracy.total),
        ties=sum(m == 0 for m in margins),
        unscored=total - len(kept),
        nll=_mean([softplus(-m) for m in margins]),
        brier=_mean([sigmoid(-m) ** 2 for m in margins]),
        ece=expected_calibration_error(calibration),
        margin=_mean(margins),
        calibration=calibration,
        baselines=(
            *(length_baselines(lengths[0], lengths[1], kept_groups) if lengths else ()),
            *(b.only(kept) for b in baselines),
        ),
        chosen_scores=tuple(chosen),
        rejected_scores=tuple(rejected),
        **(_length_figures(chosen, rejected, lengths[0], lengths[1], kept_groups) if lengths else {}),
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
        Bin(_mean([p for p, _ in points]), _mean([label for _, label in points]), len(points))
        for _, points in sorted(inside.items())
    )


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Mean over predictions of |predicted - observed| of their bin (Naeini 2015)."""
    total = sum(b.count for b in bins)
    return math.fsum(b.count * abs(b.predicted - b.observed) for b in bins) / total


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


def _length_figures(
    chosen: Sequence[float],
    rejected: Sequence[float],
    chosen_lengths: Sequence[float],
    rejected_lengths: Sequence[float],
    groups: Sequence[Hashable],
) -> dict[str, Any]:
    margins = [c - r for c, r in zip(chosen, rejected, strict=True)]
    gaps = [c - r for c, r in zip(chosen_lengths, rejected_lengths, strict=True)]
    both = [*margins, *(-m for m in margins)], [*gaps, *(-g for g in gaps)]
    figures: dict[str, Any] = {
        "length_pooled": pearson([*chosen, *rejected], [*chosen_lengths, *rejected_lengths]),
        "length_within": pearson(*both),
    }
    for name, sign in (("chosen_shorter", -1), ("chosen_longer", 1)):
        at = [i for i, gap in enumerate(gaps) if gap * sign > 0]
        figures[name] = _share([margins[i] for i in at], [groups[i] for i in at])
    return figures


def _share(margins: Sequence[float], groups: Sequence[Hashable]) -> Share:
    hits = [float(m > 0) for m in margins]
    return Share(correct=int(sum(hits)), total=len(hits), interval=proportion_interval(hits, groups=groups))


def _share_dict(name: str, share: Share | None) -> Mapping[str, Any]:
    if share is None:
        return {}
    rate = share.rate if share.total else None
    return {
        name: rate,
        f"{name}_interval": list(share.interval),
        f"{name}_counts": [share.correct, share.total],
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _evidence(share: Share) -> str:
    return f"{share.correct} of {share.total} {_percent(share.interval)}"


def _verdict(test: SignTest) -> str:
    word = "this reward is better" if test.wins > test.losses else "this reward is worse"
    return f"{word if test.p_value < 0.05 else 'no clear difference'}, p = {test.p_value:.2g}"


def _percent(interval: Interval) -> str:
    return f"[{interval[0]:.1%}, {interval[1]:.1%}]"


def _rate(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "no pairs"


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "undefined"
