"""How scores explain judgements: log-probabilities of wins, losses, ties and rankings. Pure functions on tensors.

Scores and gaps are (P,), one entry per comparison, or (P, K) for K reward models at once; what people said is (P,).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

# Log-probabilities that the first wins, that it loses, and that the two tie.
Outcome = tuple[Tensor, Tensor, Tensor]


def bradley_terry(chosen: Tensor, rejected: Tensor, label: Tensor, margin: Tensor) -> Tensor:
    """`-p log sigmoid(z - m) - (1 - p) log sigmoid(-z - m)`, z = chosen - rejected, per pair.

    p = `label` is the probability that `chosen` is the better one: 1 is the plain loss, 1 - e is label
    smoothing by e, a vote share is a soft target. Finite for any gap (Bradley and Terry, 1952).
    """
    assert chosen.shape == rejected.shape and len(chosen) == len(label) == len(margin), "(P,) or (P, K), and (P,)"
    gap, label, margin = chosen - rejected, beside(label, chosen), beside(margin, chosen)
    return -label * logsigmoid(gap - margin) - (1.0 - label) * logsigmoid(-gap - margin)


def rao_kupper(gap: Tensor, eta: Tensor) -> Outcome:
    """Scores nearer than about `eta` >= 0 cannot be told apart (Rao and Kupper, 1967, theta = exp(eta)).

        P(win) = sigmoid(z - eta)    P(loss) = sigmoid(-z - eta)    P(tie) = (exp(2 eta) - 1) P(win) P(loss)

    eta = 0 is Bradley-Terry; there log P(tie) is the smallest finite logarithm instead of -inf.
    """
    win, loss = logsigmoid(gap - eta), logsigmoid(-gap - eta)
    # log(exp(2 eta) - 1), which for a large eta would overflow.
    factor = 2.0 * eta + _log(-torch.expm1(-2.0 * eta))
    return win, loss, win + loss + factor


def davidson(gap: Tensor, nu: Tensor) -> Outcome:
    """Ties are `nu` >= 0 times as likely as the geometric mean of win and loss (Davidson, 1970).

        P(win) = exp(z / 2) / D    P(loss) = exp(-z / 2) / D    P(tie) = nu / D    D = exp(z / 2) + exp(-z / 2) + nu

    nu = 0 is Bradley-Terry; there log P(tie) is near the smallest finite logarithm instead of -inf.
    """
    half, tie = gap / 2.0, _log(nu).expand_as(gap)
    outcomes = torch.stack([half, -half, tie]).log_softmax(0)
    return outcomes[0], outcomes[1], outcomes[2]


def soft_outcome(outcome: Outcome, label: Tensor, tie: Tensor) -> Tensor:
    """Cross-entropy per comparison where a tie has probability `tie`, and a win probability `label` of the rest."""
    win, loss, tied = outcome
    label, tie = beside(label, win), beside(tie, win)
    return -(1.0 - tie) * (label * win + (1.0 - label) * loss) - tie * tied


def plackett_luce(scores: Tensor, ranks: Tensor) -> Tensor:
    """Log-probability of ranked lists, (L,) or (L, K): the best is chosen from all, the next from those that remain.

    The d items of one rank are ties by Efron's approximation: all d are taken from the remaining ones, and the i-th
    of them (from 0) finds each of the d only to the share 1 - i / d still there. (Breslow's would leave them all.) The
    order within a rank never matters. Two items of different rank are Bradley-Terry (Plackett, 1975; Luce, 1959;
    Efron, 1977).

    Args:
        scores: (L, n) or (L, n, K); anything finite where a list has fewer than n items.
        ranks: (L, n), 1 the best; 0 where a list has fewer than n items.
    """
    assert ranks.shape == scores.shape[:2], "scores (L, n) or (L, n, K), ranks (L, n)"
    there = ranks > 0
    tied = (ranks[:, :, None] == ranks[:, None, :]) & there[:, :, None]
    count = tied.sum(-1).to(scores.dtype)
    earlier = tied.tril(-1).sum(-1).to(scores.dtype)
    left = torch.where(tied, (1.0 - earlier / count.clamp_min(1.0))[:, :, None], 0.0)
    left = left + (ranks[:, None, :] > ranks[:, :, None]).to(scores.dtype)
    # What is gone weighs exp(-inf) = 0. In the rows of items that are not there nothing would be left to normalise by.
    weight = torch.where(there[:, :, None], left.log(), 0.0)
    if scores.ndim == 2:
        remaining = (scores[:, None, :] + weight).logsumexp(2)
    else:
        remaining = (scores[:, None] + weight[..., None]).logsumexp(2)
    return torch.where(beside(there, scores), scores - remaining, 0.0).sum(1)


def beside(column: Tensor, scores: Tensor) -> Tensor:
    """The column with as many dimensions as `scores`, so that the two can be multiplied."""
    return column.reshape(*column.shape, *(1,) * (scores.ndim - column.ndim))


def _log(x: Tensor) -> Tensor:
    """Logarithm of x >= 0, finite at 0."""
    return x.clamp_min(torch.finfo(x.dtype).tiny).log()
