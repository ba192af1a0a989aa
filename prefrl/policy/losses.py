"""Policy losses on sampled tokens laid end to end. Pure functions; the weights carry advantage and reduction.

All are positively homogeneous in the advantage, so `rl = advantage * weight` may be folded into one stream
and the loss is a sum: no split into micro-batches, padding or row order can change it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from prefrl.types import Batch, Sums

Ratio = Literal["none", "token", "cumulative", "sequence", "sequence_mean"]
Clip = Literal["none", "ppo", "weight"]
Estimator = Literal["k1", "k2", "k3"]


def row_sums(values: Tensor, row: Tensor, rows: int) -> Tensor:
    """Sum of per-token values (N,) over each row: (R,)."""
    assert values.shape == row.shape and values.ndim == 1, "values (N,), row (N,)"
    return values.new_zeros(rows).index_add(0, row, values)


def log_ratio(logps: Tensor, old_logps: Tensor, row: Tensor, rows: int, scope: Ratio) -> Tensor:
    """log of the importance ratio that multiplies each token's advantage, (N,).

    none           0
    token          log pi(a_t) - log mu(a_t)                         PPO, GRPO
    cumulative     its sum over sampled tokens up to and including t CTPO (arXiv 2605.07331)
    sequence       its sum over the row                              full-trajectory ratio
    sequence_mean  its mean over the row                             GSPO (arXiv 2507.18071)
    """
    assert logps.shape == old_logps.shape == row.shape, "logps, old_logps, row all (N,)"
    if scope == "none":
        return torch.zeros_like(logps)
    difference = logps - old_logps
    if scope == "token":
        return difference
    sums = row_sums(difference, row, rows)
    if scope == "sequence":
        return sums[row]
    if scope == "sequence_mean":
        return (sums / row_sums(torch.ones_like(logps), row, rows).clamp(min=1.0))[row]
    running = difference.cumsum(0)
    before = sums.cumsum(0) - sums
    return running - before[row]


def surrogate(log_ratios: Tensor, logps: Tensor, rl: Tensor, clip: Clip, low: float, high: float) -> Tensor:
    """Per-token loss (N,); with token ratios its gradient at ratio 1 is `-rl * grad log pi` for every clip.

    none    -rho * rl, or -log pi * rl where the ratio is constant (REINFORCE)
    ppo     -min(rho * rl, clip(rho, 1 - low, 1 + high) * rl)        PPO (arXiv 1707.06347), DAPO
    weight  -stopgrad(clip(rho, 1 - low, 1 + high)) * rl * log pi    CISPO (arXiv 2506.13585)
    """
    assert log_ratios.shape == logps.shape == rl.shape, "all (N,)"
    if not log_ratios.requires_grad and clip == "none":
        return -rl * logps * log_ratios.exp()
    ratio = log_ratios.exp()
    if clip == "none":
        return -rl * ratio
    bounded = ratio.clamp(1.0 - low, 1.0 + high)
    if clip == "weight":
        return -rl * bounded.detach() * logps
    return -torch.minimum(rl * ratio, rl * bounded)


def kl_estimate(logps: Tensor, ref_logps: Tensor, estimator: Estimator) -> Tensor:
    """Per-token estimate (N,) of KL(pi || ref) on tokens drawn from pi (Schulman, "Approximating KL divergence").

    With u = log ref - log pi: k1 = -u, k2 = u^2 / 2, k3 = e^u - u - 1.
    """
    u = ref_logps - logps
    if estimator == "k1":
        return -u
    if estimator == "k2":
        return 0.5 * u * u
    return u.exp() - u - 1.0


def kl_loss(batch: Batch, estimator: Estimator) -> Tensor:
    """KL to the reference as a loss whose gradient is that of the true KL, per token (N,).

    As a plain loss k1 has zero expected gradient and k3's is biased; weighting both by the importance ratio
    to the sampling policy makes them exact (k2 is exact as it is).
    """
    estimate = kl_estimate(batch.logps, batch.streams["ref_logps"], estimator)
    if estimator == "k2":
        return estimate
    return (batch.logps - batch.streams["old_logps"]).exp() * estimate


def clip_metrics(log_ratios: Tensor, rl: Tensor, low: float, high: float) -> Sums:
    """Fractions of tokens whose gradient the bound removes, the largest ratio, and sampler-learner KL (k1)."""
    with torch.no_grad():
        ratio, count = log_ratios.exp(), torch.tensor(float(len(rl)), device=rl.device)
        return {
            "clip/low": (((ratio < 1.0 - low) & (rl < 0)).sum().float(), count),
            "clip/high": (((ratio > 1.0 + high) & (rl > 0)).sum().float(), count),
            "ratio/max": (ratio.max() if len(ratio) else count, count),
        }


def cross_entropy(batch: Batch) -> Tensor:
    """`-ce * log pi`, per token (N,): supervised fine-tuning, rejection sampling."""
    return -batch.streams["ce"] * batch.logps
