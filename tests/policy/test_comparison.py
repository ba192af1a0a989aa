from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch

from prefrl.policy.comparison import bradley_terry, davidson, plackett_luce, rao_kupper, soft_outcome

TIE_MODELS = [rao_kupper, davidson]
GAPS = torch.tensor([-100.0, -3.0, -0.2, 0.0, 1.5, 100.0], dtype=torch.float64)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


# Bradley-Terry. --------------------------------------------------------------------------------------------------


def test_bradley_terry_values():
    def loss(*values):
        return float(bradley_terry(*(numbers(value) for value in values)))

    assert loss(2, 1, 1, 0) == pytest.approx(-math.log(sigmoid(1)), abs=1e-12)
    assert loss(2, 1, 1, 0.5) == pytest.approx(-math.log(sigmoid(0.5)), abs=1e-12)
    assert loss(1, 1, 0.5, 0) == pytest.approx(math.log(2), abs=1e-12)
    assert loss(2, 1, 0.7, 0.5) == pytest.approx(-0.7 * math.log(sigmoid(0.5)) - 0.3 * math.log(sigmoid(-1.5)))


def test_bradley_terry_is_finite_at_a_gap_of_minus_100():
    loss = bradley_terry(*(torch.tensor([value]) for value in (0.0, 100.0, 1.0, 0.0)))
    assert float(loss) == pytest.approx(100.0)


def test_sides_can_be_exchanged():
    a = bradley_terry(numbers(0.3), numbers(1.1), numbers(0.8), numbers(0.4))
    b = bradley_terry(numbers(1.1), numbers(0.3), numbers(0.2), numbers(0.4))
    torch.testing.assert_close(a, b)


def test_every_head_has_its_own_loss():
    heads = numbers([2.0, 0.5], [1.0, -1.0]), numbers([1.0, 1.0], [0.0, 3.0])
    said = numbers(1.0, 0.3), numbers(0.0, 0.5)
    both = bradley_terry(*heads, *said)
    assert both.shape == (2, 2)
    for k in range(2):
        torch.testing.assert_close(both[:, k], bradley_terry(heads[0][:, k], heads[1][:, k], *said))


# Ties. -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0.1, 0.7, 3.0])
@pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (1.2, -0.4), (-2.0, 1.0)])
def test_rao_kupper_is_its_definition(a, b, eta):
    x, y, theta = math.exp(a), math.exp(b), math.exp(eta)
    wanted = (
        x / (x + theta * y),
        y / (y + theta * x),
        (theta**2 - 1) * x * y / ((x + theta * y) * (y + theta * x)),
    )
    found = rao_kupper(numbers(a - b), numbers(eta))
    assert [float(p.exp()) for p in found] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("nu", [0.1, 0.7, 3.0])
@pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (1.2, -0.4), (-2.0, 1.0)])
def test_davidson_is_its_definition(a, b, nu):
    x, y, tie = math.exp(a), math.exp(b), nu * math.exp((a + b) / 2)
    found = davidson(numbers(a - b), numbers(nu))
    assert [float(p.exp()) for p in found] == pytest.approx([v / (x + y + tie) for v in (x, y, tie)], abs=1e-12)


@pytest.mark.parametrize("model", TIE_MODELS)
@pytest.mark.parametrize("parameter", [0.0, 1e-300, 1e-9, 0.5, 20.0, 400.0])
def test_outcomes_sum_to_one_and_are_finite(model, parameter):
    outcomes = torch.stack(model(GAPS, numbers(parameter).squeeze()))
    assert bool(outcomes.isfinite().all())
    torch.testing.assert_close(outcomes.exp().sum(0), torch.ones_like(GAPS), rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", TIE_MODELS)
@pytest.mark.parametrize("parameter", [0.0, 1e-30, 0.5, 40.0])
def test_single_precision_and_gradients_stay_finite(model, parameter):
    gap, tie = GAPS.float().requires_grad_(), torch.tensor(parameter, requires_grad=True)
    outcomes = torch.stack(model(gap, tie))
    for outcome in outcomes:
        for gradient in torch.autograd.grad(outcome.sum(), (gap, tie), retain_graph=True):
            assert bool(gradient.isfinite().all())
    assert bool(outcomes.isfinite().all())


@pytest.mark.parametrize("model", TIE_MODELS)
def test_without_ties_it_is_bradley_terry(model):
    win, loss, tie = model(GAPS, numbers(0.0).squeeze())
    zero, one = torch.zeros_like(GAPS), torch.ones_like(GAPS)
    torch.testing.assert_close(-win, bradley_terry(GAPS, zero, one, zero), rtol=0, atol=1e-12)
    torch.testing.assert_close(-loss, bradley_terry(GAPS, zero, zero, zero), rtol=0, atol=1e-12)
    assert float(tie.exp().max()) < 1e-300


@pytest.mark.parametrize("model", TIE_MODELS)
def test_exchanged_sides_exchange_win_and_loss(model):
    forth, back = model(GAPS, numbers(0.6).squeeze()), model(-GAPS, numbers(0.6).squeeze())
    for a, b in zip(forth, (back[1], back[0], back[2]), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("model", TIE_MODELS)
def test_gradients_of_outcomes(model):
    gap, parameter = numbers([0.7, -1.3], [2.1, 0.0]).requires_grad_(), numbers(0.4).squeeze().requires_grad_()
    assert torch.autograd.gradcheck(lambda g, p: torch.stack(model(g, p)), (gap, parameter))


def test_soft_outcome():
    logs = numbers(0.5).log(), numbers(0.2).log(), numbers(0.3).log()
    loss = soft_outcome(logs, numbers(0.75), numbers(0.4))
    assert float(loss) == pytest.approx(
        -0.6 * 0.75 * math.log(0.5) - 0.6 * 0.25 * math.log(0.2) - 0.4 * math.log(0.3), abs=1e-12
    )


# Ranked lists. ---------------------------------------------------------------------------------------------------


def by_hand(scores, ranks):
    """Log-likelihood with Efron's ties, stage by stage."""
    total = 0.0
    for rank in sorted(set(ranks)):
        tied = [math.exp(s) for s, r in zip(scores, ranks, strict=True) if r == rank]
        worse = sum(math.exp(s) for s, r in zip(scores, ranks, strict=True) if r > rank)
        for taken, one in enumerate(tied):
            total += math.log(one) - math.log(worse + (1 - taken / len(tied)) * sum(tied))
    return total


@pytest.mark.parametrize("ranks", [(1, 2, 3, 4), (3, 1, 4, 2), (1, 1, 2, 3), (2, 1, 2, 2), (1, 1, 1, 1), (2, 1, 1, 2)])
def test_plackett_luce_is_its_definition(ranks):
    scores = (0.3, -1.2, 2.0, 0.7)
    found = plackett_luce(numbers([*scores]), torch.tensor([ranks]))
    assert found.tolist() == pytest.approx([by_hand(scores, ranks)], abs=1e-12)


def test_all_orders_are_one_of_them():
    orders = torch.tensor(list(permutations((1, 2, 3, 4))))
    scores = numbers([0.3, -1.2, 2.0, 0.7]).expand(len(orders), 4)
    assert float(plackett_luce(scores, orders).exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_two_items_are_bradley_terry():
    scores = numbers([1.3, -0.4], [0.2, 100.0])
    found = plackett_luce(scores, torch.tensor([[1, 2], [1, 2]]))
    said = numbers(1.0, 1.0), numbers(0.0, 0.0)
    torch.testing.assert_close(-found, bradley_terry(scores[:, 0], scores[:, 1], *said), rtol=0, atol=1e-12)


def test_ties_in_a_list_by_hand():
    # Both tied items are first: e / (e + 1 + 1/e) and, with half of each still there, 1 / ((e + 1) / 2 + 1/e).
    e = math.e
    wanted = math.log(e / (e + 1 + 1 / e)) + math.log(1 / ((e + 1) / 2 + 1 / e))
    assert plackett_luce(numbers([1.0, 0.0, -1.0]), torch.tensor([[1, 1, 2]])).tolist() == pytest.approx([wanted])
    # Tied alone: the two want to be level, and nothing else.
    level = numbers([0.0, 0.0]).requires_grad_()
    plackett_luce(level, torch.tensor([[1, 1]])).sum().backward()
    assert level.grad.tolist() == [[0.0, 0.0]]


def test_shorter_lists_are_padded_and_heads_are_apart():
    scores = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ranks = torch.tensor([[2, 1, 3, 1], [1, 2, 0, 0]])
    found = plackett_luce(scores, ranks)
    assert found.shape == (2, 3)
    for k in range(3):
        assert found[0, k].item() == pytest.approx(by_hand(scores[0, :, k].tolist(), ranks[0].tolist()), abs=1e-12)
        assert found[1, k].item() == pytest.approx(by_hand(scores[1, :2, k].tolist(), [1, 2]), abs=1e-12)


@pytest.mark.parametrize("heads", [(), (2,)])
def test_gradients_of_ranked_lists(heads):
    scores = torch.randn(2, 3, *heads, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    ranks = torch.tensor([[2, 1, 2], [1, 2, 0]])
    assert torch.autograd.gradcheck(lambda s: plackett_luce(s, ranks), (scores,))
