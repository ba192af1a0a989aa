"""Ways to choose among n samples, against all subsets looked at one by one."""

from __future__ import annotations

import random
from itertools import combinations
from math import nan
from statistics import fmean

import pytest

from prefrl.errors import DataError
from prefrl.evaluate.best_of import best_of_n, pass_at


def figures(found):
    return {p.n: (p.best.mean, p.weighted.mean, p.majority.mean, p.reached.mean) for p in found.points}


def test_pass_at_n():
    assert [pass_at(4, 1, n) for n in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert [pass_at(4, 0, 2), pass_at(4, 3, 2)] == [0.0, 1.0]
    assert pass_at(10, 3, 4) == pytest.approx(1 - 35 / 210)


def test_one_problem_by_hand():
    # A is right. B is said twice with .3 + .4, A once with .8: votes take B, weights and the best score take A.
    found = figures(best_of_n([[0.8, 0.3, 0.4, 0.1]], [[1, 0, 0, 0]], [["A", "B", "B", "C"]], [1, 4]))
    assert found[4] == (1.0, 1.0, 0.0, 1.0)
    assert found[1] == pytest.approx((0.25, 0.25, 0.25, 0.25))


def test_ties_are_shared():
    found = figures(best_of_n([[0.5, 0.5]], [[1, 0]], [["A", "B"]], [2]))
    assert found[2] == (0.5, 0.5, 0.5, 1.0)


def test_a_sample_without_an_answer_has_no_vote():
    found = figures(best_of_n([[0.9, 0.9, 0.1]], [[0, 0, 1]], [[None, None, "A"]], [3]))
    assert found[3] == (0.0, 1.0, 1.0, 1.0)
    assert figures(best_of_n([[0.9]], [[0]], [[None]], [1]))[1] == (0.0, 0.0, 0.0, 0.0)


def test_scores_of_0_still_choose():
    assert figures(best_of_n([[0.0, 0.0, 0.0]], [[1, 1, 0]], [["A", "A", "B"]], [3]))[3][1] == 0.5


def naive(scores, correct, answers, n):
    """Best, weighted and majority over all subsets, one by one."""
    found = []
    for chosen in combinations(range(len(scores)), n):
        top = max(scores[i] for i in chosen)
        best = fmean(correct[i] for i in chosen if scores[i] == top)
        votes = []
        for weight in (lambda i: scores[i], lambda i: 1.0):
            totals = {}
            for i in chosen:
                totals[answers[i]] = totals.get(answers[i], 0.0) + weight(i)
            first = [a for a, total in totals.items() if total >= max(totals.values()) - 1e-12]
            votes.append(fmean(fmean(correct[i] for i in chosen if answers[i] == a) for a in first))
        found.append((best, *votes, float(any(correct[i] for i in chosen))))
    return tuple(fmean(column) for column in zip(*found, strict=True))


def test_all_subsets():
    rng = random.Random(0)
    problems = []
    for _ in range(6):
        answers = [rng.choice("ABC") for _ in range(7)]
        problems.append(([rng.randint(0, 4) / 4 for _ in answers], [int(a == "A") for a in answers], answers))
    found = figures(best_of_n(*zip(*problems, strict=True), [1, 3, 7]))
    for n in (1, 3, 7):
        expected = [fmean(c) for c in zip(*(naive(*problem, n) for problem in problems), strict=True)]
        assert found[n] == pytest.approx(tuple(expected), abs=1e-12)


def test_many_subsets_are_drawn_evenly():
    # 24 samples, half of them right: a vote of five is right half the time, by symmetry
    found = best_of_n([[1.0] * 24], [[1] * 12 + [0] * 12], [["A"] * 12 + ["B"] * 12], [5])
    assert found.points[0].majority.mean == pytest.approx(0.5, abs=0.07)  # three standard errors of 512 subsets
    assert found == best_of_n([[1.0] * 24], [[1] * 12 + [0] * 12], [["A"] * 12 + ["B"] * 12], [5])


def test_the_usual_n_and_what_is_left_out():
    sizes = [16] * 19 + [3]
    scores = [[0.5] * size for size in sizes]
    scores[0] = [nan] * 2 + [0.5] * 14 + [0.5] * 2
    correct = [[1] * len(own) for own in scores]
    answers = [["A"] * len(own) for own in scores]
    found = best_of_n(scores, correct, answers)
    assert [p.n for p in found.points] == [1, 4, 16]
    assert (found.problems, found.left_out, found.unscored) == (19, 1, 2)
    assert found.rows()[0][0] == "1"


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(DataError, match="one of each a sample"):
        best_of_n([[0.5]], [[1, 0]], [["A"]])
    with pytest.raises(DataError, match="negative"):
        best_of_n([[-0.5]], [[1]], [["A"]])
    with pytest.raises(DataError, match="neither 1 nor 0"):
        best_of_n([[0.5]], [[0.5]], [["A"]])
    with pytest.raises(DataError, match="expected 1 to 1"):
        best_of_n([[0.5]], [[1]], [["A"]], [4])
