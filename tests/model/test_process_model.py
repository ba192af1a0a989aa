"""Process reward models: scores of prefixes, every head, every convention, save and load."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from stepping import merging_tokenizer
from tiny import causal_lm, character_tokenizer, llama, moved
from torch import nn
from transformers import (
    AutoModelForTokenClassification,
    BertConfig,
    BertForSequenceClassification,
    Qwen2Config,
    Qwen2ForTokenClassification,
)

from prefrl.config import ModelConfig
from prefrl.errors import ModelError
from prefrl.model.engine import Engine
from prefrl.model.process_model import ProcessModel, load_process_model, new_process_model
from prefrl.model.process_record import FILE, STYLES, ProcessRecord, StepLayout
from prefrl.model.reward_model import RewardModel, load_reward_model
from prefrl.types import Prompt

PROMPT = Prompt(id="p", text="2+2?")
WORDS = StepLayout(good="+", bad="-")


def solution(*steps, prompt=PROMPT):
    return SimpleNamespace(prompt=prompt, steps=steps)


LONG = solution("We add.\n\n", "2+2=4.\n\n", "So 4")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    tokenizer = merging_tokenizer()
    path = tmp_path_factory.mktemp("base") / "model"
    llama(len(tokenizer), layers=2, eos=tokenizer.eos_token_id).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def made(base, head="scalar", **more):
    layout = WORDS if head == "tokens" else StepLayout()
    model = new_process_model(base, head=head, layout=layout, **more)
    moved(SimpleNamespace(module=model.module, activate=lambda: None))
    return model


@pytest.mark.parametrize("head", ["scalar", "classes", "tokens"])
def test_a_later_step_cannot_change_an_earlier_score(base, head):
    model = made(base, head)
    whole, prefix, other = model.step_log_odds(
        [LONG, solution(*LONG.steps[:2]), solution(*LONG.steps[:2], "So 5, and much more than that.")]
    )
    assert len(whole) == 3 and len(prefix) == 2
    assert whole[:2] == pytest.approx(prefix, abs=1e-5)
    assert whole[:2] == pytest.approx(other[:2], abs=1e-5)
    assert abs(whole[2] - other[2]) > 1e-3


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
def test_all_steps_in_one_pass_are_what_each_prefix_alone_gives(kind, tmp_path):
    tokenizer = merging_tokenizer()
    causal_lm(kind, len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = made(str(tmp_path))
    (together,) = model.step_log_odds([LONG])
    alone = [model.step_log_odds([solution(*LONG.steps[:n])])[0][-1] for n in (1, 2, 3)]
    assert together == pytest.approx(alone, abs=1e-5)
    assert len(set(together)) == 3


def test_prompts_are_shared_without_changing_a_score(base):
    model = made(base)
    several = [LONG, solution("No.\n\n", "Never."), LONG]
    assert model.shares_prompts
    for together, one in zip(model.step_log_odds(several), several, strict=True):
        assert together == pytest.approx(model.step_log_odds([one])[0], abs=1e-5)


def test_two_classes_are_their_difference(base):
    model = made(base, "classes")
    row = model.encode(LONG.prompt, LONG.steps).row
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    hidden = model.carrier.decoder(input_ids=ids).last_hidden_state[0, len(row.prompt_ids) :]
    logits = model.carrier.head(hidden[torch.tensor(row.mask)])
    assert model.step_probabilities([LONG])[0] == pytest.approx(logits.softmax(-1)[:, 1].tolist(), abs=1e-6)


def test_words_are_their_softmax_at_the_place_of_the_step(base):
    model = made(base, "tokens")
    row = model.encode(LONG.prompt, LONG.steps).row
    logits = model.carrier.model(torch.tensor([[*row.prompt_ids, *row.completion_ids]])).logits[
        0, len(row.prompt_ids) :
    ]
    bad, good = (model.tokenizer.get_vocab()[word] for word in "-+")
    wanted = logits[torch.tensor(row.mask)][:, [bad, good]].softmax(-1)[:, 1]
    assert model.step_probabilities([LONG])[0] == pytest.approx(wanted.tolist(), abs=1e-6)


def test_a_fresh_model_knows_nothing(base):
    assert new_process_model(base).step_probabilities([LONG]) == [[0.5, 0.5, 0.5]]


def test_an_encoder_is_refused():
    tokenizer = character_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.num_labels = 1
    scorer = RewardModel(BertForSequenceClassification(config), tokenizer, name="bert")
    with pytest.raises(ModelError, match="bert is an encoder, which sees the steps that come after"):
        ProcessModel(scorer, ProcessRecord())


@pytest.mark.parametrize("head", ["scalar", "classes", "tokens"])
@pytest.mark.parametrize("lora", [0, 2])
def test_a_saved_model_comes_back(base, head, lora, tmp_path):
    model = made(base, head, lora=lora)
    model.divide(2.0)
    model.record = replace(model.record, threshold=0.3, max_tokens=99)
    model.save(tmp_path / "saved")
    again = load_process_model(str(tmp_path / "saved"))
    assert again.record == model.record and again.record.threshold == 0.3
    assert again.step_log_odds([LONG])[0] == pytest.approx(model.step_log_odds([LONG])[0], abs=1e-5)


def test_a_saved_scalar_head_is_a_sequence_classifier_for_others_and_two_heads_are_no_reward_model(base, tmp_path):
    for head in ("scalar", "classes"):
        made(base, head).save(tmp_path / head)
    assert load_reward_model(str(tmp_path / "scalar")).members == 1
    with pytest.raises(ModelError, match="has 2 labels; a reward model has one"):
        load_reward_model(str(tmp_path / "classes"))


def test_divide_cools_the_log_odds_of_every_head(base):
    for head in ("scalar", "classes", "tokens"):
        model = made(base, head)
        (before,) = model.step_log_odds([LONG])
        model.divide(4.0)
        assert model.step_log_odds([LONG])[0] == pytest.approx([x / 4 for x in before], abs=1e-5)


def test_a_record_that_was_changed_or_moved_is_refused(base, tmp_path):
    made(base).save(tmp_path / "one")
    made(base, seed=1).save(tmp_path / "two")
    record = tmp_path / "two" / FILE
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "threshold": 0.9}))
    with pytest.raises(ModelError, match="damaged or was changed"):
        load_process_model(str(tmp_path / "two"))
    record.write_text((tmp_path / "one" / FILE).read_text())
    other = new_process_model(base)
    with torch.no_grad():
        other.carrier.head.weight += 1.0
    other.carrier.model.save_pretrained(tmp_path / "two")
    with pytest.raises(ModelError, match="belongs to another model: its head"):
        load_process_model(str(tmp_path / "two"))


def test_a_run_folder_stands_for_its_last_checkpoint(base, tmp_path):
    model = made(base)
    model.save(tmp_path / "run" / "checkpoints" / "final")
    assert load_process_model(str(tmp_path / "run")).step_log_odds([LONG])[0] == pytest.approx(
        model.step_log_odds([LONG])[0], abs=1e-5
    )


def test_a_token_classifier_is_read_as_trl_trains_it(tmp_path):
    """Its two labels, bias and all, at the last token of each separator."""
    tokenizer = merging_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )
    config.num_labels, config.intermediate_size = 2, 16
    theirs = Qwen2ForTokenClassification(config).eval()
    nn.init.normal_(theirs.score.bias)
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    steps = ("a b", "c")
    ids = [*tokenizer("2+2?")["input_ids"]]
    places = []
    for step in steps:
        ids += [*tokenizer(step)["input_ids"], *tokenizer("\n")["input_ids"]]
        places.append(len(ids) - 1)
    wanted = theirs(input_ids=torch.tensor([ids])).logits[0, places].softmax(-1)[:, 1].tolist()
    model = load_process_model(str(tmp_path))
    assert model.record == STYLES["trl"]
    assert model.step_probabilities([solution("a b\n", "c")])[0] == pytest.approx(wanted, abs=1e-6)


def test_a_head_of_two_layers_is_loaded_without_the_code_of_the_hub(tmp_path):
    """The layout of Qwen2.5-Math-PRM: Linear, ReLU, Linear at <extra_0>."""
    tokenizer = merging_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )
    config.intermediate_size = 16
    theirs = Qwen2ForTokenClassification(config).eval()
    theirs.score = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**written, "architectures": ["Qwen2ForProcessRewardModel"]}))
    model = load_process_model(str(tmp_path))
    text = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\na<extra_0>b<extra_0>"
    ids = tokenizer(text)["input_ids"]
    hidden = theirs.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    marker = tokenizer.convert_tokens_to_ids("<extra_0>")
    wanted = theirs.score(hidden[[i for i, t in enumerate(ids) if t == marker]]).softmax(-1)[:, 1].tolist()
    assert model.step_probabilities([solution("a\n\n", "b")])[0] == pytest.approx(wanted, abs=1e-6)
    model.save(tmp_path / "ours")
    assert load_process_model(str(tmp_path / "ours")).step_probabilities([solution("a\n\n", "b")])[0] == pytest.approx(
        wanted, abs=1e-6
    )


def test_a_language_model_must_say_where_it_is_read(base):
    with pytest.raises(ModelError, match="style: trl, qwen, math_shepherd or rlhflow"):
        load_process_model(base)
    with pytest.raises(ModelError, match="Did you mean 'rlhflow'"):
        load_process_model(base, style="rlhflo")
    assert load_process_model(base, style="rlhflow").record.layout.turns


def test_a_model_of_ours_loads_as_a_token_classifier(base, tmp_path):
    model = made(base, "classes")
    model.save(tmp_path / "saved")
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path / "saved")
    assert torch.equal(theirs.score.weight, model.carrier.head.weight)


@pytest.mark.parametrize("how", [{"lora": 2}, {"top_layers": 1}, {}])
def test_every_way_of_training_moves_the_head_and_what_was_asked_for(base, how):
    model = new_process_model(base, **how)
    row = model.encode(LONG.prompt, LONG.steps).row
    row.streams = {"ce": torch.ones(len(row.mask))}
    engine = Engine(model, ModelConfig(lr=0.1))
    before = [(name, p, p.detach().clone()) for name, p in model.module.named_parameters()]
    for _ in range(2):  # the head starts at 0: the layers below learn nothing from the first update
        engine.step([row], lambda batch: (((batch.outputs - 1.0) ** 2).sum(), {}))
    changed = {name for name, p, old in before if not torch.equal(p, old)}
    assert any("score" in name for name in changed)
    if "top_layers" in how:
        assert not any("layers.0." in name for name in changed) and any("layers.1." in name for name in changed)
    if "lora" in how:
        assert all("lora" in name or "score" in name for name in changed) and any("lora" in name for name in changed)


def test_cut_steps_are_counted_by_the_model(base):
    model = made(base)
    tokens = model.encode(LONG.prompt, LONG.steps).tokens
    model.record = replace(model.record, max_tokens=tokens - 1)
    assert [len(own) for own in model.step_log_odds([LONG, solution("a")])] == [2, 1]
    assert model.cut_steps == 1
