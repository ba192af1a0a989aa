from __future__ import annotations

import math

import pytest
import torch

from prefrl.policy.preference import bradley_terry, dpo, split_sides


def one(*values):
    return [torch.tensor([float(v)], dtype=torch.float64) for v in values]


def test_bradley_terry_values():
    assert float(bradley_terry(*one(2, 1, 1, 0))) == pytest.approx(-math.log(1 / (1 + math.exp(-1))))
    assert float(bradley_terry(*one(2, 1, 1, 0.5))) == pytest.approx(-math.log(1 / (1 + math.exp(-0.5))))
    assert float(bradley_terry(*one(1, 1, 0.5, 0))) == pytest.approx(math.log(2))


def test_bradley_terry_is_finite_at_a_gap_of_minus_100():
    loss = bradley_terry(*(t.float() for t in one(0, 100, 1, 0)))
    assert float(loss) == pytest.approx(100.0)


def test_bradley_terry_swap_symmetry():
    a = bradley_terry(*one(0.3, 1.1, 0.8, 0.0))
    b = bradley_terry(*one(1.1, 0.3, 0.2, 0.0))
    torch.testing.assert_close(a, b)


def test_dpo_starts_at_log_two():
    assert float(dpo(*one(0, 1), beta=0.1)) == pytest.approx(math.log(2))


def test_dpo_gradient_weight_is_beta_sigmoid_of_minus_margin():
    margin = torch.tensor([1.5], dtype=torch.float64, requires_grad=True)
    dpo(margin, torch.ones(1, dtype=torch.float64), beta=0.3).sum().backward()
    assert float(margin.grad) == pytest.approx(-0.3 / (1 + math.exp(0.3 * 1.5)))


def test_ipo_and_hinge_values():
    assert float(dpo(*one(2, 1), beta=0.1, kind="ipo")) == pytest.approx((2 - 5) ** 2)
    assert float(dpo(*one(2, 1), beta=0.1, kind="hinge")) == pytest.approx(0.8)
    assert float(dpo(*one(2, 0), beta=0.1, kind="hinge")) == pytest.approx(1.2)


@pytest.mark.parametrize("kind", ["sigmoid", "ipo", "hinge"])
def test_gradcheck(kind):
    margin = torch.tensor([0.7, -1.3, 2.1], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([1.0, 0.9, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda m: dpo(m, label, 0.3, kind), (margin,))


def test_sides_are_matched_by_atom_whatever_the_order():
    side, atom = torch.tensor([-1, 1, 1, -1]), torch.tensor([1, 0, 1, 0])
    chosen, rejected = split_sides(torch.tensor([10.0, 20.0, 30.0, 40.0]), side, atom)
    assert (chosen.tolist(), rejected.tolist()) == ([20.0, 30.0], [40.0, 10.0])


def test_a_lonely_side_is_refused():
    with pytest.raises(AssertionError, match="rejected row"):
        split_sides(torch.zeros(2), torch.tensor([1, -1]), torch.tensor([0, 1]))
