"""Models and tokenizers from a hub id, a local folder, or the embedded default."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from prefrl.data.hub import silence
from prefrl.errors import ModelError, did_you_mean
from prefrl.model import embedded
from prefrl.model.language import LanguageModel


def load(
    name: str,
    *,
    lora: int = 0,
    top_layers: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
) -> LanguageModel:
    """A causal language model ready to sample from and to train.

    Args:
        name: a hub id, a local folder (a model or a LoRA adapter), or `smollm2-135m`, the embedded default.
        lora: rank of a new LoRA adapter on all linear layers; 0 trains the weights themselves.
        top_layers: train only this many of the last decoder layers; 0 trains all of them.
        dtype: `auto`, `float32` or `bfloat16`. `auto` is bfloat16 only where the hardware is fast at it.
        device: `auto`, `cpu`, `cuda` or `mps`.
        seed: of the LoRA initialisation.

    Raises:
        ModelError: the id is unknown and the hub out of reach, a file is damaged, it is an encoder, or the options
            exclude each other.
    """
    from transformers import AutoModelForCausalLM

    if lora and top_layers:
        raise ModelError(f"lora={lora} and top_layers={top_layers} exclude each other; set one of them to 0.")
    where = resolve(name)
    if top_layers and is_adapter(where):
        raise ModelError(
            f"{name} is a LoRA adapter, and only the adapter would be saved: top_layers={top_layers} cannot train the "
            "layers below it. Set top_layers to 0 to train the adapter on."
        )
    place = pick_device(device)
    model: Any = pretrained(AutoModelForCausalLM, where, name, dtype=pick_dtype(dtype, place, frozen=lora > 0))
    _refuse_encoder(model.config, name)
    tokenizer = load_tokenizer(name)
    if lora and not is_adapter(where):
        model = add_lora(model, lora, seed)
    elif top_layers:
        freeze_below(model, model.get_decoder(), top_layers)
    return LanguageModel(model.to(place).eval(), tokenizer, name=name)


def _refuse_encoder(config: Any, name: str) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as ENCODERS

    if config.model_type in ENCODERS and not getattr(config, "is_decoder", False):
        raise ModelError(
            f"{name} is an encoder ({config.model_type}), in which a later token changes an earlier prediction. "
            "Name a causal language model, such as smollm2-135m."
        )


def resolve(name: str) -> str:
    """Folder or hub id to load from; converts the embedded model on first use."""
    if name == embedded.NAME:
        return str(embedded.embedded_folder())
    path = Path(name).expanduser()
    if path.is_dir():
        if not any((path / file).exists() for file in ("config.json", "adapter_config.json")):
            raise ModelError(
                f"{path} holds no model: neither config.json nor adapter_config.json is there. "
                "Name the folder a run wrote, such as runs/rl/checkpoints/final."
            )
        return str(path)
    if path.is_absolute() or name.startswith((".", "~")) or path.suffix or name.count("/") > 1:
        raise ModelError(f"The model folder {name} does not exist.{_near(path)}")
    return name


def _near(path: Path) -> str:
    parent = path.parent
    return did_you_mean(path.name, [p.name for p in parent.iterdir()]) if parent.is_dir() else ""


def is_adapter(where: str) -> bool:
    """True for a local folder that holds an adapter rather than whole weights."""
    return (Path(where) / "adapter_config.json").exists()


def pretrained(auto_class: Any, where: str, name: str, **options: Any) -> nn.Module:
    """`auto_class.from_pretrained`, with errors a person can act on; adapters come back trainable on their base."""
    refuse_unreachable(where, name)
    try:
        if is_adapter(where):
            return _with_adapter(auto_class, where, **options)
        model: nn.Module = auto_class.from_pretrained(where, **options)
        return model
    except ModelError:
        raise
    except Exception as error:  # every library below has exceptions of its own for one and the same cause
        raise ModelError(_explain(error, where, name)) from error


def _with_adapter(auto_class: Any, where: str, **options: Any) -> nn.Module:
    from peft import PeftConfig, PeftModel

    config = PeftConfig.from_pretrained(where)
    base = str(config.base_model_name_or_path)
    model: Any = pretrained(auto_class, resolve(base), base, **options)
    if config.task_type == "CAUSAL_LM" and not hasattr(model, "prepare_inputs_for_generation"):
        config.task_type = None  # a policy's adapter under another head: peft would look for what only policies have
    with quiet_peft():
        adapted: nn.Module = PeftModel.from_pretrained(model, where, is_trainable=True, config=config)
    return adapted


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence a notice about an attribute that peft reads under its old name; nobody here can act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield


def load_tokenizer(name: str) -> Any:
    """The tokenizer that belongs to a model; a missing padding token is left missing (nothing here needs one)."""
    from transformers import AutoTokenizer

    where = resolve(name)
    if is_adapter(where) and not (Path(where) / "tokenizer_config.json").exists():
        from peft import PeftConfig

        where = resolve(str(PeftConfig.from_pretrained(where).base_model_name_or_path))
    refuse_unreachable(where, name)
    try:
        return AutoTokenizer.from_pretrained(where)
    except Exception as error:
        raise ModelError(_explain(error, where, name)) from error


def refuse_unreachable(where: str, name: str) -> None:
    """Ask the hub once, and briefly, whether it is there, for a model that is neither a folder nor cached.

    The libraries below ask for minutes, again and again, for every file; most often the name is only misspelt.

    Raises:
        ModelError: nobody answers. Any answer will do here, as also one that the model does not exist.
    """
    if Path(where).is_dir():
        return
    from huggingface_hub import try_to_load_from_cache

    with contextlib.suppress(ValueError):  # a name that no model can have is explained later
        if any(isinstance(try_to_load_from_cache(where, file), str) for file in ("config.json", "adapter_config.json")):
            return
        if error := silence(where, "config.json"):
            raise ModelError(_explain(error, where, name)) from error


def _explain(error: Exception, where: str, name: str) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    detail = f"{type(error).__name__}: {first[:200]}"
    if Path(where).is_dir():
        return f"The model in {where} cannot be read; a file is missing or damaged. ({detail})"
    return (
        f"Cannot load {name!r}: it is not a local folder, not cached, and the hub did not give it."
        f"{did_you_mean(name.lower(), [embedded.NAME])} Check the spelling and the connection, or use "
        f"{embedded.NAME!r}, the embedded model that needs no network. ({detail})"
    )


def add_lora(
    model: nn.Module, rank: int, seed: int, *, task: str = "CAUSAL_LM", keep: tuple[str, ...] = ()
) -> nn.Module:
    """LoRA (arXiv 2106.09685) of the given rank on all linear layers, alpha = 2 * rank, no dropout.

    `keep` names modules that are trained and saved whole, such as a reward head.
    """
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type=task,
        modules_to_save=list(keep) or None,
    )
    with quiet_peft():
        adapted: nn.Module = get_peft_model(model, config)
    return adapted


def freeze_below(model: nn.Module, decoder: nn.Module, top_layers: int) -> None:
    """Leave only the last `top_layers` layers of `decoder`, a part of `model`, trainable."""
    layers = getattr(decoder, "layers", None)
    if layers is None or not 0 < top_layers <= len(layers):
        count = "no decoder layers that could be told apart" if layers is None else f"{len(layers)} layers"
        raise ModelError(f"top_layers is {top_layers}, but the model has {count}. Use 0, or lora instead.")
    model.requires_grad_(False)
    for layer in layers[-top_layers:]:
        layer.requires_grad_(True)


def pick_device(device: str) -> torch.device:
    """The device asked for; `auto` takes CUDA, then the CPU. Apple's `mps` is taken only when asked for."""
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def pick_dtype(dtype: str, device: torch.device, *, frozen: bool) -> torch.dtype:
    """The dtype asked for; `auto` is bfloat16 for `frozen` weights on GPUs that support it, and float32 otherwise.

    Trained weights stay in float32: in bfloat16 more than nine tenths of an update at a learning rate of 1e-5 are
    rounded away, every step anew. On CPUs without the instructions for it bfloat16 is tens of times slower.
    """
    if dtype == "auto":
        fast = frozen and device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype not in known:
        raise ModelError(f"dtype is {dtype!r}; valid: auto, {', '.join(known)}.{did_you_mean(dtype, known)}")
    return known[dtype]
