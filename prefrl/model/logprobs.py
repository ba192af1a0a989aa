"""What a policy says of given tokens, from hidden states, without ever holding a (tokens, vocabulary) tensor.

For `z = W h / T`, `p = softmax(z)`, a token y and a teacher's distribution q over the same vocabulary:

    log-prob       log p[y]                             slope in z:  1[y] - p
    entropy        H = -sum_v p log p                   slope in z:  -p (log p + H)
    reverse KL     KL(p || q) = sum_v p (log p - log q) slope in z:  p (log p - log q - KL)

The slope in h is that in z times `W / T`. It is formed chunk by chunk during the forward pass, when the softmax
is at hand; what is kept for the backward pass is (tokens, hidden size) for each output. The head's own gradient,
needed only when the head is trained, recomputes each chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CHUNK = 256  # tokens a chunk: 256 x 49,152 float32 logits are 50 MB


@dataclass(frozen=True, slots=True)
class TeacherStates:
    """A teacher at N tokens: `softmax(head(hidden) / temperature)`. It gets no gradient.

    hidden  (N, H') final hidden states; H' need not be the policy's hidden size
    head    the teacher's output head, over as many entries as the policy's
    """

    hidden: Tensor
    head: nn.Module


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
    return token_statistics(hidden, head, targets, temperature=temperature)["logps"]


def token_statistics(
    hidden: Tensor,
    head: nn.Module,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    teacher: TeacherStates | None = None,
) -> dict[str, Tensor]:
    """`logps` as `token_logps` has them and, of the same distributions p, what else is asked for.

    Args:
        entropy: also give `entropy`, that of p at each token, in nats.
        teacher: also give `teacher_kl`, `KL(p || q)` at each token over the whole vocabulary, in nats: never
            negative, and 0 with a gradient of 0 where the teacher computes the policy's own numbers.

    Returns:
        name -> (N,) in float32 (float64 for float64 states), each with its gradient.
    """
    assert hidden.ndim == 2 and targets.shape == hidden.shape[:1], "hidden (N, H), targets (N,)"
    assert teacher is None or len(teacher.hidden) == len(hidden), "one state of the teacher for each of the policy's"
    if temperature <= 0:
        raise ValueError(f"temperature must be positive to have log-probs, got {temperature}")
    asked = _Asked(targets, temperature, entropy, teacher)
    if type(head) is nn.Linear and head.bias is None:
        values = _TokenStatistics.apply(hidden, head.weight, asked)
    else:
        values = _generic(hidden, head, asked)
    return dict(zip(asked.names, values, strict=True))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to say of N distributions."""

    targets: Tensor
    temperature: float
    entropy: bool
    teacher: TeacherStates | None

    @property
    def names(self) -> list[str]:
        return ["logps", *["entropy"] * self.entropy, *["teacher_kl"] * (self.teacher is not None)]

    @torch.no_grad()
    def further(self, log_p: Tensor, part: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """Of a chunk's log-probs (C, V), all but the first output (C,), each with its slope (C, V) in the logits."""
        if not self.entropy and self.teacher is None:
            return
        p = log_p.exp()
        if self.entropy:
            value = -(p * log_p).sum(-1)
            yield value, (log_p + value[:, None]).mul_(p).neg_()
        if self.teacher is not None:
            logits = self.teacher.head(self.teacher.hidden[part]).to(log_p.device)
            yield _reverse_kl(p, log_p, _log_probs(logits, self.temperature, log_p.dtype))


class _TokenStatistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, asked: _Asked) -> tuple[Tensor, ...]:
        targets, temperature, count = asked.targets, asked.temperature, len(asked.names)
        need_hidden, need_weight, _ = ctx.needs_input_grad
        dtype = _at_least_float32(hidden)
        values = [torch.empty(len(hidden), dtype=dtype, device=hidden.device) for _ in range(count)]
        slopes = [torch.empty_like(hidden) for _ in range(count if need_hidden else 0)]
        for part in _chunks(len(hidden)):
            logits = (hidden[part] @ weight.T).to(dtype).div_(temperature)
            normaliser = logits.logsumexp(-1)
            values[0][part] = logits.gather(-1, targets[part, None]).squeeze(-1) - normaliser
            if count == 1 and not need_hidden:
                continue
            log_p = logits.sub_(normaliser[:, None])
            for i, (value, slope) in enumerate(asked.further(log_p, part), start=1):
                values[i][part] = value
                if need_hidden:
                    slopes[i][part] = slope.to(weight.dtype) @ weight / temperature
            if need_hidden:
                probs = log_p.exp_().to(weight.dtype)
                slopes[0][part] = (weight[targets[part]] - probs @ weight) / temperature
        ctx.asked = asked
        ctx.save_for_backward(hidden if need_weight else None, weight, *slopes)
        return tuple(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        hidden, weight, *slopes = ctx.saved_tensors
        grad_hidden = grad_weight = None
        if slopes:
            grad_hidden = sum(slope * grad[:, None].to(slope.dtype) for slope, grad in zip(slopes, grads, strict=True))
        if hidden is not None:
            grad_weight = torch.zeros_like(weight, dtype=_at_least_float32(weight))
            for part in _chunks(len(hidden)):
                outer = _logits_gradient(hidden[part] @ weight.T, ctx.asked, part, [g[part, None] for g in grads])
                grad_weight += outer.to(weight.dtype).T @ hidden[part]
            grad_weight = grad_weight.to(weight.dtype)
        return grad_hidden, grad_weight, None


def _logits_gradient(logits: Tensor, asked: _Asked, part: slice, grads: Sequence[Tensor]) -> Tensor:
    """Gradient (C, V) that the outputs' gradients (C, 1) make at a chunk's logits."""
    log_p = _log_probs(logits, asked.temperature, _at_least_float32(logits))
    outer = (log_p.exp() if len(grads) > 1 else log_p.exp_()).neg_()
    outer.scatter_add_(-1, asked.targets[part, None], torch.ones_like(grads[0], dtype=outer.dtype))
    outer *= grads[0]
    for (_, slope), grad in zip(asked.further(log_p, part), grads[1:], strict=True):
        outer += slope.mul_(grad)
    return outer.div_(asked.temperature)


def _generic(hidden: Tensor, head: nn.Module, asked: _Asked) -> tuple[Tensor, ...]:
    dtype = _at_least_float32(hidden)

    def chunk(states: Tensor, part: slice) -> tuple[Tensor, ...]:
        scaled = head(states).to(dtype) / asked.temperature
        normaliser = scaled.logsumexp(-1)
        logps = scaled.gather(-1, asked.targets[part, None]).squeeze(-1) - normaliser
        log_p = scaled.detach() - normaliser.detach()[:, None]
        still = scaled - scaled.detach()  # zeros, along which the known slopes reach the logits
        return logps, *(value + (slope * still).sum(-1) for value, slope in asked.further(log_p, part))

    parts = [
        torch.utils.checkpoint.checkpoint(chunk, hidden[part], part, use_reentrant=False)
        for part in _chunks(len(hidden))
    ]
    if not parts:
        return tuple(hidden.new_zeros(0, dtype=dtype) for _ in asked.names)
    return tuple(torch.cat(values) for values in zip(*parts, strict=True))


def _reverse_kl(p: Tensor, log_p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p || q) of each row (C,) and its slope (C, V) in the logits of p.

    The value is summed as `p (log p - log q) + q - p`. The sum of q - p is 0, but each term is then at least 0 and of
    second order in the gap: in float32 and near equality the rounding of the normalisers, up to 2e-6, drops out.
    """
    gap = log_p - log_q
    # q - p without cancellation or overflow: the larger of the two times expm1 of minus their distance.
    difference = torch.maximum(log_p, log_q).exp_().mul_(torch.expm1(-gap.abs())).mul_(gap.sign())
    weighted = p * gap
    mean = weighted.sum(-1, keepdim=True)
    value = difference.add_(weighted).sum(-1).clamp_(min=0.0)
    return value, gap.sub_(mean).mul_(p)


def _log_probs(logits: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    """Log-softmax of logits that nobody else reads: they may be overwritten."""
    scaled = logits.to(dtype).div_(temperature)
    return scaled.sub_(scaled.logsumexp(-1, keepdim=True))


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, count, CHUNK))


def _at_least_float32(states: Tensor) -> torch.dtype:
    return torch.promote_types(states.dtype, torch.float32)
