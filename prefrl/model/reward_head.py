"""The last linear layer of a sequence-classification model, whose outputs are the scores."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from prefrl.errors import ModelError

NAMES = ("score", "classifier")  # of decoders, of encoders


def head_name(model: Any) -> str:
    """The attribute of a sequence-classification model that holds its head.

    Raises:
        ModelError: it has none of those in use.
    """
    name = next((name for name in NAMES if hasattr(model, name)), None)
    if name is None:
        raise ModelError(
            f"{type(model).__name__} has no head named {' or '.join(NAMES)}. Use a causal language model or an "
            "encoder such as BERT."
        )
    return name


def output_layer(model: Any) -> nn.Linear:
    """The linear layer that gives the scores: the head itself, or the last layer of a composite one.

    Under an adapter it is the copy that the active adapter trains.
    """
    head = getattr(model, head_name(model))
    if hasattr(head, "modules_to_save"):
        head = head.modules_to_save[head.active_adapters[0]]
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise ModelError(f"The head of {type(model).__name__} has no linear layer; expected one that gives scores.")
    return linears[-1]


@torch.no_grad()
def reset_head(layer: nn.Linear, *, random: bool) -> None:
    """Set a head to 0, or to small random weights where several heads must not start alike.

    The random ones have standard deviation 1 / (hidden size + 1).
    """
    if random:
        nn.init.normal_(layer.weight, std=1.0 / (layer.in_features + 1))
    else:
        nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def divide_head(layer: nn.Linear, temperature: float) -> None:
    """Divide the scores that a head gives by `temperature`."""
    layer.weight.div_(temperature)
    if layer.bias is not None:
        layer.bias.div_(temperature)


def head_fingerprint(layer: nn.Linear) -> str:
    """16 hexadecimal digits that tell a head from others, whatever precision it was loaded in."""
    tensors = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
    rounded = torch.cat([t.detach().flatten() for t in tensors]).to("cpu", torch.bfloat16)
    return hashlib.sha256(rounded.view(torch.int16).numpy().tobytes()).hexdigest()[:16]
