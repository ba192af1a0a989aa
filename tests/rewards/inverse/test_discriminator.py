"""What the discriminator learns by: exact logits, losses with their fixed points, penalties, metrics."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from walks import walk

from prefrl.errors import ConfigError
from prefrl.rewards.inverse.airl import Airl, airl_logit
from prefrl.rewards.inverse.buffer import transitions_of
from prefrl.rewards.inverse.discriminator import Fit, binary_loss, binary_metrics, gradient_penalty
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.gail import Gail
from prefrl.rewards.inverse.nets import NetSpec, RewardNet

SPEC = NetSpec(state_size=1, action_size=2, hidden=(), shaped=True, potential=(), gamma=0.5, normalise=False)
EXPERT = transitions_of([walk([[1.0], [2.0], [3.0]], [0, 1], logps=[-0.5, -1.5])], 2)
POLICY = transitions_of([walk([[0.0], [-1.0], [1.0]], [1, 1], logps=[-0.25, -2.0])], 2)


def linear_net(weight=(1.0, 0.0, 0.0), h=2.0):
    """g = w . (s, one-hot a) and h = 2 s, both without a bias."""
    net = RewardNet(SPEC)
    for layer, numbers in ((net.reward[0][0], weight), (net.potential[0][0], (h,))):
        nn.init.zeros_(layer.bias)
        layer.weight.data = torch.tensor([numbers])
    return net


def test_airl_logit_is_f_minus_log_pi_and_not_a_softmax_of_it():
    f, log_pi = torch.tensor([2.0, -1.0]), torch.tensor([-0.5, -3.0])
    assert airl_logit(f, log_pi).tolist() == [2.5, 2.0]
    assert airl_logit(f, log_pi, beta=0.5).tolist() == [4.5, 1.0]
    d = airl_logit(f, log_pi).sigmoid()
    assert torch.allclose(d, f.exp() / (f.exp() + log_pi.exp()))


def test_losses_in_numbers():
    """f = s + 0.5 * 2 s' - 2 s = s' - s, that is 1 on every step of the demonstration and -1, 2 on the policy's."""
    net = linear_net()
    assert net(EXPERT).tolist() == [1.0, 1.0]
    assert net(POLICY).tolist() == [-1.0, 2.0]
    expert, policy = [1.5, 2.5], [-0.75, 4.0]  # f - log pi
    wanted = 0.5 * sum(math.log1p(math.exp(-x)) for x in expert) + 0.5 * sum(math.log1p(math.exp(x)) for x in policy)
    loss, metrics = Airl().loss(net, 0, EXPERT, POLICY, Fit())
    assert float(loss.detach()) == pytest.approx(wanted / 2, rel=1e-6)
    assert (metrics["accuracy_expert"], metrics["accuracy_policy"]) == (1.0, 0.5)
    plain, _ = Gail().loss(net, 0, EXPERT, POLICY, Fit())
    unseen = 0.5 * 2 * math.log1p(math.exp(-1)) + 0.5 * (math.log1p(math.exp(-1)) + math.log1p(math.exp(2)))
    assert float(plain.detach()) == pytest.approx(unseen / 2, rel=1e-6)


def test_what_is_paid_in_numbers():
    net = linear_net()
    assert Airl().paid(net, POLICY).tolist() == [-0.75, 4.0]
    assert Airl(log_pi=LogPi(beta=2.0)).paid(net, POLICY).tolist() == [-0.5, 6.0]
    assert Airl(log_pi=LogPi(pay="kl")).paid(net, POLICY).tolist() == [-1.0, 2.0]
    assert Gail(form="logit").paid(net, POLICY).tolist() == [-1.0, 2.0]
    assert Gail().paid(net, POLICY).tolist() == pytest.approx([math.log1p(math.exp(-1)), math.log1p(math.exp(2))])


def test_nothing_to_tell_is_log_two_and_half_right():
    zero = torch.zeros(5)
    assert float(binary_loss(zero, zero)) == pytest.approx(math.log(2))
    found = binary_metrics(zero, zero)
    assert found == pytest.approx({"accuracy_expert": 0.5, "accuracy_policy": 0.5, "entropy": math.log(2)})


def test_sides_weigh_the_same_however_many():
    few, many = torch.tensor([1.0]), torch.tensor([0.5, -2.0, 3.0])
    assert float(binary_loss(few, many)) == pytest.approx(float(binary_loss(few, many.repeat(7))), rel=1e-6)


def test_smoothed_labels_hold_the_logit_back():
    """The least loss of a demonstration is at logit log(.9 / .1), not at infinity."""
    logits = torch.tensor([math.log(9.0)], requires_grad=True)
    binary_loss(logits, torch.zeros(1), smoothing=0.1).backward()
    assert float(logits.grad) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("h", [0.0, 2.0])
def test_gradient_penalty_of_a_linear_reward(h):
    """f = 3 s + 4 a_0 + (h / 2) s' - h s: gradient (3 - h, 4, 0, h / 2) wherever one looks."""
    net = linear_net((3.0, 4.0, 0.0), h)
    norm = math.sqrt((3 - h) ** 2 + 16 + (h / 2) ** 2)
    found = gradient_penalty(net, 0, EXPERT, POLICY)
    assert float(found.detach()) == pytest.approx((norm - 1) ** 2, rel=1e-5)
    found.backward()
    assert float(net.reward[0][0].weight.grad.abs().sum()) > 0


def test_penalty_enters_the_loss():
    net = linear_net((3.0, 4.0, 0.0), 0.0)
    bare, with_penalty = (Gail().loss(net, 0, EXPERT, POLICY, Fit(gradient_penalty=w))[0].detach() for w in (0.0, 2.0))
    assert float(with_penalty - bare) == pytest.approx(2.0 * 16.0, rel=1e-5)


def test_a_discriminator_that_learns_to_its_fixed_point_gives_the_density_ratio():
    """One state; the expert acts .8 / .2, the policy .5 / .5. GAIL: log 1.6, log .4; AIRL's f: log .8, log .2."""
    net = RewardNet(NetSpec(state_size=1, action_size=2, hidden=(), normalise=False))
    expert = transitions_of([walk([[0.0]] * 11, [0] * 8 + [1] * 2, logps=[math.log(0.5)] * 10)], 2)
    policy = transitions_of([walk([[0.0]] * 11, [0] * 5 + [1] * 5, logps=[math.log(0.5)] * 10)], 2)
    for method, wanted in ((Gail(), [math.log(1.6), math.log(0.4)]), (Airl(), [math.log(0.8), math.log(0.2)])):
        optimizer = torch.optim.LBFGS(
            net.parameters(), max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
        )

        def closure(method=method, optimizer=optimizer):
            optimizer.zero_grad()
            loss, _ = method.loss(net, 0, expert, policy, Fit())
            loss.backward()
            return loss

        optimizer.step(closure)
        found = net(expert).detach()
        assert [float(found[0]), float(found[-1])] == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize(
    "change", [{"steps": 0}, {"lr": 0.0}, {"fusion": 1.0}, {"label_smoothing": 0.5}, {"gradient_penalty": -1.0}]
)
def test_what_is_no_fit(change):
    with pytest.raises(ConfigError, match="expected"):
        Fit(**change)
