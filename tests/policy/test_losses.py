from __future__ import annotations

import math

import pytest
import torch
from fakes import batch_of

from prefrl.policy.losses import (
    clip_metrics,
    dual_clipped,
    kl_estimate,
    kl_loss,
    log_bounds,
    log_ratio,
    ratio_metrics,
    reinforce,
    surrogate,
    truncated_weights,
    value_loss,
)
from prefrl.types import Row

ROW = torch.tensor([0, 0, 0, 1, 1])
SCOPES = ["none", "token", "cumulative", "sequence", "sequence_mean"]


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(got, wanted, atol=1e-9):
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=got.dtype), atol=atol, rtol=0)


def interval(like, low=0.2, high=0.2, space="ratio", row=None):
    row = torch.zeros(len(like), dtype=torch.long) if row is None else row
    return log_bounds(like, row, int(row.max()) + 1, low=low, high=high, space=space)


def one_token(ratio, advantage, clip="min", low=0.2, high=0.2):
    """Loss and its gradient at one token whose policy is `ratio` times as likely as it was."""
    logps = numbers(math.log(ratio)).requires_grad_()
    ratios = log_ratio(logps, torch.zeros_like(logps), torch.tensor([0]), 1, "token")
    loss = surrogate(ratios, logps, numbers(advantage), clip, interval(ratios, low, high))
    (gradient,) = torch.autograd.grad(loss.sum(), logps)
    return float(loss.detach()), float(gradient)


# Ratios. ---------------------------------------------------------------------------------------------------------

LOG_RATIOS = {
    "none": [0.0] * 5,
    "token": [0.1, 0.2, 0.3, -0.4, 0.6],
    "cumulative": [0.1, 0.3, 0.6, -0.4, 0.2],
    "sequence": [0.6, 0.6, 0.6, 0.2, 0.2],
    "sequence_mean": [0.2, 0.2, 0.2, 0.1, 0.1],
}


@pytest.mark.parametrize("scope", SCOPES)
def test_log_ratio_of_every_scope(scope):
    logps, old = numbers(-0.9, -0.8, -0.7, -1.4, -0.4), torch.full((5,), -1.0, dtype=torch.float64)
    close(log_ratio(logps, old, ROW, 2, scope), LOG_RATIOS[scope])


@pytest.mark.parametrize("scope", SCOPES)
def test_a_ratio_weighs_the_gradient_of_its_own_token_alone(scope):
    logps = numbers(-0.9, -0.8, -0.7, -1.4, -0.4).requires_grad_()
    old, rl = torch.full((5,), -1.0, dtype=torch.float64), numbers(0.5, -1.0, 2.0, 0.25, -0.75)

    def losses(x):
        ratios = log_ratio(x, old, ROW, 2, scope)
        return surrogate(ratios, x, rl, "none", interval(ratios))

    rho = numbers(*LOG_RATIOS[scope]).exp()
    torch.testing.assert_close(torch.autograd.functional.jacobian(losses, logps), torch.diag(-rl * rho))


def test_importance_weights_average_to_one():
    mu, pi = numbers(0.4, 0.4, 0.2).log(), numbers(0.7, 0.2, 0.1).log()
    ratio = log_ratio(pi, mu, torch.arange(3), 3, "token").exp()
    close(ratio, [1.75, 0.5, 0.5])
    f = numbers(3.0, -1.0, 5.0)
    assert float((mu.exp() * ratio).sum()) == pytest.approx(1.0)
    assert float((mu.exp() * ratio * f).sum()) == pytest.approx(float((pi.exp() * f).sum()))


@pytest.mark.parametrize("scope", ["cumulative", "sequence"])
def test_a_hundred_small_steps_are_a_large_ratio(scope):
    # 1.05^100 = 131.5 in float32, behind another row whose log-ratios are large.
    logps = torch.cat([torch.full((7,), 3.0), torch.full((100,), math.log(1.05))])
    row = torch.tensor([0] * 7 + [1] * 100)
    ratio = log_ratio(logps, torch.zeros(107), row, 2, scope)[-1].exp()
    assert ratio.dtype == torch.float32
    assert float(ratio) == pytest.approx(131.5013, rel=1e-4)
    mean = log_ratio(logps, torch.zeros(107), row, 2, "sequence_mean")[-1].exp()
    assert float(mean) == pytest.approx(1.05, rel=1e-6)


def test_truncated_weights():
    close(truncated_weights(numbers(0.0, math.log(0.5), math.log(50.0)), numbers(0.0, 0.0, 0.0), 2.0), [1.0, 0.5, 2.0])


# Bounds. ---------------------------------------------------------------------------------------------------------


def test_bounds_of_the_ratio():
    low, high = interval(torch.zeros(2, dtype=torch.float64), 0.2, 0.28)
    close(low.exp(), [0.8, 0.8])
    close(high.exp(), [1.28, 1.28])
    low, _ = interval(torch.zeros(2), 1.0, 4.0)
    assert low.exp().tolist() == [0.0, 0.0]


def test_bounds_that_widen_with_the_square_root_of_the_tokens_so_far():
    low, high = interval(torch.zeros(5, dtype=torch.float64), 0.025, 0.05, "sqrt_log", ROW)
    roots = [1.0, math.sqrt(2), math.sqrt(3), 1.0, math.sqrt(2)]
    close(low.exp(), [math.exp(-0.025 * r) for r in roots])
    close(high.exp(), [math.exp(0.05 * r) for r in roots])


def test_bounds_carry_no_gradient():
    logps = torch.zeros(5, requires_grad=True)
    for space in ("ratio", "sqrt_log"):
        assert not any(b.requires_grad for b in interval(logps * 2.0, space=space, row=ROW))


# Surrogates. -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.5, 1.0, -1.2, 0.0),
        (1.5, -1.0, 1.5, 1.5),
        (0.5, 1.0, -0.5, -0.5),
        (0.5, -1.0, 0.8, 0.0),
        (1.1, 1.0, -1.1, -1.1),
        (1.1, -2.0, 2.2, 2.2),
    ],
)
def test_clipped_surrogate(ratio, advantage, loss, gradient):
    assert one_token(ratio, advantage) == pytest.approx((loss, gradient))


def test_a_wider_upper_bound():
    assert one_token(1.25, 1.0, high=0.28) == pytest.approx((-1.25, -1.25))
    assert one_token(1.5, 1.0, high=0.28) == pytest.approx((-1.28, 0.0))
    assert one_token(0.75, -1.0, high=0.28) == pytest.approx((0.8, 0.0))


def test_clipped_weights_keep_the_gradient_of_clipped_tokens():
    assert one_token(1.5, 1.0, "weight")[1] == pytest.approx(-1.2)
    assert one_token(0.5, -1.0, "weight")[1] == pytest.approx(0.8)
    assert one_token(7.0, 1.0, "weight", low=1.0, high=4.0)[1] == pytest.approx(-5.0)
    assert one_token(0.1, 1.0, "weight", low=1.0, high=4.0)[1] == pytest.approx(-0.1)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("clip", ["none", "min", "weight"])
def test_at_ratio_one_every_surrogate_has_the_gradient_of_reinforce(scope, clip):
    rl = numbers(0.5, -1.0, 2.0, 0.25, -0.75)
    logps = torch.randn(5, dtype=torch.float64, requires_grad=True)
    ratios = log_ratio(logps, logps.detach(), ROW, 2, scope)
    surrogate(ratios, logps, rl, clip, interval(ratios, row=ROW)).sum().backward()
    torch.testing.assert_close(logps.grad, -rl)


def test_reinforce():
    logps = numbers(-1.0, -2.0).requires_grad_()
    loss = reinforce(logps, numbers(0.5, -3.0))
    close(loss, [0.5, -6.0])
    loss.sum().backward()
    close(logps.grad, [-0.5, 3.0])


@pytest.mark.parametrize("clip", ["none", "min", "weight"])
def test_a_reward_of_zero_gives_no_gradient_whatever_the_ratio(clip):
    logps = torch.tensor([500.0, -500.0], requires_grad=True)
    ratios = log_ratio(logps, torch.zeros(2), torch.tensor([0, 0]), 1, "token")
    surrogate(ratios, logps, torch.zeros(2), clip, interval(ratios)).sum().backward()
    assert logps.grad.tolist() == [0.0, 0.0]


def test_a_ratio_beyond_all_numbers_stays_finite():
    logps = torch.tensor([1000.0], requires_grad=True)
    ratios = log_ratio(logps, torch.zeros(1), torch.tensor([0]), 1, "token")
    loss = surrogate(ratios, logps, torch.ones(1), "min", interval(ratios))
    loss.sum().backward()
    assert float(loss.detach()) == pytest.approx(-1.2)
    assert float(logps.grad) == 0.0


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [(5.0, -1.0, 3.0, 0.0), (2.0, -1.0, 2.0, 2.0), (5.0, 1.0, -1.2, 0.0), (0.5, -2.0, 1.6, 0.0)],
)
def test_a_second_bound_for_negative_advantages(ratio, advantage, loss, gradient):
    logps = numbers(math.log(ratio)).requires_grad_()
    ratios = log_ratio(logps, torch.zeros_like(logps), torch.tensor([0]), 1, "token")
    once = surrogate(ratios, logps, numbers(advantage), "min", interval(ratios))
    got = dual_clipped(once, numbers(advantage), numbers(3.0))
    assert float(got.detach()) == pytest.approx(loss)
    assert float(torch.autograd.grad(got.sum(), logps)[0]) == pytest.approx(gradient)


def test_ratio_metrics_by_hand():
    rl = numbers(1.0, -1.0, -1.0, 0.0)
    log_ratios = numbers(1.5, 0.5, 4.0, 2.0).log()
    dual = numbers(3.0, 3.0, 3.0, 3.0)
    sums = ratio_metrics(log_ratios) | clip_metrics(log_ratios, rl, "min", interval(rl), dual)
    got = {name: (float(value), float(count)) for name, (value, count) in sums.items()}
    # High and a positive advantage, low and a negative one, past the second bound; the last has no advantage.
    assert got["clip/high"] == got["clip/low"] == got["clip/dual"] == (1.0, 4.0)
    # A weight is bounded whatever the advantage; without a clip there is nothing to count.
    bounded = clip_metrics(log_ratios, rl, "weight", interval(rl), None)
    assert [float(bounded[name][0]) for name in ("clip/high", "clip/low")] == [3.0, 1.0]
    assert clip_metrics(log_ratios, rl, "none", interval(rl), None) == {}
    assert got["ratio/max"][0] == pytest.approx(4.0)
    assert got["ratio/min"][0] == pytest.approx(0.5)
    assert got["ratio/mean"] == (pytest.approx(8.0), 4.0)
    assert got["ratio/mean_square"] == (pytest.approx(2.25 + 0.25 + 16 + 4), 4.0)


# KL. -------------------------------------------------------------------------------------------------------------


def test_kl_estimators():
    logps, ref, u = numbers(math.log(0.5)), numbers(math.log(0.25)), math.log(0.5)
    close(kl_estimate(logps, ref, "k1"), [-u])
    close(kl_estimate(logps, ref, "k2"), [u * u / 2])
    close(kl_estimate(logps, ref, "k3"), [math.exp(u) - u - 1])
    assert (kl_estimate(torch.randn(100), torch.randn(100), "k3") >= 0).all()


THETA = (0.2, -0.1, 0.4)
REFERENCE = (0.5, 0.0, -0.3)
TRUE_GRADIENT = [-0.15608, -0.06561, 0.22169]


def kl_gradient(loss, sampler=THETA):
    """Expected gradient of a per-token KL loss over a 3-way softmax, summed exactly over what `sampler` draws."""
    theta = numbers(*THETA).requires_grad_()
    logps, old, ref = theta.log_softmax(0), numbers(*sampler).log_softmax(0), numbers(*REFERENCE).log_softmax(0)
    (old.exp() * loss(logps, old, ref)).sum().backward()
    return theta.grad


def kl_of(logps, old, ref, estimator):
    """The KL loss (n,) of one row."""
    n = len(logps)
    row = Row(prompt_ids=(), completion_ids=(0,) * n, mask=(True,) * n, streams={"old_logps": old, "ref_logps": ref})
    return kl_loss(batch_of([row], logps), estimator)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_loss_has_the_gradient_of_the_true_kl(estimator):
    close(kl_gradient(lambda *logps: kl_of(*logps, estimator)), TRUE_GRADIENT, 1e-5)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_loss_is_exact_on_samples_of_another_policy(estimator):
    stale = (-0.4, 0.3, 0.1)
    close(kl_gradient(lambda *logps: kl_of(*logps, estimator), sampler=stale), TRUE_GRADIENT, 1e-5)


def test_without_weights_k1_has_no_gradient_and_k3_a_biased_one():
    close(kl_gradient(lambda logps, _, ref: kl_estimate(logps, ref, "k1")), [0.0] * 3)
    biased = kl_gradient(lambda logps, _, ref: kl_estimate(logps, ref, "k3"))
    close(biased, [-0.14883, -0.04494, 0.19377], 1e-5)


def test_k1_in_the_reward_has_the_gradient_of_the_true_kl():
    paid = kl_gradient(lambda logps, _, ref: reinforce(logps, -kl_estimate(logps, ref, "k1").detach()))
    close(paid, TRUE_GRADIENT, 1e-5)


# Values. ---------------------------------------------------------------------------------------------------------


def test_the_critic_costs_least_at_the_share_of_successes():
    returns, old = numbers(*[1.0] * 3, *[0.0] * 7), torch.zeros(10, dtype=torch.float64)

    def cost(value):
        return float(value_loss(torch.full_like(old, value), returns, old, 0.0).mean())

    assert cost(0.6) == pytest.approx(0.30)
    assert cost(0.3) == pytest.approx(0.21)
    assert cost(0.3) < min(cost(0.29), cost(0.31))


@pytest.mark.parametrize(
    ("value", "target", "old", "loss", "gradient"),
    [
        (0.6, 1.0, 0.5, 0.16, -0.8),  # within .2 of the old value: plain
        (0.9, 1.0, 0.5, 0.09, 0.0),  # beyond it, towards the return: held at .7
        (0.1, 1.0, 0.5, 0.81, -1.8),  # beyond it, away from the return: not held
    ],
)
def test_values_are_clipped_around_the_old_ones(value, target, old, loss, gradient):
    values = numbers(value).requires_grad_()
    got = value_loss(values, numbers(target), numbers(old), 0.2)
    assert float(got.detach()) == pytest.approx(loss)
    assert float(torch.autograd.grad(got.sum(), values)[0]) == pytest.approx(gradient)


def test_a_baseline_keeps_the_mean_gradient_and_cuts_its_variance():
    # Two arms, p(A) = sigmoid(theta) = .25, rewards 1 and 0.
    p, theta = 0.25, math.log(0.25 / 0.75)
    for baseline, arms, variance in ((0.0, (0.75, 0.0), 0.105469), (0.5, (0.375, 0.125), 0.011719)):
        gradients = []
        for sign, reward in ((1.0, 1.0), (-1.0, 0.0)):
            x = numbers(theta).requires_grad_()
            loss = reinforce(torch.nn.functional.logsigmoid(sign * x), numbers(reward - baseline))
            gradients.append(-float(torch.autograd.grad(loss.sum(), x)[0]))
        assert gradients == pytest.approx(arms)
        mean = p * gradients[0] + (1 - p) * gradients[1]
        assert mean == pytest.approx(0.1875)
        square = p * gradients[0] ** 2 + (1 - p) * gradients[1] ** 2
        assert square - mean**2 == pytest.approx(variance, abs=1e-6)


# Gradients against finite differences. ---------------------------------------------------------------------------

OLD = numbers(-1.0, -0.5, -2.0, -1.5, -0.8)
RL = numbers(0.5, -1.0, 2.0, 0.25, -0.75)
# Ratios inside the bounds and beyond them on both sides, none near a bound.
LOGPS = OLD + numbers(0.1, 0.5, 0.5, -0.6, -0.1)


@pytest.mark.parametrize("clip", ["none", "min"])
def test_gradcheck_of_surrogates(clip):
    def losses(x):
        ratios = log_ratio(x, OLD, ROW, 2, "token")
        return surrogate(ratios, x, RL, clip, interval(ratios, row=ROW))

    assert torch.autograd.gradcheck(losses, (LOGPS.clone().requires_grad_(),))


def test_gradcheck_of_the_second_bound():
    def losses(x):
        ratios = log_ratio(x, OLD, ROW, 2, "token")
        return dual_clipped(surrogate(ratios, x, RL, "min", interval(ratios)), RL, torch.full_like(RL, 1.4))

    assert torch.autograd.gradcheck(losses, (LOGPS.clone().requires_grad_(),))


def test_gradcheck_of_clipped_weights_with_the_weight_held():
    x = LOGPS.clone().requires_grad_()
    ratios = log_ratio(x, OLD, ROW, 2, "token")
    (got,) = torch.autograd.grad(surrogate(ratios, x, RL, "weight", interval(ratios)).sum(), x)
    held = (LOGPS - OLD).exp().clamp(0.8, 1.2)
    assert torch.autograd.gradcheck(lambda y: reinforce(y, RL * held), (x,))
    torch.testing.assert_close(got, -RL * held)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_gradcheck_of_the_kl_loss(estimator):
    x = LOGPS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda logps: kl_of(logps, OLD, OLD.flip(0), estimator), (x,))


def test_gradcheck_of_k2_with_its_ratio_held():
    x, ref, held = LOGPS.clone().requires_grad_(), OLD.flip(0), (LOGPS - OLD).exp()
    assert torch.autograd.gradcheck(lambda logps: held * kl_estimate(logps, ref, "k2"), (x,))
    (got,) = torch.autograd.grad(kl_of(x, OLD, ref, "k2").sum(), x)
    torch.testing.assert_close(got, held * (LOGPS - ref))


@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_gradcheck_of_the_value_loss(clip):
    old, returns = numbers(0.5, 0.5, 0.5), numbers(1.0, 1.0, 1.0)
    values = numbers(0.6, 0.95, 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: value_loss(v, returns, old, clip), (values,))


def test_a_wild_row_leaves_no_rounding_in_the_next_one():
    logps = torch.tensor([-3000.0, 0.0, 0.0123, 0.0123])
    ratios = log_ratio(logps, torch.zeros(4), torch.tensor([0, 0, 1, 1]), 2, "cumulative")
    assert float(ratios[3]) == pytest.approx(0.0246, abs=1e-7)
