"""What a reward model must beat: the length of a text, and a bag of its words.

A reward that is no better than these has learnt nothing that needs a language model.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prefrl.errors import DataError
from prefrl.evaluate.statistics import Interval, proportion_interval

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

TextPair = tuple[str, str, str]
"""Prompt, chosen and rejected text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A baseline's outcome on every pair: 1 right, 0 wrong, 0.5 where it cannot tell.

    groups  the prompt of every pair, or None when no prompt repeats
    """

    name: str
    outcomes: tuple[float, ...]
    groups: tuple[Hashable, ...] | None = None

    @property
    def accuracy(self) -> float:
        """Mean outcome: undecided pairs count half."""
        return sum(self.outcomes) / len(self.outcomes)

    @property
    def interval(self) -> Interval:
        """95% interval of the accuracy."""
        return proportion_interval(self.outcomes, groups=self.groups)

    def only(self, indices: Sequence[int]) -> Baseline:
        """The same baseline on some of the pairs."""
        groups = None if self.groups is None else tuple(self.groups[i] for i in indices)
        return replace(self, outcomes=tuple(self.outcomes[i] for i in indices), groups=groups)

    def to_dict(self) -> dict[str, Any]:
        """Accuracy, interval and number of undecided pairs."""
        undecided = sum(o == 0.5 for o in self.outcomes)
        return {"accuracy": self.accuracy, "interval": list(self.interval), "undecided": undecided}


def length_baselines(
    chosen_lengths: Sequence[float],
    rejected_lengths: Sequence[float],
    groups: Sequence[Hashable] | None = None,
) -> list[Baseline]:
    """The longer text wins, and the shorter text wins."""
    gaps = [c - r for c, r in zip(chosen_lengths, rejected_lengths, strict=True)]
    return [_baseline("longer wins", gaps, groups), _baseline("shorter wins", [-g for g in gaps], groups)]


def text_baselines(
    train: Sequence[TextPair], evaluation: Sequence[TextPair], groups: Sequence[Hashable] | None = None
) -> list[Baseline]:
    """Logistic regression on differences of TF-IDF vectors, and the same plus the difference in length.

    Fitted on both orders of every train pair and without intercept, so swapping a pair flips the answer.
    The prompt is the same on both sides and cancels.

    Raises:
        DataError: no train or no evaluation pairs, or train pairs without a word.
    """
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not train or not evaluation:
        raise DataError(f"Got {len(train)} train and {len(evaluation)} evaluation pairs; expected some of both.")
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", max_features=50_000
    )
    try:
        vectorizer.fit([text for pair in train for text in pair[1:]])
    except ValueError:
        raise DataError(f"The {len(train)} train pairs hold no words to fit a text baseline on.") from None

    def words(pairs: Sequence[TextPair]) -> csr_matrix:
        return vectorizer.transform([p[1] for p in pairs]) - vectorizer.transform([p[2] for p in pairs])

    x, x_eval = words(train), words(evaluation)
    longer = hstack([x, _length_column(train)]).tocsr(), hstack([x_eval, _length_column(evaluation)]).tocsr()
    return [
        _baseline("words (TF-IDF)", _fitted_margins(x, x_eval), groups),
        _baseline("words and length", _fitted_margins(*longer), groups),
    ]


def _fitted_margins(x: csr_matrix, x_eval: csr_matrix) -> list[float]:
    """Decision values of evaluation differences; 0 where the regression has nothing to go by."""
    import numpy as np
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression

    labels = np.repeat([1, 0], x.shape[0])
    model = LogisticRegression(fit_intercept=False, max_iter=1000).fit(vstack([x, -x]), labels)
    return [float(value) for value in model.decision_function(x_eval)]


def _length_column(pairs: Sequence[TextPair]) -> csr_matrix:
    """Difference of log lengths in characters: one column that speaks on the scale of a TF-IDF weight."""
    from scipy.sparse import csr_matrix

    return csr_matrix([[math.log1p(len(chosen)) - math.log1p(len(rejected))] for _, chosen, rejected in pairs])


def _baseline(name: str, margins: Sequence[float], groups: Sequence[Hashable] | None) -> Baseline:
    outcomes = tuple(0.5 if m == 0 else float(m > 0) for m in margins)
    return Baseline(name=name, outcomes=outcomes, groups=None if groups is None else tuple(groups))
