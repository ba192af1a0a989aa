from __future__ import annotations

import math

import pytest
import torch

from prefrl.policy.losses import kl_estimate, log_ratio, surrogate

ROW = torch.tensor([0, 0, 0, 1, 1])


def test_log_ratio_scopes():
    logps = torch.tensor([0.1, 0.2, 0.3, -0.4, 0.6])
    old = torch.zeros(5)
    scope = lambda name: [round(x, 6) for x in log_ratio(logps, old, ROW, 2, name).tolist()]  # noqa: E731
    assert scope("none") == [0.0] * 5
    assert scope("token") == [0.1, 0.2, 0.3, -0.4, 0.6]
    assert scope("cumulative") == [0.1, 0.3, 0.6, -0.4, 0.2]
    assert scope("sequence") == [0.6, 0.6, 0.6, 0.2, 0.2]
    assert scope("sequence_mean") == [0.2, 0.2, 0.2, 0.1, 0.1]


def test_importance_weights():
    mu, pi = torch.tensor([0.4, 0.4, 0.2]).log(), torch.tensor([0.7, 0.2, 0.1]).log()
    ratio = log_ratio(pi, mu, torch.arange(3), 3, "token").exp()
    torch.testing.assert_close(ratio, torch.tensor([1.75, 0.5, 0.5]))
    assert float((mu.exp() * ratio).sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("clip", ["none", "ppo", "weight"])
def test_at_ratio_one_every_clip_has_the_gradient_of_reinforce(clip):
    rl = torch.tensor([0.5, -1.0, 2.0, 0.25, -0.75], dtype=torch.float64)
    logps = torch.randn(5, dtype=torch.float64, requires_grad=True)
    ratios = log_ratio(logps, logps.detach(), ROW, 2, "token")
    surrogate(ratios, logps, rl, clip, 0.2, 0.2).sum().backward()
    torch.testing.assert_close(logps.grad, -rl)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(1.5, 1.0, -1.2), (1.5, -1.0, 1.5), (0.5, 1.0, -0.5), (0.5, -1.0, 0.8), (1.1, 1.0, -1.1), (1.25, 1.0, -1.2)],
)
def test_ppo_clip_values(ratio, advantage, loss):
    log = torch.tensor([math.log(ratio)])
    assert float(surrogate(log, log, torch.tensor([advantage]), "ppo", 0.2, 0.2)) == pytest.approx(loss, abs=1e-6)


def test_clipping_higher_upper_bound():
    log = torch.tensor([math.log(1.5)])
    assert float(surrogate(log, log, torch.tensor([1.0]), "ppo", 0.2, 0.28)) == pytest.approx(-1.28, abs=1e-6)


def test_weight_clip_keeps_the_gradient_of_clipped_tokens():
    logps = torch.tensor([math.log(1.5)], requires_grad=True)
    ratios = log_ratio(logps, torch.zeros(1), torch.zeros(1, dtype=torch.long), 1, "token")
    surrogate(ratios, logps, torch.tensor([1.0]), "weight", 0.2, 0.2).sum().backward()
    assert float(logps.grad) == pytest.approx(-1.2, abs=1e-6)


def test_kl_estimators():
    logps, ref = torch.tensor([0.5]).log(), torch.tensor([0.25]).log()
    u = math.log(0.5)
    assert float(kl_estimate(logps, ref, "k1")) == pytest.approx(-u, abs=1e-6)
    assert float(kl_estimate(logps, ref, "k2")) == pytest.approx(u * u / 2, abs=1e-6)
    assert float(kl_estimate(logps, ref, "k3")) == pytest.approx(math.exp(u) - u - 1, abs=1e-6)
    assert (kl_estimate(torch.randn(100), torch.randn(100), "k3") >= 0).all()


TRUE_GRADIENT = torch.tensor([-0.15608, -0.06561, 0.22169], dtype=torch.float64)


def kl_gradient(estimator, weighted):
    """Expected gradient of a KL loss over a 3-way softmax, summed exactly over all outcomes."""
    theta = torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.5, 0.0, -0.3], dtype=torch.float64).log_softmax(0)
    logps = theta.log_softmax(0)
    estimate = kl_estimate(logps, ref, estimator)
    if weighted:
        estimate = (logps - logps.detach()).exp() * estimate
    (logps.detach().exp() * estimate).sum().backward()
    return theta.grad


@pytest.mark.parametrize(("estimator", "weighted"), [("k2", False), ("k1", True), ("k3", True)])
def test_gradient_of_the_true_kl(estimator, weighted):
    torch.testing.assert_close(kl_gradient(estimator, weighted), TRUE_GRADIENT, atol=1e-5, rtol=0)


def test_unweighted_k1_has_no_gradient_and_k3_a_biased_one():
    torch.testing.assert_close(kl_gradient("k1", False), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    biased = torch.tensor([-0.14883, -0.04494, 0.19377], dtype=torch.float64)
    torch.testing.assert_close(kl_gradient("k3", False), biased, atol=1e-5, rtol=0)


def test_reinforce_baseline_keeps_the_mean_and_cuts_the_variance():
    p = 0.25
    score = {1: 1 - p, 0: -p}  # d log pi / d theta for arms A (reward 1) and B (reward 0)

    def moments(b):
        grads = {a: (a - b) * score[a] for a in (0, 1)}
        mean = p * grads[1] + (1 - p) * grads[0]
        return grads, mean, p * grads[1] ** 2 + (1 - p) * grads[0] ** 2 - mean**2

    for b, arms, variance in ((0.0, (0.75, 0.0), 0.105469), (0.5, (0.375, 0.125), 0.011719)):
        theta = torch.tensor(math.log(p / (1 - p)), dtype=torch.float64, requires_grad=True)
        grads, mean, var = moments(b)
        for arm, wanted in zip((1, 0), arms, strict=True):
            logp = torch.nn.functional.logsigmoid(theta if arm else -theta)[None]
            loss = surrogate(torch.zeros(1), logp, torch.tensor([arm - b], dtype=torch.float64), "none", 0.2, 0.2)
            (gradient,) = torch.autograd.grad(-loss.sum(), theta)
            assert float(gradient) == pytest.approx(wanted) == pytest.approx(grads[arm])
        assert mean == pytest.approx(0.1875)
        assert var == pytest.approx(variance, abs=1e-6)


@pytest.mark.parametrize("scope", ["token", "cumulative", "sequence", "sequence_mean"])
@pytest.mark.parametrize("clip", ["none", "ppo", "weight"])
def test_gradcheck(scope, clip):
    torch.manual_seed(0)
    old, rl = torch.randn(5, dtype=torch.float64) * 0.1, torch.randn(5, dtype=torch.float64)
    logps = (old + torch.randn(5, dtype=torch.float64) * 0.3).requires_grad_()

    def loss(x):
        ratios = log_ratio(x, old, ROW, 2, scope)
        return surrogate(ratios, x, rl, clip, 0.2, 0.2)

    if clip == "weight":  # the ratio is held constant there, which finite differences do not see
        (gradient,) = torch.autograd.grad(loss(logps).sum(), logps)
        held = log_ratio(logps.detach(), old, ROW, 2, scope).exp().clamp(0.8, 1.2)
        torch.testing.assert_close(gradient, -rl * held)
    else:
        assert torch.autograd.gradcheck(loss, (logps,))
