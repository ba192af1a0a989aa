"""Losses of rewards for text on numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.rewards.inverse.text_losses import (
    Judged,
    classification_loss,
    discriminator_metrics,
    effective_shares,
    gradient_penalty,
    log_partitions,
    logits,
    partition_loss,
)

LOG2 = math.log(2.0)


def judged(plain, *, ratio=None, expert, prompt=None, row=None, count=None, shaped=None):
    plain = torch.tensor(plain, dtype=torch.float64)
    n = len(expert)
    return Judged(
        plain=plain,
        shaped=plain if shaped is None else torch.tensor(shaped, dtype=torch.float64),
        ratio=torch.zeros_like(plain) if ratio is None else torch.tensor(ratio, dtype=torch.float64),
        row=torch.arange(n) if row is None else torch.tensor(row),
        expert=torch.tensor(expert),
        count=torch.ones(n, dtype=torch.long) if count is None else torch.tensor(count),
        prompt=torch.zeros(n, dtype=torch.long) if prompt is None else torch.tensor(prompt),
    )


def test_nothing_known_costs_log_2_however_many_there_are_of_a_side():
    batch = judged([0.0] * 4, expert=[True, False, False, False])
    assert float(classification_loss(batch, batch.plain)) == pytest.approx(LOG2)
    assert batch.weights.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])


def test_equal_completions_count_as_often_as_they_came():
    once = judged([1.0, 2.0, 2.0, -1.0], expert=[True, False, False, False])
    merged = judged([1.0, 2.0, -1.0], expert=[True, False, False], count=[1, 2, 1])
    for loss in (lambda b: classification_loss(b, b.plain), partition_loss, effective_shares):
        assert float(loss(merged)) == pytest.approx(float(loss(once)), abs=1e-12)


def test_smoothed_targets():
    batch = judged([3.0, -3.0], expert=[True, False])
    right, wrong = math.log1p(math.exp(-3.0)), math.log1p(math.exp(3.0))
    assert float(classification_loss(batch, batch.plain, 0.1)) == pytest.approx(0.9 * right + 0.1 * wrong)


def test_the_log_ratio_is_taken_off_by_airl_alone():
    batch = judged([1.0, 2.0], shaped=[0.5, 1.5], ratio=[4.0, -4.0], expert=[True, False])
    assert logits(batch, "gail").tolist() == [1.0, 2.0]
    assert logits(batch, "airl").tolist() == [-3.5, 5.5]


def test_an_estimated_offset_is_log_z_of_the_samples():
    """u - ratio of the samples is log 1 and log 3, so that Z = (1 + 3) / 2."""
    batch = judged([0.7, 0.5, 0.5 + math.log(3.0)], ratio=[0.2, 0.5, 0.5], expert=[True, False, False])
    assert log_partitions(batch).tolist() == pytest.approx([LOG2])
    expected = [0.5 - LOG2, -LOG2, math.log(3.0) - LOG2]
    assert logits(batch, "airl", estimate=True).tolist() == pytest.approx(expected)


def test_partition_loss_is_the_likelihood_under_importance_weights():
    """One demonstration with u = 1; samples with u - ratio = log 1, log 3: -1 + log 2."""
    batch = judged([1.0, 0.0, math.log(3.0) + 0.3], ratio=[0.0, 0.0, 0.3], expert=[True, False, False])
    assert float(partition_loss(batch)) == pytest.approx(LOG2 - 1.0)
    # Weights 1/4 and 3/4: 1 / (1/16 + 9/16) = 1.6 of 2 samples.
    assert effective_shares(batch) == pytest.approx(0.8)


def test_tokens_weigh_as_their_completion_does():
    """A demonstration of one token and a sample of three: a mean over tokens would see three samples a demonstration.

    Occupancies are compared: where both are equally likely to be visited a token's odds are 1, not 3.
    """
    batch = judged([0.0] * 4, expert=[True, False], row=[0, 1, 1, 1])
    assert batch.weights.tolist() == [0.5, 0.5, 0.5, 0.5]


def test_gradient_penalty_of_a_linear_reward_is_its_squared_weights():
    features = [torch.randn(3, requires_grad=True) for _ in range(4)]
    weights = torch.tensor([1.0, -2.0, 2.0], requires_grad=True)
    penalty = gradient_penalty(torch.stack([f @ weights for f in features]), features, 4)
    assert penalty.item() == pytest.approx(9.0)
    penalty.backward()
    assert weights.grad.tolist() == pytest.approx([2.0, -4.0, 4.0])


def test_metrics_see_rounding_as_a_coin_flip():
    found = discriminator_metrics(judged([1e-7, -1e-7], expert=[True, False]), torch.tensor([1e-7, -1e-7]))
    assert found["accuracy_expert"] == found["accuracy_policy"] == 0.5
    assert found["entropy"] == pytest.approx(LOG2)
    sure = judged([5.0, -5.0, 5.0], expert=[True, False, False])
    found = discriminator_metrics(sure, sure.plain)
    assert (found["accuracy_expert"], found["accuracy_policy"]) == (1.0, 0.5)
    p = 1 / (1 + math.exp(-5.0))
    assert found["entropy"] == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p))
