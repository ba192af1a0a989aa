"""What an imitator becomes: its expert, also where that one fails."""

from __future__ import annotations

import pytest
import torch

from prefrl.config import ActorConfig, DiscriminatorConfig, IRLConfig, ModelConfig, RewardNetConfig, SamplingConfig
from prefrl.model.control import control_policy, last_linear, zero
from prefrl.recipes.irl import imitate
from prefrl.types import Prompt


@pytest.fixture(scope="module")
def falling():
    """Episodes of a policy that always pushes left: the pole falls at once."""
    policy = control_policy("CartPole-v1", seed=0)
    layer = zero(last_linear(policy.net))
    layer.bias.data = torch.tensor([50.0, -50.0])
    played = policy.sample([Prompt(id="e", text="e")], 30, SamplingConfig(max_new_tokens=500), seed=5)
    assert {action for rollout in played for action in rollout.completion_ids} == {0}
    assert max(len(rollout.completion_ids) for rollout in played) <= 11
    return played


@pytest.mark.slow
@pytest.mark.parametrize(
    "named",
    [
        {"method": "airl"},
        {"method": "gail", "form": "logit"},
        {"method": "gail", "form": "neg_log_one_minus_d"},
        {"method": "gail", "form": "log_d"},
    ],
    ids=lambda named: "-".join(named.values()),
)
def test_whoever_imitates_one_that_falls_falls(named, falling):
    """Rewards that know nothing of the expert but pay for living would balance the pole instead."""
    config = IRLConfig(
        **named,
        environment="CartPole-v1",
        discount=0.98,
        policy=ModelConfig(lr=3e-3, max_grad_norm=0.5),
        control=ActorConfig(normalise=False),
        net=RewardNetConfig(normalise_reward=True),
        discriminator=DiscriminatorConfig(steps=20, lr=3e-3, buffer=10, fusion=0.5),
        steps=15,
        prompts_per_step=24,
        updates=5,
        minibatches=4,
        eval_samples=20,
    )
    found = imitate(config, falling)
    assert found.returns[0] > 15  # at first it acts at random
    assert max(found.final) <= 11
    assert found.returns[-1] < 13


@pytest.fixture(scope="module")
def balancing():
    """Episodes of 200 steps of a line through angle, place and their speeds, which keeps the pole up."""
    policy = control_policy("CartPole-v1", horizon=200, hidden=(), normalise=False, seed=0)
    layer = zero(last_linear(policy.net))
    layer.weight.data[1] = 40.0 * torch.tensor([0.1, 0.3, 3.0, 1.0])
    played = policy.sample([Prompt(id="e", text="e")], 20, SamplingConfig(max_new_tokens=200), seed=5)
    assert min(rollout.info["return"] for rollout in played) == 200
    return played


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Fewer than 10%")
def test_guided_cost_learning_balances_by_fragments(balancing):
    config = IRLConfig(
        method="gcl",
        environment="CartPole-v1",
        horizon=200,
        train_horizon=100,
        discount=0.98,
        policy=ModelConfig(lr=2e-3, max_grad_norm=0.5),
        control=ActorConfig(normalise=False),
        net=RewardNetConfig(normalise_reward=True),
        discriminator=DiscriminatorConfig(
            steps=20,
            batch_size=128,
            lr=3e-3,
            buffer=20,
            fusion=0.5,
            gradient_penalty=0.3,
            fragment=5,
        ),
        steps=20,
        prompts_per_step=24,
        updates=10,
        minibatches=4,
        eval_samples=20,
    )
    found = imitate(config, balancing)
    assert sum(found.final) / len(found.final) > 180
