"""Time limits: the value of what was seen after the last action stands in for the rest, and only where there is one."""

from __future__ import annotations

import pytest
import torch

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.control import control_policy
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.recipes.common import Checked
from prefrl.rewards import environment
from prefrl.types import Prompt, Rollout, StopReason


class Known:
    """A critic that knows: the value of a history is the first number last seen. It remembers what it was taught."""

    def values(self, rows):
        return [row.observations[: len(row.mask), 0] for row in rows]

    def step(self, rows, objective):
        self.taught = [row.streams["returns"].tolist() for row in rows]
        return {}


def optimizer(critic, gamma, lam):
    policy = control_policy("CartPole-v1", normalise=False, seed=0)
    engine = Engine(policy, ModelConfig(lr=1e-9), sampler=policy, sampling=SamplingConfig(max_new_tokens=3))
    credit = {"gamma": gamma, "lam": lam, "scale": "none"}
    algorithm = resolve({"name": "ppo", "kl": {"coef": 0.0}, "credit": credit})
    return PolicyOptimizer(engine, Checked(environment("rewards")), algorithm, critic=critic)


def episode(stop):
    """Two steps, paid 1 each; the values of what was seen are 5, 6 and, after the last action, 7."""
    return Rollout(
        prompt=Prompt(id=stop.value, text=""),
        completion_ids=(0, 1),
        mask=(True, True),
        logps=(-0.7, -0.7),
        text="",
        stop=stop,
        group=stop.value,
        observations=torch.tensor([[5.0, 0, 0, 0], [6.0, 0, 0, 0], [7.0, 0, 0, 0]]),
        info={"rewards": [1.0, 1.0], "return": 2.0},
    )


def test_the_last_observation_is_bootstrapped_where_cut_off_and_nowhere_else():
    critic = Known()
    learner = optimizer(critic, gamma=0.5, lam=1.0)
    batch = [episode(StopReason.LENGTH), episode(StopReason.ENVIRONMENT)]
    learner.learn(batch, learner.reward.score(batch))
    # Cut off: 1 + .5 * 7 = 4.5, then 1 + .5 * 4.5 = 3.25. Ended: 1, then 1 + .5 * 1 = 1.5.
    assert critic.taught == [[3.25, 4.5], [1.5, 1.0]]


def test_one_step_returns_bootstrap_from_what_came_next():
    critic = Known()
    learner = optimizer(critic, gamma=0.5, lam=0.0)
    batch = [episode(StopReason.LENGTH), episode(StopReason.ENVIRONMENT)]
    learner.learn(batch, learner.reward.score(batch))
    # r + gamma V(s'): 1 + .5 * 6 = 4 in both; then 1 + .5 * 7 = 4.5, and 1 where it ended.
    assert critic.taught == [[4.0, 4.5], [4.0, 1.0]]


@pytest.mark.parametrize(("name", "horizon"), [("CartPole-v1", 3), ("Pendulum-v1", 0)])
def test_sampled_time_limits_are_bootstrapped(name, horizon):
    policy = control_policy(name, horizon=horizon, normalise=False, seed=0)
    steps = policy.environments.limit
    rollouts = policy.sample([Prompt(id="a", text="")], 2, SamplingConfig(max_new_tokens=steps), seed=0)
    critic = Known()
    learner = optimizer(critic, gamma=0.5, lam=0.0)
    learner.policy.actor = policy
    learner.learn(rollouts, learner.reward.score(rollouts))
    for rollout, taught in zip(rollouts, critic.taught, strict=True):
        assert (rollout.truncated, len(taught)) == (True, steps)
        wanted = rollout.info["rewards"][-1] + 0.5 * float(rollout.observations[-1, 0])
        assert taught[-1] == pytest.approx(wanted, abs=1e-5)
