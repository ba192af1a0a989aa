"""Reward networks: what they see, shaping at ends and time limits, ensembles, files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from walks import walk

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.inverse.buffer import transitions_of
from prefrl.rewards.inverse.nets import NetSpec, RewardNet, load_net, save_net
from prefrl.types import StopReason

SPEC = NetSpec(state_size=2, action_size=3, inputs=("state", "action", "next_state", "done"), shaped=True, gamma=0.9)
STATES = [[0.0, 1.0], [2.0, -1.0], [1.0, 3.0]]
ENDED = walk(STATES, [2, 0], stop=StopReason.ENVIRONMENT)
CUT = walk(STATES, [2, 0])


@pytest.fixture
def net():
    made = RewardNet(SPEC, seed=1)
    made.observe(transitions_of([walk([[0.0, 1.0], [4.0, 3.0], [8.0, 2.0]], [0, 1])], 3))
    return made


def h(net, states):
    return net.potential[0](net.states(torch.tensor(states))).squeeze(-1).detach()


def test_potential_stays_at_a_time_limit_and_goes_at_an_end(net):
    """The same last transition: f differs by gamma h(s') alone."""
    bare = RewardNet(replace(SPEC, inputs=("state",)), seed=1)
    ended, cut = (bare(transitions_of([one], 3)).detach() for one in (ENDED, CUT))
    assert float(ended[0]) == float(cut[0])
    assert float(cut[1] - ended[1]) == pytest.approx(0.9 * float(h(bare, [STATES[2]])[0]), abs=1e-6)
    assert abs(float(cut[1] - ended[1])) > 1e-3


def test_shaping_is_f_minus_g(net):
    steps = transitions_of([CUT], 3)
    g = net.reward_of(0, net.normalised(steps)).detach()
    shaping = 0.9 * h(net, STATES[1:]) - h(net, STATES[:-1])
    assert torch.allclose(net(steps), g + shaping, atol=1e-6)
    assert torch.allclose(net.unshaped()(steps), g)


def test_shaping_telescopes_to_the_value_of_the_start():
    """sum gamma^t (gamma h(s') - h(s)) = -h(s_0) where the episode ends."""
    steps = transitions_of([ENDED], 3)
    net = RewardNet(replace(SPEC, inputs=("state",)), seed=1)
    shaping = (net(steps) - net.reward_of(0, net.normalised(steps))).detach()
    total = float(shaping[0] + 0.9 * shaping[1])
    assert total == pytest.approx(-float(h(net, STATES[:1])[0]), abs=1e-6)


@pytest.mark.parametrize(
    ("inputs", "size"),
    [(("state",), 2), (("state", "action"), 5), (("state", "action", "next_state", "done"), 8), (("next_state",), 2)],
)
def test_inputs_by_flags(inputs, size):
    spec = replace(SPEC, inputs=inputs, shaped=False)
    assert spec.input_size == size
    net = RewardNet(spec)
    other = walk([[0.0, 1.0], [9.0, 9.0], [1.0, 3.0]], [1, 1], stop=StopReason.ENVIRONMENT)
    first, second = (float(net(transitions_of([one], 3)).detach()[0]) for one in (CUT, other))
    assert (first == second) == (inputs == ("state",))


def test_one_hot_actions_are_not_normalised_and_continuous_ones_are():
    one_hot, numbers = (RewardNet(replace(SPEC, action_size=1, discrete=d)) for d in (True, False))
    steps = transitions_of([walk([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], [[1.0], [3.0]])], 1)
    for net in (one_hot, numbers):
        net.observe(steps)
    assert one_hot.normalised(steps).action.tolist() == [[1.0], [3.0]]
    assert numbers.normalised(steps).action.squeeze(-1).tolist() == pytest.approx([-1.0, 1.0])
    assert numbers.normalised(steps).state[:, 0].tolist() == pytest.approx([-1.0, 1.0])


def test_nothing_but_observe_moves_the_normaliser(net):
    before = net.states.mean.clone(), net.states.variance.clone()
    net(transitions_of([ENDED, CUT], 3)).sum().backward()
    assert torch.equal(net.states.mean, before[0])
    assert torch.equal(net.states.variance, before[1])


def test_members_differ_and_the_reward_is_their_mean():
    net = RewardNet(replace(SPEC, members=3))
    steps = transitions_of([CUT], 3)
    each = net.each(steps).detach()
    assert each.shape == (3, 2)
    assert len({round(float(x), 6) for x in each[:, 0]}) == 3
    assert torch.allclose(net(steps), each.mean(0))


def test_seed_decides_the_weights_and_leaves_the_others_random_numbers_alone():
    torch.manual_seed(5)
    first = RewardNet(SPEC, seed=3)
    after = torch.rand(())
    torch.manual_seed(5)
    assert torch.equal(torch.rand(()), after)
    assert torch.equal(first.reward[0][0].weight, RewardNet(SPEC, seed=3).reward[0][0].weight)
    assert not torch.equal(first.reward[0][0].weight, RewardNet(SPEC, seed=4).reward[0][0].weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_file_says_the_same_bit_for_bit(net, dtype, tmp_path):
    net, steps = net.to(dtype), transitions_of([ENDED, CUT], 3).to(dtype)
    save_net(net, tmp_path / "net", {"note": "kept"})
    loaded, record = load_net(tmp_path / "net")
    assert torch.equal(loaded(steps), net(steps))
    assert record["note"] == "kept"
    assert not any(p.requires_grad for p in loaded.parameters())
    assert sorted(p.name for p in (tmp_path / "net").iterdir()) == ["reward_net.json", "reward_net.safetensors"]


@pytest.mark.parametrize("damage", ["weights", "record", "missing"])
def test_a_file_that_is_none_is_refused(net, damage, tmp_path):
    save_net(net, tmp_path / "net", {})
    if damage == "weights":
        (tmp_path / "net" / "reward_net.safetensors").write_bytes(b"no")
    if damage == "record":
        (tmp_path / "net" / "reward_net.json").write_text(json.dumps({"net": {}}))
    with pytest.raises(RewardError, match="No reward network can be read"):
        load_net(tmp_path / ("net" if damage != "missing" else "other"))


@pytest.mark.parametrize("change", [{"inputs": ()}, {"inputs": ("reward",)}, {"members": 0}, {"gamma": 1.1}])
def test_what_is_no_network(change):
    with pytest.raises(ConfigError, match="expected"):
        replace(SPEC, **change)
