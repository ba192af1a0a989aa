"""What critics and yes-probabilities learn, and how far a critic moves: always plain sums over tokens.

With a target q in [0, 1] and a probability p, squared error and cross-entropy are both least at p = E[q]; ten outcomes
with three 1s make it .3. On a sigmoid only the cross-entropy still pulls where p is sure and wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prefrl.errors import ConfigError
from prefrl.policy.objective import value_objective
from prefrl.policy.parts import CriticSpec
from prefrl.types import Batch, Sums


def critic_objective(batch: Batch, spec: CriticSpec) -> tuple[Tensor, Sums]:
    """The loss of a critic's values against returns (the `vf` stream), as the spec says: `mse` or `bce`."""
    if spec.loss == "mse":
        return value_objective(batch, spec.clip)
    streams, span = batch.streams, spec.high - spec.low
    p, q, old = ((x - spec.low) / span for x in (batch.outputs, streams["returns"], streams["old_values"]))
    losses = bernoulli_loss(p, q, old, spec.clip / span)
    _, metrics = value_objective(batch, spec.clip)
    return (streams["vf"] * losses).sum(), metrics


def bernoulli_loss(p: Tensor, q: Tensor, old: Tensor, clip: float) -> Tensor:
    """`-q log p - (1 - q) log(1 - p)` (N,), or where it is more, that of p kept within `clip` of its old value.

    Raises:
        ConfigError: p or q is no probability.
    """
    for name, x in (("values", p), ("returns", q)):
        low, high = float(x.detach().min()), float(x.detach().max())
        if low < -1e-6 or high > 1.0 + 1e-6:  # returns add up with rounding
            raise ConfigError(
                f"critic.loss is 'bce', but on the scale of critic.low and critic.high the {name} lie in [{low:.3g}, "
                f"{high:.3g}]; expected [0, 1]. Set low and high to the least and the most return, credit.lam to 1 "
                "or kl.coef to 0 where returns overshoot them, or critic.loss to 'mse'."
            )
    q = q.clamp(0.0, 1.0)
    loss = _cross_entropy(p, q)
    if clip == 0.0:
        return loss
    near = (old + (p - old).clamp(-clip, clip)).clamp(0.0, 1.0)
    return torch.maximum(loss, _cross_entropy(near, q))


def _cross_entropy(p: Tensor, q: Tensor) -> Tensor:
    tiny = torch.finfo(p.dtype).tiny
    return -(torch.xlogy(q, p.clamp(min=tiny)) + torch.xlogy(1.0 - q, (1.0 - p).clamp(min=tiny)))


def yes_objective(batch: Batch, *, full: bool) -> tuple[Tensor, Sums]:
    """Soft cross-entropy of P(yes) against the stream `returns` in [0, 1], weighted by `vf`.

    `outputs` are (N, 2): the logit z of P(yes), and the log of the yes/no mass m. Restricted to the two answers it is
    `softplus(z) - q z`; over the full vocabulary, where m P and m (1 - P) are the probabilities, `- log m` is added.
    """
    logit, log_mass = batch.outputs.unbind(-1)
    target, weight = batch.streams["returns"], batch.streams["vf"]
    losses = torch.nn.functional.softplus(logit) - target * logit
    with torch.no_grad():
        count = logit.new_tensor(float(len(logit)))
        metrics: Sums = {
            "nll": (losses.sum(), count),
            "brier": (((logit.sigmoid() - target) ** 2).sum(), count),
            "yesno_mass": (log_mass.exp().sum(), count),
            "yesno_mass/min": (log_mass.exp().min(), count),
        }
    if full:
        losses = losses - log_mass
    return (weight * losses).sum(), metrics
