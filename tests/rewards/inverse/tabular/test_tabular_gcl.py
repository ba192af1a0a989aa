"""Guided cost learning on a grid of which all 4,096 trajectories are listed."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from prefrl.errors import RewardError
from prefrl.rewards.inverse import estimators
from prefrl.rewards.inverse.tabular import gcl
from prefrl.rewards.inverse.tabular.mazes import cells_reward, grid, maze
from prefrl.rewards.inverse.tabular.mdp import MDP, action_rewards, sample
from prefrl.rewards.inverse.tabular.planning import occupancy, policy_divergence, solve, uniform_policy

GRADIENT = [2.1342, 0.7567, 0.3708, 0.7567, 0.2717, 0.3055, 0.3708, 0.3055, 0.7280]  # of log Z


def world() -> tuple[MDP, np.ndarray, np.ndarray]:
    """A 3x3 grid of 6 actions from the corner, its reward, and the soft-optimal policy."""
    mdp = grid(3, 3, horizon=6, start=0)
    reward = cells_reward(mdp, {8: 2.0, 4: -1.0})
    return mdp, reward, solve(mdp, reward).policy


@cache
def every() -> gcl.Trajectories:
    return gcl.enumerate_trajectories(world()[0])


def proposal(name: str) -> np.ndarray:
    """Log-probability (4096,) of trajectories: of the uniform policy, the soft-optimal one, or either by a coin."""
    mdp, _, best = world()
    flat, optimal = (every().log_policy(mdp, policy) for policy in (uniform_policy(mdp), best))
    return {"uniform": flat, "optimal": optimal, "mixture": np.logaddexp(flat, optimal) - np.log(2.0)}[name]


def estimates(name: str, samples: int, repeats: int = 2000) -> tuple[np.ndarray, float, np.ndarray]:
    """Bias (9,) of the weighted gradient of log Z, mean effective samples, and bias without weights."""
    mdp, reward, _ = world()
    logs = proposal(name)
    returns, visits = every().returns(action_rewards(mdp, reward)), every().visits.sum(-1)
    drawn = np.random.default_rng(samples).choice(len(logs), (repeats, samples), p=np.exp(logs))
    weights = estimators.importance_weights(torch.as_tensor(returns[drawn]), torch.as_tensor(logs[drawn]))
    effective = float(estimators.effective_sample_size(weights).mean())
    exact = occupancy(mdp, solve(mdp, reward).policy).sum(1)
    weighted = np.einsum("rm,rms->s", weights.numpy(), visits[drawn]) / repeats
    return weighted - exact, effective, visits[drawn].mean((0, 1)) - exact


def test_the_partition_function_is_the_soft_value():
    mdp, reward, _ = world()
    assert len(every().actions) == 4096
    returns = every().returns(action_rewards(mdp, reward))
    partition = np.logaddexp.reduce(returns)
    assert partition == pytest.approx(8.551292, abs=1e-6)
    assert partition == pytest.approx(solve(mdp, reward).values[0, 0], abs=1e-10)
    gradient = np.exp(returns - partition) @ every().visits.sum(-1)
    assert gradient == pytest.approx(GRADIENT, abs=5e-5)


def test_weights_of_all_trajectories_give_the_exact_gradient():
    rewards = torch.tensor(world()[1], requires_grad=True)
    returns = torch.as_tensor(every().visits.sum(-1)) @ rewards
    logs = torch.full((4096,), -6 * np.log(4.0), dtype=torch.float64)
    nothing = torch.zeros(1, dtype=torch.float64)
    for loss in (estimators.weighted_loss, estimators.likelihood_loss):
        (found,) = torch.autograd.grad(loss(nothing, returns, logs), rewards, retain_graph=True)
        assert found.tolist() == pytest.approx(GRADIENT, abs=5e-5)
    assert estimators.likelihood_loss(nothing, returns, logs).item() == pytest.approx(8.551292, abs=1e-6)


# Largest bias and mean effective samples of M samples; the bias falls about as 1 / M.
@pytest.mark.parametrize(
    ("name", "samples", "bias", "effective"),
    [
        ("uniform", 16, 0.364, 9.7),
        ("uniform", 64, 0.152, 21.0),
        ("uniform", 256, 0.041, 40.0),
        ("mixture", 16, 0.029, 13.0),
        ("mixture", 256, 0.0024, 205.0),
    ],
)
def test_bias_falls_with_samples_and_effective_samples_grow(name, samples, bias, effective):
    found, share, _ = estimates(name, samples)
    assert np.abs(found).max() == pytest.approx(bias, abs=0.025)
    assert share == pytest.approx(effective, rel=0.1)


def test_bias_falls_with_every_fourfold_number_of_samples():
    biases = [np.abs(estimates("uniform", samples)[0]).max() for samples in (16, 64, 256, 1024)]
    assert all(more < 0.6 * fewer for fewer, more in pairwise(biases))
    assert biases[-1] < 0.02


@pytest.mark.parametrize(("name", "bias"), [("uniform", 0.665), ("mixture", 0.33)])
def test_bias_without_weights_stays(name, bias):
    for samples in (16, 256):
        assert np.abs(estimates(name, samples)[2]).max() == pytest.approx(bias, abs=0.02)


def test_all_samples_of_the_soft_optimal_policy_are_effective():
    mdp, reward, best = world()
    logs = torch.as_tensor(every().log_policy(mdp, best))
    returns = torch.as_tensor(every().returns(action_rewards(mdp, reward)))
    weights = estimators.importance_weights(returns, logs)
    assert float(estimators.effective_sample_size(weights)) == pytest.approx(4096, abs=1e-9 * 4096)
    found, effective, unweighted = estimates("optimal", 64)
    assert effective == pytest.approx(64, abs=1e-9)
    assert np.abs(found - unweighted).max() < 1e-12


def test_reward_and_policy_are_learnt_from_samples():
    mdp, reward, best = world()
    found = gcl.fit(mdp, sample(mdp, best, 4000, seed=1), samples=200, rounds=150)
    assert policy_divergence(mdp, best, found.policy) < 0.02
    assert np.corrcoef(found.reward, reward)[0, 1] > 0.97
    shares = [share for _, share in found.history]
    assert shares[0] == pytest.approx(1.0)  # no reward yet, and the uniform policy
    assert min(shares) < 0.93 and shares[-1] > 0.95  # the policy lagged, and has become the right proposal
    assert found.history[-1][0] == pytest.approx(7.367, abs=0.1)  # 8.5513 - 1.1843: the entropy of the expert


def test_without_weights_the_reward_is_another_one_while_the_policy_lags():
    mdp, reward, best = world()
    demonstrations = sample(mdp, best, 2000, seed=1)
    found = {
        kind: gcl.fit(mdp, demonstrations, samples=100, rounds=80, follow=0.01, estimator=kind)
        for kind in ("weighted", "likelihood", "unweighted")
    }
    right, same, wrong = (np.abs(f.reward - f.reward.mean() - reward + reward.mean()).max() for f in found.values())
    assert same == pytest.approx(right, abs=1e-9)
    assert wrong > 2 * right


def test_several_first_states_have_partitions_of_their_own():
    mdp = grid(3, 3, horizon=6, start=[0, 6])
    reward = cells_reward(mdp, {8: 2.0, 4: -1.0})
    best = solve(mdp, reward).policy
    found = gcl.fit(mdp, sample(mdp, best, 4000, seed=1), samples=100, rounds=100)
    assert policy_divergence(mdp, best, found.policy) < 0.02


def test_chance_in_the_moves_is_refused():
    for mdp in (grid(3, 3, horizon=4, slip=0.2), maze(0)):
        with pytest.raises(RewardError, match="maxent"):
            gcl.fit(mdp, sample(mdp, uniform_policy(mdp), 2, seed=0, length=4))


def test_trajectories_that_cannot_be_listed_are_refused():
    with pytest.raises(RewardError, match="horizon"):
        gcl.enumerate_trajectories(maze(0))
    with pytest.raises(RewardError, match="there are 409,600 trajectories or more"):
        gcl.enumerate_trajectories(grid(5, 5, horizon=9))
