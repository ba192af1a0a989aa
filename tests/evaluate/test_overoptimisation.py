"""Best-of-n without resampling noise, the curves of Gao et al., and what a run's figures say of them."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from tiny import rollout

from prefrl.errors import DataError
from prefrl.evaluate.alarms import find_alarms
from prefrl.evaluate.frontier_figures import golds, overoptimisation_sections, proxy_and_gold
from prefrl.evaluate.frontier_metrics import (
    BEST_OF_N,
    evaluation_metrics,
    frontiers,
    point_metrics,
    rounds_frontier,
)
from prefrl.evaluate.overoptimisation import (
    Estimate,
    Fit,
    Frontier,
    Point,
    best_of_n,
    best_of_n_kl,
    fit_curve,
    powers,
    selection_weights,
)
from prefrl.evaluate.run_folder import RunData
from prefrl.types import Score


def over_all_subsets(proxy: list[float], gold: list[float], n: int) -> tuple[float, float]:
    """Mean proxy and gold of the best of every n-subset; of several best ones each counts alike."""
    found = []
    for subset in itertools.combinations(range(len(proxy)), n):
        top = max(proxy[i] for i in subset)
        found.append((top, fmean(gold[i] for i in subset if proxy[i] == top)))
    return fmean(p for p, _ in found), fmean(g for _, g in found)


@pytest.mark.parametrize("ties", [False, True])
def test_every_n_is_the_mean_over_all_subsets(ties: bool) -> None:
    rng = random.Random(3)
    proxy = [float(rng.randrange(3)) if ties else rng.gauss(0, 1) for _ in range(9)]
    gold = [rng.gauss(0, 1) for _ in range(9)]
    found = best_of_n([proxy], [gold], range(1, 10))
    for point in found.points:
        p, g = over_all_subsets(proxy, gold, point.at)
        assert point.proxy.mean == pytest.approx(p, abs=1e-12) and point.gold.mean == pytest.approx(g, abs=1e-12)


def test_by_hand() -> None:
    # The best of two of 1, 2, 3 is 2 once and 3 twice.
    (point,) = best_of_n([[2.0, 3.0, 1.0]], [[20.0, 0.0, 10.0]], [2]).points
    assert point.proxy.mean == pytest.approx(8 / 3) and point.gold.mean == pytest.approx(20 / 3)
    assert point.kl == pytest.approx(math.log(2) - 0.5)
    assert [best_of_n_kl(n) for n in (1, 4)] == pytest.approx([0.0, 0.6362943611])


def test_the_estimate_is_unbiased() -> None:
    # Uniform proxies: the mean of the largest of n is n / (n + 1), whatever the number of samples.
    draws = np.random.default_rng(0).uniform(size=(4000, 6))
    found = best_of_n(draws, draws, [1, 2, 4, 6])
    for point in found.points:
        assert point.proxy.mean == pytest.approx(point.at / (point.at + 1), abs=0.006)
        assert point.proxy.low < point.at / (point.at + 1) < point.proxy.high


@pytest.mark.parametrize(("samples", "n"), [(1, 1), (7, 1), (7, 7), (100_000, 3), (100_000, 50_000), (3000, 2999)])
def test_weights_are_a_distribution_and_exact_at_any_size(samples: int, n: int) -> None:
    weights = selection_weights(samples, n)
    assert len(weights) == samples and weights.sum() == pytest.approx(1.0, abs=1e-9)
    for place in {n, samples, (n + samples) // 2}:
        log = sum(math.lgamma(a + 1) * s for a, s in ((place - 1, 1), (n - 1, -1), (place - n, -1)))
        log -= math.lgamma(samples + 1) - math.lgamma(n + 1) - math.lgamma(samples - n + 1)
        assert weights[place - 1] == pytest.approx(math.exp(log), rel=1e-6, abs=1e-300)


def test_what_could_not_be_scored_is_left_out_and_counted() -> None:
    nan = math.nan
    proxy = [[1.0, 2.0, nan, 3.0], [1.0, 2.0, 3.0, 4.0], [nan, nan, nan, 1.0]]
    gold = [[1.0, 2.0, 3.0, 3.0], [1.0, nan, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    found = best_of_n(proxy, gold, [1, 3])
    assert (found.prompts, found.left_out, found.unscored) == (2, 1, 5)
    assert found.points[1].gold.mean == pytest.approx((3 + 4) / 2)
    with pytest.raises(DataError, match="best of 4 needs as many scored samples of a prompt; the most is 3"):
        best_of_n(proxy, gold, [4])


def test_the_default_ns_are_those_that_nine_prompts_of_ten_have() -> None:
    proxy = [[float(i) for i in range(12)]] * 10
    assert [p.at for p in best_of_n(proxy, proxy).points] == [1, 2, 4, 8, 12]
    short = [*proxy[:9], [1.0, 2.0]]
    found = best_of_n(short, short)
    assert found.points[-1].at == 12 and found.left_out == 1
    assert powers(1) == [1] and powers(8) == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("proxy", "gold", "ns", "words"),
    [
        ([], [], [], "one at least"),
        ([[1.0]], [[1.0], [2.0]], [], "1 and 2 prompts"),
        ([[1.0]], [[1.0, 2.0]], [], "1 proxy and 2 gold"),
        ([[1.0]], [[1.0]], [0], "n is 0"),
        ([[math.nan]], [[1.0]], [], "the most is 0"),
    ],
)
def test_what_cannot_be_is_refused(proxy: Any, gold: Any, ns: list[int], words: str) -> None:
    with pytest.raises(DataError, match=words):
        best_of_n(proxy, gold, ns)


def test_intervals_are_over_prompts() -> None:
    rng = np.random.default_rng(1)
    prompts = rng.normal(size=(40, 1))
    found = best_of_n(prompts + 1e-6 * rng.normal(size=(40, 16)), prompts.repeat(16, axis=1))
    width = found.points[0].gold.high - found.points[0].gold.low
    assert width == pytest.approx(2 * 1.96 * float(prompts.std()) / math.sqrt(40), rel=0.1)  # not of 640 samples
    assert math.isnan(best_of_n([[1.0, 2.0]], [[1.0, 2.0]]).points[0].gold.low)


KLS = [0.0, 0.2, 0.6, 1.2, 1.8, 3.2, 4.5]


def test_exact_best_of_n_curve_is_found_with_its_peak() -> None:
    gold = [5.0 + math.sqrt(kl) * (2.0 - 0.8 * math.sqrt(kl)) for kl in KLS]
    fit = fit_curve(KLS, gold, "best_of_n")
    assert (fit.a, fit.b, fit.r2) == pytest.approx((2.0, 0.8, 1.0)) and fit.points == 6
    assert fit.peak == pytest.approx((1.25**2, 1.25))  # d* = a / 2b, a^2 / 4b
    assert str(fit) == "d (a - b d), a = 2, b = 0.8, R2 = 1.000, peak of 1.25 at 1.56 nats"
    assert fit.gain(1.25**2) == pytest.approx(1.25) and fit.gain(0.0) == 0.0


def test_exact_rl_curve_is_found_with_its_peak() -> None:
    reward = [1.0] + [1.0 + d * (1.0 - 0.5 * math.log(d)) for d in map(math.sqrt, KLS[1:])]
    fit = fit_curve(KLS, reward, "rl")
    assert (fit.a, fit.b, fit.r2) == pytest.approx((1.0, 0.5, 1.0))
    assert fit.peak is not None and fit.peak == pytest.approx((math.e**2, 0.5 * math.e))  # d* = exp(a / b - 1), b d*
    assert str(fit).endswith("peak of 1.36 at 7.39 nats, beyond the measured 4.5")
    near = [fit.gain(fit.peak[0] * factor) for factor in (0.9, 1.0, 1.1)]
    assert max(near) == near[1]


def test_curves_without_a_peak() -> None:
    line = [math.sqrt(kl) for kl in KLS]
    straight = fit_curve(KLS, line, "rl")
    assert straight.a == pytest.approx(1.0) and straight.b == pytest.approx(0.0, abs=1e-12)
    assert Fit(kind="best_of_n", a=1.0, b=-0.1, r2=1.0, points=3, farthest=1.0).peak is None
    assert Fit(kind="best_of_n", a=-1.0, b=0.1, r2=1.0, points=3, farthest=1.0).peak is None
    assert Fit(kind="rl", a=1.0, b=0.001, r2=1.0, points=3, farthest=1.0).peak is None  # e^1998 nats away
    assert math.isnan(fit_curve(KLS, [1.0] * 7, "rl").r2)


def test_too_few_points_are_not_fitted_and_say_so() -> None:
    with pytest.raises(DataError, match="there are 2 distances from the start; expected 3 or more"):
        fit_curve([0.0, 1.0, 2.0, 2.0], [0.0, 1.0, 2.0, 2.0], "rl")
    with pytest.raises(DataError, match=r"the first point is 0.5 nats away"):
        fit_curve([0.5, 1.0, 2.0, 3.0], [0.0] * 4, "rl")
    short = hump(2)
    assert "Not fitted because there are 1 distances" in str(short.fits["gold"])
    assert "Not fitted" in short.to_dict()["fits"]["gold"]["not_fitted"]


def hump(count: int, width: float = 0.05) -> Frontier:
    """Proxy rises with KL, gold rises and falls."""
    gold = [0.0, 0.5, 0.7, 0.4, 0.1, -0.3][:count]
    points = tuple(
        Point(10 * i, float(i), Estimate(i / 2, i / 2 - width, i / 2 + width), Estimate(g, g - width, g + width))
        for i, g in enumerate(gold)
    )
    return Frontier(kind="rl", points=points, gold="people", stds=(0.5, 2.0))


def as_run(frontier: Frontier, phase: str) -> RunData:
    lines = [{"step": at, "phase": phase, **metrics} for at, metrics in point_metrics(frontier)]
    return RunData(path=Path("a"), status={"kind": "rl", "state": "finished"}, metrics=lines)


def test_a_fall_needs_a_rising_proxy_and_intervals_that_tell_the_two_apart() -> None:
    assert hump(6).falls and hump(6).peak.at == 20
    assert not hump(3).falls
    assert not hump(6, width=1.5).falls
    assert not hump(6, width=math.nan).falls  # one prompt: nobody knows
    sinking = tuple(Point(p.at, p.kl, Estimate(-p.proxy.mean), p.gold) for p in hump(6).points)
    assert not Frontier(kind="rl", points=sinking).falls


@pytest.mark.parametrize(("phase", "kind"), [("eval", "rl"), (BEST_OF_N, "best_of_n")])
def test_a_frontier_survives_the_run_folder(phase: str, kind: str) -> None:
    (found,) = frontiers(as_run(hump(6), phase)).values()
    assert found.points == hump(6).points and found.stds == (0.5, 2.0)
    assert (found.kind, found.gold) == (kind, "people")
    assert frontiers(as_run(hump(1), phase)) == {}


def test_the_alarm_names_both_ends() -> None:
    (alarm,) = find_alarms(as_run(hump(6), "eval"))
    assert "from step 20 to step 50, from 2 to 5 nats" in alarm
    assert "rose from 1 to 2.5 while people, which nothing optimizes, fell from 0.7 to -0.3" in alarm
    assert find_alarms(as_run(hump(3), "eval")) == []
    assert "from n 20" in find_alarms(as_run(hump(6), BEST_OF_N))[0]


def test_the_report_has_a_section_where_there_is_an_audit_only() -> None:
    (section,) = overoptimisation_sections(as_run(hump(6), "eval"))
    figure, points, curves = section.blocks
    assert section.title == "Over-optimisation"
    assert points.columns == ("step", "KL", "proxy", "people")
    assert points.rows[2] == ("20", "2.00", "1.000 [0.950, 1.050]", "0.700 [0.650, 0.750]")
    assert [row[0] for row in curves.rows] == ["reward", "people"]
    lines = figure.figure.axes[0].lines
    assert [round(y, 6) for y in lines[2].get_ydata()] == [0.0, 0.25, 0.35, 0.2, 0.05, -0.15]  # in stds of 2
    assert len(lines) == 4 and lines[0].get_linestyle() == "--"
    few = overoptimisation_sections(as_run(hump(2), "eval"))[0].blocks
    assert "Not fitted" in few[2].rows[0][1]
    assert overoptimisation_sections(RunData(path=Path("a"), status={}, metrics=[])) == []


def test_figures_without_known_stds_are_in_the_rewards_own_units() -> None:
    raw = Frontier(kind="rl", points=hump(6).points, gold="people")
    axes = proxy_and_gold(raw).axes[0]
    assert axes.get_ylabel() == "gain" and max(axes.lines[2].get_ydata()) == 0.7
    assert [line.get_label() for line in golds({"one": raw, "two": raw}).axes[0].lines] == ["one", "two"]


def test_metrics_of_an_evaluation_by_hand() -> None:
    rollouts = [rollout(group=name) for name in ("a", "a", "b")]
    scores = [
        Score(value=1.0, parts={"people": 0.5}), Score(value=2.0), Score(value=6.0, parts={"people": 1.5}),
    ]  # fmt: skip
    metrics = evaluation_metrics(rollouts, scores, [0.0, 1.0, 2.0], ["people"])
    assert metrics["kl/ref"] == 1.0 and metrics["reward/mean"] == 3.0 and metrics["gold/people/mean"] == 1.0
    assert metrics["gold/people/std"] == 0.5
    assert (metrics["gold/people/low"], metrics["gold/people/high"]) == (0.5, 1.5)
    assert evaluation_metrics(rollouts, scores, [1.0, 1.0, 4.0], []) == {"kl/ref": 2.0}
    failed = [Score(error="no", parts={"people": 9.0}), *scores[1:]]
    assert evaluation_metrics(rollouts, failed, [], ["people"])["gold/people/mean"] == 1.5


def test_rounds_of_a_loop_in_log_odds() -> None:
    one = {"round": 1, "kl": 2.0, "reward_gain": 1.5, "won": 3, "tied": 0, "lost": 1}
    one |= {"win_rate": 0.75, "win_low": 0.25, "win_high": 1.0}
    start, point = rounds_frontier([one]).points
    assert (start.kl, start.proxy.mean, start.gold.mean) == (0.0, 0.0, 0.0)
    assert (point.at, point.kl, point.proxy.mean) == (1, 2.0, 1.5)
    # 3 to 1 either way, and all of 4 won as 9 to 1.
    assert (point.gold.mean, point.gold.low, point.gold.high) == pytest.approx((math.log(3), -math.log(3), math.log(9)))
