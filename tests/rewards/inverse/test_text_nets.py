"""Heads on hidden states: shapes, potentials, what is at 0, and what a body computes."""

from __future__ import annotations

import pytest
import torch
from exact_text import language
from tiny import byte_tokenizer, language_model, llama

from prefrl.errors import ModelError
from prefrl.model.language import LanguageModel
from prefrl.rewards.inverse.text_nets import TextModel, TextNet, body_of, check_tokenizer, own_body, shared_body
from prefrl.types import Row


def row(prompt, ids):
    return Row(prompt_ids=tuple(prompt), completion_ids=tuple(ids), mask=(True,) * len(ids))


def disturbed(net, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return net


@pytest.mark.parametrize("level", ["sequence", "token"])
def test_a_fresh_net_says_nothing(level):
    net = TextNet(8, level=level, hidden=(4,))
    plain, shaped = net([net.features(torch.randn(n + 1, 8)) for n in (3, 1)], [True, False])
    assert plain.tolist() == shaped.tolist() == [0.0] * (2 if level == "sequence" else 4)


def test_states_are_those_of_the_bare_decoder():
    policy = language(hidden=32)
    body = body_of(policy)
    rows = [row((1, 2), (3, 1, 0)), row((1, 2), (2,)), row((3,), ())]
    states = body.states(rows, 4096)
    assert [tuple(s.shape) for s in states] == [(4, 32), (2, 32), (1, 32)]
    for one, found in zip(rows, states, strict=True):
        whole = torch.tensor([[*one.prompt_ids, *one.completion_ids]])
        with torch.no_grad():
            plain = policy.model.model(input_ids=whole).last_hidden_state[0]
        torch.testing.assert_close(found, plain[len(one.prompt_ids) - 1 :], atol=1e-5, rtol=0)


def test_potentials_telescope_to_that_of_the_prompt():
    """With gamma 1 the sum of f over a completion that ended is that of g less h of the prompt."""
    net = disturbed(TextNet(5, level="token", hidden=(3,)))
    states = torch.randn(4, 5)
    plain, shaped = net([states], [True])
    _, cut = net([states], [False])
    h = net.value(states).squeeze(-1)
    torch.testing.assert_close(shaped.sum(), plain.sum() - h[0])
    torch.testing.assert_close(cut.sum(), plain.sum() + h[-1] - h[0])


def test_discounted_potential_token_by_token():
    net = disturbed(TextNet(5, level="token", gamma=0.5))
    states = [torch.randn(3, 5), torch.randn(2, 5)]
    plain, shaped = net(states, [True, False])
    g = [net.reward(s).squeeze(-1).tolist() for s in states]
    h = [net.value(s).squeeze(-1).tolist() for s in states]
    expected = [
        g[0][1] + 0.5 * h[0][1] - h[0][0],
        g[0][2] - h[0][1],  # nothing comes after an end
        g[1][1] + 0.5 * h[1][1] - h[1][0],  # more was to come
    ]
    assert shaped.tolist() == pytest.approx(expected, abs=1e-6)
    assert plain.tolist() == pytest.approx([g[0][1], g[0][2], g[1][1]], abs=1e-6)


def test_a_completion_is_read_as_its_mean_and_its_last_state():
    net = TextNet(2, level="sequence")
    states = torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 6.0]])
    assert net.features(states).tolist() == [[9.0, 9.0], [2.0, 4.0], [3.0, 6.0]]
    assert net.features(states[:1]).tolist() == [[9.0, 9.0]] * 3  # cut off before its first token


def test_features_that_hardly_vary_are_not_blown_up():
    net = TextNet(2, level="sequence")
    net.fit([torch.tensor([[0.0, 5.0], [2.0, 5.0]])])
    assert net.mean.tolist() == [1.0, 5.0]
    assert net.scale.tolist() == pytest.approx([1.0, 0.05 * 0.5])


def test_hidden_layers_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = TextNet(4, level="sequence", hidden=(3,), seed=5)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)  # the global generator was left alone
    second = TextNet(4, level="sequence", hidden=(3,), seed=5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_lora_policy_lends_its_frozen_base(tmp_path):
    tokenizer = byte_tokenizer()
    llama(len(tokenizer), eos=tokenizer.eos_token_id).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    from prefrl.model.load import load

    policy = load(str(tmp_path), lora=2)
    body, alone = shared_body(policy), own_body(str(tmp_path))
    rows = [row((5, 6), (7, 8, 9))]
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter += 0.1
    torch.testing.assert_close(body.states(rows, 64)[0], alone.states(rows, 64)[0])
    assert body.trained == alone.trained == {}
    assert body.base == str(tmp_path)
    with pytest.raises(ModelError, match="no LoRA adapter"):
        shared_body(language_model())


def test_an_adapter_of_its_own_learns_and_layers_are_kept(tmp_path):
    tokenizer = byte_tokenizer()
    llama(len(tokenizer), layers=2, eos=tokenizer.eos_token_id).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    body = own_body(str(tmp_path), lora=2, layers=1)
    assert len(body.body.decoder.layers) == 1
    model = TextModel(net=disturbed(TextNet(body.size, level="sequence")), body=body)
    plain, _ = model.net([model.net.features(s) for s in body.live_states([row((5,), (6, 7))])], [True])
    plain.sum().backward()
    touched = [name for name, p in body.trained.items() if p.grad is not None and bool(p.grad.any())]
    assert touched and all("lora" in name for name in touched)


def test_another_vocabulary_is_refused():
    policy = language()
    with pytest.raises(ModelError, match="another vocabulary than the policy letters"):
        check_tokenizer(body_of(language_model()), policy.tokenizer, policy.name)
    check_tokenizer(
        body_of(LanguageModel(policy.model, language().tokenizer, name="copy")), policy.tokenizer, "letters"
    )
