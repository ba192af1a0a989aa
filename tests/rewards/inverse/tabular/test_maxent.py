"""Maximum causal entropy IRL against what is known exactly: gradient, visits, policy, reward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from prefrl.errors import DataError, RewardError
from prefrl.rewards.inverse.tabular import maxent
from prefrl.rewards.inverse.tabular.mazes import cells_reward, grid, maze
from prefrl.rewards.inverse.tabular.mdp import MDP, sample
from prefrl.rewards.inverse.tabular.planning import (
    expected_return,
    occupancy,
    policy_divergence,
    solve,
    timed,
    uniform_policy,
)


def world(slip: float = 0.0, discount: float = 1.0) -> tuple[MDP, np.ndarray, np.ndarray]:
    """A 5x5 grid of 15 actions, its reward, and the soft-optimal policy."""
    mdp = grid(5, 5, horizon=15, slip=slip, discount=discount)
    reward = cells_reward(mdp, {24: 1.0, 12: -1.0, 4: 0.5})
    return mdp, reward, solve(mdp, reward).policy


@pytest.mark.parametrize("slip", [0.0, 0.3])
@pytest.mark.parametrize(("discount", "temperature"), [(1.0, 1.0), (0.9, 1.0), (0.9, 0.4)])
def test_the_gradient_is_that_of_the_likelihood(slip, discount, temperature):
    mdp, _, expert = world(slip, discount)
    visits = occupancy(mdp, expert)
    reward = np.random.default_rng(0).normal(size=25)
    _, gradient, _ = maxent.negative_log_likelihood(mdp, reward, visits, temperature)
    for state in (0, 7, 24):
        shift = 1e-5 * np.eye(25)[state]
        up, down = (maxent.negative_log_likelihood(mdp, reward + s, visits, temperature)[0] for s in (shift, -shift))
        assert gradient.sum(1)[state] == pytest.approx((up - down) / 2e-5, abs=2e-8)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_the_loss_is_minus_the_log_likelihood_of_the_actions(discount):
    mdp, _, expert = world(0.3, discount)
    loss, _, solution = maxent.negative_log_likelihood(mdp, np.arange(25.0) / 9, occupancy(mdp, expert))
    entropy = policy_divergence(mdp, expert, solution.policy)
    surprise = policy_divergence(mdp, expert, np.full_like(expert, 0.25))
    actions = np.log(4.0) * occupancy(mdp, expert).sum()
    assert loss == pytest.approx(actions - surprise + entropy, abs=1e-10)


def test_visits_at_the_horizon_do_not_belong_to_the_gradient():
    mdp, _, expert = world()
    reward = np.random.default_rng(0).normal(size=25)
    _, gradient, solution = maxent.negative_log_likelihood(mdp, reward, occupancy(mdp, expert))

    def last(policy: np.ndarray) -> np.ndarray:
        state = mdp.start
        for step in timed(mdp, policy):
            state = np.einsum("s,sa,sat->t", state, step, mdp.transitions)
        return state

    counted_through_the_end = gradient.sum(1) + last(solution.policy) - last(expert)
    assert np.abs(counted_through_the_end - gradient.sum(1)).max() > 0.1


@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_visits_policy_and_reward_are_recovered(slip):
    mdp, reward, expert = world(slip)
    found = maxent.fit(mdp, occupancy(mdp, expert))
    assert found.converged
    assert np.abs(occupancy(mdp, found.solution.policy) - occupancy(mdp, expert)).sum() < 1e-5
    assert np.abs(found.solution.policy - expert).max() < 1e-5
    assert np.ptp(found.reward - reward) < 1e-5


def test_without_a_horizon_too():
    mdp = maze(0)
    reward = cells_reward(mdp, {7: 3.0})
    found = maxent.fit(mdp, occupancy(mdp, solve(mdp, reward).policy))
    assert np.ptp(found.reward - reward) < 1e-4
    there = maze(3)
    assert expected_return(there, solve(there, found.reward).policy, reward) == pytest.approx(11.909, abs=1e-3)


def test_the_temperature_scales_the_reward():
    mdp, reward, _ = world()
    expert = solve(mdp, reward, temperature=0.5).policy
    found = maxent.fit(mdp, occupancy(mdp, expert), temperature=0.5)
    assert np.ptp(found.reward - reward) < 1e-5


def test_a_table_of_states_and_actions_finds_the_policy():
    mdp, _, expert = world(0.3)
    found = maxent.fit(mdp, occupancy(mdp, expert), inputs="state_action", tolerance=1e-6)
    assert found.reward.shape == (25, 4)
    assert np.abs(found.solution.policy - expert).max() < 1e-4


def test_a_network_over_features():
    mdp, reward, expert = world()
    places = np.array([[row / 2 - 1, column / 2 - 1] for row in range(5) for column in range(5)])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).double()
    found = maxent.fit(replace(mdp, features=places), occupancy(mdp, expert), net, max_evaluations=2_000)
    assert policy_divergence(mdp, expert, found.solution.policy) < 1e-5
    assert np.corrcoef(found.reward, reward)[0, 1] > 0.999


def test_a_linear_reward_that_cannot_fit_says_so():
    mdp, _, expert = world()
    places = np.array([[float(row), float(column)] for row in range(5) for column in range(5)])
    linear = nn.Linear(2, 1, bias=False).double()
    found = maxent.fit(replace(mdp, features=places), occupancy(mdp, expert), linear)
    assert found.converged and found.gap > 0.1  # its best is not good: the gradient is 0, the visits differ


def test_adam_gets_there_slowly():
    mdp, reward, expert = world()
    found = maxent.fit(mdp, occupancy(mdp, expert), optimizer="adam", lr=0.05, max_evaluations=600, tolerance=1e-4)
    assert found.history[-1][0] < found.history[0][0]
    assert np.corrcoef(found.reward, reward)[0, 1] > 0.999
    stopped = maxent.fit(mdp, occupancy(mdp, expert), optimizer="adam", max_evaluations=3)
    assert not stopped.converged and len(stopped.history) == 4


# Demonstrations, KL(expert || learnt) in nats an episode, correlation of the rewards; one seed. The return of 10
# demonstrations' policy is higher than the expert's, although it is useless: return alone is a bad test.
@pytest.mark.parametrize(
    ("episodes", "divergence", "correlation"),
    [(10, (2.0, 50.0), (-1.0, 0.5)), (100, (0.05, 0.3), (0.7, 0.95)), (1000, (0.007, 0.03), (0.95, 0.99))],
)
def test_sampled_demonstrations(episodes, divergence, correlation):
    mdp, reward, expert = world()
    found = maxent.fit(mdp, sample(mdp, expert, episodes, seed=0), l2=1e-3, tolerance=1e-5)
    assert found.converged
    assert divergence[0] < policy_divergence(mdp, expert, found.solution.policy) < divergence[1]
    assert correlation[0] < np.corrcoef(found.reward, reward)[0, 1] < correlation[1]
    if episodes == 10:
        assert expected_return(mdp, found.solution.policy, reward) > expected_return(mdp, expert, reward)
        assert expected_return(mdp, expert, reward) == pytest.approx(6.5847, abs=1e-4)


def test_demonstrations_start_where_they_start():
    mdp, _, expert = world()
    corner = replace(mdp, start=np.eye(25)[0])
    demonstrations = sample(corner, expert, 2000, seed=0)
    found = maxent.fit(mdp, demonstrations, l2=1e-3, tolerance=1e-5)  # the process says: anywhere
    assert policy_divergence(corner, expert, found.solution.policy) < 0.02


def test_demonstrations_that_are_cut_short_are_refused():
    mdp, _, expert = world()
    short = sample(mdp, expert, 3, seed=0, length=4)
    with pytest.raises(DataError, match="demonstration 0 ends after 4 of 15 actions"):
        maxent.fit(mdp, short)
    with pytest.raises(RewardError, match="give the MDP the horizon"):
        maxent.fit(maze(0), short)


def test_a_net_of_the_wrong_shape_is_refused():
    mdp, _, expert = world()
    with pytest.raises(RewardError, match=r"gives shape \(25, 4\)"):
        maxent.fit(mdp, occupancy(mdp, expert), nn.Linear(25, 4).double())


def test_a_loss_that_explodes_is_not_hidden():
    mdp, _, expert = world()
    with pytest.raises(RewardError, match=r"not finite|no longer finite"):
        maxent.fit(mdp, occupancy(mdp, expert), optimizer="adam", lr=1e308, max_evaluations=5)


def test_the_uniform_policy_needs_no_reward():
    mdp, _, _ = world()
    found = maxent.fit(mdp, occupancy(mdp, uniform_policy(mdp)))
    assert np.ptp(found.reward) < 1e-9 and len(found.history) == 2
