"""A preference for long answers, and three ways to take it out. Pure functions on tensors.

Everything is measured within pairs and ranked lists: of scores and lengths (R,) of rows, the deviations from the means
of their atom count. A preference loss sees nothing else, and what prompts differ in cannot hide there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

STRATA, PAIRS_A_STRATUM = 10, 20


def within(values: Tensor, atom: Tensor) -> Tensor:
    """Deviations of `values` (R,) or (R, K) from the mean over the rows of the same atom (R,)."""
    _, place = atom.unique(return_inverse=True)
    count = torch.zeros(int(place.max()) + 1, dtype=values.dtype, device=values.device)
    count = count.index_add(0, place, torch.ones_like(place, dtype=values.dtype))
    sums = values.new_zeros(len(count), *values.shape[1:]).index_add(0, place, values)
    return values - (sums / count.reshape(-1, *(1,) * (values.ndim - 1)))[place]


def squared_correlation(
    scores: Tensor, lengths: Tensor, atom: Tensor, total_of: Callable[[Tensor], Tensor] = lambda local: local
) -> tuple[Tensor, Tensor]:
    """Squared correlation of score and length within atoms (K,), and its exact gradient by the scores (R, K).

    With the deviations s and l: c = (s.l)^2 / (s.s l.l), dc/ds = 2 (s.l) / (s.s l.l) l - 2 c / (s.s) s. Both are 0
    where scores or lengths do not vary. The gradient is orthogonal to the scores: c knows no scale.

    Args:
        scores: (R, K) of K heads.
        lengths: (R,), in any unit.
        atom: (R,), the pair or list of each row.
        total_of: sum of a tensor over all processes, where each has some of the atoms; see `Engine.total`.
    """
    s, ell = within(scores.double(), atom), within(lengths.double(), atom)[:, None]
    sums = torch.stack([(s * ell).sum(0), (s * s).sum(0), (ell * ell).sum(0).expand(s.shape[1])])
    both, own, others = total_of(sums)
    varies = (own > 0) & (others > 0)
    own, others = torch.where(varies, own, 1.0), torch.where(varies, others, 1.0)
    value = torch.where(varies, both**2 / (own * others), 0.0)
    gradient = 2.0 * both / (own * others) * ell - 2.0 * value / own * s
    return value, torch.where(varies, gradient, 0.0).to(scores.dtype)


def matching_weights(gaps: Tensor, weight: Tensor) -> Tensor:
    """Factors (P,) on the weights of pairs by which the longer side wins as often as it loses.

    Pairs are sorted into strata of alike |gap|, ten of them or as many as leave 20 pairs each. In every stratum the
    pairs whose preferred side is longer and those whose preferred side is shorter are made to weigh half of it each.
    Where one of the two is missing nothing can be balanced: the factor is 0. Pairs of equal lengths keep theirs.

    Args:
        gaps: (P,), length of the preferred side minus that of the other.
        weight: (P,) of the pairs.
    """
    factors = torch.ones_like(weight)
    unequal = (gaps != 0).nonzero().squeeze(-1)
    strata = max(1, min(STRATA, len(unequal) // PAIRS_A_STRATUM))
    for at in unequal[gaps[unequal].abs().argsort(stable=True)].tensor_split(strata):
        longer = gaps[at] > 0
        sums = weight[at[longer]].sum(), weight[at[~longer]].sum()
        balanced = bool(sums[0] > 0) and bool(sums[1] > 0)
        half = (sums[0] + sums[1]) / 2
        factors[at] = torch.where(longer, half / sums[0], half / sums[1]) if balanced else 0.0
    return factors


def length_slope(scores: Tensor, lengths: Tensor, atom: Tensor) -> float:
    """Score per unit of length, by least squares on the differences within atoms; 0 where lengths do not vary."""
    s, ell = within(scores.double(), atom), within(lengths.double(), atom)
    spread = float((ell * ell).sum())
    return float((s * ell).sum()) / spread if spread > 0 else 0.0
