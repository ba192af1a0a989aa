"""Teachers: what they say of the policy's own tokens, what they leave untouched, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny import digit_tokenizer, language_model, llama, naive_logps, random_rows

from prefrl.config import ModelConfig
from prefrl.errors import ModelError
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import add_lora, quiet_peft
from prefrl.model.teacher import Teacher

SOLVED = (7, 8, 9, 2)


def lora_policy():
    """A policy whose adapter does something."""
    policy = language_model(add_lora(llama(14, layers=2), 2, seed=0))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    return policy


def peft_policy(*targets, **options):
    with quiet_peft():
        return language_model(
            get_peft_model(llama(14), LoraConfig(r=2, target_modules=["q_proj", *targets], **options))
        )


def assert_teaches(teacher, model, rows, *, token_budget=10_000, temperature=1.0):
    """The teacher's log-probs are those of `model`, worked out the long way."""
    for row, got, wanted in zip(
        rows,
        teacher.logps(rows, token_budget, temperature),
        naive_logps(model, rows, temperature=temperature),
        strict=True,
    ):
        mask = torch.tensor(row.mask)
        torch.testing.assert_close(got[mask], wanted[mask].detach(), atol=1e-5, rtol=0)
        assert (got[~mask] == 0).all()
        assert not got.requires_grad


@pytest.mark.parametrize("token_budget", [1, 40, 10_000])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probs_of_another_model(token_budget, temperature):
    teacher = language_model(layers=2, hidden=16, seed=1)
    rows = random_rows({2: 3, 5: 3, 1: 1}, masked=True)
    rows = [rows[i] for i in (4, 0, 6, 2, 5, 1, 3)]
    taught = Teacher.other(teacher, language_model())
    assert_teaches(taught, teacher.model, rows, token_budget=token_budget, temperature=temperature)


def test_the_teacher_sees_its_own_prompt():
    model = language_model(seed=1)
    plain, told, empty = random_rows({3: 3})
    rows = [plain, replace(told, teacher_prompt_ids=SOLVED), replace(empty, teacher_prompt_ids=(2,))]
    got = Teacher.other(model, language_model()).logps(rows, 100)
    wanted = naive_logps(model.model, [plain, replace(told, prompt_ids=SOLVED), replace(empty, prompt_ids=(2,))])
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other.detach(), atol=1e-5, rtol=0)
    assert rows[1].prompt_ids == told.prompt_ids


def test_hidden_states_lie_end_to_end_without_gradient():
    model = language_model(seed=1)
    rows = random_rows({3: 3, 4: 1}, masked=True)
    hidden = Teacher.other(model, language_model()).hidden(rows)
    assert hidden.shape == (sum(sum(row.mask) for row in rows), 32)
    assert not hidden.requires_grad
    torch.testing.assert_close(hidden, model.hidden(rows).detach())


def test_prompts_of_the_teacher_are_computed_once_for_a_group(monkeypatch):
    model = language_model(seed=1)
    rows = [replace(row, teacher_prompt_ids=SOLVED) for row in random_rows({3: 4})]
    seen = []
    model.decoder.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    Teacher.other(model, language_model()).hidden(rows)
    assert seen == [1, 4]  # the prompt, then the completions on its keys and values


def test_a_frozen_copy_stays_what_the_policy_was():
    policy = language_model(layers=2)
    rows = random_rows({4: 3})
    teacher, start = Teacher.frozen_copy(policy), llama(14, layers=2)
    engine = Engine(policy, ModelConfig(lr=0.1), teacher=teacher)
    for row in rows:
        row.streams["ce"] = torch.ones(len(row.mask))
    engine.step(rows, lambda batch: (-batch.logps.sum(), {}))
    assert_teaches(teacher, start, rows)
    assert not torch.equal(engine.logps(rows)[0], engine.teacher_logps(rows)[0])
    assert not any(p.requires_grad for p in teacher.model.module.parameters())
    assert all(p.requires_grad for p in policy.module.parameters())


def test_a_frozen_copy_shares_what_is_not_trained():
    policy = lora_policy()
    teacher = Teacher.frozen_copy(policy)
    ours, theirs = (dict(p.model.named_parameters()) for p in (policy, teacher.model))
    assert ours.keys() == theirs.keys()
    assert {name for name in ours if ours[name] is theirs[name]} == {n for n in ours if "lora" not in n}


def test_the_base_of_a_policy_is_the_model_without_its_adapter():
    policy, rows = lora_policy(), random_rows({4: 3, 2: 2}, masked=True)
    assert_teaches(Teacher.base(policy), llama(14, layers=2), rows)
    adapted = naive_logps(policy.model, rows)[0]
    assert (adapted - naive_logps(llama(14, layers=2), rows)[0]).abs().max() > 0.1


@pytest.mark.parametrize("broken", [False, True])
def test_the_adapter_is_on_and_as_trainable_as_before(broken, monkeypatch):
    policy, rows = lora_policy(), random_rows({4: 3})
    frozen = next(p for p in policy.model.parameters() if p.requires_grad).requires_grad_(False)
    before = policy.token_outputs(rows).detach()
    trained = [p.requires_grad for p in policy.model.parameters()]
    teacher = Teacher.base(policy)
    if broken:
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(policy, "hidden", lambda _: 1 / 0)
            teacher.hidden(rows)
    else:
        teacher.hidden(rows)
    assert torch.equal(policy.token_outputs(rows), before)
    assert [p.requires_grad for p in policy.model.parameters()] == trained
    assert not frozen.requires_grad


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (language_model, r"no LoRA adapter.*lora=16"),
        (lambda: peft_policy(modules_to_save=["lm_head"]), r"trains lm_head whole.*Teacher\.other"),
        (lambda: peft_policy(bias="all"), r"trains biases.*Teacher\.other"),
        (lambda: peft_policy("lm_head"), r"adapts its output head.*Teacher\.other"),
    ],
)
def test_a_base_that_switching_off_would_not_give_back(make, said):
    with pytest.raises(ModelError, match=said):
        Teacher.base(make())


def other_tokenizer(change):
    """The digits' tokenizer with one thing changed."""
    tokenizer = digit_tokenizer()
    if change == "size":
        tokenizer.add_tokens(["+"])
    elif change == "eos":
        tokenizer.eos_token = "<pad>"
    elif change == "ids":
        tokenizer.get_vocab = lambda: digit_tokenizer().get_vocab() | {"0": 4, "1": 3}
    return tokenizer


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("size", "15 tokens and 14"),
        ("eos", "eos_token_id is 1 and 0"),
        ("ids", "'0' is 4 to the one and 3 to the other"),
    ],
)
def test_another_tokenizer_is_refused(change, said):
    teacher = LanguageModel(llama(15), other_tokenizer(change), name="big")
    with pytest.raises(ModelError, match=f"teacher big and the policy tiny.*{said}.*own family.*prefrl sft"):
        Teacher.other(teacher, language_model())


def test_the_padding_of_a_larger_head_is_left_out():
    # A head of 17 entries for 14 tokens: the teacher is the same model with the last three rows cut off.
    padded, cut = llama(17, seed=1), llama(17, seed=1)
    cut.lm_head.weight = torch.nn.Parameter(cut.lm_head.weight[:14].detach())
    teacher = Teacher.other(language_model(padded), language_model())
    assert_teaches(teacher, cut, random_rows({3: 3}))
    with pytest.raises(ModelError, match="tiny has 14 output entries and the policy tiny 17"):
        Teacher.other(language_model(), language_model(padded))
