"""What length has to do with scores, by hand and against autograd in float64."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.policy.length import length_slope, matching_weights, squared_correlation, within

ATOM = torch.tensor([0, 1, 0, 1, 2, 2, 2])


def test_deviations_from_the_mean_of_their_atom():
    values = torch.tensor([1.0, 10.0, 3.0, 30.0, 0.0, 3.0, 6.0])
    assert within(values, ATOM).tolist() == [-1.0, -10.0, 1.0, 10.0, -3.0, 0.0, 3.0]
    both = torch.stack([values, 2 * values], dim=1)
    assert torch.equal(within(both, ATOM), torch.stack([within(values, ATOM), 2 * within(values, ATOM)], dim=1))


def test_two_pairs_by_hand():
    # Gaps of the scores 2 and 4, of the lengths 3 and 1: (2*3 + 4*1)^2 / ((4 + 16)(9 + 1)) = 100 / 200.
    scores, lengths = torch.tensor([[2.0], [0.0], [9.0], [5.0]]), torch.tensor([13.0, 10.0, 8.0, 7.0])
    value, gradient = squared_correlation(scores, lengths, torch.tensor([0, 0, 1, 1]))
    assert value.tolist() == pytest.approx([0.5])
    # In deviations s = (1, -1, 2, -2), l = (1.5, -1.5, .5, -.5): s.l = 5, s.s = 10, l.l = 5; 2*5/50 l - 2*.5/10 s.
    assert gradient.squeeze().tolist() == pytest.approx([0.2, -0.2, -0.1, 0.1])


def test_the_gradient_is_exact():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(7, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    lengths = 100 * torch.rand(7, generator=generator, dtype=torch.float64)
    s, ell = within(scores, ATOM), within(lengths, ATOM)[:, None]
    wanted = (s * ell).sum(0) ** 2 / ((s**2).sum(0) * (ell**2).sum(0))
    wanted.sum().backward()
    value, gradient = squared_correlation(scores.detach(), lengths, ATOM)
    torch.testing.assert_close(value, wanted.detach())
    torch.testing.assert_close(gradient, scores.grad)
    assert float(gradient.abs().max()) > 1e-3
    assert (gradient * scores.detach()).sum(0).tolist() == pytest.approx([0.0] * 3, abs=1e-12)  # c knows no scale


def test_processes_make_one_correlation():
    """Two processes with some of the atoms each find the correlation over all, and their part of its gradient."""
    scores = torch.tensor([[2.0], [0.0], [9.0], [5.0]], dtype=torch.float64)
    lengths, atom = torch.tensor([13.0, 10.0, 8.0, 7.0]), torch.tensor([0, 0, 1, 1])
    value, gradient = squared_correlation(scores, lengths, atom)
    # Of the second pair in deviations: s.l = 2 * 2 * .5, s.s = 2 * 4, l.l = 2 * .25.
    elsewhere = torch.tensor([[2.0], [8.0], [0.5]])
    here = squared_correlation(scores[:2], lengths[:2], atom[:2], lambda local: local + elsewhere)
    torch.testing.assert_close(here[0], value)
    torch.testing.assert_close(here[1], gradient[:2])


@pytest.mark.parametrize(("scores", "lengths"), [([0.0, 0.0], [3.0, 5.0]), ([1.0, 2.0], [4.0, 4.0])])
def test_nothing_varies(scores, lengths):
    value, gradient = squared_correlation(torch.tensor(scores)[:, None], torch.tensor(lengths), torch.tensor([0, 0]))
    assert value.tolist() == [0.0] and gradient.tolist() == [[0.0], [0.0]]


def test_matching_by_hand():
    # One stratum: longer sides win three times (weight 4 in all) and lose once (weight 2): each side is to weigh 3.
    factors = matching_weights(torch.tensor([5.0, 9.0, 2.0, -4.0, 0.0]), torch.tensor([1.0, 1.0, 2.0, 2.0, 1.0]))
    assert factors.tolist() == pytest.approx([0.75, 0.75, 0.75, 1.5, 1.0])
    assert matching_weights(torch.tensor([5.0, 2.0, 0.0]), torch.ones(3)).tolist() == [0.0, 0.0, 1.0]


def test_matching_leaves_no_hint_of_length():
    generator = torch.Generator().manual_seed(0)
    gaps = torch.randn(400, generator=generator, dtype=torch.float64) * 100
    gaps = torch.where(torch.rand(400, generator=generator) < 0.8, gaps.abs(), -gaps.abs())  # the longer side wins 80 %
    weight = torch.rand(400, generator=generator, dtype=torch.float64)
    matched = weight * matching_weights(gaps, weight)
    assert float(matched.sum()) == pytest.approx(float(weight.sum()))
    for at in gaps.abs().argsort().tensor_split(10):
        sides = matched[at][gaps[at] > 0].sum(), matched[at][gaps[at] < 0].sum()
        assert float(sides[0]) == pytest.approx(float(sides[1]))


def test_the_slope_is_that_of_differences():
    lengths = torch.tensor([10.0, 20.0, 5.0, 6.0])
    prompts = torch.tensor([7.0, 7.0, -3.0, -3.0])  # what prompts differ in does not matter
    atom = torch.tensor([0, 0, 1, 1])
    assert length_slope(0.25 * lengths + prompts, lengths, atom) == pytest.approx(0.25)
    # Differences of scores (2, 3) on those of lengths (10, 1): (20 + 3) / 101.
    assert length_slope(torch.tensor([0.0, 2.0, 0.0, 3.0]), lengths, atom) == pytest.approx(23 / 101)
    assert length_slope(torch.tensor([0.0, 2.0]), torch.tensor([4.0, 4.0]), torch.tensor([0, 0])) == 0.0
    assert math.isfinite(length_slope(torch.zeros(2), torch.tensor([1.0, 2.0]), torch.tensor([0, 0])))
