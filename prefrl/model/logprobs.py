"""Log-probs of given tokens from hidden states, without ever holding a (tokens, vocabulary) gradient.

For `logp = z[y] - logsumexp(z)`, `z = W h / T`, the gradient with respect to h is
`(W[y] - softmax(z) W) / T` times whatever the loss sends back. It is formed chunk by chunk during the
forward pass, when the softmax is at hand; what is kept for the backward pass is (tokens, hidden size).
The head's own gradient, needed only when the head is trained, recomputes each chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

CHUNK = 256  # tokens a chunk: 256 x 49,152 float32 logits are 50 MB


class _TokenLogps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> Tensor:
        dtype = _at_least_float32(hidden)
        logps = torch.empty(len(hidden), dtype=dtype, device=hidden.device)
        need_hidden = ctx.needs_input_grad[0]
        slope = torch.empty_like(hidden) if need_hidden else None
        for start in range(0, len(hidden), CHUNK):
            part = slice(start, start + CHUNK)
            logits = (hidden[part] @ weight.T).to(dtype).div_(temperature)
            normaliser = logits.logsumexp(-1)
            logps[part] = logits.gather(-1, targets[part, None]).squeeze(-1) - normaliser
            if slope is not None:
                probs = logits.sub_(normaliser[:, None]).exp_().to(weight.dtype)
                slope[part] = (weight[targets[part]] - probs @ weight) / temperature
        ctx.temperature = temperature
        ctx.save_for_backward(slope, hidden if ctx.needs_input_grad[1] else None, weight, targets)
        return logps

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (grad,) = grads
        slope, hidden, weight, targets = ctx.saved_tensors
        grad_hidden = None if slope is None else slope * grad[:, None].to(slope.dtype)
        grad_weight = None
        if hidden is not None:
            dtype = _at_least_float32(hidden)
            grad_weight = torch.zeros_like(weight)
            for start in range(0, len(hidden), CHUNK):
                part = slice(start, start + CHUNK)
                logits = (hidden[part] @ weight.T).to(dtype).div_(ctx.temperature)
                outer = logits.softmax(-1).neg_()
                outer.scatter_add_(-1, targets[part, None], torch.ones_like(grad[part, None], dtype=outer.dtype))
                outer *= grad[part, None] / ctx.temperature
                grad_weight += outer.to(weight.dtype).T @ hidden[part]
        return grad_hidden, grad_weight, None, None


def token_logps(hidden: Tensor, head: nn.Module, targets: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Log-prob of each target under `softmax(head(hidden) / temperature)`.

    Args:
        hidden: (N, H) final hidden states.
        head: the output embedding. A plain linear map takes the fused path; anything else (adapters on the
            head, a bias) is called as it is, in chunks that are recomputed in the backward pass.
        targets: (N,) token ids.
        temperature: the sampling temperature; must be positive.

    Returns:
        (N,) log-probs over the full vocabulary, in float32 (float64 for float64 states).
    """
    assert hidden.ndim == 2 and targets.shape == hidden.shape[:1], "hidden (N, H), targets (N,)"
    if temperature <= 0:
        raise ValueError(f"temperature must be positive to have log-probs, got {temperature}")
    if type(head) is nn.Linear and head.bias is None:
        result: Tensor = _TokenLogps.apply(hidden, head.weight, targets, temperature)
        return result
    return _generic(hidden, head, targets, temperature)


def _generic(hidden: Tensor, head: nn.Module, targets: Tensor, temperature: float) -> Tensor:
    dtype = _at_least_float32(hidden)

    def chunk(states: Tensor, wanted: Tensor) -> Tensor:
        logps = (head(states).to(dtype) / temperature).log_softmax(-1)
        return logps.gather(-1, wanted[:, None]).squeeze(-1)

    parts = [
        torch.utils.checkpoint.checkpoint(
            chunk, hidden[start : start + CHUNK], targets[start : start + CHUNK], use_reentrant=False
        )
        for start in range(0, len(hidden), CHUNK)
    ]
    return torch.cat(parts) if parts else hidden.new_zeros(0, dtype=dtype)


def _at_least_float32(states: Tensor) -> torch.dtype:
    return torch.promote_types(states.dtype, torch.float32)
