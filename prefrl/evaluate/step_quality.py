"""What scores of steps are worth on labelled solutions, beside what place and length of a step alone say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prefrl.data.steps import Stepped
from prefrl.errors import DataError
from prefrl.evaluate.margins import Bin, expected_calibration_error
from prefrl.evaluate.overoptimisation import Estimate
from prefrl.evaluate.shares import number, plain
from prefrl.evaluate.step_metrics import (
    Array,
    Scores,
    balanced_accuracy,
    best_threshold,
    by_rule,
    check_finite,
    first_below,
    over_problems,
    probability_bins,
    step_auroc,
)

_LENGTH_BINS = 10
_ESTIMATES = ("f1", "error_accuracy", "correct_accuracy", "auroc", "balanced")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuality:
    """Figures of step scores; intervals are of a bootstrap over problems.

    threshold  below which a step is called wrong, chosen elsewhere
    f1, error_accuracy, correct_accuracy  of first errors by the rule of ProcessBench
    auroc      of steps, fine against wrong
    accuracy, balanced, majority  of steps at the threshold, and the accuracy of always saying what most steps are
    brier, ece, bins  of scores as probabilities; NaN and nothing where a score is outside [0, 1]
    solutions  those whose first error is known; `undecided` others count in the figures of steps only
    steps      that have a label; `ignored` others have none
    """

    threshold: float
    f1: Estimate
    error_accuracy: Estimate
    correct_accuracy: Estimate
    auroc: Estimate
    balanced: Estimate
    accuracy: float
    majority: float
    brier: float
    ece: float
    bins: tuple[Bin, ...]
    solutions: int
    undecided: int
    steps: int
    ignored: int
    baselines: dict[str, StepQuality] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, value and note, as a table shows them; 95% intervals are in brackets."""
        found = [
            ("first-error F1", str(self.f1), f"{self.solutions} solutions, threshold {self.threshold:.3f}"),
            ("  of wrong solutions", str(self.error_accuracy), "the very step is named"),
            ("  of right solutions", str(self.correct_accuracy), "no step is named"),
            ("AUROC of steps", str(self.auroc), f"{self.steps} steps; {self.ignored} without a label"),
            ("balanced accuracy", str(self.balanced), "always saying the same: 0.500"),
            ("accuracy", number(self.accuracy), f"always saying the same: {number(self.majority)}"),
            ("Brier score", number(self.brier), "lower is better"),
            ("ECE", number(self.ece), "0 is perfectly calibrated"),
        ]
        baselines = self.baselines.items()
        return found + [(f"  {name} alone", f"F1 {one.f1}", f"AUROC {one.auroc}") for name, one in baselines]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them, NaN as None."""
        estimates = {name: getattr(self, name) for name in _ESTIMATES}
        single = {name: getattr(self, name) for name in ("threshold", "accuracy", "majority", "brier", "ece")}
        return {
            **plain({name: one.mean for name, one in estimates.items()} | single),
            **{f"{name}_interval": list(plain({"0": e.low, "1": e.high}).values()) for name, e in estimates.items()},
            **{name: getattr(self, name) for name in ("solutions", "undecided", "steps", "ignored")},
            "baselines": {name: one.to_dict() for name, one in self.baselines.items()},
        }


def known_first_error(solution: Stepped) -> int | None:
    """Index of the first wrong step, -1 where none is; None where a step without a label might be it."""
    first = solution.first_error
    return None if None in (solution.labels if first < 0 else solution.labels[:first]) else first


def choose_threshold(solutions: Sequence[Stepped], scores: Scores) -> float:
    """The best threshold for the first errors of these solutions, those aside whose first error is not known."""
    known = [
        (own, first)
        for one, own in zip(solutions, scores, strict=True)
        if (first := known_first_error(one)) is not None
    ]
    return best_threshold([own for own, _ in known], [first for _, first in known])


def evaluate_steps(
    solutions: Sequence[Stepped],
    scores: Scores,
    threshold: float,
    *,
    baselines: dict[str, StepQuality] | None = None,
    resamples: int = 1000,
) -> StepQuality:
    """Measure scores against labels; a step is fine where its label is 1/2 or more.

    Args:
        solutions: labelled solutions that the threshold was not chosen on.
        scores: one a step of every solution, high for a fine step.
        threshold: see `choose_threshold`.
        baselines: others on the same solutions; see `step_baselines`.
        resamples: of the bootstrap.

    Raises:
        DataError: scores and steps differ in number, a score is not finite, or no step has a label.
    """
    if [len(own) for own in scores] != [len(solution.steps) for solution in solutions]:
        raise DataError("Scores and steps differ in number; expected one score a step of every solution.")
    check_finite(scores)
    first = [known_first_error(solution) for solution in solutions]
    problems = [solution.prompt.id for solution in solutions]
    ruled = _first_errors([None if at is None else (at, own) for at, own in zip(first, scores, strict=True)], threshold)
    undecided = first.count(None)
    owner, score, label = _labelled(solutions, scores)
    fine, said = (label >= 0.5).astype(np.float64), (score >= threshold).astype(np.float64)
    inside = bool(((score >= 0) & (score <= 1)).all())
    bins = probability_bins(score, label) if inside else ()
    statistics: dict[str, Callable[[Array], float]] = {
        **{name: lambda w, n=name: by_rule(*ruled, w)[n] for name in _ESTIMATES[:3]},  # type: ignore[misc]
        "auroc": lambda w: step_auroc(score, fine, w[owner]),
        "balanced": lambda w: balanced_accuracy(said, fine, w[owner]),
    }
    estimates = {name: over_problems(one, problems, resamples=resamples) for name, one in statistics.items()}
    return StepQuality(
        threshold=threshold,
        **estimates,
        accuracy=float((said == fine).mean()),
        majority=float(max(fine.mean(), 1 - fine.mean())),
        brier=float(((score - label) ** 2).mean()) if inside else math.nan,
        ece=expected_calibration_error(bins) if inside else math.nan,
        bins=bins,
        solutions=len(solutions) - undecided,
        undecided=undecided,
        steps=len(score),
        ignored=sum(map(len, scores)) - len(score),
        baselines=dict(baselines or {}),
    )


def _first_errors(known: Sequence[tuple[int, Sequence[float]] | None], threshold: float) -> tuple[Array, Array, Array]:
    """Whether each solution was judged rightly, is wrong, and is right; unknown ones are none of it."""
    hits = [one is not None and first_below(one[1], threshold) == one[0] for one in known]
    wrong = [one is not None and one[0] >= 0 for one in known]
    right = [one is not None and one[0] < 0 for one in known]
    return np.array(hits, np.float64), np.array(wrong, np.float64), np.array(right, np.float64)


def _labelled(solutions: Sequence[Stepped], scores: Scores) -> tuple[Any, Array, Array]:
    """Of every step that has a label: the index of its solution, its score and the label."""
    known = [
        (at, score, label)
        for at, (solution, own) in enumerate(zip(solutions, scores, strict=True))
        for score, label in zip(own, solution.labels, strict=True)
        if label is not None
    ]
    if not known:
        raise DataError(f"None of the steps of {len(solutions)} solutions has a label; nothing can be measured.")
    owner, score, label = zip(*known, strict=True)
    return np.array(owner), np.array(score, np.float64), np.array(label, np.float64)


def step_baselines(
    train: Sequence[Stepped], test: Sequence[Stepped], *, resamples: int = 1000
) -> dict[str, StepQuality]:
    """What needs no reading: the share of fine steps among all, at the same place, and of about the same length.

    Shares and thresholds are those of `train`.
    """
    edges = np.quantile([len(s) for one in train for s in one.steps], np.linspace(0, 1, _LENGTH_BINS + 1)[1:-1])
    keys: dict[str, Callable[[int, str], int]] = {
        "always the same": lambda at, step: 0,
        "place": lambda at, step: at,
        "length": lambda at, step: int(np.searchsorted(edges, len(step))),
    }
    found = {}
    for name, key in keys.items():
        shares, overall = _shares(train, key)
        fitted, measured = (
            [[shares.get(key(at, step), overall) for at, step in enumerate(one.steps)] for one in part]
            for part in (train, test)
        )
        found[name] = evaluate_steps(test, measured, choose_threshold(train, fitted), resamples=resamples)
    return found


def _shares(solutions: Sequence[Stepped], key: Callable[[int, str], int]) -> tuple[dict[int, float], float]:
    """Mean label of the steps of every key, drawn a little towards that of all, and that of all."""
    known = [
        (key(at, step), label)
        for one in solutions
        for at, (step, label) in enumerate(zip(one.steps, one.labels, strict=True))
        if label is not None
    ]
    if not known:
        raise DataError(f"None of the steps of {len(solutions)} solutions has a label; no baseline can be fitted.")
    overall = sum(label for _, label in known) / len(known)
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for group, label in known:
        sums[group], counts[group] = sums.get(group, 0.0) + label, counts.get(group, 0) + 1
    return {group: (sums[group] + overall) / (counts[group] + 1) for group in sums}, overall
