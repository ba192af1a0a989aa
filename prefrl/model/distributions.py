"""Distributions over actions: what a network's outputs mean. Densities, entropies and divergences are exact.

A distribution has no parameters of its own; `outputs` (N, size) come from a network. Temperature T means
p(a)^(1/T), renormalised: logits are divided by T, variances multiplied by it.

    categorical  probabilities softmax(outputs), over the allowed actions where there is a mask
    gaussian     a = centre + scale u, u ~ N(mean, diag exp(2 log_std)); outputs are mean and log_std. Actions are not
                 bounded: an environment clips what it is given, and the density is that of the action before
    squashed     a = centre + scale tanh(u) (arXiv 1801.01290, appendix C): never out of bounds
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from prefrl.errors import ModelError

LOG_STD = (-5.0, 2.0)  # bounds of log_std: beyond them a step of the optimizer could not bring it back
EDGE = 1.0 - 1e-6  # largest |tanh(u)| of an action, so that u can be had back from it in float32
NODES = 32  # of the quadrature that gives a squashed Gaussian's entropy
LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)


class Distribution(Protocol):
    """What a policy asks of a distribution.

    size    numbers that a network gives of one action
    draws   uniform numbers that one draw takes
    width   numbers of an action as a network's input: one-hot, or in units of its scale
    """

    name: str
    size: int
    draws: int
    width: int

    def log_prob(self, outputs: Tensor, actions: Tensor, temperature: float = 1.0) -> Tensor:
        """log p(a) (N,) of actions, (N,) whole numbers or (N, k), with gradient."""
        ...

    def entropy(self, outputs: Tensor, temperature: float = 1.0) -> Tensor:
        """-E log p (N,), with gradient."""
        ...

    def kl(self, outputs: Tensor, others: Tensor, temperature: float = 1.0) -> Tensor:
        """KL(p || q) (N,) to the distribution of `others`, with gradient to both."""
        ...

    def draw(self, outputs: Tensor, uniforms: Tensor, temperature: float = 1.0) -> Tensor:
        """Actions by inverting the cumulative distribution at uniforms (N, draws)."""
        ...

    def best(self, outputs: Tensor) -> Tensor:
        """The most probable actions; of a squashed Gaussian those of the most probable u."""
        ...

    def encode(self, actions: Tensor) -> Tensor:
        """Actions as numbers of size about 1, (N, width), for networks that look back at them."""
        ...


class Categorical:
    """One of a number of actions."""

    def __init__(self, actions: int) -> None:
        self.name, self.draws = "categorical", 1
        self.size = self.width = actions

    def log_prob(self, outputs: Tensor, actions: Tensor, temperature: float = 1.0) -> Tensor:
        """See `Distribution`; actions (N,) whole numbers."""
        logps = (outputs / temperature).log_softmax(-1)
        return logps.gather(-1, actions.to(logps.device)[:, None]).squeeze(-1)

    def entropy(self, outputs: Tensor, temperature: float = 1.0) -> Tensor:
        """-sum p log p; an action that is not allowed counts 0 in value and in gradient."""
        logps = (outputs / temperature).log_softmax(-1)
        return -_expected(logps, logps)

    def kl(self, outputs: Tensor, others: Tensor, temperature: float = 1.0) -> Tensor:
        """sum p (log p - log q)."""
        logps, other = ((x / temperature).log_softmax(-1) for x in (outputs, others.to(outputs.device)))
        return _expected(logps, logps - other)

    def draw(self, outputs: Tensor, uniforms: Tensor, temperature: float = 1.0) -> Tensor:
        """Never an action of probability 0: in float64 the largest uniform, 1 - 2**-53, times the total is below it."""
        cumulative = (outputs.double() / temperature).softmax(-1).cumsum(-1)
        return torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True).squeeze(-1)

    def best(self, outputs: Tensor) -> Tensor:
        """The first of the most probable actions."""
        return outputs.argmax(-1)

    def encode(self, actions: Tensor) -> Tensor:
        """One-hot."""
        return one_hot(actions, self.width).float()


class Gaussian:
    """Independent normal numbers, one for each dimension of an action.

    Args:
        low, high: bounds of each dimension, which give its centre and scale; infinite ones give 0 and 1.
    """

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        if len(low) != len(high) or not all(a < b for a, b in zip(low, high, strict=False)):
            raise ModelError(
                f"The bounds of actions are {list(low)} and {list(high)}; expected as many, each low below its high."
            )
        finite = [math.isfinite(a) and math.isfinite(b) for a, b in zip(low, high, strict=True)]
        both = list(zip(low, high, finite, strict=True))
        self.name, self.width = "gaussian", len(both)
        self.low, self.high = tuple(low), tuple(high)
        self.size, self.draws = 2 * self.width, self.width
        self.centre = torch.tensor([(a + b) / 2 if f else 0.0 for a, b, f in both])
        self.scale = torch.tensor([(b - a) / 2 if f else 1.0 for a, b, f in both])

    def log_prob(self, outputs: Tensor, actions: Tensor, temperature: float = 1.0) -> Tensor:
        """`sum_k log N(u_k; mean_k, std_k) - log scale_k`; actions (N, k)."""
        mean, std = self._moments(outputs, temperature)
        units = self.encode(actions.to(outputs.device, outputs.dtype))
        return (self._log_normal(units, mean, std) - self.scale.to(outputs).log()).sum(-1)

    def entropy(self, outputs: Tensor, temperature: float = 1.0) -> Tensor:
        """`sum_k log std_k + log scale_k + (1 + log 2 pi) / 2`."""
        _, std = self._moments(outputs, temperature)
        return (std.log() + self.scale.to(outputs).log() + LOG_ROOT_2PI + 0.5).sum(-1)

    def kl(self, outputs: Tensor, others: Tensor, temperature: float = 1.0) -> Tensor:
        """`sum_k log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2`; the same after one map of both."""
        mean, std = self._moments(outputs, temperature)
        other_mean, other_std = self._moments(others.to(outputs), temperature)
        moved = (std**2 + (mean - other_mean) ** 2) / (2.0 * other_std**2)
        return (other_std.log() - std.log() + moved - 0.5).sum(-1)

    def draw(self, outputs: Tensor, uniforms: Tensor, temperature: float = 1.0) -> Tensor:
        """(N, k), in the environment's units; a uniform of 0 is taken as 2**-54."""
        mean, std = self._moments(outputs, temperature)
        normal = torch.special.ndtri(uniforms.double().clamp(min=2.0**-54)).to(outputs)
        return self._placed(mean + std * normal)

    def best(self, outputs: Tensor) -> Tensor:
        """The means."""
        return self._placed(self._moments(outputs, 1.0)[0])

    def encode(self, actions: Tensor) -> Tensor:
        """`(a - centre) / scale`."""
        return (actions - self.centre.to(actions)) / self.scale.to(actions)

    def _placed(self, units: Tensor) -> Tensor:
        return self.centre.to(units) + self.scale.to(units) * units

    def _moments(self, outputs: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        mean, log_std = outputs.chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD).exp() * math.sqrt(temperature)

    @staticmethod
    def _log_normal(u: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        return -0.5 * ((u - mean) / std) ** 2 - std.log() - LOG_ROOT_2PI


class Squashed(Gaussian):
    """A Gaussian in u, and actions `centre + scale tanh(u)`, which keep within finite bounds.

    `|tanh(u)|` is at most `EDGE`, so that the density of the action that was stored can be had from it alone.
    """

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__(low, high)
        if not all(math.isfinite(x) for x in (*low, *high)):
            raise ModelError(
                f"The bounds of actions are {list(low)} and {list(high)}; a squashed Gaussian needs finite ones. "
                "Use the distribution gaussian."
            )
        self.name = "squashed"

    def log_prob(self, outputs: Tensor, actions: Tensor, temperature: float = 1.0) -> Tensor:
        """`sum_k log N(u_k) - log(1 - tanh(u_k)^2) - log scale_k` with `u = atanh((a - centre) / scale)`."""
        mean, std = self._moments(outputs, temperature)
        units = self.encode(actions.to(outputs.device, outputs.dtype))
        u = torch.atanh(units.clamp(-EDGE, EDGE))
        return (self._log_normal(u, mean, std) - log_slope(u) - self.scale.to(outputs).log()).sum(-1)

    def entropy(self, outputs: Tensor, temperature: float = 1.0) -> Tensor:
        """The Gaussian's, and `E log(1 - tanh(u)^2)` by Gauss-Hermite quadrature in every dimension."""
        mean, std = self._moments(outputs, temperature)
        nodes, weights = _quadrature()
        u = mean[..., None] + std[..., None] * nodes.to(outputs)
        return super().entropy(outputs, temperature) + (log_slope(u) * weights.to(outputs)).sum((-1, -2))

    def _placed(self, units: Tensor) -> Tensor:
        return super()._placed(torch.tanh(units).clamp(-EDGE, EDGE))


def log_slope(u: Tensor) -> Tensor:
    """`log d tanh(u) / du = log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))`, finite for every u."""
    return 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))


def _quadrature() -> tuple[Tensor, Tensor]:
    """Nodes and weights with `sum w f(x) = E f(x)` for a standard normal x."""
    import numpy as np

    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


def _expected(logps: Tensor, values: Tensor) -> Tensor:
    """Sum over actions of p * value; an action that is not allowed counts 0 in value and in gradient."""
    return (logps.exp() * values.masked_fill(logps == -torch.inf, 0.0)).sum(-1)
