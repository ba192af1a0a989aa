"""Guided cost learning in worlds small enough to sum over: every trajectory, every weight, the exact partition.

Trajectories have p(x) = p0(x) exp(r(x) / temperature) / Z, where p0 is the chance of the dynamics. The partition
function is estimated on samples of the current policy with importance weights, the reward climbs the likelihood of the
demonstrations a little, and the policy follows a little. With deterministic moves this p is the soft-optimal policy;
with chance in them it is not (it would have the policy choose its luck), and `fit` refuses: use `maxent` there.

The estimators are those of `prefrl.rewards.inverse.estimators`, which neural guided cost learning uses as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prefrl.errors import RewardError
from prefrl.rewards.inverse import estimators
from prefrl.rewards.inverse.tabular.maxent import Inputs, TableReward, net_rewards
from prefrl.rewards.inverse.tabular.mdp import MDP, Array, Trajectory, empirical_occupancy, sample
from prefrl.rewards.inverse.tabular.planning import lazy_step, solve, timed, uniform_policy

_MOST = 20_000_000  # numbers in the visits of all trajectories

Estimator = Literal["weighted", "likelihood", "unweighted"]


@dataclass(frozen=True, slots=True)
class Trajectories:
    """All N trajectories of a process, or some of them.

    states, actions  (N, H); -1 after the end of an episode
    log_dynamics     (N,) log-probability of the start and the moves, given the actions
    visits           (N, S, A) discounted
    """

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    log_dynamics: Array
    visits: Array

    def returns(self, rewards: Array) -> Array:
        """Discounted return (N,) of a reward (S, A)."""
        return np.asarray(np.tensordot(self.visits, rewards, 2))

    def log_policy(self, mdp: MDP, policy: Array) -> Array:
        """Log-probability (N,) of the actions."""
        steps = timed(mdp, policy)
        with np.errstate(divide="ignore"):
            logs = np.log(steps[np.arange(self.states.shape[1]), self.states, self.actions])
        return np.asarray(np.where(self.states >= 0, logs, 0.0).sum(1))


def enumerate_trajectories(mdp: MDP) -> Trajectories:
    """Every trajectory that is possible at all, step by step.

    Raises:
        RewardError: there is no horizon, or they are too many to list.
    """
    if mdp.horizon is None:
        raise RewardError("a process without a horizon has no list of trajectories; give the MDP a horizon")
    now = np.flatnonzero(mdp.start)
    logs, weight = np.log(mdp.start[now]), 1.0
    states = np.zeros((len(now), 0), dtype=np.int64)
    actions = states.copy()
    visits = np.zeros((len(now), mdp.states, mdp.actions))
    for _ in range(mdp.horizon):
        over = mdp.terminal[now]
        reach = np.where(over[:, None, None], 0.0, mdp.transitions[now])
        reach[over, 0, now[over]] = 1.0  # an episode that is over goes on in one way only
        count = np.count_nonzero(reach)
        if count * visits[0].size > _MOST:
            raise RewardError(f"there are {count:,} trajectories or more; shorten the horizon or shrink the world")
        parent, action, target = np.nonzero(reach)
        alive = ~over[parent]
        logs = logs[parent] + np.log(reach[parent, action, target])
        states = np.concatenate([states[parent], np.where(alive, now[parent], -1)[:, None]], 1)
        actions = np.concatenate([actions[parent], np.where(alive, action, -1)[:, None]], 1)
        visits = visits[parent]
        visits[np.flatnonzero(alive), now[parent][alive], action[alive]] += weight
        now, weight = target, weight * mdp.discount
    return Trajectories(states, actions, logs, visits)


def listed(mdp: MDP, trajectories: Sequence[Trajectory]) -> Trajectories:
    """Given trajectories in the same form."""
    length = max(len(one.actions) for one in trajectories)
    states, actions = np.full((2, len(trajectories), length), -1, dtype=np.int64)
    logs, visits = np.zeros(len(trajectories)), np.zeros((len(trajectories), mdp.states, mdp.actions))
    for i, one in enumerate(trajectories):
        steps = len(one.actions)
        states[i, :steps], actions[i, :steps] = one.states[:-1], one.actions
        visits[i] = empirical_occupancy(mdp, [one])
        moves = mdp.transitions[states[i, :steps], actions[i, :steps], one.states[1:]]
        logs[i] = np.log(mdp.start[one.states[0]]) + np.log(moves).sum()
    return Trajectories(states, actions, logs, visits)


@dataclass(frozen=True, slots=True, kw_only=True)
class GCLFit:
    """A reward from weighted samples, and the policy that proposed the last of them.

    net       the fitted module
    reward    (S,) or (S, A)
    policy    (H, S, A)
    history   (estimated NLL of a demonstration, effective samples per sample) of every round
    """

    net: nn.Module
    reward: Array
    policy: Array
    history: tuple[tuple[float, float], ...]


def fit(
    mdp: MDP,
    demonstrations: Sequence[Trajectory],
    net: nn.Module | None = None,
    *,
    inputs: Inputs = "state",
    samples: int = 256,
    rounds: int = 300,
    lr: float = 0.05,
    follow: float = 0.2,
    temperature: float = 1.0,
    estimator: Estimator = "weighted",
    seed: int = 0,
) -> GCLFit:
    """Reward and policy in turn, each a little.

    Args:
        samples: trajectories of the policy a round, from each first state of the demonstrations.
        lr: step of Adam, which falls linearly to 0.
        follow: how far the policy goes to the soft-optimal one of the present reward in a round, in (0, 1].
        estimator: of the partition function; unweighted forgets that samples come from a policy that is not optimal.

    Raises:
        RewardError: the moves are not deterministic, or there is no horizon.
    """
    if mdp.horizon is None or not np.isin(mdp.transitions[~mdp.terminal], (0.0, 1.0)).all():
        raise RewardError(
            "guided cost learning explains demonstrations by exp(return), which is a policy's doing only in a process "
            "with a horizon and without chance; use maxent.fit, which knows of both"
        )
    shape = (mdp.states,) if inputs == "state" else (mdp.states, mdp.actions)
    net = net if net is not None else TableReward(*shape)
    search = torch.optim.Adam(net.parameters(), lr=lr)
    policy = timed(mdp, uniform_policy(mdp)).copy()
    firsts = sorted({one.states[0] for one in demonstrations})
    experts = {s: listed(mdp, [one for one in demonstrations if one.states[0] == s]).visits for s in firsts}
    history = []
    for turn in range(rounds):
        search.param_groups[0]["lr"] = lr * (1.0 - turn / rounds)
        search.zero_grad()
        rewards = net_rewards(net, mdp, inputs) / temperature
        losses, likelihoods, share = [], 0.0, 0.0
        for first, visits in experts.items():
            there = replace(mdp, start=np.eye(mdp.states)[first])
            drawn = listed(there, sample(there, policy, samples, seed=seed + turn * mdp.states + first))
            expert, own = _returns(visits, rewards), _returns(drawn.visits, rewards)
            log_ratios = torch.as_tensor(drawn.log_policy(mdp, policy))
            part = len(visits) / len(demonstrations)
            losses.append(part * _loss(estimator, expert, own, log_ratios))
            likelihoods += part * estimators.likelihood_loss(expert, own, log_ratios).item()
            weights = estimators.importance_weights(own, log_ratios)
            share += part * float(estimators.effective_sample_size(weights)) / samples
        torch.stack(losses).sum().backward()
        search.step()
        history.append((likelihoods, share))
        learnt = net_rewards(net, mdp, inputs).detach().numpy().copy()
        policy = lazy_step(policy, solve(mdp, learnt, temperature).policy, follow)
    return GCLFit(net=net, reward=learnt, policy=policy, history=tuple(history))


def _loss(estimator: Estimator, expert: Tensor, own: Tensor, log_ratios: Tensor) -> Tensor:
    if estimator == "unweighted":
        return estimators.unweighted_loss(expert, own)
    known = {"weighted": estimators.weighted_loss, "likelihood": estimators.likelihood_loss}
    return known[estimator](expert, own, log_ratios)


def _returns(visits: Array, rewards: Tensor) -> Tensor:
    counts = torch.as_tensor(visits)
    return (counts.sum(-1) if rewards.ndim == 1 else counts).flatten(1) @ rewards.flatten()
