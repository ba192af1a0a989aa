"""Importance-weighted estimators of the partition function, on numbers small enough for a hand."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.rewards.inverse import estimators

RETURNS = torch.tensor([0.0, math.log(2.0), math.log(6.0)], dtype=torch.float64)
LOG_RATIOS = torch.tensor([0.0, 0.0, math.log(3.0)], dtype=torch.float64)  # weights 1 : 2 : 2


def test_weights_by_hand():
    weights = estimators.importance_weights(RETURNS.clone().requires_grad_(), LOG_RATIOS)
    assert weights.tolist() == pytest.approx([0.2, 0.4, 0.4], abs=1e-15)
    assert not weights.requires_grad
    assert float(estimators.effective_sample_size(weights)) == pytest.approx(1 / 0.36)
    assert float(estimators.log_partition(RETURNS, LOG_RATIOS)) == pytest.approx(math.log(5 / 3))


def test_effective_samples_are_all_of_equal_ones_and_one_of_one():
    assert float(estimators.effective_sample_size(torch.full((8,), 0.3))) == pytest.approx(8)
    assert float(estimators.effective_sample_size(torch.tensor([0.0, 1.0, 0.0]))) == 1.0


def test_both_losses_have_one_gradient():
    generator = torch.Generator().manual_seed(0)
    returns = torch.randn(3, 64, generator=generator, dtype=torch.float64).requires_grad_()
    expert = torch.randn(3, 5, generator=generator, dtype=torch.float64).requires_grad_()
    log_ratios = 2.0 * torch.randn(3, 64, generator=generator, dtype=torch.float64)
    found = [
        torch.autograd.grad(loss(expert, returns, log_ratios), (expert, returns))
        for loss in (estimators.weighted_loss, estimators.likelihood_loss)
    ]
    for weighted, likelihood in zip(*found, strict=True):
        assert torch.allclose(weighted, likelihood, rtol=0.0, atol=1e-12)


def test_weights_with_gradient_would_be_another_gradient():
    returns = RETURNS.clone().requires_grad_()
    through = ((returns - LOG_RATIOS).softmax(-1) * returns).sum()
    (other,) = torch.autograd.grad(through, returns)
    expert = torch.zeros(1, dtype=torch.float64)
    (held,) = torch.autograd.grad(estimators.weighted_loss(expert, returns, LOG_RATIOS), returns)
    assert held.tolist() == pytest.approx([0.2, 0.4, 0.4])
    assert float((other - held).abs().max()) > 0.1


def test_losses_by_hand():
    expert = torch.tensor([1.0, 2.0], dtype=torch.float64)
    weighted = 0.4 * math.log(2.0) + 0.4 * math.log(6.0) - 1.5
    assert float(estimators.weighted_loss(expert, RETURNS, LOG_RATIOS)) == pytest.approx(weighted)
    assert float(estimators.likelihood_loss(expert, RETURNS, LOG_RATIOS)) == pytest.approx(math.log(5 / 3) - 1.5)
    assert float(estimators.unweighted_loss(expert, RETURNS)) == pytest.approx(math.log(12.0) / 3 - 1.5)


def test_contexts_have_partitions_of_their_own():
    returns, log_ratios = torch.stack([RETURNS, RETURNS + 7.0]), torch.stack([LOG_RATIOS, LOG_RATIOS])
    weights = estimators.importance_weights(returns, log_ratios)
    assert weights[0].tolist() == pytest.approx(weights[1].tolist())
    found = estimators.log_partition(returns, log_ratios)
    assert found.tolist() == pytest.approx([math.log(5 / 3), math.log(5 / 3) + 7.0])


def test_few_effective_samples_warn():
    with pytest.warns(estimators.FewEffectiveSamples, match="Fewer than 10%"):
        share = estimators.effective_share(torch.eye(20, dtype=torch.float64)[0])
    assert share == 0.05
    assert estimators.effective_share(torch.full((20,), 0.05)) == pytest.approx(1.0)


def test_a_mixture_of_proposals_averages_densities():
    one, other = torch.tensor([0.0, math.log(4.0)]), torch.tensor([math.log(2.0), 0.0])
    found = estimators.mixture_log_ratios([one, other], [3, 1])
    assert found.exp().tolist() == pytest.approx([1.25, 3.25])
