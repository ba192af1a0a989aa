"""Exact AIRL and GAIL: who recovers the reward, and what it is worth in another maze."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from prefrl.errors import RewardError
from prefrl.rewards.inverse.tabular import airl
from prefrl.rewards.inverse.tabular.logistic import best_discriminator
from prefrl.rewards.inverse.tabular.mazes import cells_reward, grid, maze
from prefrl.rewards.inverse.tabular.planning import Solution, expected_return, solve, uniform_policy

TRAIN, TEST = maze(0), maze(3)
REWARD = cells_reward(TRAIN, {7: 3.0})


@cache
def expert() -> Solution:
    return solve(TRAIN, REWARD)


@cache
def learnt(form: airl.Form) -> airl.AdversarialFit:
    return airl.fit(TRAIN, expert().policy, form)


def carried(reward: np.ndarray) -> float:
    """True return in the other maze of the policy planned there with a reward."""
    return expected_return(TEST, solve(TEST, reward).policy, REWARD)


def test_what_is_to_be_reached():
    assert expected_return(TRAIN, expert().policy, REWARD) == pytest.approx(13.8480, abs=1e-4)
    assert carried(REWARD) == pytest.approx(11.9094, abs=1e-4)
    assert expected_return(TEST, expert().policy, REWARD) == pytest.approx(0.5148, abs=1e-4)
    assert expected_return(TEST, uniform_policy(TEST), REWARD) == pytest.approx(0.2463, abs=1e-4)


@pytest.mark.parametrize("form", ["state", "state_action", "gail"])
def test_all_imitate_perfectly(form):
    found = learnt(form)
    assert found.divergence < 1e-10
    assert expected_return(TRAIN, found.policy, REWARD) == pytest.approx(13.8480, abs=1e-4)
    assert np.abs(found.discriminator - 0.5).max() < 1e-4


@pytest.mark.parametrize(("form", "worth"), [("state", 11.909), ("state_action", 0.515), ("gail", 0.246)])
def test_only_a_reward_of_the_state_is_worth_anything_elsewhere(form, worth):
    assert carried(learnt(form).reward) == pytest.approx(worth, abs=0.01)


def test_state_only_airl_splits_reward_and_value():
    found = learnt("state")
    assert np.ptp(found.reward - REWARD) < 1e-3
    assert np.ptp(found.potential - expert().values) < 1e-3
    assert np.abs(found.advantage - np.log(expert().policy)).max() < 1e-3


def test_shaping_is_invariant_where_it_is_recomputed_and_not_where_it_is_frozen():
    found = learnt("state")
    moved = airl.shaped_advantage(TEST, found.reward, found.potential)
    assert carried(moved) == pytest.approx(11.909, abs=0.01)
    assert carried(found.advantage) == pytest.approx(0.515, abs=0.01)


def test_gail_ends_with_a_reward_that_says_nothing():
    assert np.ptp(learnt("gail").reward) < 1e-3
    assert learnt("gail").reward.mean() == pytest.approx(np.log(2.0), abs=1e-4)


def test_the_temperature_is_that_of_the_expert():
    cold = solve(TRAIN, REWARD, temperature=0.5).policy
    found = airl.fit(TRAIN, cold, temperature=0.5)
    assert np.ptp(found.reward - REWARD) < 1e-3
    assumed = airl.fit(TRAIN, cold, temperature=1.0)
    assert np.ptp(assumed.reward - 2.0 * REWARD) < 1e-3  # another temperature is another unit of reward


def test_chance_in_the_moves():
    mdp = maze(0, slip=0.2)
    truth = solve(mdp, REWARD)
    found = airl.fit(mdp, truth.policy)
    assert np.ptp(found.reward - REWARD) < 1e-3


def test_a_horizon_is_refused():
    with pytest.raises(RewardError, match="without a horizon"):
        airl.fit(grid(3, 3, horizon=4), uniform_policy(grid(3, 3, horizon=4)))


def test_the_best_discriminator_of_two_classes_is_the_log_ratio():
    mass = np.array([0.1, 0.4, 0.5]), np.array([0.3, 0.3, 0.4])
    found = best_discriminator(np.eye(3), np.zeros(3), *mass, np.zeros(3))
    assert found == pytest.approx(np.log(mass[0] / mass[1]), abs=1e-9)
    offset = np.array([5.0, -2.0, 0.0])
    assert best_discriminator(np.eye(3), offset, *mass, np.zeros(3)) == pytest.approx(found - offset, abs=1e-9)


def test_sides_that_never_meet_have_no_best_discriminator():
    with pytest.raises(RewardError, match="no optimum"):
        best_discriminator(np.eye(2), np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.zeros(2))
