"""Places that look alike: exact figures, and what policies without and with a memory make of them."""

from __future__ import annotations

import pytest
import torch

from prefrl.config import SamplingConfig
from prefrl.errors import DataError
from prefrl.model.control import ControlPolicy, control_policy
from prefrl.rollout.pomdp import (
    Aliased,
    LockedDoor,
    aliased_history_value,
    aliased_prompts,
    aliased_value,
    discounted_return,
    door_prompts,
    memoryless_prediction,
    share_opened,
)
from prefrl.types import Prompt


def test_exact_values():
    assert aliased_value(1.0) == aliased_value(0.0) == 0.5
    assert aliased_value(0.5) == pytest.approx(1 / 1.1)
    assert max(aliased_value(p / 100) for p in range(101)) == aliased_value(0.5)
    assert aliased_history_value() == pytest.approx(0.95)


def played(right, steps=200, n=4000):
    """Episodes of a policy that goes right with a probability."""
    net = torch.nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1 - right], [right]]).log())
    policy = ControlPolicy(1, 2, Aliased, net=net)
    return policy.sample(aliased_prompts(), n, SamplingConfig(max_new_tokens=steps), seed=0)


@pytest.mark.parametrize("right", [0.5, 0.8])
def test_sampled_values_are_the_exact_ones(right):
    assert discounted_return(played(right)) == pytest.approx(aliased_value(right), abs=0.01)


def test_success_within_five_steps():
    assert share_opened(played(0.5, steps=5)) == pytest.approx(1 - 2**-5, abs=0.01)
    assert share_opened(played(1.0, steps=5)) == 0.5


def test_walls_and_the_goal():
    world = Aliased()
    assert world.reset(aliased_prompts()[0]).tolist() == [1.0]
    assert [world.step(action)[1] for action in (0, 0, 1)] == [False, False, True]
    assert world.report() == {"rewards": [0.0, 0.0, 1.0], "return": 1.0}
    world.reset(aliased_prompts()[1])
    assert [world.step(action)[1] for action in (1, 0)] == [False, True]
    with pytest.raises(DataError, match="expected a column 'start' with A or C"):
        world.reset(Prompt(id="x", text="", columns={"start": "B"}))


def test_a_model_without_a_memory_believes_in_the_next_push():
    rollouts = control_policy(LockedDoor).sample(door_prompts(50), 1, SamplingConfig(max_new_tokens=10), seed=0)
    assert [memoryless_prediction(rollouts, h) for h in (1, 5, 10)] == pytest.approx([0.5, 0.96875, 1 - 2**-10])
    assert share_opened(rollouts) == 0.5
    assert {len(r.completion_ids) for r in rollouts} == {1, 10}
    with pytest.raises(DataError, match="expected a column 'locked', true or false"):
        LockedDoor().reset(Prompt(id="x", text=""))
