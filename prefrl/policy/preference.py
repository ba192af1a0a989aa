"""Losses on completions that were preferred or judged. Pure functions on tensors: rows (R,), pairs (P,), tokens (N,).

What a completion is worth to a policy is its *implicit score*: a log-ratio to the reference, a log-prob or log-odds.
A pair loss looks at the difference of two scores, a prospect loss at one score and a baseline.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

PairLoss = Literal["sigmoid", "squared", "hinge", "prospect"]
ImplicitScore = Literal["log_ratio", "log_prob", "log_odds"]
Divergence = Literal["reverse_kl", "forward_kl", "js", "alpha"]

# exp of more than this overflows float32.
EXP_LIMIT = 80.0


def pair_loss(margin: Tensor, label: Tensor, beta: float, kind: PairLoss = "sigmoid", gamma: float = 0.0) -> Tensor:
    """Loss per pair (P,) of `margin` m = score of the chosen - score of the rejected, p = `label`.

    sigmoid  -p log sigmoid(beta m - gamma) - (1 - p) log sigmoid(-beta m - gamma)
             DPO (arXiv 2305.18290), p < 1 is cDPO; gamma is the target margin of SimPO (arXiv 2405.14734)
    squared  (m - (2p - 1) / (2 beta))^2                                IPO (arXiv 2310.12036)
    hinge    p relu(1 - beta m) + (1 - p) relu(1 + beta m)              SLiC (arXiv 2305.10425)

    Exchanging the two sides, and p for 1 - p, changes none of them.
    """
    assert margin.shape == label.shape and margin.ndim == 1, "margin (P,), label (P,)"
    z = beta * margin
    if kind == "squared":
        return (margin - (2.0 * label - 1.0) / (2.0 * beta)) ** 2
    if kind == "hinge":
        return label * relu(1.0 - z) + (1.0 - label) * relu(1.0 + z)
    assert kind == "sigmoid", "the prospect loss takes single completions"
    return -label * logsigmoid(z - gamma) - (1.0 - label) * logsigmoid(-z - gamma)


def prospect_loss(
    gain: Tensor, good: Tensor, beta: float, *, desirable: float = 1.0, undesirable: float = 1.0
) -> Tensor:
    """`d q (1 - sigmoid(beta g)) + u (1 - q) sigmoid(beta g)`, per completion (R,): KTO (arXiv 2402.01306, equation 8).

    Args:
        gain: (R,) log-ratio to the reference less the baseline z0, g.
        good: (R,) probability q that the completion is a good one.
        desirable: weight d of good completions.
        undesirable: weight u of bad ones.
    """
    assert gain.shape == good.shape and gain.ndim == 1, "gain (R,), good (R,)"
    z = beta * gain
    return desirable * good * torch.sigmoid(-z) + undesirable * (1.0 - good) * torch.sigmoid(z)


def divergence_slope(log_ratio: Tensor, kind: Divergence, alpha: float = 0.5) -> Tensor:
    """f'(pi / ref) less a constant, at `log_ratio` u = log pi - log ref: the score under an f-divergence.

    reverse_kl  u
    forward_kl  1 - e^-u
    js          log 2 + log sigmoid(u)
    alpha       (e^((alpha - 1) u) - 1) / (alpha - 1): reverse_kl at 1, forward_kl at 0

    Each is 0 with slope 1 (js: 1/2) at u = 0 (f-DPO, arXiv 2309.16240).
    """
    if kind == "js":
        return math.log(2.0) + logsigmoid(log_ratio)
    power = {"reverse_kl": 0.0, "forward_kl": -1.0, "alpha": alpha - 1.0}[kind]
    if power == 0.0:
        return log_ratio
    return torch.expm1((power * log_ratio).clamp(max=EXP_LIMIT)) / power


def log_odds(logp: Tensor) -> Tensor:
    """`log(p / (1 - p))` of log-probs, finite up to p = 1 (ORPO, arXiv 2403.07691)."""
    logp = logp.clamp(max=-torch.finfo(logp.dtype).eps)
    far = logp < -math.log(2.0)
    return logp - torch.where(far, torch.log1p(-logp.exp()), torch.log(-torch.expm1(logp)))


def tail_weights(lengths: Tensor, row: Tensor, atom: Tensor, weight: float) -> Tensor:
    """1 on the tokens of a row up to the length of the shorter one of its pair, `weight` after that: (N,).

    Args:
        lengths: (R,) tokens of each row.
        row: (N,) row of each token, non-decreasing.
        atom: (R,) pair of each row.
    """
    names, pair = atom.unique(return_inverse=True)
    shorter = torch.full((len(names),), math.inf, dtype=lengths.dtype, device=lengths.device)
    shorter = shorter.scatter_reduce(0, pair, lengths, "amin")[pair]
    starts = lengths.cumsum(0) - lengths
    place = torch.arange(len(row), device=row.device) - starts[row]
    return torch.where(place < shorter[row], 1.0, weight).to(lengths.dtype)


def split_sides(values: Tensor, side: Tensor, atom: Tensor) -> tuple[Tensor, Tensor]:
    """Per-row values (R,) -> (chosen (P,), rejected (P,)), matched by atom whatever the order of rows."""
    chosen, rejected = (side > 0).nonzero().squeeze(-1), (side < 0).nonzero().squeeze(-1)
    chosen, rejected = chosen[atom[chosen].argsort()], rejected[atom[rejected].argsort()]
    assert torch.equal(atom[chosen], atom[rejected]), "every chosen row needs its rejected row in the batch"
    return values[chosen], values[rejected]
