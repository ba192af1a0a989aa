"""A saved control policy: weights as safetensors, and a record of what they are of as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from prefrl.errors import ModelError
from prefrl.model.checkpoint import atomic_folder

WEIGHTS, RECORD = "model.safetensors", "policy.json"
FIELDS = {  # of a record
    *("environment", "horizon", "visible", "observation_size", "actions", "low", "high"),
    *("hidden", "recurrent", "distribution", "normalise", "log_std"),
}


def write_policy(folder: str | Path, net: nn.Module, record: Mapping[str, Any]) -> None:
    """Write the weights, and the record where there is one."""
    with atomic_folder(folder) as scratch:
        save_file({name: value.contiguous() for name, value in net.state_dict().items()}, scratch / WEIGHTS)
        if record:
            text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
            (scratch / RECORD).write_text(text, encoding="utf-8")


def read_record(folder: str | Path) -> dict[str, Any]:
    """The record of a saved policy.

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    path = Path(folder) / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"No control policy can be read from {folder}: {error}. Name a folder that one was saved to, such as "
            "runs/control/checkpoints/final."
        ) from error
    if not isinstance(record, dict) or not record.keys() >= FIELDS:
        lacking = ", ".join(sorted(FIELDS - record.keys())) if isinstance(record, dict) else "an object"
        raise ModelError(f"{path} lacks {lacking}; expected what ControlPolicy.save writes. Save the policy anew.")
    return record


def read_weights(folder: str | Path, net: nn.Module) -> None:
    """Take over the weights of a saved policy.

    Raises:
        ModelError: they are not there, damaged, or of another network.
    """
    path = Path(folder) / WEIGHTS
    try:
        net.load_state_dict(load_file(path))
    except Exception as error:  # missing, damaged and other files have exceptions of several libraries
        raise ModelError(
            f"The weights of a control policy cannot be read from {path}: {error}. Save the policy anew."
        ) from error
