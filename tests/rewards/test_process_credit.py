"""Aggregates and placements of step scores, by hand and through the credit of the optimizer."""

from __future__ import annotations

import math
import random

import pytest
import torch
from tiny import rollout

from prefrl.policy.advantages import gae
from prefrl.policy.algorithms import resolve
from prefrl.policy.credit import CreditState, Scored, credit
from prefrl.rewards.process_credit import (
    aggregated,
    first_below,
    group_centred,
    group_starts,
    min_form,
    potential,
)
from prefrl.types import Score

SCORES = (0.9, 0.4, 0.8)


def shares(seed):
    draw = random.Random(seed)
    return [draw.random() for _ in range(draw.randint(1, 9))], draw.random()


@pytest.mark.parametrize(
    ("how", "value"), [("min", 0.4), ("product", 0.288), ("mean", 0.7), ("last", 0.8), ("first_below", 1 / 3)]
)
def test_aggregates(how, value):
    assert aggregated(SCORES, how) == pytest.approx(value)
    assert aggregated((0.7,), how) == (1.0 if how == "first_below" else 0.7)


def test_the_first_step_below():
    assert (first_below(SCORES, 0.5), first_below(SCORES, 0.4), first_below((), 0.5)) == (1, -1, -1)


@pytest.mark.parametrize("seed", range(20))
def test_a_better_step_never_makes_a_solution_worse(seed):
    scores, raised = shares(seed)
    place = seed % len(scores)
    better = [*scores[:place], max(scores[place], raised), *scores[place + 1 :]]
    for how in ("min", "product", "mean", "last", "first_below"):
        assert aggregated(better, how) >= aggregated(scores, how) - 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_one_more_step_never_raises_minimum_or_product(seed):
    scores, more = shares(seed)
    for how in ("min", "product"):
        assert aggregated([*scores, more], how) <= aggregated(scores, how)
    assert aggregated([0.95] * 20, "product") == pytest.approx(0.358486, abs=1e-6)


def test_differences_of_the_potential():
    assert potential([0.6, 0.4, 0.0], 0.3) == pytest.approx([0.3, -0.2, -0.4])
    assert potential([0.6, 0.4], 0.5, gamma=0.5) == pytest.approx([-0.2, -0.4])
    assert potential([], 0.3) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_of_the_potential_does_not_depend_on_how_many_steps_there_are(seed):
    scores, start = shares(seed)
    assert math.fsum(potential(scores, start)) == pytest.approx(scores[-1] - start, abs=1e-9)
    assert math.fsum(potential([0.9] * 5 + scores, start)) == pytest.approx(scores[-1] - start, abs=1e-9)


def test_generalized_advantages_of_the_differences():
    """With rewards that are differences of a potential and a critic of 0 the TD errors are the differences."""
    rewards = potential([0.6, 0.4, 0.0], 0.3)
    assert gae(rewards, [0.0] * 3, 1.0, 0.5)[0] == pytest.approx(0.1)
    # The same TD errors come from that potential as the critic, and no reward.
    assert gae([0.0] * 3, [0.3, 0.6, 0.4], 1.0, 0.5)[0] == pytest.approx(0.1)


def test_through_the_credit_of_the_optimizer():
    algorithm = resolve({"name": "ppo", "credit": {"gamma": 1.0, "lam": 0.5, "scale": "none"}})
    steps = tuple(enumerate(potential([0.6, 0.4, 0.0], 0.3)))
    item = Scored(rollout((1, 2, 3)), Score(steps=steps), values=torch.zeros(3))
    found = credit([item], algorithm, CreditState(kl_coef=0.0), lambda x: x)
    assert found.advantages[0].tolist() == pytest.approx([0.1, -0.4, -0.4])


def test_min_form_pays_about_the_lowest_score_where_it_stands():
    assert min_form(SCORES, 0.0) == [0.0, 0.4, 0.0]
    assert min_form((0.4, 0.4), 0.0) == [0.4, 0.0]
    assert sum(min_form(SCORES, 1e-3)) == pytest.approx(0.4)
    weights = [math.exp(-s / 0.1) for s in SCORES]
    wanted = [s * w / sum(weights) for s, w in zip(SCORES, weights, strict=True)]
    assert min_form(SCORES, 0.1) == pytest.approx(wanted)
    assert sum(min_form([0.4, *[0.99] * 50], 0.05)) < 0.41  # good steps cannot be piled upon a bad one


def test_each_step_against_the_same_step_of_its_group():
    found = group_centred([[0.9, 0.5], [0.3], [0.7]], ["a", "a", "b"])
    assert found == [pytest.approx([0.3, 0.0]), pytest.approx([-0.3]), [0.0]]


def test_the_start_is_what_the_group_ends_at_on_average():
    scores = [[0.2, 0.9], [0.3], [], [0.7], []]
    assert group_starts(scores, ["a", "a", "a", "b", "c"], 0.5) == [pytest.approx(0.6)] * 3 + [0.5, 0.5]


@pytest.mark.parametrize("last", [0.1, 0.9])
def test_a_baseline_of_step_rewards_pays_for_the_number_of_steps_unless_the_group_is_the_start(last):
    """Two rollouts end equally well, one in more steps; with a fixed start their advantages differ by the number."""
    algorithm = resolve({"name": "grpo", "credit": {"scale": "none"}})
    scores = [[last], [0.5, 0.5, last]]

    def whole(starts):
        items = [
            Scored(rollout((1, 2, 3)), Score(steps=tuple(enumerate(potential(own, start)))))
            for own, start in zip(scores, starts, strict=True)
        ]
        found = credit(items, algorithm, CreditState(kl_coef=0.0), lambda x: x)
        return [float(advantage[0]) for advantage in found.advantages]

    fixed, grouped = whole([0.5, 0.5]), whole(group_starts(scores, ["g", "g"], 0.5))
    assert grouped == pytest.approx([0.0, 0.0], abs=1e-9)
    more_steps = fixed[1] - fixed[0]
    assert more_steps == pytest.approx(-(last - 0.5))  # a failing policy would be paid for more steps
