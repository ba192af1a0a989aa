"""Networks on samples of a maze of which everything is known: which of them can be taken to another maze."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot
from walks import Told, walk

from prefrl.rewards.inverse.airl import Airl
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.nets import NetSpec
from prefrl.rewards.inverse.source import InverseReward
from prefrl.rewards.inverse.tabular.mazes import cells_reward, maze
from prefrl.rewards.inverse.tabular.mdp import sample
from prefrl.rewards.inverse.tabular.planning import (
    expected_return,
    lazy_step,
    policy_divergence,
    solve,
    uniform_policy,
)

ROUNDS, LENGTH = 30, 25


def rollouts(mdp, policy, seed, episodes=250):
    """Episodes of a policy, states one-hot, cut off while more was to come."""
    states, actions = mdp.states, mdp.actions
    made = []
    for number, one in enumerate(sample(mdp, policy, episodes, seed=seed, length=LENGTH)):
        seen = one_hot(torch.tensor(one.states), states).float()
        logps = np.log(policy[list(one.states[:-1]), list(one.actions)])
        made.append(walk(seen.tolist(), list(one.actions), logps=logps.tolist(), name=str(number)))
    assert actions == 4
    return made


def told(policy):
    def logps(row):
        return torch.tensor(np.log(policy[row.observations[:-1].argmax(-1), list(row.completion_ids)]))

    return logps


def everywhere(mdp):
    """Every action in every state once, as transitions the network can be asked about."""
    pairs = [(s, a) for s in range(mdp.states) for a in range(mdp.actions)]
    after = mdp.transitions.argmax(-1)
    walks = [walk(torch.eye(mdp.states)[[s, after[s, a]]].tolist(), [a]) for s, a in pairs]
    return walks


def imitate(mdp, expert, inputs, hidden, lr):
    """AIRL on one-hot states, shaped where g sees no action; the policy moves half-way to the optimum for f a round."""
    spec = NetSpec(
        state_size=mdp.states,
        action_size=mdp.actions,
        inputs=inputs,
        hidden=hidden,
        shaped=inputs == ("state",),
        potential=(),
        gamma=mdp.discount,
        normalise=False,
    )
    fit = Fit(steps=60, batch_size=2048, lr=lr)
    source = InverseReward(Airl(), spec, rollouts(mdp, expert, 1, 800), fit=fit, seed=0)
    policy, asked = uniform_policy(mdp), everywhere(mdp)
    for round_ in range(ROUNDS):
        source._optimizer.param_groups[0]["lr"] = lr * (1.0 - round_ / ROUNDS)
        source.attach(Told(told(policy), version=round_))
        metrics = source.update(rollouts(mdp, policy, 100 + round_))
        f = np.array([s.total for s in source.score(asked)]).reshape(mdp.states, mdp.actions)
        policy = lazy_step(policy, solve(mdp, f).policy, 0.5)
    return source, policy, metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "hidden", "lr", "low", "high"),
    [(("state",), (), 0.05, 11.0, 11.91), (("state", "action"), (64,), 0.01, 0.0, 2.0)],
)
def test_a_reward_of_states_moves_to_another_maze(inputs, hidden, lr, low, high):
    """Exactly: 11.909 with g(s) + shaping, .515 with g(s, a); the true reward pays 11.909 there, no plan .246."""
    train, test = maze(0), maze(3)
    true = cells_reward(train, {7: 3.0})
    expert = solve(train, true).policy
    source, policy, metrics = imitate(train, expert, inputs, hidden, lr)
    assert policy_divergence(train, expert, policy) < 0.03
    assert metrics["irl/entropy"] == pytest.approx(np.log(2), abs=0.02)  # D is 1/2
    g = np.array([s.total for s in source.export().score(everywhere(train))]).reshape(16, 4)
    found = expected_return(test, solve(test, g).policy, cells_reward(test, {7: 3.0}))
    assert low < found < high
