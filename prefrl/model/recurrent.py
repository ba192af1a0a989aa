"""Policies and values with a memory: a GRU over all that was seen and done, from the start of the sequence.

The state is never stored: the learner computes whole sequences anew with the weights as they are, so that none is
stale and no burn-in is needed. All rows of a micro-batch are one call of the GRU, padded at their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from prefrl.errors import ModelError
from prefrl.model.networks import fitting
from prefrl.types import Row

Encode = Callable[[Tensor], Tensor]  # actions -> numbers (N, width)


class Recurrent(nn.Module):
    """Observations and the actions before them -> layers -> GRU -> outputs.

    Args:
        layers: from an observation (..., d), to what the GRU sees of it (..., e), normalised or not.
        size: numbers that `layers` gives.
        width: numbers of an encoded action.
        memory: numbers of the GRU's state.
        head: from the state (..., memory) to outputs.
    """

    def __init__(self, layers: nn.Module, size: int, width: int, memory: int, head: nn.Module) -> None:
        super().__init__()
        self.layers = layers
        self.memory = memory
        self.gru = nn.GRU(size + width, memory, batch_first=True)
        self.head = head

    def forward(self, observations: Tensor, before: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Observations (B, T, d), encoded actions before them (B, T, width) -> outputs (B, T, size), last state."""
        states, last = self.gru(torch.cat([self.layers(observations), before], -1), state)
        return self.head(states), last


def seen(rows: Sequence[Row]) -> Tensor:
    """The observation before every masked-in action, laid end to end (N, d).

    Raises:
        ModelError: a row has fewer observations than actions.
    """
    if all(all(row.mask) for row in rows):
        return torch.cat([_before_actions(row) for row in rows])
    return torch.cat([before[torch.tensor(row.mask)] for row, before in ((row, _before_actions(row)) for row in rows)])


def done(rows: Sequence[Row]) -> Tensor:
    """The masked-in actions, laid end to end: (N,) whole numbers, or (N, k)."""
    mask = torch.tensor([scored for row in rows for scored in row.mask])
    if rows and rows[0].actions is not None:
        return torch.cat([actions_of(row) for row in rows])[mask]
    return torch.tensor([action for row in rows for action in row.completion_ids])[mask]


def actions_of(row: Row) -> Tensor:
    """All actions of a row: (n,) whole numbers, or (n, k)."""
    return torch.tensor(row.completion_ids) if row.actions is None else row.actions


def through(net: nn.Module, rows: Sequence[Row], encode: Encode) -> Tensor:
    """What a network, with a memory or without, gives before every masked-in action, laid end to end (N, size)."""
    if not isinstance(net, Recurrent):
        outputs: Tensor = net(fitting(seen(rows), net))
        return outputs
    before = [shifted(encode(actions_of(row)), len(row.completion_ids)) for row in rows]
    padded = pad_sequence([_before_actions(row) for row in rows], batch_first=True)
    outputs, _ = net(fitting(padded, net), fitting(pad_sequence(before, batch_first=True), net))
    mask = pad_sequence([torch.tensor(row.mask) for row in rows], batch_first=True)
    return outputs[mask.to(outputs.device)]


def shifted(encoded: Tensor, length: int) -> Tensor:
    """What was done before each of `length` actions, 0 before the first: (length, width)."""
    return torch.cat([encoded.new_zeros(1, encoded.shape[-1]), encoded])[:length]


def _before_actions(row: Row) -> Tensor:
    n, got = len(row.completion_ids), 0 if row.observations is None else len(row.observations)
    if row.observations is None or got < n:
        raise ModelError(
            f"A row has {got} observations for {n} actions; expected one before every action, and optionally one "
            "after the last. Fill Row.observations from Rollout.observations."
        )
    return row.observations[:n]
