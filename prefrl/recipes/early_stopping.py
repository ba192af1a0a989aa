"""What training of all reward models shares: early stopping, the temperature, how fast a fresh head learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from prefrl.config import RewardModelConfig
from prefrl.types import Row

T = TypeVar("T")

FEWEST = 20  # held-out judgements from which a temperature is fitted: a handful that are all right would say 0
HOTTEST = 20.0  # temperatures are between this and its inverse


class FreshHead(Protocol):
    """A model with a head that starts from nothing."""

    def head_input_size(self, rows: Sequence[Row]) -> float:
        """Root mean square of the numbers that the head reads for these rows; 0 where there is no such head."""
        ...


class Keeper(Generic[T]):
    """Remembers what was trained at the lowest held-out NLL.

    Args:
        snapshot: a copy of what was trained, as it is now.
        put_back: puts such a copy back.
        patience: looks without a lower NLL after which to stop; 0 never stops.
    """

    def __init__(self, snapshot: Callable[[], T], put_back: Callable[[T], None], patience: int) -> None:
        self._snapshot, self._put_back, self._patience = snapshot, put_back, patience
        self._kept: T | None = None
        self.best, self.worse = math.inf, 0

    @property
    def done(self) -> bool:
        """Whether the NLL has not fallen for long enough."""
        return bool(self._patience) and self.worse >= self._patience

    def offer(self, nll: float) -> None:
        """Keep what is trained now, if its NLL is the lowest so far."""
        if nll < self.best:
            self.best, self.worse, self._kept = nll, 0, self._snapshot()
        else:
            self.worse += 1

    def shown(self) -> dict[str, float]:
        """The best NLL so far for the progress bar; nothing before the first look."""
        return {"held_out_nll": self.best} if math.isfinite(self.best) else {}

    def state_dict(self) -> dict[str, Any]:
        """What is remembered, for an exact continuation."""
        return {"best": self.best, "worse": self.worse, "kept": self._kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.best, self.worse, self._kept = state["best"], state["worse"], state["kept"]

    def restore(self) -> None:
        """Put the best back; without a look nothing changes."""
        if self._kept is not None:
            self._put_back(self._kept)


def coolest(nll_at: Callable[[float], float]) -> float:
    """The temperature T in [1/20, 20] of lowest NLL, where `nll_at(scale)` is that of scores times `scale`."""
    from scipy.optimize import minimize_scalar

    bound = math.log(HOTTEST)
    found = minimize_scalar(
        lambda log_scale: nll_at(math.exp(log_scale)), bounds=(-bound, bound), method="bounded", options={"xatol": 1e-6}
    )
    return math.exp(-float(found.x))


def head_lr_factor(model: FreshHead, rows: Sequence[Row], config: RewardModelConfig) -> float:
    """How many times faster than the rest the head learns.

    A step of AdamW moves each weight by about the learning rate, whatever the gradient. From weights of 0 the score
    then moves in proportion to what the head reads, and the layers below learn nothing useful before the head points
    somewhere: where it reads small numbers it must move faster for the same effect.
    """
    if config.head_lr:
        return config.head_lr / config.lr
    size = model.head_input_size(rows)
    return max(1.0, 1.0 / size) if size else 1.0
