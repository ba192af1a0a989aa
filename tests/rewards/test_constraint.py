from __future__ import annotations

import json
import math

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards import Constraint, numeric
from prefrl.types import Score


class Column:
    """Scores every rollout by a dataset column."""

    def __init__(self, name):
        self.name = name
        self.calls = 0

    def score(self, rollouts):
        self.calls += 1
        found = [r.prompt.columns[self.name] for r in rollouts]
        return [x if isinstance(x, Score) else Score(value=x) for x in found]


def made(**options):
    return Constraint(Column("main"), Column("cost"), 0.5, **options)


def test_the_reward_is_the_lagrangian(rollout):
    source = made(start=2.0)
    (got,) = source.score([rollout(main=3.0, cost=1.5)])
    assert got == Score(value=3.0 - 2.0 * (1.5 - 0.5), parts={"main": 3.0, "cost": 1.5, "lambda": 2.0})
    assert source.terms == [(source.main, 1.0), (source.cost, -2.0)]


def test_steps_of_both_are_merged(rollout):
    main, cost = Score(value=1.0, steps=((0, 4.0),)), Score(steps=((0, 1.0), (2, 0.5)))
    (got,) = made(start=2.0).score([rollout(main=main, cost=cost)])
    assert (got.value, got.steps) == (1.0 + 2.0 * 0.5, ((0, 2.0), (2, -1.0)))
    assert got.total == 5.0 - 2.0 * (1.5 - 0.5)


def test_dual_ascent_by_hand_with_projection(rollout):
    source = made(rate=0.5, maximum=1.0)
    found = []
    for cost in (1.5, 2.5, 5.0, 0.0, -9.0):  # + .5, + 1 (to the maximum), + 2.25 (still), - .25, to 0
        batch = [rollout(main=0.0, cost=cost - 1.0), rollout(main=0.0, cost=cost + 1.0)]
        source.score(batch)
        found.append(source.update(batch))
    assert [metrics["lambda"] for metrics in found] == [0.5, 1.0, 1.0, 0.75, 0.0]
    assert [metrics["cost"] for metrics in found] == [1.5, 2.5, 5.0, 0.0, -9.0]


def test_the_limit_is_met_where_the_best_answer_depends_on_the_multiplier(rollout):
    # Maximise sqrt(x) subject to x <= 1/2: lambda = d sqrt(x) / dx at 1/2, which is 1 / sqrt(2).
    source = Constraint(Column("main"), Column("cost"), 0.5, rate=0.2)
    choices = [x / 1000 for x in range(1, 3000)]
    for _ in range(200):
        best = max(choices, key=lambda x: math.sqrt(x) - source.multiplier * x)
        source.update([rollout(main=math.sqrt(best), cost=best)])
    assert source.multiplier == pytest.approx(1 / math.sqrt(2), abs=0.01)
    assert best == pytest.approx(0.5, abs=0.01)


def test_only_what_was_learnt_from_moves_it_and_nothing_is_scored_twice(rollout):
    source = made(rate=1.0)
    trained, evaluated = [rollout(main=0.0, cost=1.0)], [rollout(main=0.0, cost=100.0)]
    source.score(trained)
    source.score(evaluated)
    assert source.update(trained)["cost"] == 1.0
    assert source.cost.calls == 2
    assert source.update(evaluated)["cost"] == 100.0  # forgotten, so scored again
    assert source.cost.calls == 3


def test_errors_fail_the_rollout_and_leave_the_mean(rollout):
    batch = [
        rollout(main=1.0, cost=Score.failed("down")),
        rollout(main=math.nan, cost=1.0),
        rollout(main=1.0, cost=1.0),
    ]
    source = made(rate=1.0)
    first, second, third = source.score(batch)
    assert first.error == "component 'cost': down"
    assert second.error == "component 'main': the value is nan, not a finite number"
    assert third.value == 1.0
    assert source.update(batch) == {"lambda": 0.5, "cost": 1.0}
    assert source.update(batch[:1]) == {"lambda": 0.5}


def test_state_round_trips_through_json(rollout):
    source = Constraint(numeric().normalised(), Column("cost"), 0.0, rate=1.0)
    batch = [rollout("4", answer=4, cost=3.0)]
    source.score(batch)
    source.update(batch)
    again = Constraint(numeric().normalised(), Column("cost"), 0.0)
    again.load_state_dict(json.loads(json.dumps(source.state_dict())))
    assert again.multiplier == 3.0
    assert again.main.count == 1
    with pytest.raises(RewardError, match="holds no lambda"):
        again.load_state_dict({"running": {}})


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"start": -1.0}, {"start": 2.0, "maximum": 1.0}, {"maximum": math.inf}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(ConfigError, match="expected a positive rate and 0 <= start <= maximum"):
        made(**wrong)
    with pytest.raises(ConfigError, match="limit=nan"):
        Constraint(Column("main"), Column("cost"), math.nan)
