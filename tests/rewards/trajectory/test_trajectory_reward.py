from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from episodes import driven

from prefrl.errors import RewardError
from prefrl.rewards.inverse.nets import NetSpec, RewardNet, save_net
from prefrl.rewards.specs import build
from prefrl.rewards.trajectory.reward import TrajectoryReward


def reward(members=2, seed=0):
    spec = NetSpec(state_size=1, action_size=2, hidden=(8,), inputs=("state", "action"), members=members)
    made = TrajectoryReward(RewardNet(spec, seed=seed))
    walk = made.transitions([driven([0.5, -1.0, 2.0, 0.1, 0.3])])
    made.net.observe(walk)
    made.normalise(walk)
    return made


def test_one_reward_a_step_of_the_policy():
    one, two = driven([0.1, 0.2, 0.3, 0.4]), driven([1.0, 2.0])
    scores = reward().score([one, replace(one, mask=(True, False, True)), two])
    assert [place for place, _ in scores[0].steps] == [0, 1, 2]
    assert [place for place, _ in scores[1].steps] == [0, 2]
    again = [value for _, value in scores[1].steps]  # the batch differs, so the last bits may
    assert again == pytest.approx([scores[0].steps[at][1] for at in (0, 2)], abs=1e-5)
    assert len(scores[2].steps) == 1
    assert scores[0].value is None
    assert scores[0].parts["disagreement"] > 0
    assert reward(members=1).score([one])[0].parts["disagreement"] == 0.0


def test_standardised_over_what_it_was_set_on():
    made = reward()
    walk = made.transitions([driven([0.5, -1.0, 2.0, 0.1, 0.3])])
    paid = made.each(walk)
    assert paid.mean(1).tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert paid.std(1, correction=0).tolist() == pytest.approx([1.0, 1.0], abs=1e-6)
    made.normalise(walk, "scale")
    assert made.shift.tolist() == [0.0, 0.0]
    assert made.each(walk).std(1, correction=0).tolist() == pytest.approx([1.0, 1.0], abs=1e-6)
    made.normalise(walk, "none")
    assert torch.equal(made.each(walk), made.net.each(walk).detach())


def test_a_reward_that_never_varies_is_not_divided():
    made = reward()
    same = made.transitions([driven([0.5, 0.5, 0.5])])
    made.normalise(same)
    assert made.scale.tolist() == [1.0, 1.0]
    assert made.each(same).abs().max() < 1e-6


def test_loaded_is_what_was_saved_bit_for_bit(tmp_path):
    made = reward()
    made.save(tmp_path / "reward")
    again = build({"kind": "trajectory_reward", "path": str(tmp_path / "reward")})
    walk = [driven([0.3, 1.7, -0.2, 0.9])]
    assert again.score(walk)[0].steps == made.score(walk)[0].steps
    assert {p.name for p in (tmp_path / "reward").iterdir()} == {"reward_net.safetensors", "reward_net.json"}


def test_state_is_restored():
    made, other = reward(seed=0), reward(seed=1)
    walk = [driven([0.3, 1.7, -0.2, 0.9])]
    assert other.score(walk)[0].steps != made.score(walk)[0].steps
    other.load_state_dict(made.state_dict())
    assert other.score(walk)[0].steps == made.score(walk)[0].steps


def test_another_kind_of_reward_is_refused(tmp_path):
    save_net(reward().net, tmp_path / "airl", {"kind": "airl"})
    with pytest.raises(RewardError, match="kind 'airl'; expected 'trajectory_reward'"):
        TrajectoryReward.load(str(tmp_path / "airl"))
    with pytest.raises(RewardError, match="No reward network"):
        TrajectoryReward.load(str(tmp_path / "nothing"))


def test_without_observations_nothing_is_scored():
    with pytest.raises(RewardError, match="observations"):
        reward().score([replace(driven([0.1, 0.2]), observations=None)])
    assert reward().score([]) == []
