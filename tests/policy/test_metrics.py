from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fakes import alone, scored
from tiny import rollout

from prefrl.policy.credit import has_signal
from prefrl.policy.metrics import (
    explained_variance,
    group_metrics,
    rollout_metrics,
    sampled_teacher_kl,
    sequence_kl,
    staleness,
    with_sample_size,
)
from prefrl.types import Score, StopReason


def fractions(rewards, groups):
    items = [scored(reward, (1,), group=str(group)) for reward, group in zip(rewards, groups, strict=True)]
    return group_metrics(torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), has_signal(items))


def test_fractions_of_groups():
    # Group 0 fails, 1 passes, 2 and 3 are mixed, 4 is uniform in between.
    got = fractions([0, 0, 1, 1, 1, 0, 0.2, 0.4, 0.5, 0.5], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert got == {"groups/all_fail": 0.2, "groups/all_pass": 0.2, "groups/uniform": 0.6, "groups/mixed": 0.4}


def test_pass_and_fail_are_said_of_rewards_between_0_and_1_only():
    assert fractions([0.0, 0.0, 5.0, 1.0], [0, 0, 1, 1]) == {"groups/uniform": 0.5, "groups/mixed": 0.5}


def test_groups_equal_up_to_float_noise_are_counted_as_uniform():
    assert fractions([0.1] * 3 + [0.3, 0.1 + 0.2], [0, 0, 0, 1, 1])["groups/uniform"] == 1.0


def test_figures_of_a_batch():
    rollouts = [
        rollout((1, 2, 3), mask=(True, False, True), logps=(-0.5, -9.0, -1.5), group="a"),
        rollout((1,), logps=(-2.5,), group="a", stop=StopReason.LENGTH),
        rollout((1,), logps=(-3.5,), group="b"),
        rollout((1,), logps=(-2.0,), group="b"),
    ]
    scores = [
        Score(value=1.0, parts={"correct": 1.0, "judge/error": 0.0}),
        Score(value=0.5, steps=((0, 0.5),), parts={"correct": 0.5}),
        Score(error="no", parts={"correct": 9.0, "judge/error": 1.0}),
        Score(value=0.25),
    ]
    got = rollout_metrics(rollouts, scores)
    assert got == {
        "length/mean": 1.25,
        "length/max": 2.0,
        "errors": 0.25,
        "entropy": pytest.approx(2.0),
        "stop/eos": 0.75,
        "stop/length": 0.25,
        "reward/part/correct": 0.75,
        "reward/part/judge/error": 0.25,
        "reward/mean": 0.75,
        "reward/std": pytest.approx(math.sqrt(0.125)),
        "groups/all_fail": 0.0,
        "groups/all_pass": 0.0,  # value and step are events of two kinds: the values differ
        "groups/uniform": 0.5,
        "groups/mixed": 0.5,
    }


def test_figures_of_a_batch_in_which_nothing_was_scored():
    got = rollout_metrics([rollout((1, 2))], [Score.failed("no")])
    assert got["errors"] == 1.0
    assert "reward/mean" not in got


def test_turns_are_counted_where_there_are_several():
    two = dataclasses.replace(rollout((1, 2)), turns=((0, 1), (1, 2)))
    assert rollout_metrics([two, rollout((1,))], [Score(value=1.0)] * 2)["turns/mean"] == 1.0
    assert "turns/mean" not in rollout_metrics([rollout((1,))], [Score(value=1.0)])


def test_staleness():
    rollouts = [dataclasses.replace(rollout(), version=v) for v in (5, 4, 2)]
    assert staleness(rollouts, 5) == {"staleness/mean": pytest.approx(4 / 3), "staleness/max": 3.0}
    assert staleness([], 5) == {"staleness/mean": 0.0, "staleness/max": 0.0}


def test_a_reward_that_is_1_up_to_float_noise_passes():
    assert fractions([sum([0.1] * 10)] * 2, [0, 0])["groups/all_pass"] == 1.0


def test_equal_totals_of_different_steps_are_a_signal():
    """Credit compares steps, and so do the figures: a group of equal totals is not uniform when its steps differ."""
    rollouts = [rollout((1, 2, 3, 4), group="a") for _ in range(2)]
    scores = [Score(steps=((1, 1.0), (3, 0.0))), Score(steps=((1, 0.25), (3, 0.75)))]
    assert rollout_metrics(rollouts, scores)["groups/mixed"] == 1.0


def test_a_group_of_one_has_no_signal():
    assert has_signal([scored(1.0, group="a"), scored(0.0, group="a"), scored(1.0, group="b")]).tolist() == [
        True,
        True,
        False,
    ]


def test_kl_is_in_nats_an_answer_and_blind_to_observations():
    items = [
        scored(0.0, (1, 2, 3), mask=(True, False, True), logps=(-1.0, 50.0, -1.0), ref=(-2.0, math.nan, -3.0)),
        scored(0.0, ref=(-1.0,)),
    ]
    assert sequence_kl(items, alone) == pytest.approx(1.5)


def test_explained_variance():
    returns = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert explained_variance(returns, returns, alone) == 1.0
    assert explained_variance(torch.full((4,), 7.0), returns, alone) == 0.0
    # Errors -.5, .5, -.5, .5 of variance .25; returns of variance 1.25.
    assert explained_variance(torch.tensor([0.5, 0.5, 2.5, 2.5]), returns, alone) == pytest.approx(0.8)
    assert math.isnan(explained_variance(returns, torch.ones(4), alone))


def test_effective_sample_size():
    # Weights 1.75, .5, .5: 2.75^2 / (3 * 3.5625).
    got = with_sample_size({"ratio/mean": 2.75 / 3, "ratio/mean_square": 3.5625 / 3, "loss": 1.0})
    assert got == {"ratio/mean": 2.75 / 3, "ratio/ess": pytest.approx(0.707602, abs=1e-6), "loss": 1.0}
    assert with_sample_size({"ratio/mean": 1.0, "ratio/mean_square": 1.0})["ratio/ess"] == 1.0
    assert with_sample_size({"loss": 1.0}) == {"loss": 1.0}


def test_kl_to_the_teacher_by_sampled_tokens():
    items = [scored(0.0, (1, 2, 3), mask=(True, False, True), logps=(-1.0, 9.0, -1.0), teacher=(-2.0, 5.0, -4.0))]
    assert sampled_teacher_kl(items, alone) == pytest.approx(2.0)


def test_groups_of_one_report_no_signal():
    singles = [rollout((1,), group=name) for name in "ab"]
    assert not any(k.startswith("groups/") for k in rollout_metrics(singles, [Score(value=1.0), Score(value=0.0)]))
