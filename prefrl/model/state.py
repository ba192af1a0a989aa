"""The state of a run as safetensors and JSON, for an exact continuation: nothing in it can run code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from prefrl.errors import RunError
from prefrl.model.checkpoint import atomic_folder, recover

TENSORS, TREE = "state.safetensors", "state.json"


def save_state(folder: str | Path, state: Mapping[str, Any]) -> None:
    """Write nested mappings, lists and tuples of tensors, numbers and texts, all or nothing."""
    tensors: dict[str, Tensor] = {}
    tree = _folded(state, tensors, set())
    with atomic_folder(folder) as scratch:
        save_file(tensors, scratch / TENSORS)
        (scratch / TREE).write_text(json.dumps(tree) + "\n", encoding="utf-8")


def load_state(folder: str | Path) -> dict[str, Any]:
    """What `save_state` wrote, bit for bit.

    Raises:
        RunError: there is none, or it cannot be read.
    """
    folder = Path(folder)
    recover(folder)
    try:
        tree = json.loads((folder / TREE).read_text(encoding="utf-8"))
        state: dict[str, Any] = _unfolded(tree, load_file(folder / TENSORS))
    except Exception as error:  # missing and damaged files have exceptions of several libraries
        raise RunError(
            f"No state to go on from can be read in {folder}: {error}. Start the run anew, with --overwrite."
        ) from error
    return state


def _folded(value: Any, tensors: dict[str, Tensor], taken: set[int]) -> Any:
    """The value as JSON has it, its tensors by number; `taken` is the memory of those before."""
    if isinstance(value, Tensor):
        name, tensor = str(len(tensors)), value.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        if memory in taken:
            tensor = tensor.clone()  # tensors in one file must not share memory
        taken.add(memory)
        tensors[name] = tensor
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"mapping": [[key, _folded(item, tensors, taken)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_folded(item, tensors, taken) for item in value]}
    return value


def _unfolded(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "mapping":
        return {key: _unfolded(item, tensors) for key, item in content}
    items = [_unfolded(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
