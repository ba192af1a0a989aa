"""Intervals and tests against numbers from tables and by hand."""

from __future__ import annotations

import math

import pytest

from prefrl.errors import DataError
from prefrl.evaluate.statistics import (
    binomial_test,
    bootstrap_mean,
    clopper_pearson,
    pearson,
    proportion_interval,
    sign_test,
    wilson,
    win_rate,
)


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)],
)
def test_wilson(successes: int, total: int, low: float, high: float) -> None:
    assert wilson(successes, total) == pytest.approx((low, high), abs=5e-5)


def test_wilson_knows_nothing_from_nothing_and_widens_with_the_level() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(8, 10, level=0.99)[0] < wilson(8, 10)[0]


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(8, 10, 0.4439, 0.9748), (0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0)],
)
def test_clopper_pearson(successes: int, total: int, low: float, high: float) -> None:
    assert clopper_pearson(successes, total) == pytest.approx((low, high), abs=5e-5)


def test_binomial_test() -> None:
    assert binomial_test(8, 10) == pytest.approx(112 / 1024)  # 2 * (45 + 10 + 1) / 2^10
    assert binomial_test(5, 10) == pytest.approx(1.0)
    assert binomial_test(0, 0) == pytest.approx(1.0)
    assert binomial_test(2, 3, rate=0.25) == pytest.approx(10 / 64)  # 9 / 64, and the unlikelier 1 / 64
    assert binomial_test(0, 3, rate=0.25) == pytest.approx(1.0)  # as likely as 1 of 3, the likeliest count
    assert binomial_test(5000, 10000) == pytest.approx(1.0)


def test_sign_test_leaves_ties_out_and_counts_them() -> None:
    first, second = [3, 3, 3, 3, 3, 3, 1, 5], [1, 1, 1, 1, 1, 1, 1, 9]
    result = sign_test(first, second)
    assert (result.wins, result.losses, result.ties) == (6, 1, 1)
    assert result.p_value == pytest.approx(16 / 128)  # 2 * (7 + 1) / 2^7


def test_win_rate_counts_a_tie_half() -> None:
    rate = win_rate([1.0] * 7 + [0.5] * 2 + [0.0])
    assert (rate.wins, rate.ties, rate.losses, rate.total) == (7, 2, 1, 10)
    assert rate.rate == pytest.approx(0.8)
    assert (rate.low, rate.high) == pytest.approx((0.4902, 0.9433), abs=5e-5)
    assert str(rate) == "80.0% [49.0%, 94.3%] (7 won, 2 tied, 1 lost)"


def test_no_comparison_is_no_win_rate() -> None:
    rate = win_rate([])
    assert math.isnan(rate.rate) and (rate.low, rate.high) == (0.0, 1.0)


def test_repeated_prompts_widen_the_interval() -> None:
    outcomes = [float(prompt % 2) for prompt in range(20) for _ in range(10)]
    prompts = [prompt for prompt in range(20) for _ in range(10)]
    alone = win_rate(outcomes)
    together = win_rate(outcomes, groups=prompts)
    assert alone.high - alone.low == pytest.approx(0.137, abs=1e-3)
    assert together.high - together.low > 0.35
    assert win_rate(outcomes, groups=list(range(200))) == alone


def test_clusters_that_agree_are_not_certainty() -> None:
    assert proportion_interval([1.0] * 6, groups=["a", "a", "b", "b", "c", "c"]) == wilson(3, 3)


def test_bootstrap_is_seeded_and_centred() -> None:
    values = [float(v) for v in range(101)]
    low, high = bootstrap_mean(values, seed=1)
    assert (low, high) == bootstrap_mean(values, seed=1)
    assert (low, high) != bootstrap_mean(values, seed=2)
    assert low == pytest.approx(50 - 1.96 * 29.15 / math.sqrt(101), abs=0.5)
    assert high == pytest.approx(50 + 1.96 * 29.15 / math.sqrt(101), abs=0.5)
    assert bootstrap_mean([2.0, 2.0]) == (2.0, 2.0)


def test_pearson() -> None:
    assert pearson([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    assert pearson([1, 2, 3], [-2, -4, -6]) == pytest.approx(-1.0)
    assert pearson([1e-200, 2e-200, 3e-200], [1, 2, 3]) == pytest.approx(1.0)


@pytest.mark.parametrize(("x", "y"), [([0.1] * 3, [1, 2, 3]), ([1, 2, 3], [7, 7, 7]), ([1], [1]), ([], [])])
def test_pearson_is_nan_where_a_side_does_not_vary(x: list[float], y: list[float]) -> None:
    assert math.isnan(pearson(x, y))


def test_bad_input_is_refused() -> None:
    with pytest.raises(DataError, match="11 successes of 10"):
        wilson(11, 10)
    with pytest.raises(DataError, match=r"0\.7 is no outcome"):
        win_rate([1.0, 0.7])
    with pytest.raises(DataError, match="nan is no outcome"):
        win_rate([math.nan])
    with pytest.raises(DataError, match="1 of 2 values are not finite"):
        bootstrap_mean([1.0, math.inf])
    with pytest.raises(DataError, match="one group per value"):
        bootstrap_mean([1.0, 2.0], groups=[])
    with pytest.raises(DataError, match="expected pairs"):
        pearson([1, 2], [1])
    with pytest.raises(DataError, match="at least one"):
        bootstrap_mean([])
