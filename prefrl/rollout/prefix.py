"""Prompts computed once: keys and values of right-padded prompts, to be repeated for their completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

Ids = Sequence[int]


def cache_is_shareable(decoder: nn.Module) -> bool:
    """True when every layer keeps plain keys and values that can be repeated for several suffixes."""
    config: Any = decoder.config
    if getattr(decoder, "is_activation_checkpointing", False) and decoder.training:
        return False
    layers = DynamicCache(config=config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def prefill(decoder: nn.Module, prompts: Sequence[Ids]) -> tuple[DynamicCache, Tensor]:
    """Keys and values of right-padded prompts and their (B, longest) mask of real positions."""
    device = next(decoder.parameters()).device
    ids, mask = right_pad(prompts, device)
    cache = DynamicCache(config=decoder.config)  # type: ignore[arg-type]
    decoder(input_ids=ids, cache=cache, use_cache=True)
    return cache, mask


def right_pad(rows: Sequence[Ids], device: torch.device) -> tuple[Tensor, Tensor]:
    """Stack ragged rows: ids (B, longest) filled with 0, and the mask (B, longest) of real tokens."""
    longest = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[i, : len(row)] = 1
    return ids.to(device), mask.to(device)


def keys_and_values(cache: Any) -> list[tuple[Tensor, Tensor]]:
    """Per layer, keys and values (B, heads, length, size) of a cache for which `cache_is_shareable` holds."""
    return [(layer.keys, layer.values) for layer in cache.layers]
