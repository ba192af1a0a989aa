from __future__ import annotations

import math

import pytest
import torch

from prefrl.policy.preference import (
    divergence_slope,
    log_odds,
    pair_loss,
    prospect_loss,
    split_sides,
    tail_weights,
)


def one(*values):
    return [torch.tensor([float(v)], dtype=torch.float64) for v in values]


# Losses of pairs and of single completions. ----------------------------------------------------------------------


def test_the_pair_loss_starts_at_log_two():
    assert float(pair_loss(*one(0, 1), beta=0.1)) == pytest.approx(math.log(2))


def test_the_gradient_weight_is_beta_sigmoid_of_minus_margin():
    margin = torch.tensor([1.5], dtype=torch.float64, requires_grad=True)
    pair_loss(margin, torch.ones(1, dtype=torch.float64), beta=0.3).sum().backward()
    assert float(margin.grad) == pytest.approx(-0.3 / (1 + math.exp(0.3 * 1.5)))


def test_values_of_pair_losses():
    assert float(pair_loss(*one(2, 1), beta=0.1, kind="squared")) == pytest.approx((2 - 5) ** 2)
    assert float(pair_loss(*one(2, 1), beta=0.1, kind="hinge")) == pytest.approx(0.8)
    assert float(pair_loss(*one(2, 0), beta=0.1, kind="hinge")) == pytest.approx(1.2)
    # beta m - gamma = 2 * .75 - 1 = .5
    assert float(pair_loss(*one(0.75, 1), beta=2.0, gamma=1.0)) == pytest.approx(math.log(1 + math.exp(-0.5)))


@pytest.mark.parametrize(("kind", "gamma"), [("sigmoid", 0.0), ("sigmoid", 1.0), ("squared", 0.0), ("hinge", 0.0)])
def test_exchanging_the_sides_and_the_label_changes_nothing(kind, gamma):
    margin, label = torch.tensor([0.7, -1.3, 2.1]), torch.tensor([1.0, 0.9, 0.3])
    there, back = (pair_loss(m, p, 0.3, kind, gamma) for m, p in ((margin, label), (-margin, 1.0 - label)))
    torch.testing.assert_close(there, back)


@pytest.mark.parametrize("kind", ["sigmoid", "squared", "hinge"])
def test_gradcheck(kind):
    margin = torch.tensor([0.7, -1.3, 2.1], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([1.0, 0.9, 0.5], dtype=torch.float64)
    gamma = 0.4 if kind == "sigmoid" else 0.0
    assert torch.autograd.gradcheck(lambda m: pair_loss(m, label, 0.3, kind, gamma), (margin,))


def test_prospects_by_hand():
    half = 1 / (1 + math.exp(-0.3 * 2.0))  # sigmoid(beta g)
    assert float(prospect_loss(*one(2, 1), beta=0.3)) == pytest.approx(1 - half)
    assert float(prospect_loss(*one(2, 0), beta=0.3)) == pytest.approx(half)
    soft = prospect_loss(*one(2, 0.8), beta=0.3, desirable=2.0, undesirable=0.5)
    assert float(soft) == pytest.approx(0.8 * 2.0 * (1 - half) + 0.2 * 0.5 * half)


def test_prospects_are_finite_far_away_and_have_their_gradient():
    far = prospect_loss(torch.tensor([1e4, -1e4]), torch.tensor([1.0, 1.0]), beta=1.0)
    assert far.tolist() == [0.0, 1.0]
    gain = torch.tensor([0.7, -1.3], dtype=torch.float64, requires_grad=True)
    good = torch.tensor([1.0, 0.2], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda g: prospect_loss(g, good, 0.3, desirable=1.3, undesirable=0.7), (gain,))


# Divergences. ----------------------------------------------------------------------------------------------------

# f of each divergence E_ref[f(pi / ref)]; the score is f' less a constant.
GENERATORS = {
    "reverse_kl": lambda t: t * t.log(),
    "forward_kl": lambda t: -t.log(),
    "js": lambda t: t * t.log() - (t + 1) * ((t + 1) / 2).log(),
    "alpha": lambda t: (t**0.3 - 0.3 * t - 0.7) / (0.3 * -0.7),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_score_is_the_slope_of_the_divergence(kind):
    u = torch.tensor([-3.0, -0.5, 0.0, 0.4, 2.0], dtype=torch.float64)
    t = u.exp().requires_grad_()
    (slope,) = torch.autograd.grad(GENERATORS[kind](t).sum(), t)
    got = divergence_slope(u, kind, alpha=0.3)
    torch.testing.assert_close(got, slope - slope[2], atol=1e-12, rtol=0)
    assert got[2] == pytest.approx(0.0, abs=1e-12)


def test_the_alpha_divergence_lies_between_the_two_kls():
    u = torch.tensor([-2.0, 0.3, 1.0], dtype=torch.float64)
    torch.testing.assert_close(divergence_slope(u, "alpha", 1.0), divergence_slope(u, "reverse_kl"))
    torch.testing.assert_close(divergence_slope(u, "alpha", 0.0), divergence_slope(u, "forward_kl"))
    torch.testing.assert_close(divergence_slope(u, "alpha", 1.0 + 1e-7), u, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", GENERATORS)
def test_scores_and_gradients_are_finite_far_from_the_reference(kind):
    u = torch.tensor([-300.0, 300.0], requires_grad=True)
    score = divergence_slope(u, kind)
    (gradient,) = torch.autograd.grad(score.sum(), u)
    assert torch.isfinite(score).all() and torch.isfinite(gradient).all()


# Scores without a reference. -------------------------------------------------------------------------------------


def test_log_odds():
    assert float(log_odds(torch.tensor(0.5).log())) == pytest.approx(0.0, abs=1e-6)
    assert float(log_odds(torch.tensor(0.8).log())) == pytest.approx(math.log(4.0), abs=1e-6)
    p = torch.tensor([1e-30, 0.1, 0.49, 0.51, 0.999], dtype=torch.float64)
    logp = p.log().requires_grad_()
    torch.testing.assert_close(log_odds(logp), (p / (1 - p)).log())
    assert torch.autograd.gradcheck(log_odds, (logp,))


def test_log_odds_of_certainty_and_of_impossibility_are_finite():
    logp = torch.tensor([0.0, -1e-9, -1e4], requires_grad=True)
    odds = log_odds(logp)
    (gradient,) = torch.autograd.grad(odds.sum(), logp)
    assert torch.isfinite(odds).all() and torch.isfinite(gradient).all()
    assert float(odds[2].detach()) == pytest.approx(-1e4)


def test_surplus_tokens_are_those_past_the_shorter_side():
    # Rows of 3, 1, 2 and 4 tokens; pairs (0, 3) and (1, 2), whatever their numbers.
    lengths, row = torch.tensor([3.0, 1.0, 2.0, 4.0]), torch.tensor([0, 0, 0, 1, 2, 2, 3, 3, 3, 3])
    weights = tail_weights(lengths, row, torch.tensor([70, 5, 5, 70]), 0.25)
    assert weights.tolist() == [1, 1, 1, 1, 1, 0.25, 1, 1, 1, 0.25]


# Sides. ----------------------------------------------------------------------------------------------------------


def test_sides_are_matched_by_atom_whatever_the_order():
    side, atom = torch.tensor([-1, 1, 1, -1]), torch.tensor([1, 0, 1, 0])
    chosen, rejected = split_sides(torch.tensor([10.0, 20.0, 30.0, 40.0]), side, atom)
    assert (chosen.tolist(), rejected.tolist()) == ([20.0, 30.0], [40.0, 10.0])


def test_a_lonely_side_is_refused():
    with pytest.raises(AssertionError, match="rejected row"):
        split_sides(torch.zeros(2), torch.tensor([1, -1]), torch.tensor([0, 1]))
