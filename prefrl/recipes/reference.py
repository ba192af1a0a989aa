"""Log-probs under the reference, computed once for a model and its data and kept for later runs.

The key is made of what decides the numbers: the weights as they are in memory, the model's settings, its adapters and
which of them are on, the temperature, the versions of what computes, and the token ids. Names, folders and hub ids are
not in it: a policy that was changed in memory has a reference of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prefrl.model.embedded import cache_root
from prefrl.model.engine import Engine
from prefrl.types import Row

MOST_BYTES = 2**30  # that are kept of references; a log-prob takes four
# Settings that say where a model is from, not what it computes.
_ORIGINS = {
    *("_name_or_path", "name_or_path", "base_model_name_or_path", "revision", "transformers_version", "peft_version"),
    *("architectures", "auto_mapping", "inference_mode", "dtype", "torch_dtype"),
}


def reference_logps(engine: Engine, rows: Sequence[Row], *, cache: bool = True) -> list[Tensor]:
    """Log-probs (n,) of every row's tokens under the policy as it starts.

    Args:
        engine: one that has made no update yet, so that its policy is its reference.
        rows: completions; the order matters to the key.
        cache: look into `PREFRL_CACHE` (or `~/.cache/prefrl`) first, and leave the numbers there; those that were used
            longest ago make room.
    """
    assert engine.version == 0, "after an update the policy is no longer its own reference"
    if not cache or not rows:
        return engine.logps(rows)
    path = cache_root() / "reference" / f"{_key(engine, rows)}.safetensors"
    lengths = [len(row.mask) for row in rows]
    kept = _read(path, sum(lengths))
    if kept is None:
        found = engine.logps(rows)
        _write(path, torch.cat(found))
        return found
    print(f"Log-probs of {len(rows)} completions under the reference: from {path}", flush=True)
    with suppress(OSError):
        os.utime(path)  # used now
    return list(kept.split(lengths))


def fingerprint(module: nn.Module) -> str:
    """Hexadecimal digits that change with any weight, and with any setting that changes what the weights compute."""
    digest = hashlib.blake2b(f"{_settings(module)} {_adapters(module)}".encode(), digest_size=16)
    # Not the state dict, which leaves out buffers such as the frequencies of rotary embeddings.
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {tensor.device.type}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _key(engine: Engine, rows: Sequence[Row]) -> str:
    import transformers

    versions = [package.__version__ for package in (torch, transformers)]
    digest = hashlib.blake2b(f"{versions} temperature {engine.sampling.temperature}".encode(), digest_size=16)
    for row in rows:
        digest.update(repr((row.prompt_ids, row.completion_ids, row.mask)).encode())
    return f"{fingerprint(engine.actor.module)}-{digest.hexdigest()}"


def _settings(module: nn.Module) -> str:
    """Settings of the model and its adapters."""
    parts = {"model": getattr(module, "config", {}), **getattr(module, "peft_config", {})}
    found = {name: part.to_dict() if hasattr(part, "to_dict") else part for name, part in parts.items()}
    return json.dumps(_plain(found), sort_keys=True)


def _adapters(module: nn.Module) -> list[Any]:
    """What decides how adapters count and is in no weight: which are on, and by how much."""
    return [
        (name, part.active_adapters, part.disable_adapters, part.merged_adapters, getattr(part, "scaling", None))
        for name, part in module.named_modules()
        if hasattr(part, "merged_adapters")
    ]


def _plain(value: Any) -> Any:
    """A setting as JSON has it, without where things are from."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if k not in _ORIGINS}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _bytes(tensor: Tensor) -> Any:
    """The numbers as they lie in memory: any type, read without a copy."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _read(path: Path, count: int) -> Tensor | None:
    """The kept numbers; None, with a notice, where a file is not what was written."""
    if not path.exists():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            logps: Tensor = file.get_tensor("logps")
            checked = (file.metadata() or {}).get("digest") == _digest(logps)
    except (OSError, ValueError, SafetensorError) as error:
        print(f"The cached reference {path} cannot be read ({error}); it is computed again.", flush=True)
        return None
    if not checked or logps.shape != (count,):
        print(f"The cached reference {path} is damaged; it is computed again.", flush=True)
        return None
    return logps


def _write(path: Path, logps: Tensor) -> None:
    """Write all or nothing; a disk that is full costs the next run time, not this one its results."""
    from safetensors.torch import save_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=".reference-", dir=path.parent)
        os.close(handle)
        try:
            save_file({"logps": logps}, scratch, metadata={"digest": _digest(logps)})
            os.replace(scratch, path)
        finally:
            Path(scratch).unlink(missing_ok=True)
        _prune(path.parent)
    except OSError as error:
        print(f"The reference could not be cached in {path.parent} ({error}); training goes on.", flush=True)


def _prune(folder: Path) -> None:
    """Delete what was used longest ago, beyond `MOST_BYTES` in all."""
    files = sorted(folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file, size in zip(files, accumulate(file.stat().st_size for file in files), strict=True):
        if size > MOST_BYTES and file != files[0]:
            file.unlink(missing_ok=True)


def _digest(logps: Tensor) -> str:
    return hashlib.blake2b(_bytes(logps), digest_size=16).hexdigest()
