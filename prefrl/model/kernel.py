"""The hot path: hidden states of completions, with every prompt computed once for all its completions.

A row is a *prefix* (shared) and a *suffix* (its own). The prefixes of a micro-batch are computed once
each; their keys and values, with gradient, are then handed to every suffix. Where a prefix is not
shared, or the architecture's cache cannot be (sliding windows, state-space layers, checkpointing),
whole rows are padded on the right and computed together. Both paths give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from prefrl.rollout.prefix import Ids, cache_is_shareable, keys_and_values, prefill, right_pad


def suffix_hidden(
    decoder: nn.Module, prefixes: Sequence[Ids], suffixes: Sequence[Ids], *, share: bool = True
) -> Tensor:
    """Last hidden state of every suffix token, laid end to end.

    Args:
        decoder: a causal transformer returning `last_hidden_state` (after the final norm).
        prefixes: R prompts; equal ones are computed once when `share`.
        suffixes: R non-empty token lists, each continuing its prefix.

    Returns:
        (sum of suffix lengths, hidden size), with gradient through suffixes and shared prefixes.
    """
    assert len(prefixes) == len(suffixes) and all(len(s) for s in suffixes), "one non-empty suffix per prefix"
    unique = {tuple(prefix): None for prefix in prefixes}
    shared = share and len(unique) < len(prefixes) and all(unique_prefix for unique_prefix in unique)
    if shared and cache_is_shareable(decoder):
        return _shared(decoder, list(unique), prefixes, suffixes)
    return _padded(decoder, prefixes, suffixes)


def _padded(decoder: nn.Module, prefixes: Sequence[Ids], suffixes: Sequence[Ids]) -> Tensor:
    """Whole rows, padded on the right: causal attention never looks at what follows, so no mask is needed."""
    device = next(decoder.parameters()).device
    ids, _ = right_pad([[*p, *s] for p, s in zip(prefixes, suffixes, strict=True)], device)
    hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state
    rows = [hidden[i, len(p) : len(p) + len(s)] for i, (p, s) in enumerate(zip(prefixes, suffixes, strict=True))]
    return torch.cat(rows)


def _shared(
    decoder: nn.Module, unique: list[tuple[int, ...]], prefixes: Sequence[Ids], suffixes: Sequence[Ids]
) -> Tensor:
    device = next(decoder.parameters()).device
    cache, prefix_mask = prefill(decoder, unique)
    where = {prefix: i for i, prefix in enumerate(unique)}
    source = torch.tensor([where[tuple(p)] for p in prefixes], device=device)
    repeated = DynamicCache(config=decoder.config)  # type: ignore[arg-type]
    for index, (keys, values) in enumerate(keys_and_values(cache)):
        repeated.update(keys.index_select(0, source), values.index_select(0, source), index)
    ids, suffix_mask = right_pad(suffixes, device)
    mask = torch.cat([prefix_mask[source], suffix_mask], dim=1)
    start = prefix_mask[source].sum(1, keepdim=True)
    positions = start + torch.arange(ids.shape[1], device=device)
    hidden = decoder(
        input_ids=ids, attention_mask=mask, position_ids=positions, cache=repeated, use_cache=True
    ).last_hidden_state
    return hidden[suffix_mask.bool()]
