"""Environments of gymnasium, many at a time: the same numbers as one by one, ends and time limits kept apart."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import ConfigError
from prefrl.model.control import control_policy
from prefrl.rollout.episodes import Plan
from prefrl.rollout.gym import GymEnvironments, fixed_horizon, vectors, width
from prefrl.types import Prompt, StopReason

CART, PENDULUM = "CartPole-v1", "Pendulum-v1"


def plans(*seeds):
    return [Plan(Prompt(id=str(s), text=""), "g", s, torch.zeros(1, 1)) for s in seeds]


def everywhere(environments, seeds, actions):
    """Play the same actions in all episodes; observations and flags of every step, whatever has ended."""
    seen, live = [environments.reset(plans(*seeds))], torch.arange(len(seeds))
    flags = []
    for action in actions:
        moved = environments.step(live, torch.tensor([action] * len(seeds)))
        seen.append(moved.observations)
        flags.append((moved.terminated, moved.truncated))
    return torch.stack(seen, 1), flags


@pytest.mark.parametrize("name", [CART, PENDULUM])
def test_many_at_a_time_are_what_gymnasium_plays_one_by_one(name):
    continuous = name == PENDULUM
    actions = [[0.3], [-2.0], [1.7], [0.9]] * 5 if continuous else [0, 1, 1, 0, 0] * 5
    environments = GymEnvironments(name)
    together, flags = everywhere(environments, (3, 11), actions)
    for i, seed in enumerate((3, 11)):
        alone = gymnasium.make(name)
        first, _ = alone.reset(seed=seed)
        np.testing.assert_allclose(together[i, 0], first, atol=1e-6)
        for t, action in enumerate(actions):
            played = np.array(action, dtype=np.float32) if continuous else action
            seen, reward, terminated, truncated, _ = alone.step(played)
            np.testing.assert_allclose(together[i, t + 1], seen, atol=1e-5)
            assert environments.reports()[i]["rewards"][t] == pytest.approx(float(reward), abs=1e-5)
            assert (bool(flags[t][0][i]), bool(flags[t][1][i])) == (terminated, truncated)
            if terminated:
                break


def test_a_fall_terminates_and_a_time_limit_truncates():
    policy = control_policy(CART, seed=0)
    fallen = policy.sample([Prompt(id="a", text="")], 4, SamplingConfig(max_new_tokens=500), seed=0)
    assert {r.stop for r in fallen} == {StopReason.ENVIRONMENT}
    assert all(abs(float(r.observations[-1, 2])) > 0.2095 or abs(float(r.observations[-1, 0])) > 2.4 for r in fallen)
    swung = control_policy(PENDULUM, seed=0).sample(
        [Prompt(id="a", text="")], 2, SamplingConfig(max_new_tokens=500), seed=0
    )
    assert [(r.stop, len(r.completion_ids)) for r in swung] == [(StopReason.LENGTH, 200)] * 2
    cut = policy.sample([Prompt(id="a", text="")], 2, SamplingConfig(max_new_tokens=3), seed=0)
    assert [(r.stop, len(r.completion_ids)) for r in cut] == [(StopReason.LENGTH, 3)] * 2


def test_a_fixed_horizon_goes_on_after_a_fall_and_pays_no_more():
    policy = control_policy(CART, horizon=60, seed=0)
    rollouts = policy.sample([Prompt(id="a", text="")], 6, SamplingConfig(max_new_tokens=60), seed=0)
    for r in rollouts:
        assert (r.stop, len(r.completion_ids)) == (StopReason.LENGTH, 60)
        x, angle = r.observations[1:, 0].abs(), r.observations[1:, 2]
        upright = (x <= 2.4) & (angle.abs() <= 12 * 2 * np.pi / 360)
        assert r.info["rewards"] == upright.double().tolist()
        assert r.info["return"] == float(upright.sum())
        assert float(angle.abs().max()) <= np.pi
    assert any(0.0 in r.info["rewards"] for r in rollouts)


def test_any_environment_has_a_fixed_horizon():
    class Ends(gymnasium.Env):
        observation_space, action_space = spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.full(1, self.t, np.float32), float(self.t), self.t >= 2, False, {}

    policy = control_policy(lambda: fixed_horizon(Ends(), 5), normalise=False)
    (rollout,) = policy.sample([Prompt(id="a", text="")], 1, SamplingConfig(max_new_tokens=9), seed=0)
    assert rollout.observations[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert (rollout.stop, rollout.info["rewards"]) == (StopReason.LENGTH, [1.0, 2.0, 3.0, 4.0, 5.0])
    (plain,) = control_policy(Ends, normalise=False).sample([Prompt(id="a", text="")], 1, SamplingConfig(), seed=0)
    assert (plain.stop, plain.info["rewards"]) == (StopReason.ENVIRONMENT, [1.0, 2.0])


def test_a_fixed_horizon_keeps_what_wraps_the_environment():
    def halved():
        made = gymnasium.make("MountainCar-v0", max_episode_steps=3)
        return gymnasium.wrappers.TransformObservation(made, lambda x: x[:1] / 2, spaces.Box(-1.0, 1.0, (1,)))

    policy = control_policy(halved, horizon=5, normalise=False)
    (rollout,) = policy.sample([Prompt(id="a", text="")], 1, SamplingConfig(max_new_tokens=9), seed=0)
    assert rollout.observations.shape == (6, 1)
    assert -0.3 <= float(rollout.observations[0, 0]) <= -0.2
    assert len(rollout.info["rewards"]) == 5


def test_an_environment_from_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "import gymnasium\n\ndef make():\n    return gymnasium.make('Acrobot-v1')\n\ndef wrong():\n    return 3\n"
    (tmp_path / "my_env.py").write_text(code)
    assert GymEnvironments("my_env.py:make").observation_size == 6
    with pytest.raises(ConfigError, match=r"'my_env.py:wrong' made a int; expected a gymnasium.Env"):
        GymEnvironments("my_env.py:wrong")
    with pytest.raises(ConfigError, match=r"no file 'none.py'"):
        GymEnvironments("none.py:make")


class Rooms(gymnasium.Env):
    """A dict of a Box, a Discrete that starts at 2 and an image; it ends after `ends` steps, or never."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Discrete(3, start=2),
            "image": spaces.Box(0, 255, (2, 3, 2), np.uint8),
            "speed": spaces.Box(-1.0, 1.0, (2,)),
        }
    )
    action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        self.t, self.played = 0, []
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        self.played.append(int(action))
        return self._seen(), float(action), False, False, {}

    def _seen(self):
        image = np.arange(12, dtype=np.uint8).reshape(2, 3, 2) + self.t
        return {"place": 2 + self.t % 3, "image": image, "speed": np.array([0.5, -self.t / 8], np.float32)}


def test_dict_discrete_and_image_observations_are_laid_out_alike_everywhere():
    assert width(Rooms.observation_space) == 12 + 3 + 2
    policy = control_policy(Rooms, normalise=False)
    rollouts = policy.sample([Prompt(id="a", text="")], 2, SamplingConfig(max_new_tokens=4), seed=0)
    room = Rooms()
    room.reset()
    for t in range(5):
        room.t = t
        one = room._seen()
        wanted = spaces.utils.flatten(Rooms.observation_space, one)  # keys in order: image, place, speed
        assert wanted[:12].tolist() == one["image"].reshape(-1).tolist()
        for r in rollouts:
            np.testing.assert_allclose(r.observations[t], wanted, atol=1e-6)
    assert all(r.info["rewards"] == [float(a - 1) for a in r.completion_ids] for r in rollouts)


def test_multi_discrete_and_tuples():
    space = spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)))
    batch = (np.array([[1, 0], [0, 2]]), np.array([[1, 0], [1, 1]]))
    assert vectors(space, batch).tolist() == [[0, 1, 1, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1, 1]]


def test_visible_numbers_only():
    whole, part = GymEnvironments(CART), GymEnvironments(CART, visible=(0, 2))
    assert part.observation_size == 2
    assert torch.equal(part.reset(plans(1, 2)), whole.reset(plans(1, 2))[:, [0, 2]])


def test_a_prompt_with_a_seed_starts_all_its_episodes_alike():
    policy, params = control_policy(CART, seed=0), SamplingConfig(max_new_tokens=5)
    same = policy.sample([Prompt(id="a", text="", columns={"seed": 7})], 3, params, seed=1)
    assert len({tuple(r.observations[0].tolist()) for r in same}) == 1
    other = policy.sample([Prompt(id="a", text="")], 3, params, seed=1)
    assert len({tuple(r.observations[0].tolist()) for r in other}) == 3
    assert [r.completion_ids for r in policy.sample([Prompt(id="a", text="")], 3, params, seed=1)] == [
        r.completion_ids for r in other
    ]


def test_a_gaussian_is_clipped_by_the_environment_and_not_in_the_rollout():
    policy = control_policy(PENDULUM, seed=0, log_std=2.0)
    (rollout,) = policy.sample([Prompt(id="a", text="")], 1, SamplingConfig(max_new_tokens=50), seed=0)
    assert float(rollout.actions.abs().max()) > 2.0
    assert rollout.actions.shape == (50, 1)
    assert rollout.completion_ids == (0,) * 50
    cosine, sine, speed = rollout.observations[0].tolist()
    angle, torque = np.arctan2(sine, cosine), min(2.0, max(-2.0, float(rollout.actions[0, 0])))
    assert rollout.info["rewards"][0] == pytest.approx(-(angle**2 + 0.1 * speed**2 + 0.001 * torque**2), abs=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GymEnvironments("CartPol-v1"), "CartPol-v1.*cannot be made"),
        (lambda: GymEnvironments(CART, horizon=-1), "horizon is -1; expected 0"),
        (lambda: GymEnvironments(CART, visible=(4,)), r"visible is \[4\]; expected places among the 4"),
        (lambda: GymEnvironments("a:b:c"), "'a:b:c' cannot be made"),
        (
            lambda: vectors(spaces.Discrete(3), np.array([1, 4])),
            r"An observation is 4, which Discrete\(3\) does not have",
        ),
        (lambda: width(spaces.Text(3)), "space Text have no size; expected Box"),
        (lambda: control_policy(CART, distribution="gaussian"), "valid for 2 actions: auto, categorical"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_without_gymnasium_it_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigError, match=r"pip install 'prefrl\[control\]'"):
        GymEnvironments(CART)


def test_engines_learn_from_it():
    from prefrl.model.engine import Engine

    policy = control_policy(PENDULUM, distribution="squashed", seed=0)
    engine = Engine(policy, ModelConfig(lr=1e-2), sampler=policy, sampling=SamplingConfig(max_new_tokens=20))
    rollouts = engine.sample([Prompt(id="a", text="")], 2, seed=0)
    assert all(abs(float(a)) < 2.0 for r in rollouts for a in r.actions)
