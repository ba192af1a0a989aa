from __future__ import annotations

import math

import pytest
import torch
from episodes import episode

from prefrl.rewards.trajectory.preferences import (
    agreement,
    discounted,
    preference_loss,
    preferred,
    synthetic_labels,
)

LOG3 = math.log(3.0)


def test_returns_count_from_the_first_step():
    rewards = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 8.0]], dtype=torch.float64)
    assert discounted(rewards).tolist() == [7.0, 8.0]
    assert discounted(rewards, 0.5).tolist() == [3.0, 2.0], "1 + 2/2 + 4/4, and 8/4"
    assert discounted(rewards, 0.0).tolist() == [1.0, 0.0]
    assert discounted(torch.stack([rewards, 2 * rewards]), 0.5).tolist() == [[3.0, 2.0], [6.0, 4.0]]


def test_bradley_terry_numbers():
    gap = torch.tensor([LOG3, -LOG3, 0.0], dtype=torch.float64)  # P = 3/4, 1/4, 1/2
    label = torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64)
    expected = [-math.log(0.75), -math.log(0.25), math.log(2.0)]
    assert preference_loss(gap, label).tolist() == pytest.approx(expected, abs=1e-12)
    assert preferred(gap).tolist() == pytest.approx([0.75, 0.25, 0.5], abs=1e-12)


def test_label_noise_mixes_in_a_blind_choice():
    gap = torch.tensor([LOG3, -LOG3], dtype=torch.float64)
    assert preferred(gap, 0.2).tolist() == pytest.approx([0.7, 0.3], abs=1e-12)  # .1 + .8 * 3/4
    first = torch.ones(2, dtype=torch.float64)
    assert preference_loss(gap, first, 0.2).tolist() == pytest.approx([-math.log(0.7), -math.log(0.3)], abs=1e-12)
    far = torch.tensor([-1000.0], dtype=torch.float64)
    assert preference_loss(far, first[:1]).item() == pytest.approx(1000.0)
    assert preference_loss(far, first[:1], 0.2).item() == pytest.approx(-math.log(0.1)), "one slip costs log 10"


def test_exchanging_the_sides_changes_nothing():
    gap = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    label = torch.tensor([0.0, 0.3, 0.5, 0.9, 1.0], dtype=torch.float64)
    for noise in (0.0, 0.1):
        assert torch.allclose(preference_loss(gap, label, noise), preference_loss(-gap, 1 - label, noise), atol=1e-12)


def test_the_gradient_pulls_a_tie_together():
    gap = torch.tensor([2.0], requires_grad=True)
    preference_loss(gap, torch.tensor([0.5])).sum().backward()
    assert gap.grad.item() == pytest.approx(torch.sigmoid(torch.tensor(2.0)).item() - 0.5)


def test_agreement_leaves_ties_out():
    gap = torch.tensor([[1.0, -1.0, 5.0, 0.0], [-1.0, -1.0, 5.0, 0.0]])
    label = torch.tensor([1.0, 0.0, 0.5, 1.0])
    assert agreement(gap, label).tolist() == pytest.approx([2.5 / 3, 1.5 / 3])
    assert math.isnan(agreement(gap[:, 2:3], label[2:3])[0])


def couple(first, second):
    return episode(first, "a"), episode(second, "b")


def test_labels_of_a_program_without_temperature_take_the_better_one():
    pairs = [couple([1.0, 0.0], [0.0, 0.5]), couple([0.0, 1.0], [0.5, 0.0]), couple([1.0, 1.0], [2.0, 0.0])]
    said = [p.label for p in synthetic_labels(pairs, seed=0, temperature=0.0)]
    assert said == [1.0, 1.0, 0.5]
    later = [p.label for p in synthetic_labels(pairs, seed=0, temperature=0.0, discount=0.25)]
    assert later == [1.0, 0.0, 0.0], "1 > .125, .25 < .5, 1.25 < 2"
    wide = [p.label for p in synthetic_labels(pairs, seed=0, temperature=0.0, tie_width=0.5)]
    assert wide == [0.5, 0.5, 0.5]


def test_labels_of_a_program_are_drawn_by_bradley_terry():
    pairs = [couple([LOG3], [0.0])] * 4000
    said = [p.label for p in synthetic_labels(pairs, seed=1)]
    assert sum(said) / 4000 == pytest.approx(0.75, abs=0.03)
    warm = [p.label for p in synthetic_labels(pairs, seed=1, temperature=LOG3 / math.log(1.5))]
    assert sum(warm) / 4000 == pytest.approx(0.6, abs=0.03), "sigmoid(log 1.5)"
    turned = [p.label for p in synthetic_labels(pairs, seed=1, temperature=0.0, flip=0.2)]
    assert sum(turned) / 4000 == pytest.approx(0.8, abs=0.03)
    assert said == [p.label for p in synthetic_labels(pairs, seed=1)]
    assert said != [p.label for p in synthetic_labels(pairs, seed=2)]
