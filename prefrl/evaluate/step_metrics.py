"""Whether scores of steps find the first error, rank steps, and mean what they say as probabilities.

First errors are judged by the rule of ProcessBench (arXiv 2412.06559): a solution is judged rightly where the very step
is named, or where none is named and none is wrong; F1 is the harmonic mean of the two accuracies, on solutions with an
error and on those without. The threshold is chosen on other solutions (`best_threshold`) and then fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import DataError
from prefrl.evaluate.margins import Bin
from prefrl.evaluate.overoptimisation import Estimate

Array = NDArray[np.float64]
Scores = Sequence[Sequence[float]]

_RESAMPLES = 1000


def first_below(scores: Sequence[float], threshold: float) -> int:
    """Index of the first score below a threshold; -1 where none is."""
    return next((at for at, score in enumerate(scores) if score < threshold), -1)


def process_bench(predicted: Sequence[int], true: Sequence[int]) -> dict[str, float]:
    """`error_accuracy`, `correct_accuracy` and their harmonic mean `f1`; a share of nothing is 0.

    Args:
        predicted: index of the first wrong step of every solution, -1 for none.
        true: the same, as it is.

    Raises:
        DataError: the lengths differ, or there is no solution.
    """
    if len(predicted) != len(true) or not true:
        raise DataError(
            f"Got {len(predicted)} predictions of {len(true)} solutions; expected one each, and a solution."
        )
    hits = np.array([a == b for a, b in zip(predicted, true, strict=True)], float)
    wrong = np.array([at >= 0 for at in true], float)
    return by_rule(hits, wrong, 1 - wrong, np.ones(len(true)))


def by_rule(hits: Array, wrong: Array, right: Array, weights: Array) -> dict[str, float]:
    """The figures of `process_bench` where each solution counts `weights` times.

    `hits` says whether each was judged rightly, `wrong` and `right` whether it has an error or none.
    """
    errors, rights = float(weights @ wrong), float(weights @ right)
    error = float(weights @ (hits * wrong)) / errors if errors else 0.0
    correct = float(weights @ (hits * right)) / rights if rights else 0.0
    both = error + correct
    return {
        "error_accuracy": error,
        "correct_accuracy": correct,
        "f1": 2 * error * correct / both if both else 0.0,
    }


def best_threshold(scores: Scores, true: Sequence[int]) -> float:
    """The threshold of the highest F1 on these solutions; of equally good ones the one nearest to 1/2.

    A solution is judged rightly for the thresholds of one interval only, so that one sweep over their ends sees all.

    Raises:
        DataError: not one list of scores a solution, a score that is not finite, or no solution.
    """
    if len(scores) != len(true) or not true:
        raise DataError(f"Got scores of {len(scores)} and first errors of {len(true)} solutions; expected the same.")
    check_finite(scores)
    spans = [_right_span(own, first) for own, first in zip(scores, true, strict=True)]
    ends = np.unique([end for span in spans if span for end in span if math.isfinite(end)])
    if not len(ends):
        return 0.5
    middles = (ends[:-1] + ends[1:]) / 2
    candidates = np.concatenate([[min(ends[0], 0.5)], middles, [max(np.nextafter(ends[-1], math.inf), 0.5)]])
    errors, rights = (
        _covering([s for s, t in zip(spans, true, strict=True) if s and (t >= 0) == w], candidates)
        for w in (True, False)
    )
    wrong = sum(at >= 0 for at in true)
    error, correct = errors / max(1, wrong), rights / max(1, len(true) - wrong)
    f1 = 2 * error * correct / np.maximum(error + correct, 1e-300)
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    return float(candidates[best[np.argmin(np.abs(candidates[best] - 0.5))]])


def _right_span(scores: Sequence[float], first: int) -> tuple[float, float] | None:
    """The thresholds t, low < t <= high, at which the first score below t is that of step `first`."""
    before = min(scores[:first] if first >= 0 else scores, default=math.inf)
    if first < 0:
        return -math.inf, before
    return (scores[first], before) if scores[first] < before else None


def _covering(spans: Sequence[tuple[float, float]], points: Array) -> Array:
    """How many spans (low, high] each point lies in."""
    lows, highs = (np.sort([span[side] for span in spans]) for side in (0, 1))
    inside = np.searchsorted(lows, points, side="left") - np.searchsorted(highs, points, side="left")
    return inside.astype(np.float64)


def step_auroc(scores: Sequence[float] | Array, fine: Sequence[float] | Array, weights: Array | None = None) -> float:
    """Chance that a fine step scores higher than a wrong one, ties counted half; NaN without one of each."""
    values, labels = np.asarray(scores, np.float64), np.asarray(fine, np.float64)
    if not len(values):
        return math.nan
    order = np.argsort(values, kind="stable")
    weight = labels * 0 + 1 if weights is None else weights
    starts = np.flatnonzero(np.diff(values[order], prepend=np.nan) != 0)
    up = np.add.reduceat((weight * labels)[order], starts)
    down = np.add.reduceat((weight * (1 - labels))[order], starts)
    pairs = float(up.sum() * down.sum())
    return float(up @ (down.cumsum() - down / 2)) / pairs if pairs else math.nan


def balanced_accuracy(said: Array, fine: Array, weights: Array | None = None) -> float:
    """Mean of the shares of fine and of wrong steps that are called so; NaN without one of each."""
    weight = np.ones(len(fine)) if weights is None else weights
    totals = [float(weight @ fine), float(weight @ (1 - fine))]
    if not all(totals):
        return math.nan
    return (float(weight @ (said * fine)) / totals[0] + float(weight @ ((1 - said) * (1 - fine))) / totals[1]) / 2


def probability_bins(probabilities: Array, labels: Array, bins: int = 10) -> tuple[Bin, ...]:
    """Non-empty bins of equal width: mean probability, mean label and count."""
    places = np.minimum((probabilities * bins).astype(int), bins - 1)
    return tuple(
        Bin(float(probabilities[inside].mean()), float(labels[inside].mean()), int(inside.sum()))
        for inside in (places == at for at in np.unique(places))
    )


def over_problems(
    statistic: Callable[[Array], float],
    problems: Sequence[Hashable],
    *,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """A statistic with its percentile bootstrap interval over problems.

    Args:
        statistic: of how often each solution is counted, (solutions,); NaN where it is not defined.
        problems: the problem of each solution; those of one problem are resampled together.
        resamples: how many; those without a value are left out.
        seed: of the resampling.
    """
    index = {problem: at for at, problem in enumerate(dict.fromkeys(problems))}
    member = np.array([index[problem] for problem in problems])
    value = statistic(np.ones(len(member)))
    if len(index) < 2:
        return Estimate(value)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(len(index), np.full(len(index), 1 / len(index)), size=resamples)
    found = np.array([statistic(draw[member].astype(float)) for draw in draws])
    found = found[np.isfinite(found)]
    if not len(found):
        return Estimate(value)
    low, high = np.quantile(found, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def check_finite(scores: Scores) -> None:
    """Refuse scores that are not finite: they are neither high nor low."""
    bad = sum(not math.isfinite(score) for own in scores for score in own)
    if bad:
        raise DataError(f"{bad} scores of steps are not finite; expected numbers: leave those solutions out and count.")
