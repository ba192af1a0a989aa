"""Policy and value losses on sampled tokens laid end to end. Pure functions; weights carry advantage and reduction.

All policy losses are positively homogeneous in the advantage, so `rl = advantage * weight` may be folded into one
stream and the loss is a sum: no split into micro-batches, padding or row order can change it.

Whatever its scope, an importance ratio is a number that multiplies the gradient of *its own token's* log-prob.
That is the policy gradient's form: an advantage at t is weighed by how likely its history (and action) is now, and
moves the probability of the action at t. It is also what makes every scope legal with every reduction and with step
credit. For the length-normalised sequence ratio it is GSPO-token (arXiv 2507.18071, section 4.3), equal to GSPO
where the advantage is the same on all tokens; for the cumulative one it is how CTPO is trained.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from prefrl.types import Batch, Sums

Ratio = Literal["none", "token", "cumulative", "sequence", "sequence_mean"]
Clip = Literal["none", "min", "weight"]
Bounds = Literal["ratio", "sqrt_log"]
Estimator = Literal["k1", "k2", "k3"]

# exp of more than this overflows float32, and 0 * inf in the gradient of a clipped token would be NaN.
LOG_RATIO_LIMIT = 80.0


def row_sums(values: Tensor, row: Tensor, rows: int) -> Tensor:
    """Sum of per-token values (N,) over each row: (R,)."""
    assert values.shape == row.shape and values.ndim == 1, "values (N,), row (N,)"
    return values.new_zeros(rows).index_add(0, row, values)


def _running(values: Tensor, row: Tensor, rows: int) -> Tensor:
    """Sum of per-token values (N,) over the row up to and including each token: (N,)."""
    # In float32 the sums of earlier rows would leave their rounding in this one's; some devices have nothing wider.
    wide = values if values.device.type == "mps" else values.double()
    sums = row_sums(wide, row, rows)
    return (wide.cumsum(0) - (sums.cumsum(0) - sums)[row]).to(values.dtype)


def log_ratio(logps: Tensor, old_logps: Tensor, row: Tensor, rows: int, scope: Ratio) -> Tensor:
    """log of the importance ratio that multiplies each token's advantage, (N,); its gradient is that of `logps`.

    none           0
    token          log pi(a_t) - log mu(a_t)                         PPO, GRPO
    cumulative     its sum over sampled tokens up to and including t CTPO (arXiv 2605.07331)
    sequence       its sum over the row                              full-trajectory ratio
    sequence_mean  its mean over the row                             GSPO (arXiv 2507.18071)
    """
    assert logps.shape == old_logps.shape == row.shape, "logps, old_logps, row all (N,)"
    own = logps - logps.detach()
    difference = logps.detach() - old_logps
    if scope == "none":
        return own
    if scope == "token":
        return difference + own
    if scope == "cumulative":
        return _running(difference, row, rows) + own
    sums = row_sums(difference, row, rows)
    if scope == "sequence_mean":
        sums = sums / row_sums(torch.ones_like(difference), row, rows).clamp(min=1.0)
    return sums[row] + own


def log_bounds(
    log_ratios: Tensor, row: Tensor, rows: int, *, low: float, high: float, space: Bounds
) -> tuple[Tensor, Tensor]:
    """Bounds of the log-ratios (N,) at every token, (N,) each.

    ratio     log(1 - low), log(1 + high)
    sqrt_log  -low sqrt(t), high sqrt(t), t = 1, 2, ... over the row's sampled tokens: as fast as a sum of t
              independent log-ratios grows (CTPO, arXiv 2605.07331)
    """
    ones = torch.ones_like(log_ratios, requires_grad=False)
    if space == "ratio":
        return ones * (math.log1p(-low) if low < 1.0 else -math.inf), ones * math.log1p(high)
    root = _running(ones, row, rows).sqrt()
    return -low * root, high * root


def reinforce(logps: Tensor, rl: Tensor) -> Tensor:
    """`-rl log pi`, per token (N,) (Williams, 1992)."""
    assert logps.shape == rl.shape, "all (N,)"
    return -rl * logps


def surrogate(log_ratios: Tensor, logps: Tensor, rl: Tensor, clip: Clip, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """Per-token loss (N,); at ratio 1 its gradient is `-rl grad log pi` for every clip.

    none    -rho rl
    min     -min(rho rl, clip(rho, low, high) rl)                    PPO (arXiv 1707.06347), DAPO
    weight  -stopgrad(clip(rho, low, high)) rl log pi                CISPO (arXiv 2506.13585)

    Args:
        bounds: of the *log*-ratio, (N,) each.
    """
    assert log_ratios.shape == logps.shape == rl.shape == bounds[0].shape == bounds[1].shape, "all (N,)"
    low, high = bounds
    log_ratios = log_ratios.clamp(max=LOG_RATIO_LIMIT)
    if clip == "none":
        return -rl * log_ratios.exp()
    bounded = torch.minimum(torch.maximum(log_ratios, low), high).exp()
    if clip == "weight":
        return -rl * bounded.detach() * logps
    return -torch.minimum(rl * log_ratios.exp(), rl * bounded)


def dual_clipped(loss: Tensor, rl: Tensor, bound: Tensor) -> Tensor:
    """Where rl < 0, no loss above `-rl bound`, `bound` (N,) a ratio above 1 (dual-clip PPO, arXiv 1912.09729).

    There the clipped surrogate grows with rho without limit; past the bound its gradient becomes 0.
    """
    return torch.where(rl < 0, torch.minimum(loss, -rl * bound), loss)


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

    As a plain loss k1 has zero expected gradient and k3's is biased; weighting both by the importance ratio to the
    sampling policy, which has a gradient too, makes them exact. k2 is exact with the ratio held constant.
    """
    estimate = kl_estimate(batch.logps, batch.streams["ref_logps"], estimator)
    ratio = (batch.logps - batch.streams["old_logps"]).clamp(max=LOG_RATIO_LIMIT).exp()
    return (ratio.detach() if estimator == "k2" else ratio) * estimate


def value_loss(values: Tensor, returns: Tensor, old_values: Tensor, clip: float) -> Tensor:
    """`max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2)`, per token (N,); clip 0 is plain `(V - R)^2`.

    Ten returns with three 1s: V = .6 costs .30, the optimum V = .3 costs .21.
    """
    assert values.shape == returns.shape == old_values.shape, "all (N,)"
    error = (values - returns) ** 2
    if clip == 0.0:
        return error
    near = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum(error, (near - returns) ** 2)


def truncated_weights(logps: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """`min(pi / mu, cap)`, per token: weight of samples of a stale or foreign sampler (IMPALA, arXiv 1802.01561)."""
    return (logps - behaviour).exp().clamp(max=cap)


def ratio_metrics(log_ratios: Tensor) -> Sums:
    """Extremes and moments of the importance ratios (N,)."""
    with torch.no_grad():
        ratio, count = log_ratios.clamp(max=LOG_RATIO_LIMIT).exp(), log_ratios.new_tensor(float(len(log_ratios)))
        return {
            "ratio/max": (ratio.max() if len(ratio) else count, count),
            "ratio/min": (ratio.min() if len(ratio) else count, count),
            "ratio/mean": (ratio.sum(), count),
            "ratio/mean_square": ((ratio * ratio).sum(), count),
        }


def clip_metrics(
    log_ratios: Tensor, rl: Tensor, clip: Clip, bounds: tuple[Tensor, Tensor], dual: Tensor | None
) -> Sums:
    """Shares of tokens that met a bound: whose gradient it removes (`min`), or whose weight it changes (`weight`)."""
    if clip == "none":
        return {}
    with torch.no_grad():
        low, high = bounds
        count, either = log_ratios.new_tensor(float(len(rl))), torch.full_like(rl, clip == "weight", dtype=torch.bool)
        met = {
            "clip/low": (log_ratios < low) & (either | (rl < 0)),
            "clip/high": (log_ratios > high) & (either | (rl > 0)),
        }
        if dual is not None:
            met["clip/dual"] = (log_ratios > dual.log()) & (rl < 0)
        return {name: (tokens.sum().to(rl.dtype), count) for name, tokens in met.items()}
