"""Figures of step scores against hand-made numbers and plain definitions."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from prefrl.data.chains import labelled_chains
from prefrl.data.steps import Stepped
from prefrl.errors import DataError
from prefrl.evaluate.step_metrics import (
    balanced_accuracy,
    best_threshold,
    first_below,
    over_problems,
    probability_bins,
    process_bench,
    step_auroc,
)
from prefrl.evaluate.step_quality import choose_threshold, evaluate_steps, known_first_error, step_baselines
from prefrl.types import Prompt


def solution(*labels, prompt="p", steps=None):
    steps = steps or tuple(f"s{n}\n" for n in range(len(labels)))
    return Stepped(prompt=Prompt(id=prompt, text="Q"), steps=steps, labels=labels)


def test_process_bench_by_hand():
    # Errors at 1, 0, 2, found at 1, 1, none: 1/3. None in two, one of them accused: 1/2. F1 = 2 (1/6) / (5/6) = .4
    found = process_bench([1, 1, -1, -1, 0], [1, 0, 2, -1, -1])
    assert found == pytest.approx({"error_accuracy": 1 / 3, "correct_accuracy": 0.5, "f1": 0.4})


def test_a_share_of_nothing_is_0():
    assert process_bench([0, 1], [1, 0])["f1"] == 0.0
    assert process_bench([-1, -1], [-1, -1]) == {"error_accuracy": 0.0, "correct_accuracy": 1.0, "f1": 0.0}
    with pytest.raises(DataError, match="0 solutions"):
        process_bench([], [])


def test_first_below():
    assert [first_below([0.9, 0.4, 0.1], t) for t in (0.05, 0.4, 0.5, 1.0)] == [-1, 2, 1, 0]


def test_the_best_threshold_is_that_of_a_search():
    rng = random.Random(0)
    for _ in range(60):
        sizes = [rng.randint(1, 5) for _ in range(rng.randint(1, 9))]
        scores = [[round(rng.random(), 1) for _ in range(size)] for size in sizes]
        true = [rng.randint(-1, size - 1) for size in sizes]

        def f1(t, scores=scores, true=true):
            return process_bench([first_below(own, t) for own in scores], true)["f1"]

        found = best_threshold(scores, true)
        assert f1(found) == pytest.approx(max(f1(k / 20 + 0.025 * j) for k in range(-1, 22) for j in (0, 1)))


def test_of_equal_thresholds_the_one_nearest_to_one_half():
    assert best_threshold([[0.9, 0.1], [0.8]], [1, -1]) == pytest.approx(0.45)  # all of (.1, .8] are right
    assert best_threshold([[0.9]], [0]) == 0.5  # no threshold helps: F1 needs a right solution
    with pytest.raises(DataError, match="not finite"):
        best_threshold([[math.nan]], [0])


def test_auroc_by_hand_and_by_scikit_learn():
    assert step_auroc([0.9, 0.8, 0.3, 0.3], [1, 0, 1, 0]) == 0.625  # 1 + 1 + 0 + 1/2 of 4
    assert math.isnan(step_auroc([0.5], [1])) and math.isnan(step_auroc([], []))
    rng = np.random.default_rng(0)
    scores, fine = rng.integers(0, 9, 300) / 8, rng.integers(0, 2, 300)
    weights = rng.integers(0, 3, 300).astype(float)
    assert step_auroc(scores, fine) == pytest.approx(roc_auc_score(fine, scores), abs=1e-12)
    assert step_auroc(scores, fine, weights) == pytest.approx(
        roc_auc_score(fine, scores, sample_weight=weights), abs=1e-12
    )


def test_balanced_accuracy_of_the_majority_is_one_half():
    fine = np.array([1.0] * 9 + [0.0])
    assert balanced_accuracy(np.ones(10), fine) == 0.5
    said = np.array([1.0] * 6 + [0.0] * 4)
    assert balanced_accuracy(said, fine) == pytest.approx(balanced_accuracy_score(fine, said)) == pytest.approx(5 / 6)
    assert math.isnan(balanced_accuracy(np.ones(3), np.ones(3)))


def test_bins_of_probabilities():
    bins = probability_bins(np.array([0.05, 0.15, 0.11, 1.0]), np.array([0.0, 1.0, 0.5, 1.0]))
    assert [(b.predicted, b.observed, b.count) for b in bins] == [
        (pytest.approx(0.05), 0.0, 1),
        (pytest.approx(0.13), 0.75, 2),
        (1.0, 1.0, 1),
    ]


def test_solutions_of_a_problem_are_resampled_together():
    """A mean of 40 coin flips of 20 problems, each twice: the interval is that of 20 flips."""
    values = np.repeat([0.0, 1.0], 20)
    alone = over_problems(lambda w: float(w @ values / w.sum()), range(40))
    twice = over_problems(lambda w: float(w @ values / w.sum()), [n // 2 for n in range(40)])
    assert alone.mean == twice.mean == 0.5
    assert alone.high - alone.low == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 40), abs=0.06)
    assert twice.high - twice.low == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 20), abs=0.06)
    assert math.isnan(over_problems(lambda w: 1.0, ["p", "p"]).low)  # one problem says nothing of others


@pytest.mark.parametrize(
    ("labels", "first"),
    [((1.0, 1.0), -1), ((1.0, 0.0, None), 1), ((None, 0.0), None), ((1.0, None), None), ((0.3, 1.0), 0)],
)
def test_an_error_before_an_unlabelled_step_is_known(labels, first):
    assert known_first_error(solution(*labels)) == first


def test_quality_by_hand():
    solutions = [solution(1.0, 0.0, None, prompt="a"), solution(1.0, 1.0, prompt="b"), solution(None, 0.0, prompt="c")]
    scores = [[0.9, 0.2, 0.1], [0.8, 0.6], [0.3, 0.7]]
    found = evaluate_steps(solutions, scores, 0.5, resamples=50)
    assert (found.f1.mean, found.error_accuracy.mean, found.correct_accuracy.mean) == (1.0, 1.0, 1.0)
    assert (found.solutions, found.undecided, found.steps, found.ignored) == (2, 1, 5, 2)
    # fine .9, .8, .6 against wrong .2, .7: of 6 pairs only .6 against .7 is the wrong way round
    assert found.auroc.mean == pytest.approx(5 / 6)
    assert (found.accuracy, found.majority) == (pytest.approx(0.8), pytest.approx(0.6))
    assert found.balanced.mean == pytest.approx(0.75)  # 3 of 3 and 1 of 2
    assert found.brier == pytest.approx((0.01 + 0.04 + 0.04 + 0.16 + 0.49) / 5)
    assert found.ece == pytest.approx((0.1 + 0.2 + 0.2 + 0.4 + 0.7) / 5)
    assert found.to_dict()["auroc"] == found.auroc.mean and found.rows()[0][0] == "first-error F1"


def test_soft_labels_are_measured_as_they_are():
    found = evaluate_steps([solution(0.75, 0.25)], [[0.75, 0.25]], 0.5, resamples=10)
    assert (found.brier, found.ece, found.auroc.mean) == (0.0, 0.0, 1.0)


def test_logits_are_no_probabilities():
    found = evaluate_steps([solution(1.0, 0.0)], [[3.0, -2.0]], 0.0, resamples=10)
    assert math.isnan(found.brier) and math.isnan(found.ece) and found.bins == ()
    assert found.to_dict()["brier"] is None and found.f1.mean == 0.0  # there is no right solution


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(DataError, match="one score a step"):
        evaluate_steps([solution(1.0, 0.0)], [[1.0]], 0.5)
    with pytest.raises(DataError, match="2 scores of steps are not finite"):
        evaluate_steps([solution(1.0, 0.0)], [[math.nan, math.inf]], 0.5)
    with pytest.raises(DataError, match="has a label"):
        evaluate_steps([solution(None, None)], [[1.0, 1.0]], 0.5)


def test_exact_scores_of_chains_are_perfect_and_baselines_are_not():
    train, test = (labelled_chains(150, length=4, modulus=10, seed=seed) for seed in (1, 2))
    fitted, measured = ([[float(label) for label in one.labels] for one in part] for part in (train, test))
    baselines = step_baselines(train, test, resamples=50)
    found = evaluate_steps(test, measured, choose_threshold(train, fitted), baselines=baselines, resamples=50)
    assert (found.f1.mean, found.auroc.mean, found.balanced.mean, found.ece) == (1.0, 1.0, 1.0, 0.0)
    assert baselines["always the same"].auroc.mean == 0.5 and baselines["always the same"].f1.mean == 0.0
    # errors stay, so later steps are wrong more often: place alone ranks steps, but it finds no first error
    assert 0.6 < baselines["place"].auroc.mean < 0.75 and baselines["place"].f1.mean < 0.2
    assert [name for name, _, _ in found.rows()][-3:] == ["  always the same alone", "  place alone", "  length alone"]
