"""P(yes): by hand, on both paths, with its gradient, its mass, its calibration and its record."""

from __future__ import annotations

import json
import math

import pytest
import torch
from tiny import byte_tokenizer, causal_lm, digit_tokenizer, language_model, llama, random_rows, rollout
from torch import nn

from prefrl.config import ModelConfig
from prefrl.errors import ConfigError, ModelError
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.model.yes_probability import YesModel, load_yes_model, places_of, query_row, yes_logits
from prefrl.model.yes_record import CORRECT, FILE, Question, YesRecord
from prefrl.model.yes_tokens import YesTokens
from prefrl.policy.values import yes_objective
from prefrl.types import Row

SIZE = len(digit_tokenizer())
RECORD = YesRecord(question="1=0", yes=("1", "2"), no=("0",))


def asked(model=None, record=RECORD, **options):
    """A tiny model that is asked over digits."""
    return YesModel(model or language_model(layers=2, seed=3), record, **options)


def by_hand(model, ids):
    """The last distribution over the vocabulary after ids, from the plain model."""
    with torch.no_grad():
        return model.model.model(input_ids=torch.tensor([ids])).logits[0, -1].double().softmax(-1)


def test_the_probability_is_that_of_the_spellings():
    model, row = asked(), Row(prompt_ids=(5, 6, 7), completion_ids=(3, 8, 0), mask=(False, True, True))
    (answers,) = model.ask([row])
    for answer, seen in zip(answers, ((5, 6, 7, 3), (5, 6, 7, 3, 8)), strict=True):
        p = by_hand(model, [*seen, *model.question.plain])
        yes, no = float(p[[4, 5]].sum()), float(p[3])  # 1 and 2, and 0
        assert answer.probability == pytest.approx(yes / (yes + no), abs=1e-6)
        assert answer.mass == pytest.approx(yes + no, abs=1e-6)
        assert answer.value == pytest.approx(answer.probability)


def test_only_the_rows_of_the_answers_are_multiplied():
    """And the normaliser is computed in chunks, of which none is larger than 256 tokens."""
    head, tokens = nn.Linear(4, 1000, bias=True), YesTokens((5, 9), (7,))
    hidden = torch.randn(600, 4, requires_grad=True)
    found = yes_logits(hidden, head, tokens)
    logits = head(hidden)
    wanted = logits[:, [5, 9]].logsumexp(-1) - logits[:, 7]
    torch.testing.assert_close(found[:, 0], wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        found[:, 1], (logits[:, [5, 9, 7]].logsumexp(-1) - logits.logsumexp(-1)).detach(), atol=1e-5, rtol=0
    )
    (gradient,) = torch.autograd.grad(found[:, 0].sum(), head.weight)
    assert torch.nonzero(gradient.abs().sum(1)).flatten().tolist() == [5, 7, 9]
    sizes = []
    head.register_forward_hook(lambda _, given, out: sizes.append(tuple(out.shape)))
    yes_logits(hidden.detach(), head, tokens)
    assert all(width == 3 or count <= 256 for count, width in sizes)


@pytest.mark.parametrize("full", [False, True])
def test_the_mass_has_a_gradient_only_where_the_vocabulary_is_learnt(full):
    hidden, head = torch.randn(3, 4, requires_grad=True), nn.Linear(4, 20, bias=False)
    mass = yes_logits(hidden, head, YesTokens((5,), (7,)), mass_gradient=full)[:, 1]
    wanted = head(hidden)[:, [5, 7]].logsumexp(-1) - head(hidden).logsumexp(-1)
    torch.testing.assert_close(mass, wanted, atol=1e-6, rtol=0)
    if full:
        got, same = (torch.autograd.grad(x.sum(), hidden, retain_graph=True)[0] for x in (mass, wanted))
        torch.testing.assert_close(got, same, atol=1e-6, rtol=0)
    else:
        assert not torch.autograd.grad(mass.sum(), hidden)[0].any()


@pytest.mark.parametrize("kind", ["gemma2", "cohere", "granite"])
def test_heads_with_a_cap_or_a_scale(kind):
    more = {"final_logit_softcapping": 2.0} if kind == "gemma2" else {}
    model = asked(LanguageModel(causal_lm(kind, SIZE, **more), digit_tokenizer(), name=kind))
    row = query_row((5, 6, 7), (3, 8), [1, 2])
    for answer, seen in zip(model.ask([row])[0], ((5, 6, 7, 3), (5, 6, 7, 3, 8)), strict=True):
        p = by_hand(model, [*seen, *model.question.plain])
        assert answer.probability == pytest.approx(float(p[[4, 5]].sum() / p[[3, 4, 5]].sum()), abs=1e-6)
        assert answer.mass == pytest.approx(float(p[[3, 4, 5]].sum()), abs=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("budget", [1, 60, 100_000])
def test_both_paths_give_the_same_numbers_and_gradients(attention, masked, budget):
    language = language_model(llama(SIZE, layers=2, seed=1, attn_implementation=attention))
    rows = random_rows({3: 3, 5: 2, 1: 2, 9: 1}, masked=masked)
    fast, naive = asked(language, full=True), asked(language, full=True, shared=False)
    fast.token_budget = naive.token_budget = budget
    assert fast.is_fast and not naive.is_fast
    parameters = list(language.module.parameters())

    def both(model):
        found = model.token_outputs(rows)
        return found.detach(), torch.autograd.grad((found**2).mean(), parameters)

    (one, one_slope), (other, other_slope) = both(fast), both(naive)
    assert one.shape == (sum(sum(row.mask) for row in rows), 2)
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    torch.testing.assert_close(one[:, 0].sigmoid(), other[:, 0].sigmoid(), atol=1e-5, rtol=0)
    torch.testing.assert_close(one_slope, other_slope, atol=1e-5, rtol=1e-4)


def test_models_without_plain_keys_and_values_take_the_naive_path():
    language = LanguageModel(causal_lm("mistral", SIZE, sliding_window=4), digit_tokenizer(), name="window")
    model, rows = asked(language), random_rows({5: 2, 9: 1})
    assert not model.is_fast
    for row, answers in zip(rows, model.ask(rows), strict=True):
        text = (*row.prompt_ids, *row.completion_ids)
        for i, answer in enumerate(answers):
            p = by_hand(model, [*text[: len(row.prompt_ids) + i], *model.question.plain])
            assert answer.probability == pytest.approx(float(p[[4, 5]].sum() / p[[3, 4, 5]].sum()), abs=1e-5)


def test_a_question_sees_its_own_history_and_no_other_question():
    model = asked()
    alone = model.ask([query_row((5, 6), (7, 8, 9), [1])])[0][0]
    among = model.ask([query_row((5, 6), (7, 8, 9), [0, 1, 2, 3])])[0][1]
    changed = model.ask([query_row((5, 6), (7, 4, 4), [0, 1, 2, 3])])[0]
    assert among.logit == pytest.approx(alone.logit, abs=1e-6)
    assert changed[1].logit == pytest.approx(alone.logit, abs=1e-6)
    assert abs(changed[2].logit - model.ask([query_row((5, 6), (7, 8, 9), [2])])[0][0].logit) > 1e-4


def test_the_question_in_a_conversation_and_in_a_plain_text():
    tokenizer = byte_tokenizer()
    question = Question.of(tokenizer, "ok?", (tokenizer.eos_token_id,))
    start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    turn = "\n<|im_start|>user\nok?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(question.plain) == "\nok?\nAnswer:"
    assert tokenizer.decode(question.opened) == f"<|im_end|>{turn}"
    assert tokenizer.decode(question.closed) == turn
    assert question.after((start, 9, 9)) == question.opened
    assert question.after((start, 9, end)) == question.closed
    assert question.after((9, 9, end)) == question.plain  # no turn was ever begun: a plain text that has ended


def test_where_a_rollout_is_asked_about():
    episode = rollout((1, 2, 3, 4, 5), mask=(True, True, False, True, True))
    turned = type(episode)(**{f: getattr(episode, f) for f in episode.__slots__} | {"turns": ((0, 2), (3, 5))})
    assert places_of(turned, "end") == [5]
    assert places_of(turned, "turns") == [2, 5]
    assert places_of(episode, "turns") == [5]
    assert places_of(turned, "tokens") == [0, 1, 3, 4, 5]
    assert places_of(turned, (4, 1, 4)) == [1, 4]
    with pytest.raises(ConfigError, match="valid: end, turns, tokens"):
        places_of(turned, "steps")
    row = query_row((9,), episode.completion_ids, [2, 5])
    assert row.mask == (False, False, True, False, False, True) and len(row.completion_ids) == 6
    assert query_row((9,), (1, 2), [0]).completion_ids == (1, 2)
    with pytest.raises(ConfigError, match="expected some of 0 to 2"):
        query_row((9,), (1, 2), [3])


@pytest.mark.parametrize(("full", "lowest"), [(False, 0.610864), (True, 0.610864)])
def test_ten_outcomes_with_three_1s_converge_to_their_mean(full, lowest):
    """Entropy of .3 is .610864 nats; over the vocabulary the mass goes to 1 as well."""
    model = asked(full=full)
    engine = Engine(model, ModelConfig(lr=2e-2))
    rows = []
    for i in range(10):
        row = query_row((5, 6, 7), (3,), [1])
        row.streams = {"returns": torch.tensor([0.0, float(i < 3)]), "vf": torch.tensor([0.0, 0.1])}
        rows.append(row)
    losses = [engine.step(rows, lambda batch: yes_objective(batch, full=full)) for _ in range(120)]
    answer = model.ask(rows)[0][0]
    assert answer.probability == pytest.approx(0.3, abs=5e-3)
    assert losses[-1]["nll"] == pytest.approx(lowest, abs=1e-3)
    assert losses[-1]["brier"] == pytest.approx(0.21, abs=1e-3)
    if full:
        assert answer.mass > 0.97 and losses[-1]["loss"] == pytest.approx(lowest, abs=0.03)


def test_calibration_and_range_are_applied_where_they_belong():
    plain = asked()
    row = query_row((5, 6, 7), (3, 8), [2])
    logit = plain.ask([row])[0][0].logit
    record = YesRecord(question="1=0", yes=("1", "2"), no=("0",), temperature=2.0, bias=0.5, low=-1.0, high=3.0)
    answer = asked(record=record).ask([row])[0][0]
    p = 1 / (1 + math.exp(-(logit / 2.0 + 0.5)))
    assert answer.logit == pytest.approx(logit, abs=1e-6)
    assert answer.probability == pytest.approx(p, abs=1e-6)
    assert answer.value == pytest.approx(-1.0 + 4.0 * p, abs=1e-5)


@pytest.mark.parametrize("wrong", [{"low": 1.0}, {"temperature": 0.0}, {"bias": math.nan}, {"high": math.inf}])
def test_a_record_that_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigError, match="low below high"):
        YesRecord(**wrong)
    with pytest.raises(ConfigError, match="question is empty"):
        YesRecord(question=" ")


@pytest.mark.parametrize("lora", [0, 2])
def test_round_trip(lora, tmp_path):
    language_model(layers=2, seed=3).save(tmp_path / "base")
    record = YesRecord(question="1=0", yes=("1",), no=("0",), temperature=1.5, bias=-0.25)
    model = YesModel(load(str(tmp_path / "base"), lora=lora), record)
    with torch.no_grad():
        for parameter in model.module.parameters():
            if parameter.requires_grad:
                parameter += 0.05
    row = query_row((5, 6, 7), (3, 8), [0, 2])
    model.save(tmp_path / "yes")
    again = load_yes_model(str(tmp_path / "yes"))
    assert again.record == record
    for one, other in zip(model.ask([row])[0], again.ask([row])[0], strict=True):
        assert other.logit == pytest.approx(one.logit, abs=1e-6)
    scaled = load_yes_model(str(tmp_path / "yes"), YesRecord(low=-1.0, high=1.0), asks=False)
    assert (scaled.record.question, scaled.record.bias, scaled.record.low) == ("1=0", -0.25, -1.0)
    with pytest.raises(ConfigError, match=r"was trained to answer '1=0', not '2=0'"):
        load_yes_model(str(tmp_path / "yes"), YesRecord(question="2=0", yes=("1",), no=("0",)))


def test_a_damaged_or_foreign_record_is_refused(tmp_path):
    asked(record=YesRecord(question="1=0", yes=("1",), no=("0",))).save(tmp_path / "yes")
    file = tmp_path / "yes" / FILE
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"tokenizer": "other"}))
    with pytest.raises(ModelError, match="belongs to another tokenizer"):
        load_yes_model(str(tmp_path / "yes"))
    file.write_text(json.dumps(content | {"format": 99}))
    with pytest.raises(ModelError, match="has format 99"):
        load_yes_model(str(tmp_path / "yes"))
    file.write_text("{")
    with pytest.raises(ModelError, match="is damaged"):
        load_yes_model(str(tmp_path / "yes"))


def test_any_model_can_be_asked():
    model = YesModel(load("smollm2-135m"))
    assert model.record.question == CORRECT
    prompt = model.model.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2 + 2?"}], add_generation_prompt=True, return_dict=False
    )
    words = model.model.tokenizer("4<|im_end|>")["input_ids"]
    answer = model.ask([query_row(prompt, words, [len(words)])])[0][0]
    assert 0.0 < answer.probability < 1.0 and answer.mass > 0.5
