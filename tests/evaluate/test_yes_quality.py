"""Figures of probabilities of success, by hand, and the two numbers that calibrate them."""

from __future__ import annotations

import math
import random

import pytest

from prefrl.errors import DataError
from prefrl.evaluate.yes_quality import platt, yes_quality


def logit(p):
    return math.log(p / (1 - p))


def test_figures_by_hand():
    """P .8, .6, .3 against 1, 0, 0: all pairs in order; squared errors .04, .36, .09."""
    found = yes_quality([logit(p) for p in (0.8, 0.6, 0.3)], [1.0, 0.0, 0.0], masses=[0.9, 0.4, 0.5])
    assert found.auroc.mean == 1.0
    assert found.brier == pytest.approx(0.49 / 3)
    assert found.nll == pytest.approx(-(math.log(0.8) + math.log(0.4) + math.log(0.7)) / 3)
    assert found.ece == pytest.approx((0.2 + 0.6 + 0.3) / 3)
    # Errors .2, -.6, -.3 have the mean -.7/3; outcomes the variance 2/9.
    variance = (0.04 + 0.36 + 0.09) / 3 - (0.7 / 3) ** 2
    assert found.explained_variance == pytest.approx(1 - variance / (2 / 9))
    assert (found.base_rate, found.mass) == (pytest.approx(1 / 3), pytest.approx(0.6))
    assert found.under_floor == pytest.approx(1 / 3)


def test_ties_count_half_and_one_kind_alone_has_no_auroc():
    assert yes_quality([0.0, 0.0, 1.0, -1.0], [1, 0, 1, 0]).auroc.mean == pytest.approx(3.5 / 4)
    alone = yes_quality([0.0, 1.0], [1, 1])
    assert math.isnan(alone.auroc.mean) and math.isnan(alone.explained_variance)
    assert math.isnan(alone.mass)


def test_prompts_are_resampled_as_wholes():
    rng = random.Random(0)
    logits, outcomes = zip(*((rng.gauss(y, 1), float(y)) for y in [i % 2 for i in range(40)]), strict=True)
    apart = yes_quality(logits, outcomes).auroc
    tenfold = yes_quality(logits * 10, outcomes * 10, groups=[i % 40 for i in range(400)]).auroc
    assert apart.low < apart.mean < apart.high
    assert tenfold.high - tenfold.low == pytest.approx(apart.high - apart.low, abs=0.05)


def test_calibration_finds_what_the_log_odds_were_stretched_by():
    """Outcomes drawn from sigmoid(z), seen as 3 z - 2: the temperature is 3 and the bias 2/3."""
    rng = random.Random(1)
    true = [rng.gauss(0, 2) for _ in range(20_000)]
    outcomes = [float(rng.random() < 1 / (1 + math.exp(-z))) for z in true]
    temperature, bias = platt([3 * z - 2 for z in true], outcomes)
    assert temperature == pytest.approx(3.0, rel=0.05)
    assert bias == pytest.approx(2 / 3, abs=0.05)
    fixed = yes_quality([(3 * z - 2) / temperature + bias for z in true], outcomes)
    assert fixed.ece < 0.01 < yes_quality([3 * z - 2 for z in true], outcomes).ece


def test_calibration_of_what_is_all_of_one_kind_stays_finite():
    for outcomes in ([1.0] * 5, [0.0] * 5, [1.0, 1.0, 0.0, 0.0, 0.0]):
        temperature, bias = platt([2.0, 1.5, -1.0, -2.0, -3.0], outcomes)
        assert temperature > 0 and math.isfinite(bias)
    backwards, _ = platt([-2.0, -1.0, 1.0, 2.0], [1.0, 1.0, 0.0, 0.0])
    assert backwards > 100  # a slope of nearly 0: it says nothing, not the opposite


@pytest.mark.parametrize(
    ("logits", "outcomes"), [([], []), ([0.0], [0.0, 1.0]), ([0.0], [1.5]), ([math.nan], [1.0]), ([0.0], [math.nan])]
)
def test_what_cannot_be_measured_is_refused(logits, outcomes):
    with pytest.raises(DataError):
        yes_quality(logits, outcomes)
