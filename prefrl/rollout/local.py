"""The in-process sampler: one prefill per prompt for its whole group, finished rows leave the batch.

Log-probs are exact, over the full vocabulary, at the sampling temperature. Every row draws from its own
random numbers, so what it says does not depend on which rows it is batched with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from prefrl.config import SamplingConfig
from prefrl.rollout.prefix import cache_is_shareable, keys_and_values, prefill
from prefrl.rollout.sampler import row_uniforms
from prefrl.types import Prompt, StopReason

COMPACT_BELOW = 0.8  # finished rows are computed along until this share of the batch is left
_BLOCK = 256  # vocabulary entries summed at a time when a token is drawn


class Request(NamedTuple):
    """One completion to draw."""

    prompt_ids: tuple[int, ...]
    uniforms: Tensor  # (max_new_tokens,)


class Drawn(NamedTuple):
    """One drawn completion."""

    ids: tuple[int, ...]
    logps: tuple[float, ...]
    stop: StopReason


class Trunk(NamedTuple):
    """Keys and values of a text, layer by layer (1, heads, length, size): rows go on from any beginning of it."""

    layers: list[tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, decoder: nn.Module, ids: Sequence[int]) -> Trunk:
        """Compute a text once. Only for decoders whose cache is shareable."""
        return cls(keys_and_values(prefill(decoder, [ids])[0]))


class _PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer in a buffer that is written in place instead of growing by copies."""

    def __init__(self, keys: Tensor, values: Tensor, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = keys.shape[-2]
        shape = (*keys.shape[:-2], capacity, keys.shape[-1])
        self.buffer_keys, self.buffer_values = keys.new_empty(shape), values.new_empty(shape)
        self.buffer_keys[..., : self.length, :] = keys
        self.buffer_values[..., : self.length, :] = values
        self._view()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        end = self.length + key_states.shape[-2]
        self.buffer_keys[..., self.length : end, :] = key_states
        self.buffer_values[..., self.length : end, :] = value_states
        self.length = end
        return self._view()

    def get_seq_length(self) -> int:
        return self.length

    def keep(self, rows: Tensor) -> None:
        self.buffer_keys, self.buffer_values = self.buffer_keys[rows], self.buffer_values[rows]
        self._view()

    def _view(self) -> tuple[Tensor, Tensor]:
        keys, values = self.buffer_keys[..., : self.length, :], self.buffer_values[..., : self.length, :]
        self.keys, self.values = keys, values
        return keys, values


class _Decoding:
    """The state of one batch while it is decoded.

    Plain keys and values go into preallocated buffers, and prompts may be ragged. Any other cache (sliding
    windows, state-space layers) is the model's own and has no room for padding: its prompts are equally long.
    """

    def __init__(
        self,
        decoder: nn.Module,
        prompts: list[tuple[int, ...]],
        source: Tensor,
        capacity: int,
        trunk: Trunk | None = None,
    ) -> None:
        """Prefill each distinct prompt up to its last token, or take it off the trunk; repeat it for its rows."""
        self.decoder = decoder
        self.plain = cache_is_shareable(decoder)
        assert self.plain or len({len(p) for p in prompts}) == 1, "only plain caches take ragged prompts"
        device = source.device
        self.tokens = torch.tensor([prompts[i][-1] for i in source.tolist()], device=device)
        heads = [p[:-1] for p in prompts]
        width = max(len(p) for p in heads)
        self.cache = DynamicCache(config=decoder.config)  # type: ignore[arg-type]
        self.mask = torch.zeros(len(source), width + capacity, dtype=torch.long, device=device)
        self.position = torch.tensor([len(heads[i]) for i in source.tolist()], device=device)
        self.column = width
        if width:
            self.mask[:, :width] = torch.arange(width, device=device) < self.position[:, None]
            if trunk is not None:
                layers, source = [(k[:, :, :width], v[:, :, :width]) for k, v in trunk.layers], torch.zeros_like(source)
            else:
                filled, _ = prefill(decoder, [h or (0,) for h in heads])
                if not self.plain:
                    filled.reorder_cache(source)  # type: ignore[arg-type]
                    self.cache = filled
                    return
                layers = keys_and_values(filled)
            self.cache.layers = [
                _PreallocatedLayer(keys[source], values[source], width + capacity) for keys, values in layers
            ]

    def advance(self) -> Tensor:
        """Feed the pending tokens; the (rows, H) hidden states that predict the next ones."""
        self.mask[:, self.column] = 1
        self.column += 1
        hidden: Tensor = self.decoder(
            input_ids=self.tokens[:, None],
            attention_mask=self.mask[:, : self.column] if self.plain else None,
            position_ids=self.position[:, None],
            cache=self.cache,
            use_cache=True,
        ).last_hidden_state[:, 0]
        self.position = self.position + 1
        return hidden

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.mask, self.position, self.tokens = self.mask[rows], self.position[rows], self.tokens[rows]
        for layer in self.cache.layers:
            if isinstance(layer, _PreallocatedLayer):
                layer.keep(rows)
            else:
                layer.reorder_cache(rows)  # type: ignore[arg-type]


@torch.no_grad()
def draw(
    decoder: nn.Module,
    head: Callable[[Tensor], Tensor],
    requests: Sequence[Request],
    params: SamplingConfig,
    *,
    eos: Sequence[int],
    decode: Callable[[list[int]], str],
    batch_rows: int = 64,
    trunk: Trunk | None = None,
) -> list[Drawn]:
    """Draw one completion per request, in the order of the requests; with a trunk every prompt is a beginning of it."""
    results: list[Drawn | None] = [None] * len(requests)
    for indices in _batches(requests, batch_rows, ragged=cache_is_shareable(decoder)):
        batch = [requests[i] for i in indices]
        for i, drawn in zip(indices, _draw_batch(decoder, head, batch, params, eos, decode, trunk), strict=True):
            results[i] = drawn
    return [drawn for drawn in results if drawn is not None]


def _batches(requests: Sequence[Request], batch_rows: int, *, ragged: bool) -> Iterator[list[int]]:
    """Rows sorted by prompt, so that equal prompts share a prefill and lengths in a batch are alike (or equal)."""
    order = sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt_ids), requests[i].prompt_ids))
    for _, run in groupby(order, key=lambda i: 0 if ragged else len(requests[i].prompt_ids)):
        alike = list(run)
        for start in range(0, len(alike), batch_rows):
            yield alike[start : start + batch_rows]


def _draw_batch(
    decoder: nn.Module,
    head: Callable[[Tensor], Tensor],
    requests: list[Request],
    params: SamplingConfig,
    eos: Sequence[int],
    decode: Callable[[list[int]], str],
    trunk: Trunk | None,
) -> list[Drawn]:
    device = next(decoder.parameters()).device
    prompts = list(dict.fromkeys(r.prompt_ids for r in requests))
    where = {prompt: i for i, prompt in enumerate(prompts)}
    source = torch.tensor([where[r.prompt_ids] for r in requests], device=device)
    state = _Decoding(decoder, prompts, source, params.max_new_tokens, trunk)
    uniforms = _wide(torch.stack([r.uniforms for r in requests]), device).to(device)
    eos_ids = torch.tensor(list(eos), device=device)
    ids: list[list[int]] = [[] for _ in requests]
    logps: list[list[float]] = [[] for _ in requests]
    stops = [StopReason.LENGTH] * len(requests)
    rows = torch.arange(len(requests), device=device)  # which request each computed row belongs to
    alive = torch.ones(len(requests), dtype=torch.bool, device=device)
    for step in range(params.max_new_tokens):
        tokens, picked = pick(head(state.advance()), uniforms[rows, step], params.temperature)
        state.tokens = tokens
        ended = torch.isin(tokens, eos_ids)
        for at, (row, live) in enumerate(zip(rows.tolist(), alive.tolist(), strict=True)):
            if not live:
                continue
            ids[row].append(int(tokens[at]))
            logps[row].append(float(picked[at]))
            if bool(ended[at]):
                stops[row] = StopReason.EOS
            elif params.stop and any(s in decode(ids[row]) for s in params.stop):
                stops[row] = StopReason.STOP
                ended[at] = True
        alive &= ~ended
        left = int(alive.sum())
        if left == 0:
            break
        if left <= COMPACT_BELOW * len(rows):
            kept = alive.nonzero().squeeze(-1)
            state.keep(kept)
            rows, alive = rows[kept], alive[kept]
    return [Drawn(tuple(i), tuple(p), s) for i, p, s in zip(ids, logps, stops, strict=True)]


def pick(logits: Tensor, uniforms: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Draw one token a row by inverting the cumulative distribution at its uniform number.

    The sum runs over blocks of the vocabulary and then, in float64, inside the block that holds the token:
    one pass over the logits, where `log_softmax` and `torch.multinomial` take several.

    Args:
        logits: (B, V) raw logits.
        uniforms: (B,) numbers in [0, 1).
        temperature: 0 takes the arg max and reports its log-prob at temperature 1.

    Returns:
        token ids (B,) and their log-probs (B,) over the full vocabulary at that temperature.
    """
    scaled = logits.float() / (temperature or 1.0)
    top, best = scaled.max(-1, keepdim=True)
    weights = (scaled - top).exp_()
    batch, vocabulary = weights.shape
    if vocabulary % _BLOCK:
        weights = torch.nn.functional.pad(weights, (0, -vocabulary % _BLOCK))
    weights = weights.view(batch, -1, _BLOCK)
    blocks = _wide(weights.sum(-1)).cumsum(-1)
    total = blocks[:, -1:]
    tokens = best if temperature == 0 else _invert(weights, blocks, uniforms[:, None] * total)
    logps = scaled.gather(-1, tokens) - top - total.log()
    return tokens.squeeze(-1), logps.squeeze(-1).float()


def _wide(values: Tensor, device: torch.device | None = None) -> Tensor:
    """In float64, but where the device (by default that of the values) has none."""
    return values.float() if (device or values.device).type == "mps" else values.double()


def _invert(weights: Tensor, blocks: Tensor, target: Tensor) -> Tensor:
    """Index of the entry at which the running sum of `weights` passes `target` (B, 1)."""
    block = torch.searchsorted(blocks, target, right=True).clamp_(max=blocks.shape[1] - 1)
    before = torch.where(block > 0, blocks.gather(-1, (block - 1).clamp(min=0)), 0.0)
    rows = torch.arange(len(weights), device=weights.device)
    inside = _wide(weights[rows, block.squeeze(-1)]).cumsum(-1)
    # Rounding may leave the target past the end of the block's own sum: take its last entry of weight > 0.
    last = (weights[rows, block.squeeze(-1)] > 0).long().mul(torch.arange(1, _BLOCK + 1, device=weights.device))
    offset = torch.searchsorted(inside, target - before, right=True)
    return block * _BLOCK + torch.minimum(offset, last.amax(-1, keepdim=True) - 1)


def requests_for(
    prompts: Sequence[Prompt], prompt_ids: Sequence[Sequence[int]], counts: Sequence[int], n: int, count: int, seed: int
) -> list[Request]:
    """The `n` requests of every prompt, each with its own random numbers."""
    return [
        Request(tuple(ids), row_uniforms(seed, prompt, occurrence, sample, count))
        for prompt, ids, occurrence in zip(prompts, prompt_ids, counts, strict=True)
        for sample in range(n)
    ]
