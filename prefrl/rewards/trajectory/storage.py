"""Fragments in a file, so that labels that come days later find what they are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.types import Prompt, Rollout, StopReason


def save_fragments(path: str | Path, pieces: Sequence[Rollout]) -> None:
    """Write fragments of one length as safetensors; log-probs, which no comparison needs, are left out."""
    assert all(piece.observations is not None for piece in pieces), "fragments have observations"
    tensors: dict[str, Tensor] = {
        "observations": torch.stack([piece.observations for piece in pieces if piece.observations is not None]),
        "completion_ids": torch.tensor([piece.completion_ids for piece in pieces]),
    }
    if pieces[0].actions is not None:
        tensors["actions"] = torch.stack([piece.actions for piece in pieces if piece.actions is not None])
    if all("rewards" in piece.info for piece in pieces):
        tensors["rewards"] = torch.tensor([piece.info["rewards"] for piece in pieces], dtype=torch.float64)
    about = [
        {"prompt": p.prompt.id, "group": p.group, "text": p.text, "stop": p.stop.value, "version": p.version}
        for p in pieces
    ]
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, path, metadata={"fragments": json.dumps(about)})


def load_fragments(path: str | Path) -> list[Rollout]:
    """What `save_fragments` wrote, in its order.

    Raises:
        RewardError: it cannot be read.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads(file.metadata()["fragments"])
        return [_fragment(i, one, tensors) for i, one in enumerate(about)]
    except Exception as error:  # missing and damaged files have exceptions of several libraries
        raise RewardError(f"The fragments in {path} cannot be read ({error}). Start the run anew.") from error


def _fragment(index: int, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Rollout:
    ids = tuple(tensors["completion_ids"][index].tolist())
    paid = {"rewards": tensors["rewards"][index].tolist()} if "rewards" in tensors else {}
    return Rollout(
        prompt=Prompt(id=about["prompt"], text=about["prompt"]),
        completion_ids=ids,
        mask=(True,) * len(ids),
        logps=(0.0,) * len(ids),
        text=about["text"],
        stop=StopReason(about["stop"]),
        group=about["group"],
        version=about["version"],
        observations=tensors["observations"][index],
        actions=tensors["actions"][index] if "actions" in tensors else None,
        info=paid,
    )
