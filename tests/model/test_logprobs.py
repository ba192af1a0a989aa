"""The fused log-probs equal `log_softmax` over full logits, in value and gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from prefrl.model import logprobs
from prefrl.model.language import _ShapedHead
from prefrl.model.logprobs import token_logps

N, H, V = 11, 6, 13


class LowRank(nn.Module):
    """A head that is more than one matrix, as with an adapter on it."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(H, V, bias=False), nn.Linear(H, 2), nn.Linear(2, V)

    def forward(self, hidden):
        return self.base(hidden) + self.up(self.down(hidden))


HEADS = {
    "plain": lambda: nn.Linear(H, V, bias=False),
    "bias": lambda: nn.Linear(H, V),
    "low rank": LowRank,
    "soft-capped and scaled": lambda: _ShapedHead(nn.Linear(H, V, bias=False), 0.5, 2.0),
}


def case(head="plain", dtype=torch.float64, count=N):
    torch.manual_seed(0)
    hidden = torch.randn(count, H, dtype=dtype).requires_grad_()
    return hidden, HEADS[head]().to(dtype), torch.randint(0, V, (count,)), torch.randn(count, dtype=dtype)


def naive(hidden, head, targets, temperature):
    return (head(hidden) / temperature).log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)


@pytest.mark.parametrize("chunk", [1, 4, 11, 256])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("head_name", HEADS)
def test_values_and_gradients(head_name, temperature, chunk, monkeypatch):
    monkeypatch.setattr(logprobs, "CHUNK", chunk)
    hidden, head, targets, weights = case(head_name)
    logps = token_logps(hidden, head, targets, temperature=temperature), naive(hidden, head, targets, temperature)
    gradients = [torch.autograd.grad((p * weights).sum(), [hidden, *head.parameters()]) for p in logps]
    torch.testing.assert_close(*logps, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("head_name", HEADS)
def test_gradcheck(head_name, monkeypatch):
    monkeypatch.setattr(logprobs, "CHUNK", 4)
    hidden, head, targets, _ = case(head_name)
    names, parameters = zip(*head.named_parameters(), strict=True)

    def of(states, *values):
        if head_name == "plain":  # the fused function itself
            return logprobs._TokenLogps.apply(states, values[0], targets, 0.7)
        shell = lambda h: torch.func.functional_call(head, dict(zip(names, values, strict=True)), h)  # noqa: E731
        return logprobs._generic(states, shell, targets, 0.7)

    assert torch.autograd.gradcheck(of, (hidden, *(p.detach().requires_grad_() for p in parameters)))


@pytest.mark.parametrize("frozen", ["hidden", "head"])
def test_only_what_is_trained_gets_a_gradient(frozen):
    hidden, head, targets, weights = case()
    (hidden if frozen == "hidden" else head.weight).requires_grad_(False)
    trained = head.weight if frozen == "hidden" else hidden
    (wanted,) = torch.autograd.grad((naive(hidden, head, targets, 1.0) * weights).sum(), trained)
    (token_logps(hidden, head, targets) * weights).sum().backward()
    torch.testing.assert_close(trained.grad, wanted)
    assert (hidden if frozen == "hidden" else head.weight).grad is None


@pytest.mark.parametrize("head_name", HEADS)
def test_no_tokens(head_name):
    hidden, head, targets, _ = case(head_name, count=0)
    logps = token_logps(hidden, head, targets)
    assert logps.shape == (0,)
    assert logps.dtype == torch.float64


def test_uniform_logits():
    head = nn.Linear(H, V, bias=False)
    nn.init.zeros_(head.weight)
    logps = token_logps(torch.randn(3, H), head, torch.tensor([0, 5, 12]))
    torch.testing.assert_close(logps, torch.full((3,), -math.log(V)))


def test_huge_logits_stay_finite():
    head = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1e4], [-1e4]]))
    hidden = torch.ones(2, 1, requires_grad=True)
    logps = token_logps(hidden, head, torch.tensor([0, 1]))
    assert logps.tolist() == [0.0, -2e4]
    logps.sum().backward()
    assert hidden.grad.tolist() == [[0.0], [-2e4]]


@pytest.mark.parametrize("head_name", HEADS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_log_probs_are_float32_or_better(head_name, dtype):
    hidden, head, targets, _ = case(head_name, dtype)
    logps = token_logps(hidden, head, targets)
    assert logps.dtype == torch.float32
    exact = (head(hidden).float()).log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)
    torch.testing.assert_close(logps, exact)
    logps.sum().backward()
    assert hidden.grad.dtype == dtype


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_without_log_probs(temperature):
    with pytest.raises(ValueError, match="must be positive"):
        token_logps(*case()[:3], temperature=temperature)


def test_shapes_are_checked():
    hidden, head, targets, _ = case()
    with pytest.raises(AssertionError, match=r"targets \(N,\)"):
        token_logps(hidden, head, targets[:-1])
