"""Networks of control policies and their critics: layers, a running normaliser, a spread that depends on nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from prefrl.errors import ModelError

CLIP = 10.0  # normalised observations are kept within this


class Normaliser(nn.Module):
    """`(x - mean) / std` by running moments, clipped to +-10; the identity until it has seen anything.

    It learns only when it is told to, by `observe`: whatever is computed between two calls is computed alike. Its
    moments are saved with the weights.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, observations: Tensor) -> Tensor:
        """Observations (..., size)."""
        return ((observations - self.mean) * (self.variance + 1e-8).rsqrt()).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def observe(self, observations: Tensor) -> None:
        """Take observations (N, size) into the moments (Chan et al., 1979); population variance."""
        new = observations.double()
        total = self.count + len(new)
        shift = new.mean(0) - self.mean
        spread = self.variance * self.count + new.var(0, correction=0) * len(new)
        self.variance.copy_((spread + shift**2 * self.count * len(new) / total) / total)
        self.mean += (shift * len(new) / total).to(self.mean.dtype)
        self.count.copy_(total)


class Spread(nn.Module):
    """Appends a log standard deviation that depends on no observation: (..., k) -> (..., 2 k)."""

    def __init__(self, size: int, log_std: float) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.full((size,), log_std))

    def forward(self, means: Tensor) -> Tensor:
        """Means, and the log standard deviations beside them."""
        return torch.cat([means, self.log_std.expand_as(means)], -1)


def mlp(inputs: int, outputs: int, hidden: int | Sequence[int]) -> nn.Sequential:
    """Hidden layers of tanh units, and a linear one."""
    sizes = [inputs, *((hidden,) if isinstance(hidden, int) else hidden)]
    layers: list[nn.Module] = []
    for size, following in pairwise(sizes):
        layers += [nn.Linear(size, following), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


def last_linear(net: nn.Module) -> nn.Linear:
    """The linear layer that was registered last: the one that gives the logits.

    Raises:
        ModelError: there is none.
    """
    linear = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ModelError(
            f"{type(net).__name__} has no linear layer; expected one as the last, for zero_init and for a critic on "
            "its hidden layer. End the network with nn.Linear, or use neither."
        )
    return linear[-1]


def zero(layer: nn.Linear) -> nn.Linear:
    """Set weights and bias of a layer to 0."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def orthogonal(net: nn.Sequential, last: float) -> nn.Sequential:
    """Orthogonal weights of gain sqrt 2 and biases of 0 in all linear layers, of gain `last` in the last one."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, 2.0**0.5)
            nn.init.zeros_(layer.bias)
    nn.init.orthogonal_(last_linear(net).weight, last)
    return net


def fitting(observations: Tensor, net: nn.Module) -> Tensor:
    """Observations on the network's device and, unless they are whole numbers, of its dtype."""
    parameter = next(net.parameters())
    return observations.to(parameter.device, parameter.dtype if observations.is_floating_point() else None)
