"""The prefix-shared path and the padded one equal a plain forward pass over rows padded by hand."""

from __future__ import annotations

import pytest
import torch
from tiny import (
    SYMBOLS,
    assert_same_gradients,
    causal_lm,
    gradients,
    language_model,
    naive_logps,
    random_rows,
)

from prefrl.model import kernel
from prefrl.model.batching import pack
from prefrl.model.kernel import suffix_hidden
from prefrl.model.load import add_lora
from prefrl.rollout.prefix import cache_is_shareable, right_pad

V = len(SYMBOLS)
SLIDING = {"sliding_window": 4}
ARCHITECTURES = {
    "mistral": ("mistral", SLIDING),
    "qwen2, one layer slides": ("qwen2", SLIDING | {"use_sliding_window": True, "max_window_layers": 1}),
    "gemma2, soft-capped": ("gemma2", SLIDING | {"query_pre_attn_scalar": 8, "final_logit_softcapping": 1.5}),
    "gemma3": ("gemma3_text", SLIDING | {"query_pre_attn_scalar": 8}),
    "granite, scaled": ("granite", {"logits_scaling": 3.0}),
    "cohere, scaled": ("cohere", {"logit_scale": 0.25}),
    "gpt2, learned positions": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "lfm2, convolutions": ("lfm2", {"layer_types": ["conv", "full_attention"]}),
}
UNSHAREABLE = {"mistral", "qwen2, one layer slides", "gemma2, soft-capped", "gemma3", "lfm2, convolutions"}


def architecture(name):
    kind, more = ARCHITECTURES[name]
    if kind == "gpt2":
        torch.manual_seed(0)
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(vocab_size=V, bos_token_id=None, eos_token_id=0, **more)).eval()
    return causal_lm(kind, V, **more)


def adapted(model):
    """A LoRA adapter whose B matrices are not at their zero start, so that it matters."""
    model = add_lora(model, 4, seed=1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def compare(policy, rows, *, budget=10_000, temperature=1.0, side="right"):
    """Log-probs and gradients of a random linear loss, by the fast path in micro-batches and by hand."""
    generator = torch.Generator().manual_seed(3)
    weights = {id(row): torch.randn(sum(row.mask), generator=generator) for row in rows}
    fast: dict[int, torch.Tensor] = {}
    for micro in pack(rows, budget):
        flat = policy.token_outputs(micro, temperature)
        (flat * torch.cat([weights[id(row)] for row in micro])).sum().backward()
        counts = [sum(row.mask) for row in micro]
        fast |= {id(row): part for row, part in zip(micro, flat.detach().split(counts), strict=True)}
    got = gradients(policy.module)
    whole = naive_logps(policy.model, rows, temperature=temperature, side=side)
    plain = [logps[torch.tensor(row.mask)] for row, logps in zip(rows, whole, strict=True)]
    sum((p * weights[id(row)]).sum() for row, p in zip(rows, plain, strict=True)).backward()
    ordered = torch.cat([fast[id(row)] for row in rows])
    torch.testing.assert_close(ordered, torch.cat(plain).detach(), atol=1e-5, rtol=0)
    assert_same_gradients(got, gradients(policy.module), 1e-5)


@pytest.fixture
def shared_calls(monkeypatch):
    """How often the prefix-shared path was taken."""
    calls = []
    original = kernel._shared
    monkeypatch.setattr(kernel, "_shared", lambda *args: calls.append(1) or original(*args))
    return calls


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("group", range(1, 9))
def test_ragged_groups(group, side, shared_calls):
    rows = random_rows({3: group, 8: group, 5: 1}, masked=True, seed=group)
    compare(language_model(layers=2), rows, side=side)
    assert bool(shared_calls) == (group > 1)


@pytest.mark.parametrize("budget", [1, 25, 60, 10_000])
def test_any_token_budget(budget):
    compare(language_model(layers=2), random_rows({2: 4, 6: 3, 7: 1}, seed=budget), budget=budget)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("lora", [False, True])
def test_adapters_tied_embeddings_and_temperature(lora, tied, temperature, side, shared_calls):
    policy = language_model(layers=2, tie_word_embeddings=tied)
    if lora:
        policy.model = adapted(policy.model)
    compare(policy, random_rows({4: 5, 7: 3}, masked=True), temperature=temperature, side=side)
    assert shared_calls


@pytest.mark.parametrize("groups", [{1: 1}, {1: 5}, {1: 3, 6: 3}], ids=str)
def test_prompts_of_one_token(groups, shared_calls):
    compare(language_model(layers=2), random_rows(groups))
    assert not shared_calls  # nothing comes before the last prompt token, so there is nothing to share


# A convolution sees the padding on its left, so the reference of lfm2 is padded on the right alone.
SIDES = [(name, side) for name in ARCHITECTURES for side in ("left", "right") if (name[:4], side) != ("lfm2", "left")]


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_other_architectures(name, side, shared_calls):
    policy = language_model(architecture(name))
    compare(policy, random_rows({5: 4, 9: 3}, masked=True), temperature=0.7, side=side)
    assert bool(shared_calls) == cache_is_shareable(policy.decoder) == (name not in UNSHAREABLE)


def test_activation_checkpointing_takes_the_padded_path(shared_calls):
    policy = language_model(layers=2)
    policy.model.train()
    policy.model.activation_checkpointing_enable()
    compare(policy, random_rows({5: 4}))
    assert not shared_calls


def test_rows_come_back_in_order_whatever_is_shared():
    policy = language_model(layers=2)
    mixed = random_rows({5: 3, 2: 3})
    mixed = [mixed[i] for i in (3, 0, 4, 1, 5, 2)]
    wanted = torch.cat(naive_logps(policy.model, mixed))
    torch.testing.assert_close(policy.token_outputs(mixed), wanted, atol=1e-5, rtol=0)


def test_share_off_gives_the_same_hidden_states(shared_calls):
    decoder = language_model(layers=2).decoder
    prefixes, suffixes = [(5, 6, 7)] * 2 + [(8, 9)], [(3, 4), (5,), (6, 7, 8)]
    together = suffix_hidden(decoder, prefixes, suffixes)
    apart = suffix_hidden(decoder, prefixes, suffixes, share=False)
    assert len(shared_calls) == 1
    assert together.shape == (6, 32)
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)


def test_an_empty_suffix_is_refused():
    with pytest.raises(AssertionError, match="non-empty suffix"):
        suffix_hidden(language_model().decoder, [(5,)], [()])


def test_right_pad():
    ids, mask = right_pad([(7, 8), (9,), ()], torch.device("cpu"))
    assert ids.tolist() == [[7, 8], [9, 0], [0, 0]]
    assert mask.tolist() == [[1, 1], [1, 0], [0, 0]]
