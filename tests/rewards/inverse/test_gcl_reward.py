"""Guided cost learning on episodes: weights, the discount in both sums, demonstrations among the samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from walks import walk

from prefrl.rewards.inverse.buffer import fragments_of, transitions_of
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.estimators import FewEffectiveSamples
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.gcl import Gcl, fused
from prefrl.rewards.inverse.nets import NetSpec, RewardNet


def state_net(gamma=0.5):
    """g = s."""
    net = RewardNet(NetSpec(state_size=1, action_size=2, inputs=("state",), hidden=(), gamma=gamma, normalise=False))
    nn.init.ones_(net.reward[0][0].weight)
    nn.init.zeros_(net.reward[0][0].bias)
    return net


def episode(states, log_pi, name):
    return walk([[float(s)] for s in (*states, 0)], [0] * len(states), logps=log_pi, name=name)


EXPERT = transitions_of([episode([2, 2], [-1.0, -1.0], "e")], 2)
POLICY = transitions_of([episode([0, 2], [-1.0, 0.0], "a"), episode([1, 0], [0.0, -2.0], "b")], 2)


def test_loss_in_numbers():
    """R = 2 + 1 = 3 of the demonstration; 1 and 1 of the samples, whose log pi are -1 and -1: logZ = 2, loss -1."""
    loss, metrics = Gcl().loss(state_net(), 0, EXPERT, POLICY, Fit())
    assert float(loss.detach()) == pytest.approx(-1.0, abs=1e-6)
    assert metrics["ess"] == pytest.approx(1.0)


def test_beta_divides_the_returns():
    """R / beta = 6 and 2, 2: logZ = 2 + 1."""
    loss, _ = Gcl(log_pi=LogPi(beta=0.5)).loss(state_net(), 0, EXPERT, POLICY, Fit())
    assert float(loss.detach()) == pytest.approx(-6.0 + 3.0, abs=1e-6)


def test_the_discount_is_not_ignored():
    """Undiscounted, R = 4 and 2, 1 with log pi -1, -2: both terms 3, so that logZ = 3."""
    loss, _ = Gcl().loss(state_net(1.0), 0, EXPERT, POLICY, Fit())
    assert float(loss.detach()) == pytest.approx(-4.0 + 3.0, abs=1e-6)


def test_at_the_optimum_all_weights_are_equal():
    """pi = exp(Q - V) makes sum gamma^t (r - log pi) = V(s_0) on every episode, of whatever length and actions."""
    policy = transitions_of([episode([1, 3], [0.1, 0.2], "a"), episode([1.5, 2], [0.6, -0.8], "b")], 2)
    _, metrics = Gcl().loss(state_net(), 0, EXPERT, policy, Fit())
    assert metrics["ess"] == pytest.approx(1.0, abs=1e-6)


def test_few_effective_samples_warn():
    far = transitions_of([episode([20.0 * (i == 0)], [0.0], str(i)) for i in range(20)], 2)
    with pytest.warns(FewEffectiveSamples, match="Fewer than 10%"):
        _, metrics = Gcl().loss(state_net(), 0, EXPERT, far, Fit())
    assert metrics["ess"] == pytest.approx(1 / 20, abs=1e-4)


def test_demonstrations_among_the_samples():
    """Half of the samples demonstrations: proposed by the mixture of pi and exp(R) / Z, Z = e^2 by the policy's own."""
    returns = [torch.tensor([3.0, 3.0]), torch.tensor([1.0, 1.0])]
    ratios = [torch.tensor([-2.0, -2.0]), torch.tensor([-1.0, -1.0])]
    samples, log_ratios = fused(returns, ratios, 0.5)
    assert samples.tolist() == [1.0, 1.0, 3.0, 3.0]
    own = math.log(0.5 * math.exp(-1) + 0.5 * math.exp(-1))
    other = math.log(0.5 * math.exp(-2) + 0.5 * math.exp(1))
    assert log_ratios.tolist() == pytest.approx([own, own, other, other], abs=1e-6)
    assert fused(returns, ratios, 0.0)[0].tolist() == [1.0, 1.0]


def steps_net(values):
    """g of each of four pairs of a state and an action, which are four states of a net that sees nothing else."""
    spec = NetSpec(state_size=4, action_size=2, inputs=("state",), hidden=(), gamma=0.5, normalise=False)
    net = RewardNet(spec).double()
    with torch.no_grad():
        net.reward[0][0].weight.copy_(torch.tensor([values], dtype=torch.float64))
    nn.init.zeros_(net.reward[0][0].bias)
    return net


def visits(counts, log_pi):
    """An episode that makes each pair so often."""
    pairs = [pair for pair, count in enumerate(counts) for _ in range(count)]
    states = torch.eye(4)[[*pairs, 0]].tolist()
    found = transitions_of([walk(states, [0] * len(pairs), logps=[log_pi[pair] for pair in pairs])], 2)
    exact = torch.tensor([log_pi[pair] for pair in pairs], dtype=torch.float64)
    return fragments_of(found.to(torch.float64).with_log_ratios(exact), 1)


@pytest.mark.parametrize("fusion", [0.0, 0.5])
@pytest.mark.parametrize("expert", [(3, 5, 6, 2), (9, 3, 1, 3)])
def test_fragments_of_a_step_learn_the_policy_and_how_often_states_are_seen(expert, fusion):
    """The gradient is 0 at f = log pi_E(a | s) + log d_E(s) / d(s), d the shares of states of either side.

    Pairs (s, a) are 00, 01, 10, 11. The policy is in both states alike, and picks action 0 with probability 1/4 in the
    first and 3/4 in the second. The first expert is in both alike too: f is its log pi. The second is in the first
    state three times as often, which f holds for an action's doing. f = log pi_E alone is no optimum there.
    """
    log_pi = [math.log(p) for p in (0.25, 0.75, 0.75, 0.25)]
    policy = visits((2, 6, 6, 2), log_pi)
    demonstrations = visits(expert, log_pi)
    states = [sum(expert[:2]), sum(expert[:2]), sum(expert[2:]), sum(expert[2:])]
    own = [math.log(count / seen) for count, seen in zip(expert, states, strict=True)]
    explained = [value + math.log(seen / 8) for value, seen in zip(own, states, strict=True)]
    held = {0.0: [-3 / 16, -1 / 16, 1 / 16, 3 / 16], 0.5: [-3 / 64, -3 / 64, 3 / 64, 3 / 64]}  # of f = log pi_E
    for values, wanted in ((explained, [0.0] * 4), (own, held[fusion] if expert[0] == 9 else [0.0] * 4)):
        net = steps_net(values)
        loss, metrics = Gcl().loss(net, 0, demonstrations, policy, Fit(fusion=fusion))
        (gradient,) = torch.autograd.grad(loss, [net.reward[0][0].weight])
        assert gradient[0].tolist() == pytest.approx(wanted, abs=1e-14)
        assert 0.1 < metrics["ess"] <= 1.0


def test_whole_episodes_weigh_otherwise_than_fragments():
    """Undiscounted weights are e^3, e^3 for two episodes, and e^1, e^2, e^1, e^2 for their steps."""
    whole, _ = Gcl().loss(state_net(1.0), 0, EXPERT, POLICY, Fit())
    steps, _ = Gcl().loss(state_net(1.0), 0, fragments_of(EXPERT, 1), fragments_of(POLICY, 1), Fit())
    assert float(whole.detach()) == pytest.approx(-4.0 + 3.0, abs=1e-6)
    assert float(steps.detach()) == pytest.approx(-2.0 + math.log((math.e + math.e**2) / 2), abs=1e-6)
