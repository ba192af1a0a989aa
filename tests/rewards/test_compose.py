from __future__ import annotations

import json
import math

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards import Audit, Clip, Gate, Normalise, WeightedSum, minimum, numeric, product
from prefrl.types import Score


class Fixed:
    """Returns the scores it was given, in turn, one batch a call."""

    def __init__(self, name, *batches):
        self.name = name
        self.batches = [[s if isinstance(s, Score) else Score(value=s) for s in b] for b in batches]

    def score(self, rollouts):
        return self.batches.pop(0)


def score(source, rollout, n):
    return source.score([rollout(id=f"p{i}") for i in range(n)])


def test_weighted_sum_keeps_raw_parts_under_the_components_names(rollout):
    a = Fixed("a", [Score(value=2.0, parts={"parsed": 1.0})])
    b = Fixed("b", [Score(value=-4.0)])
    (got,) = score(WeightedSum([(a, 0.5), (b, 0.25)]), rollout, 1)
    assert got == Score(value=0.0, parts={"a": 2.0, "a/parsed": 1.0, "b": -4.0})


def test_weighted_sum_scales_and_merges_steps(rollout):
    a = Fixed("a", [Score(steps=((2, 1.0), (0, 4.0)))])
    b = Fixed("b", [Score(value=1.0, steps=((2, 3.0),))])
    (got,) = score(WeightedSum([(a, 0.5), (b, 2.0)]), rollout, 1)
    assert (got.value, got.steps) == (2.0, ((0, 2.0), (2, 6.5)))
    assert got.parts == {"a": 5.0, "b": 4.0}


def test_weighted_sum_of_steps_alone_has_no_value(rollout):
    (got,) = score(WeightedSum([(Fixed("a", [Score(steps=((0, 1.0),))]), 2.0)]), rollout, 1)
    assert (got.value, got.steps) == (None, ((0, 2.0),))


def test_an_error_of_a_component_fails_the_rollout_with_its_name(rollout):
    total = WeightedSum([(Fixed("a", [1.0, 1.0]), 1.0), (Fixed("b", [1.0, math.nan]), 0.5)])
    first, second = score(total, rollout, 2)
    assert first.value == 1.5
    assert second.error == "component 'b': the value is nan, not a finite number"


def test_weight_zero_is_a_metric_whose_errors_are_counted_and_do_not_fail(rollout):
    total = WeightedSum([(Fixed("a", [1.0, 2.0]), 1.0), (Fixed("judge", [3.0, Score.failed("down")]), 0.0)])
    assert score(total, rollout, 2) == [
        Score(value=1.0, parts={"a": 1.0, "judge": 3.0, "judge/error": 0.0}),
        Score(value=2.0, parts={"a": 2.0, "judge/error": 1.0}),
    ]


def test_metrics_alone_pay_nothing(rollout):
    assert score(WeightedSum([(Fixed("a", [5.0]), 0.0)]), rollout, 1) == [Score(value=0.0, parts={"a": 5.0})]


def test_duplicate_names_get_suffixes(rollout):
    total = WeightedSum([(Fixed(n, [v]), 1.0) for n, v in [("a", 1.0), ("a", 2.0), ("a_2", 3.0), ("a", 4.0)]])
    assert score(total, rollout, 1)[0].parts == {"a": 1.0, "a_2": 2.0, "a_2_2": 3.0, "a_3": 4.0}


def test_weights_must_be_finite_and_present():
    with pytest.raises(ConfigError, match="weight of reward 'a' is nan"):
        WeightedSum([(Fixed("a"), math.nan)])
    with pytest.raises(ConfigError, match="at least one"):
        WeightedSum([])


def test_gate_passes_at_the_threshold_and_replaces_below(rollout):
    inner = Fixed("quality", [Score(value=7.0, steps=((0, 1.0),)), 9.0, Score.failed("down"), Score.failed("down")])
    gate = Fixed("format", [0.5, 0.4999, 0.0, 1.0])
    opened, closed, hidden, failed = score(Gate(inner, gate, 0.5, otherwise=-1.0), rollout, 4)
    assert (opened.value, opened.steps) == (7.0, ((0, 1.0),))
    assert opened.parts == {"quality": 8.0, "format": 0.5, "gate_open": 1.0}
    assert closed == Score(value=-1.0, parts={"quality": 9.0, "format": 0.4999, "gate_open": 0.0})
    assert hidden == Score(value=-1.0, parts={"format": 0.0, "gate_open": 0.0})
    assert failed.error == "down"


def test_an_error_of_the_gate_fails_the_rollout(rollout):
    source = Gate(Fixed("a", [1.0]), Fixed("g", [math.inf]), 0.5)
    assert score(source, rollout, 1)[0].error == "gate 'g': the value is inf, not a finite number"


def test_gate_method_and_default(rollout):
    gated = numeric().gate(lambda text: "=" in text, 1.0)
    shown, hidden = gated.score([rollout("x = 4", answer=4), rollout("4", answer=4)])
    assert (shown.value, hidden.value) == (1.0, 0.0)


def test_clip_limits_value_and_each_step_and_keeps_the_raw_total(rollout):
    inner = Fixed("a", [5.0, -5.0, 0.5, Score(value=2.0, steps=((0, -3.0), (1, 0.25))), Score.failed("x")])
    got = score(Clip(inner, -1.0, 1.0), rollout, 5)
    assert [s.value for s in got] == [1.0, -1.0, 0.5, 1.0, None]
    assert got[0].parts == {"raw": 5.0}
    assert got[3].steps == ((0, -1.0), (1, 0.25)) and got[3].parts == {"raw": -0.75}
    assert got[4].error == "x"


def test_clip_bounds_are_checked():
    for low, high in [(1.0, -1.0), (math.nan, 1.0)]:
        with pytest.raises(ConfigError, match="expected low <= high"):
            Clip(Fixed("a"), low, high)


def test_normalise_runs_over_all_scored_rollouts(rollout):
    source = Normalise(Fixed("a", [1.0, 3.0], [5.0, Score.failed("x")]))
    first = score(source, rollout, 2)  # mean 2, std 1
    assert [s.value for s in first] == [-1.0, 1.0]
    assert first[0].parts == {"raw": 1.0}
    second = score(source, rollout, 2)  # of 1, 3, 5: mean 3, std sqrt(8/3)
    assert source.count == 3 and source.mean == 3.0
    assert second[0].value == pytest.approx(2.0 / math.sqrt(8.0 / 3.0))
    assert second[1].error == "x"


def test_normalise_divides_steps_and_takes_the_mean_off_the_value(rollout):
    source = Normalise(Fixed("a", [Score(value=1.0, steps=((0, 4.0),)), Score(steps=((1, 1.0),))]))
    first, second = score(source, rollout, 2)  # totals 5 and 1: mean 3, std 2
    assert (first.value, first.steps, first.total) == (-1.0, ((0, 2.0),), 1.0)
    assert (second.value, second.steps, second.total) == (-1.5, ((1, 0.5),), -1.0)


def test_normalise_only_subtracts_the_mean_without_variance(rollout):
    source = Normalise(Fixed("a", [0.1], [0.1, 0.1]))
    assert [s.value for s in score(source, rollout, 1) + score(source, rollout, 2)] == [0.0, 0.0, 0.0]
    assert source.std == 0.0


def test_normalise_keeps_precision_far_from_zero(rollout):
    source = Normalise(Fixed("a", [1e9, 1e9 + 2.0, 1e9 + 4.0]))
    score(source, rollout, 3)
    assert source.std == pytest.approx(math.sqrt(8.0 / 3.0))


def test_normalise_state_round_trips_through_json_and_freezes(rollout):
    source = Normalise(Fixed("a", [1.0, 3.0]))
    score(source, rollout, 2)
    frozen = Normalise(Fixed("a", [5.0], [9.0]), update=False)
    frozen.load_state_dict(json.loads(json.dumps(source.state_dict())))
    assert [score(frozen, rollout, 1)[0].value for _ in range(2)] == [3.0, 7.0]
    assert frozen.count == 2


def test_normalise_state_is_found_inside_a_sum_and_checked():
    total = 0.5 * Normalise(Fixed("a"))
    assert total.state_dict() == {"a": {"running": {"count": 0, "mean": 0.0, "m2": 0.0}, "children": {}}}
    with pytest.raises(RewardError, match="'a' holds no running mean"):
        total.load_state_dict({"a": {"steps": 3}})


def test_raw_is_the_innermost_total(rollout):
    source = Fixed("a", [1.0, 3.0])
    got = score(Clip(Normalise(source), -0.5, 0.5), rollout, 2)
    assert [(s.value, dict(s.parts)) for s in got] == [(-0.5, {"raw": 1.0}), (0.5, {"raw": 3.0})]


def test_methods_chain(rollout):
    chained = numeric().normalised().clip(-0.25, 0.25)
    got = chained.score([rollout("1", answer=1), rollout("2", answer=1)])
    assert [s.value for s in got] == [0.25, -0.25]
    assert got[0].parts == {"raw": 1.0, "parsed": 1.0, "correct": 1.0}


@pytest.mark.parametrize(
    ("opened", "quality", "expected"), [(1.0, 3.0, 3.0), (1.0, -3.0, -3.0), (0.0, 3.0, -1.0), (0.0, -3.0, -1.0)]
)
def test_truth_table_of_the_gate(rollout, opened, quality, expected):
    source = Gate(Fixed("quality", [quality]), Fixed("right", [opened]), 1.0, otherwise=-1.0)
    assert score(source, rollout, 1)[0].value == expected


@pytest.mark.parametrize(
    ("a", "b", "low", "both"), [(0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0), (1, 1, 1, 1), (-2, 3, -2, -6)]
)
def test_truth_tables_of_minimum_and_product(rollout, a, b, low, both):
    for make, expected in ((minimum, low), (product, both)):
        (got,) = score(make([Fixed("a", [float(a)]), Fixed("b", [float(b)])]), rollout, 1)
        assert got == Score(value=float(expected), parts={"a": a, "b": b})


def test_minimum_and_product_take_totals_and_fail_with_any_error(rollout):
    stepped = Score(value=1.0, steps=((0, 2.0),), parts={"k": 4.0})
    for make, expected in ((minimum, 2.0), (product, 6.0)):
        source = make([Fixed("a", [stepped, 1.0]), Fixed("a", [2.0, math.nan])])
        first, second = score(source, rollout, 2)
        assert first == Score(value=expected, parts={"a": 3.0, "a/k": 4.0, "a_2": 2.0})
        assert second.error == "component 'a_2': the value is nan, not a finite number"
    assert source.name == "product(a, a)"
    with pytest.raises(ConfigError, match="min of 1 rewards; expected two or more"):
        minimum([Fixed("a")])


def test_the_sum_is_linear_in_its_weights(rollout):
    def total(*weights):
        columns = ([1.0, -2.0, 0.5], [3.0, 0.25, -1.0])
        terms = [(Fixed(n, c), w) for n, c, w in zip("ab", columns, weights, strict=True)]
        return [s.value for s in score(WeightedSum(terms), rollout, 3)]

    mixed = [2.0 * x + 0.5 * y for x, y in zip(total(1.0, 1.0), total(1.0, -1.0), strict=True)]
    assert total(2.5, 1.5) == pytest.approx(mixed)


def test_any_number_times_an_audit_is_0(rollout):
    total = 2.0 * (Fixed("a", [1.0]) + 5.0 * Audit(Fixed("gold", [7.0])))
    assert score(total, rollout, 1) == [Score(value=2.0, parts={"a": 1.0, "gold": 7.0})]
