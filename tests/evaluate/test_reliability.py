"""Reliability of annotators whose answers nobody can check."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from prefrl.errors import DataError
from prefrl.evaluate.coefficients import Value
from prefrl.evaluate.reliability import Gaps, dawid_skene, noisy_bradley_terry, verdict_of

CROWD = {"good1": 0.85, "good2": 0.85, "good3": 0.85, "random1": 0.5, "random2": 0.5, "mallory": 0.1}


def crowd(
    items: int, values: tuple[str, ...], chances: dict[str, float], seed: int = 0
) -> tuple[dict[str, dict[str, Value]], dict[str, str]]:
    """Ratings by people who are right with these chances, and else say any other value; and the truth."""
    rng = np.random.default_rng(seed)
    truth = {str(i): values[rng.integers(len(values))] for i in range(items)}

    def said(true: str, chance: float) -> str:
        wrong = [value for value in values if value != true]
        return true if rng.random() < chance else wrong[rng.integers(len(wrong))]

    return {i: {name: said(true, c) for name, c in chances.items()} for i, true in truth.items()}, truth


def test_three_good_two_random_one_adversarial() -> None:
    ratings, truth = crowd(300, ("first", "second"), CROWD)
    found = dawid_skene(ratings)
    assert found.converged
    verdicts = {name: worker.verdict for name, worker in found.workers.items()}
    assert verdicts == {
        "good1": "reliable",
        "good2": "reliable",
        "good3": "reliable",
        "mallory": "adversarial",
        "random1": "random",
        "random2": "random",
    }
    # By name: a trace of a confusion matrix whose rows and columns stand in other orders would call mallory 0.9 right.
    assert found.workers["mallory"].accuracy == pytest.approx(0.1, abs=0.05)
    assert found.workers["mallory"].confusion["first"]["second"] == pytest.approx(0.9, abs=0.07)
    right = np.mean([found.best(item) == true for item, true in truth.items()])
    majority = np.mean([Counter(ratings[i].values()).most_common(1)[0][0] == true for i, true in truth.items()])
    assert right > 0.93 and majority < 0.8


def test_the_order_of_values_and_rows_is_nothing() -> None:
    """The same people, with names of values that sort the other way round, and the items backwards."""
    ratings, _ = crowd(200, ("first", "second"), CROWD)
    turned = {i: {p: {"first": "z", "second": "a"}[str(v)] for p, v in said.items()} for i, said in ratings.items()}
    one, other = dawid_skene(ratings), dawid_skene(dict(reversed(turned.items())))
    for name in CROWD:
        assert one.workers[name].accuracy == pytest.approx(other.workers[name].accuracy, abs=1e-3)


def test_more_than_two_values() -> None:
    chances = {"a": 0.8, "b": 0.75, "c": 0.8, "guess": 0.25, "mallory": 0.0}
    ratings, truth = crowd(400, ("first", "second", "tie", "both_bad"), chances, seed=3)
    found = dawid_skene(ratings)
    assert {n: w.verdict for n, w in found.workers.items()} == {
        "a": "reliable",
        "b": "reliable",
        "c": "reliable",
        "guess": "random",
        "mallory": "adversarial",
    }
    for name, chance in chances.items():
        assert found.workers[name].accuracy == pytest.approx(chance, abs=0.07)
    assert np.mean([found.best(item) == true for item, true in truth.items()]) > 0.88


def test_one_step_of_em_by_hand() -> None:
    """Items xx, xy; smoothing 1. Shares T = (1, 0), (.5, .5); prior = (2.5, 1.5) / 4.

    Confusion of a (says x, x): rows (1 + 1.5, 1) / 3.5 and (1 + .5, 1) / 2.5; of b (x, y): (1 + 1, 1 + .5) / 3.5 and
    (1, 1 + .5) / 2.5. Each T is the prior times the entries of a and b for what they say.
    """
    found = dawid_skene({"1": {"a": "x", "b": "x"}, "2": {"a": "x", "b": "y"}}, smoothing=1.0, max_steps=1)
    one = (2.5 * 5 / 7 * 4 / 7, 1.5 * 3 / 5 * 2 / 5)
    two = (2.5 * 5 / 7 * 3 / 7, 1.5 * 3 / 5 * 3 / 5)
    assert found.truth["1"]["x"] == pytest.approx(one[0] / sum(one))
    assert found.truth["2"]["x"] == pytest.approx(two[0] / sum(two))
    assert found.prior == pytest.approx({"x": 2.5 / 4, "y": 1.5 / 4})
    assert found.workers["a"].confusion["y"] == pytest.approx({"x": 0.6, "y": 0.4})
    assert (found.steps, found.converged) == (1, False)
    expected = found.truth["1"]["x"] + found.truth["2"]["x"]
    assert found.workers["a"].accuracy == pytest.approx(expected / 2)


@pytest.mark.parametrize(
    ("ratings", "reason"),
    [
        ({}, "nobody rated anything yet"),
        ({"1": {"a": "x"}, "2": {"b": "y"}}, "no item was rated by two people"),
        ({"1": {"a": "x", "b": "x"}}, "every rating is 'x'"),
    ],
)
def test_what_cannot_be_told_says_why(ratings: dict[str, dict[str, Value]], reason: str) -> None:
    found = dawid_skene(ratings)
    assert found.undefined == reason and not found.workers and not found.truth


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.6, 0.9), "reliable"),
        ((0.1, 0.4), "adversarial"),
        ((0.4, 0.6), "random"),  # not 0.8, but maybe 0.5
        ((0.3, 0.95), "unclear"),  # as well average as guessing
    ],
)
def test_verdicts(interval: tuple[float, float], verdict: str) -> None:
    assert verdict_of(interval, 0.5, 0.8) == verdict


def preferences(items: int, alphas: dict[str, float], seed: int = 0) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(seed)
    gaps = 2.0 * rng.standard_normal(items)
    return {
        str(i): {p: float(rng.random() < 1 / (1 + math.exp(-a * gap))) for p, a in alphas.items()}
        for i, gap in enumerate(gaps)
    }


def test_noisy_bradley_terry_finds_who_guesses_and_who_opposes() -> None:
    truth = {"ann": 2.0, "bob": 1.5, "cat": 2.0, "dan": 1.0, "guess": 0.0, "mallory": -1.0}
    found = noisy_bradley_terry(preferences(500, truth))
    assert {n: f.verdict for n, f in found.items()} == {
        "ann": "reliable",
        "bob": "reliable",
        "cat": "reliable",
        "dan": "reliable",
        "guess": "random",
        "mallory": "adversarial",
    }
    assert found["mallory"].interval[1] < 0 < found["dan"].interval[0]
    # alpha is relative: 1 on the whole.
    assert np.mean([f.alpha for f in found.values()]) == pytest.approx(1.0)
    assert found["ann"].alpha > found["dan"].alpha > abs(found["guess"].alpha)


def test_noisy_bradley_terry_of_nobody_in_particular() -> None:
    """One person an item says nothing of the person: the prior's 1, give or take 2 * 0.5 less what the mean takes."""
    found = noisy_bradley_terry({str(k): {"ann" if k % 2 else "bob": 1.0} for k in range(40)})
    assert found["ann"].alpha == pytest.approx(1.0, abs=1e-3) and found["ann"].votes == 20
    low, high = found["ann"].interval
    assert low < 0.5 and high > 1.5
    assert noisy_bradley_terry({}) == {}


def test_few_votes_condemn_nobody() -> None:
    table = preferences(200, {"ann": 2.0, "bob": 2.0, "cat": 2.0})
    table["0"]["new"] = 1.0 - round(np.mean(list(table["0"].values())))
    assert noisy_bradley_terry(table)["new"].verdict == "unclear"


def test_a_tie_is_half_of_each() -> None:
    with pytest.raises(DataError, match=r"share 2\.0"):
        noisy_bradley_terry({"1": {"a": 2.0}})
    half = noisy_bradley_terry({str(k): {"a": 0.5, "b": 0.5} for k in range(30)})
    assert half["a"].alpha == pytest.approx(1.0, abs=1e-6)


def test_gradient_and_information_are_those_of_the_loss() -> None:
    """By central differences, at a point that is not the mode."""
    table = preferences(60, {"a": 1.5, "b": 1.0, "c": -0.5})
    del table["3"]["a"]
    problem, at = Gaps(table, 0.5), np.array([0.3, -0.2, -0.4, 0.2])
    steps = 1e-5 * np.eye(4)
    slopes = [(problem.loss(at + step)[0] - problem.loss(at - step)[0]) / 2e-5 for step in steps]
    assert problem.loss(at)[1] == pytest.approx(slopes, abs=1e-6)
    curvature = np.stack([(problem.loss(at + step)[1] - problem.loss(at - step)[1]) / 2e-5 for step in steps])
    votes = np.array([59, 60, 60]) / 179
    share = np.append(votes, 0.0)
    held = np.eye(4) - np.outer([1, 1, 1, 0], share)
    expected = held.T @ problem.information(at) @ held + np.outer(share, share) + np.diag([0, 0, 0, 1.0])
    assert curvature == pytest.approx(expected, abs=1e-6)
