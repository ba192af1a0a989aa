"""A score belongs to its text: batch, padding, saving, merging and the library that loads the model change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import byte_tokenizer, character_tokenizer, llama, moved
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
    RobertaConfig,
    RobertaModel,
)

from prefrl import rewards
from prefrl.errors import ModelError
from prefrl.model.ensemble import load_reward_scorer, new_ensemble
from prefrl.model.reward_model import load_reward_model, new_reward_model
from prefrl.types import Completion, Prompt

TURNS = (
    {"role": "user", "content": "two?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "and three, please"},
)
ASKED = [
    (Prompt(id="turns", messages=TURNS), Completion(text="three")),  # ends of turns inside the prompt
    (Prompt(id="turns", messages=TURNS), Completion(text="no")),
    (Prompt(id="turns", messages=TURNS[:1]), Completion(text="two it is", finished=False)),
    (Prompt(id="text", text="what is it?"), Completion(text=" a word.")),
    (Prompt(id="text", text="what is it?"), Completion(text=" ")),
    (Prompt(id="short", text="?"), Completion(text="a much longer answer than the others have")),
    (Prompt(id="short", text="?"), Completion(text="")),
    (Prompt(id="cut", text="why?"), Completion(text=" because", finished=False)),
]
DECODERS = ("pad is eos", "pad apart")
ENCODERS = ("bert", "roberta")
SMALL = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def padded_apart():
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = "<|endoftext|>"
    return tokenizer


def written(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    place = tmp_path_factory.mktemp("bases")
    torch.manual_seed(0)
    bert = BertModel(BertConfig(**SMALL, pad_token_id=0))
    roberta = RobertaModel(RobertaConfig(**SMALL, pad_token_id=0, bos_token_id=2, eos_token_id=3))
    return {
        "pad is eos": written(place / "pad_is_eos", llama(259, layers=2, eos=2), byte_tokenizer()),
        "pad apart": written(place / "pad_apart", llama(259, layers=2, eos=2, seed=1), padded_apart()),
        "bert": written(place / "bert", bert, character_tokenizer()),
        "roberta": written(place / "roberta", roberta, character_tokenizer()),
    }


# name -> (base, how it is made)
MODELS = {
    **{base: (base, new_reward_model) for base in (*DECODERS, *ENCODERS)},
    "lora": ("pad is eos", lambda base: new_reward_model(base, lora=2)),
    "bert, lora": ("bert", lambda base: new_reward_model(base, lora=2)),
    "roberta, lora": ("roberta", lambda base: new_reward_model(base, lora=2)),
    "heads": ("pad is eos", lambda base: new_reward_model(base, heads=3)),
    "bert, heads": ("bert", lambda base: new_reward_model(base, heads=3)),
    "heads, lora": ("pad apart", lambda base: new_reward_model(base, heads=3, lora=2)),
    "adapters": ("pad is eos", lambda base: new_ensemble(base, 2, lora=2)),
    "models": ("pad apart", lambda base: new_ensemble(base, 2, layers=1)),
}
ONE_FOLDER = [name for name in MODELS if name not in ("adapters", "models") and "lora" not in name]


def made(bases, name, *, calibrated=True):
    """A model whose trained weights were moved, and whose scores were then divided by a temperature."""
    base, make = MODELS[name]
    model = make(bases[base])
    moved(model, 0.2)
    if calibrated:
        model.divide(0.7)
    return model


def rows_of(model):
    return [model.encode(*asked) for asked in ASKED]


def scores(model, rows=None):
    return model.member_scores(rows_of(model) if rows is None else rows)


def same(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
    assert float((wanted.amax(0) - wanted.amin(0)).min()) > 1e-2  # there was something to tell apart


def plain(model, rows, tokenizer, side):
    """Scores (N, K) by transformers' own class and pooling, of a batch padded on one side."""
    tokenizer.padding_side = side
    batch = tokenizer.pad({"input_ids": [[*r.prompt_ids, *r.completion_ids] for r in rows]}, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits


@pytest.mark.parametrize("name", MODELS)
def test_batch_size(bases, name):
    model = made(bases, name)
    rows = rows_of(model)
    alone = torch.cat([scores(model, [row]) for row in rows])
    for size in (2, 8):
        same(torch.cat([scores(model, rows[i : i + size]) for i in range(0, len(rows), size)]), alone)
    same(model.member_scores(rows[::-1], token_budget=60).flip(0), alone)


@pytest.mark.parametrize("name", MODELS)
def test_saving_and_loading(bases, name, tmp_path):
    model = made(bases, name)
    model.save(tmp_path / "rm")
    again = load_reward_scorer(str(tmp_path / "rm"))
    same(scores(again), scores(model))
    assert rows_of(again) == rows_of(model)
    again.save(tmp_path / "again")
    same(scores(load_reward_scorer(str(tmp_path / "again"))), scores(model))


@pytest.mark.parametrize("name", MODELS)
def test_a_temperature_divides_every_score(bases, name):
    model = made(bases, name, calibrated=False)
    wanted = scores(model) / 1.7
    model.divide(1.7)
    same(scores(model), wanted)


# Encoders with learnt positions take no padding on the left.
SIDES = [(n, s) for n in ONE_FOLDER for s in ("left", "right") if s == "right" or not n.startswith(ENCODERS)]


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_ours_in_transformers(bases, name, side, tmp_path):
    model = made(bases, name)
    model.save(tmp_path / "rm")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    assert theirs.config.pad_token_id != model.tokenizer.eos_token_id
    same(plain(theirs, rows_of(model), model.tokenizer, side), scores(model))


@pytest.mark.parametrize("name", ["pad is eos", "heads", "adapters"])
def test_the_padding_token_does_not_matter_here(bases, name):
    model = made(bases, name)
    wanted = scores(model)
    for one in getattr(model, "models", [model]):
        one.tokenizer.pad_token = one.tokenizer.eos_token
        one.model.config.pad_token_id = one.tokenizer.eos_token_id
    same(scores(model), wanted)


@pytest.mark.parametrize("name", MODELS)
def test_an_inner_end_of_turn_does_not_end_the_row(bases, name):
    """Read at the first end of turn, two answers to one conversation would score the same (RLHFlow #49)."""
    model = made(bases, name)
    chosen, rejected = rows_of(model)[:2]
    assert chosen.prompt_ids == rejected.prompt_ids
    if MODELS[name][0] in DECODERS:
        assert chosen.prompt_ids.count(model.tokenizer.eos_token_id) == 3
    gap = (scores(model, [chosen]) - scores(model, [rejected])).abs()
    assert float(gap.min()) > 1e-3


@pytest.mark.parametrize("name", [name for name in MODELS if "lora" in name])
def test_merging_the_adapter(bases, name, tmp_path):
    model = made(bases, name)
    model.save(tmp_path / "rm")
    wanted, rows = scores(model), rows_of(model)
    merged = load_reward_model(str(tmp_path / "rm")).model.merge_and_unload()
    merged.config.pad_token_id = model.tokenizer.pad_token_id
    same(plain(merged, rows, model.tokenizer, "right"), wanted)
    whole = load_reward_model(str(tmp_path / "rm"))
    whole.model = whole.model.merge_and_unload()
    same(scores(whole), wanted)


@pytest.mark.parametrize("name", [name for name in MODELS if "lora" in name])
def test_the_head_is_saved_with_the_adapter(bases, name, tmp_path):
    """trl #381: without it every load draws a new head, and the scores are random."""
    made(bases, name).save(tmp_path / "rm")
    torch.manual_seed(1)
    one = scores(load_reward_model(str(tmp_path / "rm")))
    torch.manual_seed(2)
    same(scores(load_reward_model(str(tmp_path / "rm"))), one)


@pytest.mark.parametrize("keep_record", [True, False])
def test_an_adapter_without_its_head_is_refused(bases, keep_record, tmp_path):
    made(bases, "lora").save(tmp_path / "rm")
    weights = load_file(tmp_path / "rm" / "adapter_model.safetensors")
    headless = {name: tensor for name, tensor in weights.items() if "score" not in name}
    assert len(headless) == len(weights) - 1
    save_file(headless, tmp_path / "rm" / "adapter_model.safetensors")
    if not keep_record:
        (tmp_path / "rm" / "reward_model.json").unlink()
    with pytest.raises(ModelError, match="was saved without its head"):
        load_reward_model(str(tmp_path / "rm"))


@pytest.mark.slow
@pytest.mark.parametrize("base", DECODERS)
def test_a_model_saved_by_trl(bases, base, tmp_path):
    """Trained and saved by TRL's own trainer: it scores here as it does in transformers, which reads it as TRL did."""
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    tokenizer = byte_tokenizer() if base == "pad is eos" else padded_apart()
    rows = {
        "prompt": [[dict(turn) for turn in TURNS]] * 4,
        "chosen": [[{"role": "assistant", "content": "three"}]] * 4,
        "rejected": [[{"role": "assistant", "content": "no"}]] * 4,
    }
    config = RewardConfig(
        output_dir=str(tmp_path / "run"),
        max_steps=2,
        learning_rate=0.05,
        per_device_train_batch_size=2,
        activation_checkpointing=False,
        bf16=False,
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    theirs = AutoModelForSequenceClassification.from_pretrained(bases[base], num_labels=1)
    trainer = RewardTrainer(
        model=theirs, args=config, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "rm"))
    model = load_reward_model(str(tmp_path / "rm"))
    assert (model.unread is None) == (base == "pad apart")
    got, model.unread = scores(model), None  # in transformers the rows have their ends, which are not read
    same(got, plain(trainer.model, rows_of(model), tokenizer, "right"))


def test_a_classifier_of_others(bases, tmp_path):
    torch.manual_seed(3)
    theirs = AutoModelForSequenceClassification.from_pretrained(bases["bert"], num_labels=1)
    torch.nn.init.normal_(theirs.classifier.weight)
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    model = load_reward_model(written(tmp_path / "theirs", theirs, tokenizer))
    same(scores(model), plain(theirs, rows_of(model), tokenizer, "right"))


def test_a_normaliser_survives_loading(bases, tmp_path):
    """OpenRLHF #1343: mean and spread came back as whatever was in memory."""
    model = made(bases, "pad is eos")
    model.record = replace(model.record, mean=0.25, std=2.0)
    model.save(tmp_path / "rm")
    plain_source = rewards.BradleyTerry.load(str(tmp_path / "rm"))
    source = rewards.BradleyTerry.load(str(tmp_path / "rm"), standardise=True)
    prompts, completions = zip(*ASKED, strict=True)
    raw = [score.total for score in plain_source.score_texts(prompts, completions)]
    got = [score.total for score in source.score_texts(prompts, completions)]
    assert got == pytest.approx([(score - 0.25) / 2.0 for score in raw], abs=1e-6)
