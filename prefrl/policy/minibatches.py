"""Several updates on parts of a batch. A part's loss is the batch's, estimated: its weights are raised to make up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from prefrl.errors import ConfigError
from prefrl.policy.parts import Algorithm
from prefrl.types import WEIGHTS, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatches:
    """How a batch is cut for the updates of one pass over it.

    count  parts, each of which makes an update; 1 takes the batch as it is
    over   `rows`: parts of whole rows. `steps`: of single actions, mixed from all episodes; for policies and critics
           that look at the last observation only, and ratios of one action
    """

    count: int = 1
    over: Literal["rows", "steps"] = "rows"

    def check(self, algorithm: Algorithm) -> None:
        """Refuse parts that the algorithm's losses cannot be cut into.

        Raises:
            ConfigError: pairs or accepted samples, or a ratio of more than one action where rows are cut up.
        """
        if self.count < 1:
            raise ConfigError(f"minibatches.count is {self.count}; expected 1 or more.")
        if self.count > 1 and (algorithm.pairs is not None or algorithm.select is not None):
            raise ConfigError(
                f"minibatches.count is {self.count}, but algorithm {algorithm.name!r} learns pairs or accepted "
                "samples, whose weights belong together. Set minibatches.count to 1."
            )
        if self.over == "steps" and algorithm.ratio not in ("none", "token"):
            raise ConfigError(
                f"minibatches.over is 'steps', but the ratio of algorithm {algorithm.name!r} is {algorithm.ratio!r}, "
                "of more than one action. Set minibatches.over to 'rows'."
            )

    def of(self, rows: Sequence[Row], seed: int) -> Iterator[list[Row]]:
        """The parts of one pass, in an order that belongs to the seed; every row or action is in one of them.

        Raises:
            ConfigError: rows of tokens cannot be cut into steps.
        """
        if not rows or (self.count == 1 and self.over == "rows"):
            yield from ([list(rows)] * self.count)  # processes without rows make as many updates as the others
            return
        generator = torch.Generator().manual_seed(seed)
        if self.over == "rows":
            order = torch.randperm(len(rows), generator=generator).tolist()
            for part in range(self.count):
                yield [_raised(rows[i], float(self.count)) for i in order[part :: self.count]]
            return
        whole = as_steps(rows)
        ids = torch.tensor(whole.completion_ids)
        for places in torch.randperm(len(ids), generator=generator).tensor_split(self.count):
            yield [_raised(_picked(whole, ids, places), float(self.count))]


def as_steps(rows: Sequence[Row]) -> Row:
    """All masked-in actions of rows of observations as one row, in which every action stands for itself."""
    if any(row.observations is None for row in rows):
        raise ConfigError("minibatches.over is 'steps', but tokens depend on all before them. Set it to 'rows'.")
    masks = [torch.tensor(row.mask) for row in rows]
    kept = [(row, mask) for row, mask in zip(rows, masks, strict=True)]
    observed = [row.observations[: len(mask)][mask] for row, mask in kept if row.observations is not None]
    acted = [row.actions[mask] for row, mask in kept if row.actions is not None]
    ids = torch.cat([torch.tensor(row.completion_ids)[mask] for row, mask in kept])
    return Row(
        prompt_ids=(),
        completion_ids=tuple(ids.tolist()),
        mask=(True,) * len(ids),
        streams={name: torch.cat([row.streams[name][mask] for row, mask in kept]) for name in rows[0].streams},
        observations=torch.cat(observed),
        actions=torch.cat(acted) if acted else None,
    )


def _picked(whole: Row, ids: Tensor, part: Tensor) -> Row:
    assert whole.observations is not None, "made by as_steps"
    return replace(
        whole,
        completion_ids=tuple(ids[part].tolist()),
        mask=(True,) * len(part),
        streams={name: stream[part] for name, stream in whole.streams.items()},
        observations=whole.observations[part],
        actions=None if whole.actions is None else whole.actions[part],
    )


def _raised(row: Row, factor: float) -> Row:
    raised = {name: stream * factor if name in WEIGHTS else stream for name, stream in row.streams.items()}
    return replace(row, streams=raised)
