"""Guided cost learning on tensors: the partition function of p(x) = q0(x) exp(r(x)) / Z by importance sampling.

Shapes everywhere: samples along the last dimension; any dimensions before it are contexts (prompts, start states), each
with a partition function of its own.

    returns     (..., M) learned return r of samples from a proposal q, divided by the temperature beta
    log_ratios  (..., M) log q(x) - log q0(x): how much likelier the proposal makes the sample than the base measure;
                with the policy as proposal, its log-ratio to the reference, or its log-prob where q0 is uniform
    expert      (..., N) learned return of demonstrations, divided by beta

Finn, Levine, Abbeel (2016), Guided Cost Learning, arXiv:1603.00448.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

LOW_SHARE = 0.1  # of effective samples, under which the estimate says little


class FewEffectiveSamples(UserWarning):
    """A few samples carry the whole gradient of the partition function."""


def importance_weights(returns: Tensor, log_ratios: Tensor) -> Tensor:
    """Self-normalised weights w = softmax(r - log q/q0) (..., M), detached.

    They must not carry gradient: the gradient of logZ is sum w dr with w held, and one through w is another quantity.
    """
    return (returns - log_ratios).detach().softmax(-1)


def log_partition(returns: Tensor, log_ratios: Tensor) -> Tensor:
    """log Z (...) = log E_q0 exp(r), estimated as logsumexp(r - log q/q0) - log M."""
    return (returns - log_ratios).logsumexp(-1) - math.log(returns.shape[-1])


def weighted_loss(expert: Tensor, returns: Tensor, log_ratios: Tensor) -> Tensor:
    """-(mean r_expert - sum w r) with detached weights, a mean over contexts; its value is not a likelihood."""
    return ((importance_weights(returns, log_ratios) * returns).sum(-1) - expert.mean(-1)).mean()


def likelihood_loss(expert: Tensor, returns: Tensor, log_ratios: Tensor) -> Tensor:
    """-mean r_expert + log Z, the negative log-likelihood per demonstration; the same gradient as `weighted_loss`."""
    return (log_partition(returns, log_ratios) - expert.mean(-1)).mean()


def unweighted_loss(expert: Tensor, returns: Tensor) -> Tensor:
    """-(mean r_expert - mean r): right only where the proposal is the soft-optimal policy itself."""
    return (returns.mean(-1) - expert.mean(-1)).mean()


def effective_sample_size(weights: Tensor) -> Tensor:
    """(sum w)^2 / sum w^2 (...): M for equal weights, 1 when one sample has them all."""
    return weights.sum(-1).square() / weights.square().sum(-1)


def effective_share(weights: Tensor) -> float:
    """Effective samples per sample in (0, 1], the mean over contexts; warns under 10 %."""
    share = float((effective_sample_size(weights) / weights.shape[-1]).mean())
    if share < LOW_SHARE:  # the text is always the same, so that Python shows it once
        warnings.warn(
            f"Fewer than {LOW_SHARE:.0%} of the samples are effective: a few carry the whole gradient of the reward. "
            "Improve the policy more between reward updates, mix demonstrations into the samples, or raise the "
            "temperature.",
            FewEffectiveSamples,
            stacklevel=2,
        )
    return share


def mixture_log_ratios(log_ratios: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """log of sum_k share_k q_k / q0: of samples that came from several proposals, each judged under all of them.

    Args:
        log_ratios: one tensor (..., M) a proposal, of the same samples.
        shares: which part of the samples each proposal made; they are normalised.
    """
    weights = torch.tensor(list(shares), dtype=log_ratios[0].dtype, device=log_ratios[0].device)
    stacked = torch.stack(list(log_ratios), -1) + (weights / weights.sum()).log()
    return stacked.logsumexp(-1)
