"""A reward model over feature vectors: the same engine, losses and labels as for text, without a transformer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from prefrl.errors import DataError
from prefrl.model.checkpoint import atomic_folder
from prefrl.types import Row


class FeatureRewardModel:
    """Scores `net(features)` of items that are vectors: simulations, states, precomputed embeddings.

    Args:
        net: from features (N, d) to scores (N,) or (N, 1), or to those of K heads (N, K).
    """

    shares_prompts = False

    def __init__(self, net: nn.Module) -> None:
        self.net = net

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.net

    def encode(self, features: Tensor) -> Row:
        """The row that scores one item with these features (d,).

        Raises:
            DataError: not a vector, or one with a NaN or infinite number.
        """
        if features.ndim != 1 or not bool(features.isfinite().all()):
            raise DataError(f"Got features of shape {tuple(features.shape)}; expected a vector of finite numbers.")
        return Row(prompt_ids=(), completion_ids=(0,), mask=(True,), observations=features[None])

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """The score of every row (N,), or of every row and head (N, K), with gradient."""
        observed = [row.observations for row in rows if row.observations is not None]
        scores: Tensor = self.net(torch.cat(observed))
        return scores.squeeze(-1) if scores.ndim == 2 else scores

    @torch.no_grad()
    def scores(self, features: Tensor) -> Tensor:
        """Scores of items with features (N, d): (N,) or (N, K)."""
        scores: Tensor = self.net(features)
        return scores.squeeze(-1) if scores.ndim == 2 else scores

    def save(self, folder: str | Path) -> None:
        """Write the weights, all or nothing."""
        state: dict[str, Any] = {name: value.contiguous() for name, value in self.net.state_dict().items()}
        with atomic_folder(folder) as scratch:
            save_file(state, scratch / "model.safetensors")
