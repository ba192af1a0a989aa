"""Margins: the best temperature, quantiles, and tied pairs."""

from __future__ import annotations

import math

import pytest

from prefrl.evaluate.margins import best_temperature, describe, quantiles, scaled_nll, softplus, tied_report


def test_the_best_temperature_by_hand() -> None:
    """Margins 2, 2, 2 and -2: at the optimum sigmoid(2 / T) is the accuracy 3/4, so T = 2 / log 3."""
    margins = [2.0, 2.0, 2.0, -2.0]
    temperature = best_temperature(margins)
    assert temperature == pytest.approx(2 / math.log(3), rel=1e-9)
    assert scaled_nll(margins, temperature) == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)


def test_no_temperature_nearby_is_better() -> None:
    margins = [0.3, -1.2, 2.2, 0.9, -0.1, 700.0]
    best = best_temperature(margins)
    for other in (best * 1.01, best / 1.01):
        assert scaled_nll(margins, best) < sum(softplus(-m / other) for m in margins) / len(margins)


def test_temperatures_at_the_ends() -> None:
    assert best_temperature([-1.0, 0.5]) == math.inf  # pointing the wrong way
    assert scaled_nll([-1.0, 0.5], math.inf) == pytest.approx(math.log(2))
    assert best_temperature([0.0, 0.0]) == math.inf
    assert best_temperature([1.0, 2.0]) == 0.0  # every pair right
    assert scaled_nll([1.0, 2.0], 0.0) == 0.0
    assert scaled_nll([1.0, 0.0], 0.0) == pytest.approx(math.log(2) / 2)


def test_quantiles_interpolate() -> None:
    assert quantiles([4.0, 0.0, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0]) == [0.0, 0.5, 1.0, 2.5, 4.0]
    assert quantiles([3.0], [0.05, 0.95]) == [3.0, 3.0]
    assert describe([0.0, 1.0, 2.0, 3.0, 4.0]) == "half lie in [1.000, 3.000], nine in ten in [0.200, 3.800]"


def test_tied_pairs_by_hand() -> None:
    """|tied| 0.5 and 2; |decided| 0.5, 1, 3. The first is below 2 of 3 and level with 1, the second below 1 of 3."""
    found = tied_report([-0.5, 2.0, math.nan], [0.5, -1.0, 3.0])
    assert found.separation == pytest.approx(((2 + 0.5) / 3 + 1 / 3) / 2)
    assert (found.close.correct, found.close.total, found.unscored) == (1, 2, 1)
    assert (found.decided.correct, found.decided.total) == (2, 3)  # log 3 = 1.0986
    assert "1 unscored" in found.rows()[0][2]


def test_tied_pairs_without_scores() -> None:
    found = tied_report([math.nan], [1.0])
    assert math.isnan(found.separation) and found.to_dict()["separation"] is None
    assert found.rows()[0][1] == "no pairs"
