"""Fused log-probs, entropy and KL to a teacher equal those over full logits, in value and gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from prefrl.model import logprobs
from prefrl.model.language import _ShapedHead
from prefrl.model.logprobs import TeacherStates, token_logps, token_statistics

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


def taught(head="plain", dtype=torch.float64, count=N):
    """A teacher with states and a head of its own."""
    torch.manual_seed(1)
    return TeacherStates(torch.randn(count, H, dtype=dtype), HEADS[head]().to(dtype).requires_grad_(False))


def naive_statistics(hidden, head, targets, temperature, teacher):
    log_p = (head(hidden) / temperature).log_softmax(-1)
    log_q = (teacher.head(teacher.hidden) / temperature).log_softmax(-1)
    return {
        "logps": log_p.gather(-1, targets[:, None]).squeeze(-1),
        "entropy": -(log_p.exp() * log_p).sum(-1),
        "teacher_kl": (log_p.exp() * (log_p - log_q)).sum(-1),
    }


class Largest(TorchDispatchMode):
    """The most entries of any tensor that is made meanwhile and has the vocabulary as its last dimension."""

    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary, self.entries = vocabulary, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(made) if isinstance(t, torch.Tensor) and self.vocabulary in t.shape]
        self.entries = max([self.entries, *sizes])
        return made


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

    asked = logprobs._Asked(targets, 0.7, entropy=True, teacher=taught())

    def of(states, *values):
        if head_name == "plain":  # the fused function itself
            return logprobs._TokenStatistics.apply(states, values[0], asked)
        shell = lambda h: torch.func.functional_call(head, dict(zip(names, values, strict=True)), h)  # noqa: E731
        return logprobs._generic(states, shell, asked)

    assert torch.autograd.gradcheck(of, (hidden, *(p.detach().requires_grad_() for p in parameters)))


@pytest.mark.parametrize("chunk", [1, 4, 11, 256])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("head_name", HEADS)
def test_every_statistic_and_its_gradients(head_name, temperature, chunk, monkeypatch):
    monkeypatch.setattr(logprobs, "CHUNK", chunk)
    hidden, head, targets, _ = case(head_name)
    teacher = taught("bias" if head_name == "plain" else "plain")
    got = token_statistics(hidden, head, targets, temperature=temperature, entropy=True, teacher=teacher)
    wanted = naive_statistics(hidden, head, targets, temperature, teacher)
    assert list(got) == list(wanted)
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], atol=1e-12, rtol=1e-12)
    weights = {name: torch.randn(N, dtype=torch.float64) for name in wanted}
    for names in (*([name] for name in wanted), list(wanted)):  # each by itself, then all together
        gradients = [
            torch.autograd.grad(
                sum((found[name] * weights[name]).sum() for name in names),
                [hidden, *head.parameters()],
                retain_graph=True,
            )
            for found in (got, wanted)
        ]
        torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("head_name", HEADS)
def test_only_what_is_asked_for_is_given(head_name):
    hidden, head, targets, _ = case(head_name)
    plain = token_logps(hidden, head, targets)
    for entropy in (False, True):
        for teacher in (None, taught()):
            found = token_statistics(hidden, head, targets, entropy=entropy, teacher=teacher)
            assert ("entropy" in found, "teacher_kl" in found) == (entropy, teacher is not None)
            assert torch.equal(found["logps"], plain)


def logits(*probabilities):
    """A head over one hidden unit, at 1, whose softmax is the given distribution."""
    head = nn.Linear(1, len(probabilities), bias=False).double()
    with torch.no_grad():
        head.weight.copy_(torch.tensor(probabilities, dtype=torch.float64).log()[:, None])
    return head


def test_two_tokens_by_hand():
    hidden, student, teacher = torch.ones(1, 1).double(), logits(0.5, 0.5), logits(0.8, 0.2)
    found = token_statistics(hidden, student, torch.tensor([0]), entropy=True, teacher=TeacherStates(hidden, teacher))
    # 0.5 log(0.5 / 0.8) + 0.5 log(0.5 / 0.2) and log 2.
    assert found["teacher_kl"].item() == pytest.approx(0.22314, abs=1e-5)
    assert found["entropy"].item() == pytest.approx(0.693147, abs=1e-6)
    # p (log p - log q - KL): 0.5 * (-0.470004 - 0.223144) and its opposite.
    (slope,) = torch.autograd.grad(found["teacher_kl"].sum(), student.weight)
    assert slope.flatten().tolist() == pytest.approx([-0.346574, 0.346574], abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("head_name", HEADS)
def test_a_teacher_that_agrees_is_at_0_without_gradient(head_name, dtype):
    hidden, head, targets, _ = case(head_name, dtype, count=300)
    found = token_statistics(hidden, head, targets, temperature=0.7, teacher=TeacherStates(hidden.detach(), head))
    assert (found["teacher_kl"] == 0).all()
    found["teacher_kl"].sum().backward()
    assert all((p.grad == 0).all() for p in (hidden, *head.parameters()))


@pytest.mark.parametrize("noise", [1e-7, 1e-5, 1e-3, 1e-1])
def test_the_kl_is_exact_and_not_negative_near_equality(noise):
    head, targets = nn.Linear(H, 5_000, bias=False), torch.zeros(500, dtype=torch.long)
    hidden = 8 * torch.randn(500, H)
    near = hidden + noise * torch.randn(500, H)
    kl = token_statistics(hidden, head, targets, teacher=TeacherStates(near, head))["teacher_kl"]
    log_p, log_q = (head(states).double().log_softmax(-1) for states in (hidden, near))
    exact = (log_p.exp() * (log_p - log_q)).sum(-1)
    assert (kl >= 0).all()
    torch.testing.assert_close(kl.double(), exact, atol=1e-11, rtol=1e-4)


def test_the_kl_in_bfloat16_is_never_negative():
    hidden, head, targets, _ = case("plain", torch.bfloat16, count=500)
    near = (hidden.float() + 0.01 * torch.randn(500, H)).bfloat16().detach()
    kl = token_statistics(hidden, head, targets, teacher=TeacherStates(near, head))["teacher_kl"]
    assert kl.dtype == torch.float32
    assert (kl >= 0).all() and (kl > 0).any()


def test_a_kl_beyond_what_float32_can_exponentiate():
    # p = (1, e^-200), q = (e^-200, 1): KL(p || q) = 200, with neither overflow nor 0 * inf.
    head, teacher = nn.Linear(1, 2, bias=False), nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[200.0], [0.0]]))
        teacher.weight.copy_(torch.tensor([[0.0], [200.0]]))
    hidden = torch.ones(1, 1, requires_grad=True)
    found = token_statistics(
        hidden, head, torch.tensor([0]), entropy=True, teacher=TeacherStates(hidden.detach(), teacher)
    )
    assert (found["teacher_kl"].item(), found["entropy"].item()) == (200.0, 0.0)
    sum(found.values()).sum().backward()
    assert torch.isfinite(hidden.grad).all()


@pytest.mark.parametrize("head_name", HEADS)
def test_no_tensor_of_tokens_by_vocabulary(head_name, monkeypatch):
    monkeypatch.setattr(logprobs, "CHUNK", 8)
    hidden, head, targets, _ = case(head_name, count=100)
    with Largest(V) as largest:
        found = token_statistics(hidden, head, targets, entropy=True, teacher=taught(head_name, count=100))
        sum(found.values()).sum().backward()
    assert largest.entries == 8 * V


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
    found = token_statistics(hidden, head, targets, entropy=True, teacher=taught(count=0))
    assert [(v.shape, v.dtype) for v in found.values()] == [((0,), torch.float64)] * 3


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
    with pytest.raises(AssertionError, match="one state of the teacher"):
        token_statistics(hidden, head, targets, teacher=taught(count=N - 1))
