"""Ties that a reward model predicts, and what the spread of its members is worth."""

from __future__ import annotations

import math

import pytest

from prefrl.config import LabelConfig
from prefrl.model.reward_scorer import Judged
from prefrl.policy.judgement import LabelModel
from prefrl.recipes.reward_figures import ensemble_figures, tie_figures
from prefrl.types import Completion, Pair, Prompt


def pair(i, **more):
    return Pair(prompt=Prompt(id=str(i), text="q"), chosen=Completion(text="a"), rejected=Completion(text="b"), **more)


def judged(*scores):
    return Judged(scores=scores, tokens=1, cut=False)


def test_accuracy_by_spread_by_hand():
    """Gaps of two members; a pair that is turned round counts as its chosen side has it, ties and the unscored not."""
    zero, ones = judged(0.0, 0.0), [pair(i) for i in range(3)]
    sides = [(judged(3.0, 1.0), zero), (judged(0.5, 0.5), zero), (judged(1.0, -5.0), zero)]  # spreads 1, 0 and 3
    others = [(judged(), zero), (judged(9.0, -9.0), zero), (judged(2.0, -6.0), zero)]
    pairs = [*ones, pair(3), pair(4, tie=1.0), pair(5, label=0.0)]
    found = ensemble_figures([*sides, *others], pairs)["ensemble"]
    # By spread: right 0, right 1, wrong 3, and 4, which is right as the rejected side is the better one.
    assert found == {"members": 2, "spread": 2.0, "accuracy_by_spread": [[1, 1], [1, 1], [1, 2]]}
    assert ensemble_figures([(judged(1.0), judged(0.0))], pairs[:1]) == {} == ensemble_figures([], [])


def test_predicted_and_observed_ties_by_hand():
    """Davidson at nu = 1: a tie has the odds exp(0) to exp(z / 2) + exp(-z / 2), so 1/3 at a gap of 0."""
    labels = LabelModel(LabelConfig(ties="davidson", tie_parameter=1.0))
    sides = [(judged(1.0), judged(1.0)), (judged(0.0), judged(2.0)), (judged(), judged(2.0))]
    pairs = [pair(0, tie=1.0), pair(1), pair(2, tie=1.0)]
    found = tie_figures(sides, pairs, labels)["tie_shares"]
    wanted = (1 / 3 + 1 / (1 + math.exp(1.0) + math.exp(-1.0))) / 2
    assert found == {"predicted": pytest.approx(wanted), "observed": 0.5, "pairs": 2}
    assert tie_figures(sides, pairs, LabelModel(LabelConfig())) == {}
