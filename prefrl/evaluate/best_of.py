"""Which of n solutions is taken: the best by score, or by a vote, weighted by scores or not; and what n could reach.

All figures are means over n of a problem's N >= n samples, drawn without replacement: exact for the best by score and
for pass@n, and for votes wherever all subsets can be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import DataError
from prefrl.evaluate.overoptimisation import Estimate, estimate, selection_weights

Array = NDArray[np.float64]

NS = (1, 4, 16, 64)
_SUBSETS = 512  # most subsets of a problem's samples that votes are held in


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Shares of problems solved with n samples, each with its interval over problems.

    best      the sample with the highest score; equal ones are equally likely to be taken
    weighted  the answer with the highest sum of scores
    majority  the answer that most samples give
    reached   pass@n: whether any sample is right, the ceiling of all three
    """

    n: int
    best: Estimate
    weighted: Estimate
    majority: Estimate
    reached: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfN:
    """The figures at every n, on the problems that have samples enough for the largest.

    left_out  problems with fewer scored samples
    unscored  samples without a finite score, which take no part
    """

    points: tuple[Selection, ...]
    problems: int
    left_out: int
    unscored: int

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """n, best by score, weighted vote, majority vote and pass@n, as a table shows them."""
        return [(str(p.n), str(p.best), str(p.weighted), str(p.majority), str(p.reached)) for p in self.points]


def best_of_n(
    scores: Sequence[Sequence[float]],
    correct: Sequence[Sequence[float]],
    answers: Sequence[Sequence[Hashable]],
    ns: Sequence[int] = (),
    *,
    seed: int = 0,
) -> BestOfN:
    """Compare ways to choose among samples.

    Args:
        scores: of each problem's samples, 0 or more, such as probabilities; NaN where there is none.
        correct: 1 or 0 of the same samples.
        answers: their answers, equal where they mean the same; None for a sample that gives none, and has no vote.
        ns: every n; empty takes 1, 4, 16 and 64 as far as nine problems of ten have samples.
        seed: of the subsets, where there are too many of them.

    Raises:
        DataError: the three do not match, a score is negative, or no problem has samples enough.
    """
    problems = [_Problem.of(*columns) for columns in _matched(scores, correct, answers)]
    sizes = sorted(len(problem.scores) for problem in problems)
    ns = sorted(set(ns)) or [n for n in NS if n <= max(1, sizes[len(sizes) // 10])]
    enough = [problem for problem in problems if len(problem.scores) >= ns[-1]]
    if ns[0] < 1 or not enough:
        raise DataError(f"n of {ns[0]} to {ns[-1]}; expected 1 to {sizes[-1]}, the most scored samples of a problem.")
    rng = np.random.default_rng(seed)
    return BestOfN(
        points=tuple(_selection(enough, n, rng) for n in ns),
        problems=len(enough),
        left_out=len(problems) - len(enough),
        unscored=sum(map(len, scores)) - sum(sizes),
    )


def pass_at(samples: int, right: int, n: int) -> float:
    """`1 - C(N - c, n) / C(N, n)`: chance that one of n samples is right where c of N are (Chen et al. 2021)."""
    return 1.0 - math.comb(samples - right, n) / math.comb(samples, n)


@dataclass(frozen=True, slots=True)
class _Problem:
    """Scored samples of one problem; `gives` (N, A) says which of its A answers each one gives."""

    scores: Array
    correct: Array
    gives: Array

    @classmethod
    def of(cls, scores: Sequence[float], correct: Sequence[float], answers: Sequence[Hashable]) -> _Problem:
        kept = [at for at, score in enumerate(scores) if math.isfinite(score)]
        known = list(dict.fromkeys(answers[at] for at in kept if answers[at] is not None))
        gives = np.array([[float(answers[at] == one) for one in known] for at in kept]).reshape(len(kept), len(known))
        return cls(np.array([scores[at] for at in kept]), np.array([float(correct[at]) for at in kept]), gives)

    def best(self, n: int) -> float:
        """Expected correctness of the highest score of n."""
        tied = np.array([self.correct[self.scores == score].mean() for score in np.sort(self.scores)])
        return float(selection_weights(len(self.scores), n) @ tied)

    def votes(self, drawn: Array, weights: Array) -> float:
        """Mean correctness of the answer that has the most weight, over subsets (M, N); tied answers count equally."""
        present = drawn @ self.gives
        if not present.shape[1]:
            return 0.0
        totals = (drawn * weights) @ self.gives
        right = (drawn * self.correct) @ self.gives / np.maximum(present, 1)
        first = (present > 0) & (totals >= totals.max(axis=1, keepdims=True) - 1e-12)
        return float(((first * right).sum(axis=1) / np.maximum(first.sum(axis=1), 1)).mean())


def _selection(problems: Sequence[_Problem], n: int, rng: np.random.Generator) -> Selection:
    rows = []
    for problem in problems:
        size = len(problem.scores)
        drawn = _subsets(size, n, rng)
        votes = [problem.votes(drawn, weights) for weights in (problem.scores, np.ones(size))]
        rows.append((problem.best(n), *votes, pass_at(size, round(problem.correct.sum()), n)))
    best, weighted, majority, reached = (estimate(column) for column in zip(*rows, strict=True))
    return Selection(n=n, best=best, weighted=weighted, majority=majority, reached=reached)


def _subsets(size: int, n: int, rng: np.random.Generator) -> Array:
    """Indicators (M, size) of all subsets of n, or of many drawn ones."""
    if math.comb(size, n) <= _SUBSETS:
        chosen = np.array(list(combinations(range(size), n)))
    else:
        chosen = rng.random((_SUBSETS, size)).argpartition(n - 1, axis=1)[:, :n]
    drawn = np.zeros((len(chosen), size))
    np.put_along_axis(drawn, chosen, 1.0, axis=1)
    return drawn


def _matched(
    scores: Sequence[Sequence[float]], correct: Sequence[Sequence[float]], answers: Sequence[Sequence[Hashable]]
) -> list[tuple[Sequence[float], Sequence[float], Sequence[Hashable]]]:
    sizes = [[len(one) for one in column] for column in (scores, correct, answers)]
    if not sizes[0] or sizes[1:] != [sizes[0], sizes[0]]:
        counts = ", ".join(f"{sum(column)} of {len(column)} problems" for column in sizes)
        raise DataError(f"Got scores, verdicts and answers {counts}; expected one of each a sample, and a problem.")
    if any(value not in (0.0, 1.0) for one in correct for value in one):
        raise DataError("A verdict is neither 1 nor 0; expected whether each sample is right.")
    if any(score < 0 for one in scores for score in one):
        raise DataError(
            "A score is negative; votes add scores up, so that they must be 0 or more: take sigmoids first."
        )
    return list(zip(scores, correct, answers, strict=True))
