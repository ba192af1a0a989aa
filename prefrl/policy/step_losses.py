"""Losses on the log-odds of steps. Pure functions; a step without a label has exactly zero gradient.

    bce       -y log p - (1 - y) log(1 - p), for hard and soft labels alike
    binomial  -k log p - (N - k) log(1 - p): k of N continuations were right, so a step counts as often as it was tried
    mse       (p - y)^2, the loss of a critic

The two-class cross-entropy of logits (a, b) is `bce` of the log-odds b - a, so it has no name of its own. All three
are lowest at the mean of the labels: ten labels with three 1s want p = .3, where the mean of mse is .21 and that of bce
is .611, the entropy. A label is a float: cast to int, .75 would be a 0, and to bool an ignored -100 a 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from prefrl.types import Batch, Sums

StepLoss = Literal["bce", "binomial", "mse"]


def step_loss(log_odds: Tensor, labels: Tensor, kind: StepLoss = "bce") -> Tensor:
    """Loss of each step (N,) for one observation; exactly 0, and without gradient, where the label is NaN.

    `binomial` is the same as `bce` here: how often a step was tried is its weight.

    Args:
        log_odds: (N,) of P(step is fine).
        labels: (N,) in [0, 1]; NaN is ignored.
    """
    assert log_odds.shape == labels.shape, "one label a step"
    known = ~labels.isnan()
    # Both are replaced before the loss is computed: what `where` throws away afterwards still has a NaN gradient.
    odds, target = torch.where(known, log_odds, 0.0), torch.where(known, labels, 0.0)
    losses = (odds.sigmoid() - target) ** 2 if kind == "mse" else softplus(odds) - target * odds
    return torch.where(known, losses, 0.0)


def step_weights(
    labels: Sequence[float | None], counts: Sequence[tuple[int, int] | None], kind: StepLoss
) -> tuple[list[float], list[float]]:
    """Label and weight of every step, before the weights are divided by their sum.

    `binomial` takes the label k / N and the weight N where a step was tried, and the label as one observation where
    somebody judged it instead. An ignored step has the label NaN and the weight 0, whatever else is known of it.
    """
    targets, weights = [], []
    for label, count in zip(labels, counts or (None,) * len(labels), strict=True):
        tried = count if kind == "binomial" and label is not None else None
        targets.append(math.nan if label is None else tried[0] / tried[1] if tried else float(label))
        weights.append(0.0 if label is None else float(tried[1]) if tried else 1.0)
    return targets, weights


def step_objective(batch: Batch, kind: StepLoss) -> tuple[Tensor, Sums]:
    """Sum of the losses of steps times the stream `ce`, against the stream `labels`; and metrics of labelled steps.

    Metrics: `nll`, unweighted; of steps, the `accuracy` at 1/2 where the label is not 1/2, and the mean `probability`
    and `label`.
    """
    labels, weights = batch.streams["labels"], batch.streams["ce"]
    loss = (weights * step_loss(batch.outputs, labels, kind)).sum()
    known = ~labels.isnan()
    odds, target = batch.outputs.detach()[known], labels[known]
    count, decided = known.sum(), target != 0.5
    right = ((odds > 0) == (target > 0.5)) & decided
    return loss, {
        "nll": (step_loss(odds, target).sum(), count),
        "steps/accuracy": (right.sum(), decided.sum()),
        "steps/probability": (odds.sigmoid().sum(), count),
        "steps/label": (target.sum(), count),
    }
