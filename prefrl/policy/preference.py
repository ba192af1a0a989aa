"""Losses on pairs of completions. Pure functions; every one takes (P,) tensors, one entry per pair."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

PairLoss = Literal["sigmoid", "ipo", "hinge"]


def bradley_terry(chosen: Tensor, rejected: Tensor, label: Tensor, margin: Tensor) -> Tensor:
    """`-p log sigmoid(z - m) - (1 - p) log sigmoid(-z - m)`, z = chosen - rejected, per pair (P,).

    p = `label` is the probability that `chosen` is the better one: 1 is the plain loss, 1 - e is label
    smoothing by e, a vote share is a soft target. Finite for any gap (Bradley and Terry, 1952).
    """
    assert chosen.shape == rejected.shape == label.shape == margin.shape, "all (P,)"
    gap = chosen - rejected
    return -label * logsigmoid(gap - margin) - (1.0 - label) * logsigmoid(-gap - margin)


def dpo(margin: Tensor, label: Tensor, beta: float, kind: PairLoss = "sigmoid") -> Tensor:
    """Direct preference optimization, per pair (P,).

    With `margin` = (log pi_w - log ref_w) - (log pi_l - log ref_l), summed over each completion's tokens:

    sigmoid  -p log sigmoid(beta * margin) - (1 - p) log sigmoid(-beta * margin)   DPO (arXiv 2305.18290); p < 1 is cDPO
    ipo      (margin - (2p - 1) / (2 beta))^2                                      IPO (arXiv 2310.12036)
    hinge    p relu(1 - beta * margin) + (1 - p) relu(1 + beta * margin)           SLiC (arXiv 2305.10425)
    """
    assert margin.shape == label.shape and margin.ndim == 1, "margin (P,), label (P,)"
    if kind == "ipo":
        return (margin - (2.0 * label - 1.0) / (2.0 * beta)) ** 2
    z = beta * margin
    if kind == "hinge":
        return label * relu(1.0 - z) + (1.0 - label) * relu(1.0 + z)
    return -label * logsigmoid(z) - (1.0 - label) * logsigmoid(-z)


def split_sides(values: Tensor, side: Tensor, atom: Tensor) -> tuple[Tensor, Tensor]:
    """Per-row values (R,) -> (chosen (P,), rejected (P,)), matched by atom whatever the order of rows."""
    chosen, rejected = (side > 0).nonzero().squeeze(-1), (side < 0).nonzero().squeeze(-1)
    chosen, rejected = chosen[atom[chosen].argsort()], rejected[atom[rejected].argsort()]
    assert torch.equal(atom[chosen], atom[rejected]), "every chosen row needs its rejected row in the batch"
    return values[chosen], values[rejected]
