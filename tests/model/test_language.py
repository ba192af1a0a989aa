"""A causal language model as an actor."""

from __future__ import annotations

import pytest
import torch
from tiny import byte_tokenizer, causal_lm, digit_tokenizer, language_model, llama, naive_logps, random_rows
from torch import nn

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import DataError
from prefrl.model.critic import make_critic
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import add_lora
from prefrl.model.teacher import Teacher
from prefrl.policy.algorithms import ALGORITHMS
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.types import Prompt, Row, Score

HI = Prompt(id="hi", messages=({"role": "user", "content": "hi"},))


class Digits:
    """Sum of the digits of an answer."""

    def score(self, rollouts):
        return [Score(value=float(sum(int(c) for c in r.text if c.isdigit()))) for r in rollouts]

    def update(self, rollouts, scores):
        return {}


def chat_model():
    tokenizer = byte_tokenizer()
    return LanguageModel(llama(len(tokenizer), eos=2), tokenizer, name="tiny")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_before_any_update_the_ratio_is_1_and_nothing_is_clipped(name):
    policy, algorithm = language_model(layers=2), ALGORITHMS[name]
    engine = Engine(
        policy,
        ModelConfig(lr=1e-12),
        sampler=policy,
        sampling=SamplingConfig(max_new_tokens=8, temperature=0.7),
        reference="reference" in algorithm.needs,
        teacher=Teacher.other(language_model(seed=1), policy),
    )
    optimizer = PolicyOptimizer(
        engine,
        Digits(),
        algorithm,
        critic=make_critic("head", policy, lr=1e-12) if "values" in algorithm.needs else None,
        teacher_prompt=lambda rollout: (7, 8, *rollout.prompt_ids),
    )
    prompts = [Prompt(id=str(i), text=t) for i, t in enumerate(("1=", "1234567=", "99="))]
    metrics = optimizer.step(prompts, seed=0).metrics
    if algorithm.pairs is None and algorithm.select is None:
        assert metrics["kl/sampler_k1"] == pytest.approx(0.0, abs=1e-5)
    if "reference" in algorithm.needs:
        assert metrics["kl/ref"] == pytest.approx(0.0, abs=1e-5)
    if algorithm.ratio != "none":
        assert metrics["ratio/max"] == pytest.approx(1.0, abs=1e-5)
    if algorithm.clip.kind != "none":
        assert metrics["clip/low"] == metrics["clip/high"] == 0.0
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize(
    ("kind", "more", "shaped"),
    [
        ("llama", {}, False),
        ("gemma2", {"query_pre_attn_scalar": 8, "final_logit_softcapping": 0.5}, True),
        ("granite", {"logits_scaling": 3.0}, True),
        ("cohere", {"logit_scale": 0.25}, True),
    ],
)
@pytest.mark.parametrize("lora", [0, 2])
def test_the_head_holds_all_that_the_model_does_to_its_logits(kind, more, shaped, lora):
    model = causal_lm(kind, 14, **more)
    policy = language_model(add_lora(model, lora, seed=0) if lora else model)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        logits = policy.head(policy.decoder(input_ids=ids, use_cache=False).last_hidden_state)
        torch.testing.assert_close(logits, policy.model(input_ids=ids, use_cache=False).logits)
    assert (type(policy.head) is not nn.Linear) == shaped


def test_masked_tokens_are_left_out_and_rows_stay_in_order():
    policy = language_model()
    rows = [
        Row(prompt_ids=(5, 6), completion_ids=(7, 8, 9), mask=(True, False, True)),
        Row(prompt_ids=(7,), completion_ids=(8, 9), mask=(False, True)),
    ]
    first, second = naive_logps(policy.model, rows)
    wanted = torch.stack([first[0], first[2], second[1]])
    torch.testing.assert_close(policy.token_outputs(rows), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("extras", [(), ("entropy",), ("teacher_kl",), ("entropy", "teacher_kl")])
def test_statistics_have_the_same_log_probs_and_what_was_asked_for(extras):
    policy, rows = language_model(), random_rows({4: 2, 2: 1}, masked=True)
    teacher = Teacher.other(language_model(seed=1), policy)
    found = policy.token_statistics(rows, 0.7, extras, teacher)
    assert set(found) == {"logps", *extras}
    assert torch.equal(found["logps"], policy.token_outputs(rows, 0.7))
    assert all(value.shape == found["logps"].shape and value.requires_grad for value in found.values())


def test_a_kl_to_nobody():
    with pytest.raises(AssertionError, match="needs a teacher"):
        language_model().token_statistics(random_rows({4: 1}), 1.0, ("teacher_kl",))


def test_dropout_is_off_while_training():
    policy = language_model(attention_dropout=0.5)
    rows = random_rows({4: 2})
    assert torch.equal(policy.token_outputs(rows), policy.token_outputs(rows))


def test_text_prompts():
    assert language_model().encode(Prompt(id="a", text="12=")) == (4, 5, 2)


def test_a_prompt_without_tokens():
    tokenizer = digit_tokenizer()
    tokenizer.bos_token = tokenizer.eos_token = None
    policy = LanguageModel(llama(len(tokenizer)), tokenizer, name="tiny")
    with pytest.raises(DataError, match="'empty' has no tokens"):
        policy.encode(Prompt(id="empty", text=""))


def test_a_conversation_ends_where_the_assistant_speaks():
    policy = chat_model()
    ids = policy.encode(HI)
    assert policy.tokenizer.decode(ids) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert policy.eos == (2,)


def test_ends_of_turn_come_from_everywhere():
    tokenizer = byte_tokenizer()
    model = llama(len(tokenizer), eos=0)
    model.generation_config.eos_token_id = [0, 7]
    assert LanguageModel(model, tokenizer, name="tiny").eos == (0, 7, 2)


def test_rollouts_carry_prompt_group_version_and_text():
    policy = chat_model()
    rollouts = policy.sample([HI, HI], 2, SamplingConfig(max_new_tokens=5), seed=0, version=3)
    assert [(r.group, r.version) for r in rollouts] == [("hi#0", 3)] * 2 + [("hi#1", 3)] * 2
    for r in rollouts:
        assert r.prompt is HI
        assert r.prompt_ids == policy.encode(HI)
        assert r.text == policy.tokenizer.decode(r.completion_ids, skip_special_tokens=True)
        assert r.completion == [{"role": "assistant", "content": r.text}]


def test_what_was_sampled_is_never_encoded_again():
    # Bytes that are no UTF-8 decode to a replacement character: only the ids tell them apart.
    policy = chat_model()
    rollouts = policy.sample([HI], 8, SamplingConfig(max_new_tokens=8), seed=0)
    assert any("\ufffd" in r.text for r in rollouts)
    rows = [Row(prompt_ids=r.prompt_ids, completion_ids=r.completion_ids, mask=r.mask) for r in rollouts]
    recorded = torch.tensor([p for r in rollouts for p in r.logps])
    torch.testing.assert_close(policy.token_outputs(rows).detach(), recorded, atol=1e-4, rtol=0)
