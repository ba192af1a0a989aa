"""Losses of steps against a float64 reference, and the faults that trainers of such models have had."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from prefrl.policy.step_losses import step_loss, step_objective, step_weights
from prefrl.types import Batch

ODDS = torch.tensor([-2.0, -0.3, 0.0, 1.5, 30.0, -30.0], dtype=torch.float64)
LABELS = torch.tensor([0.0, 0.75, 0.5, 1.0, 1.0, 0.25], dtype=torch.float64)
NAN = math.nan


def batch(odds, labels, weights):
    columns = ("side", "atom", "label", "margin", "weight", "tie", "annotator", "rank")
    streams = {"labels": torch.as_tensor(labels, dtype=odds.dtype), "ce": torch.as_tensor(weights, dtype=odds.dtype)}
    return Batch(
        outputs=odds,
        row=torch.zeros(len(odds), dtype=torch.long),
        streams=streams,
        **dict.fromkeys(columns, torch.zeros(1)),
    )


def test_bce_is_the_cross_entropy_with_soft_labels():
    p = ODDS.sigmoid()
    wanted = -LABELS * p.log() - (1 - LABELS) * (1 - p).log()
    torch.testing.assert_close(step_loss(ODDS, LABELS), wanted, atol=1e-9, rtol=1e-9)
    assert float(step_loss(torch.tensor([200.0]), torch.tensor([0.0]))) == 200.0  # no overflow, no clipping


def test_it_is_the_two_class_cross_entropy_of_the_difference():
    logits = torch.tensor([[0.3, -0.9], [2.0, 2.5], [-1.0, 4.0]], dtype=torch.float64)
    y = torch.tensor([0.0, 0.75, 1.0], dtype=torch.float64)
    wanted = cross_entropy(logits, torch.stack([1 - y, y], 1), reduction="none")
    torch.testing.assert_close(step_loss(logits[:, 1] - logits[:, 0], y), wanted)


def test_binomial_is_n_times_the_cross_entropy_with_the_share():
    targets, weights = step_weights([0.25, 1.0], [(2, 8), (3, 4)], "binomial")
    assert (targets, weights) == ([0.25, 0.75], [8.0, 4.0])
    odds = torch.tensor([0.4, -1.1], dtype=torch.float64)
    p = odds.sigmoid()
    k, n = torch.tensor([2.0, 3.0]), torch.tensor([8.0, 4.0])
    wanted = -(k * p.log() + (n - k) * (1 - p).log()).sum()
    loss, _ = step_objective(batch(odds, targets, weights), "binomial")
    assert float(loss) == pytest.approx(float(wanted))


def test_without_counts_binomial_counts_a_label_once_and_bce_ignores_counts():
    assert step_weights([1.0, None], [None, (1, 8)], "binomial")[1] == [1.0, 0.0]
    assert step_weights([1.0, 0.25], [None, (2, 8)], "bce")[1] == [1.0, 1.0]
    assert step_weights([1.0, 0.5], [], "bce") == ([1.0, 0.5], [1.0, 1.0])


@pytest.mark.parametrize(("kind", "lowest"), [("mse", 0.21), ("bce", 0.610864)])
def test_ten_labels_with_three_ones_are_lowest_at_three_tenths(kind, lowest):
    labels = torch.tensor([1.0] * 3 + [0.0] * 7, dtype=torch.float64)

    def mean(p):
        return float(step_loss(torch.full((10,), math.log(p / (1 - p)), dtype=torch.float64), labels, kind).mean())

    assert mean(0.3) == pytest.approx(lowest, abs=1e-6)
    assert min((mean(p / 100), p / 100) for p in range(1, 100))[1] == 0.3
    if kind == "mse":
        assert mean(0.6) == pytest.approx(0.30)


@pytest.mark.parametrize("kind", ["bce", "mse"])
def test_descent_finds_it(kind):
    odds = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1.0] * 3 + [0.0] * 7, dtype=torch.float64)
    optimizer = torch.optim.LBFGS([odds], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = step_loss(odds.expand(10), labels, kind).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert float(odds.detach().sigmoid()) == pytest.approx(0.3, abs=1e-5)


@pytest.mark.parametrize("kind", ["bce", "mse", "binomial"])
@pytest.mark.parametrize("odds", [0.7, math.inf, math.nan])
def test_an_ignored_step_has_exactly_no_gradient_whatever_its_score(kind, odds):
    leaf = torch.tensor([0.2, odds, -0.4], requires_grad=True)
    loss, sums = step_objective(batch(leaf, [1.0, NAN, 0.0], [0.5, 0.0, 0.5]), kind)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert leaf.grad[1] == 0.0 and leaf.grad[0] != 0.0 and leaf.grad[2] != 0.0
    assert int(sums["nll"][1]) == 2


def test_labels_keep_their_value_through_every_step():
    """int(.75) is 0 and bool(-100) is True: either turns a label into another one."""
    targets, weights = step_weights([0.75, None, 1.0, 0.0], [], "bce")
    assert targets[0] == 0.75 and math.isnan(targets[1]) and targets[2:] == [1.0, 0.0]
    assert weights == [1.0, 0.0, 1.0, 1.0]
    gradient = torch.autograd.functional.jacobian(
        lambda x: step_loss(x, torch.tensor([0.75])).sum(), torch.tensor([0.0])
    )
    assert float(gradient) == pytest.approx(0.5 - 0.75)


def test_metrics_are_of_labelled_and_decided_steps():
    odds = torch.tensor([1.0, -1.0, 1.0, 2.0])
    _, sums = step_objective(batch(odds, [1.0, 1.0, 0.5, NAN], [1.0, 1.0, 1.0, 0.0]), "bce")
    values = {name: float(value) / float(count) for name, (value, count) in sums.items()}
    assert values["steps/accuracy"] == 0.5
    assert values["steps/label"] == pytest.approx(2.5 / 3)
    assert values["steps/probability"] == pytest.approx((0.731059 + 0.268941 + 0.731059) / 3, abs=1e-5)
