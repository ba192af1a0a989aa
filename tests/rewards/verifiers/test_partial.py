"""Partial credit, by hand."""

from __future__ import annotations

import math

import pytest

from prefrl.rewards.verifiers.partial import Credit


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("all", [0.0, 0.0, 0.0, 1.0]),
        ("fraction", [0.0, 0.25, 0.75, 1.0]),
        ("weighted", [0.0, 0.4, 0.6, 1.0]),
        ("scaled", [0.0, 0.2, 0.3, 1.0]),
    ],
)
def test_rules(rule: str, expected: list[float]) -> None:
    """Four checks of weights 4, 1, 1, 4."""
    passed = [[False] * 4, [True, False, False, False], [True, True, True, False], [True] * 4]
    scored = [Credit(rule, 0.5).of(row, [4, 1, 1, 4]) for row in passed]
    assert [score for score, _ in scored] == pytest.approx(expected)
    assert [parts for _, parts in scored] == [{"strict": float(all(row)), "fraction": sum(row) / 4} for row in passed]


def test_a_full_solution_dominates() -> None:
    credit = Credit("scaled", 0.5)
    last = credit.of([True] * 10)[0] - credit.of([True] * 9 + [False])[0]
    assert last == pytest.approx(0.55) and last > credit.of([True] * 9 + [False])[0]


@pytest.mark.parametrize("weights", [[0.0], [-1.0], [math.nan], [math.inf], [1.0, 1.0]])
def test_weights_that_mean_nothing(weights: list[float]) -> None:
    with pytest.raises(ValueError):
        Credit().of([True], weights)


def test_nothing_checked_is_no_success() -> None:
    with pytest.raises(ValueError, match="0 checks"):
        Credit().of([])
