"""What is exported is what TRL's trainers take, from the file, as it is."""

from __future__ import annotations

import pytest
from labelled import pair, solution, text_pair
from tiny import byte_tokenizer, llama

from prefrl.data.comparisons import Label
from prefrl.data.exporting import Choices, Labelled, export

datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")


def labelled(items):
    labels = []
    for n, item in enumerate(items):
        about = {"outcome": ("first", "second")[n % 2], "details": {"answer": {"text": f"better {n}", "from": "first"}}}
        if item.kind == "steps":
            about = {"outcome": "steps", "details": {"ratings": [1, 1, -1]}}
        labels.append(Label(id=str(n), item=item.id, annotator="ann", version=1, strength="much", **about))
    return Labelled(tasks=items, labels=labels)


CONVERSATIONS = labelled([pair(f"question {n}", f"one {n}", f"two {n}") for n in range(4)])
TEXTS = labelled([text_pair(f"question {n}", f"one {n}", f"two {n}") for n in range(4)])
STEPS = labelled([solution(f"1+{n}?") for n in range(4)])


def file_of(data, tmp_path, suffix=".jsonl", **choices):
    (path,) = export(data, Choices(**choices)).write(tmp_path / f"x{suffix}")
    kind = "json" if suffix == ".jsonl" else "parquet"
    return datasets.load_dataset(kind, data_files=str(path), cache_dir=str(tmp_path / "cache"), split="train")


def arguments(kind, tmp_path):
    return kind(
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        bf16=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("data", [CONVERSATIONS, TEXTS], ids=["conversations", "texts"])
@pytest.mark.filterwarnings("ignore")  # what transformers and TRL say of each other
def test_dpo_takes_preferences(tmp_path, data, suffix):
    dataset = file_of(data, tmp_path, suffix, margins={"much": 2.0})
    tokenizer = byte_tokenizer()
    trainer = trl.DPOTrainer(
        llama(len(tokenizer), eos=tokenizer.eos_token_id),
        ref_model=llama(len(tokenizer), eos=tokenizer.eos_token_id),
        args=arguments(trl.DPOConfig, tmp_path),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    assert trainer.train().training_loss == pytest.approx(0.6931, abs=0.01)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_reward_trainer_takes_preferences_with_margins(tmp_path):
    from transformers import LlamaForSequenceClassification

    tokenizer = byte_tokenizer()
    base = llama(len(tokenizer), eos=tokenizer.eos_token_id)
    base.config.num_labels, base.config.pad_token_id = 1, tokenizer.pad_token_id
    dataset = file_of(CONVERSATIONS, tmp_path, margins={"much": 2.0})
    assert sorted(dataset["margin"]) == [0.0] * 4 + [2.0] * 4
    trainer = trl.RewardTrainer(
        LlamaForSequenceClassification(base.config),
        args=arguments(trl.RewardConfig, tmp_path),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    assert trainer.train().training_loss > 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_supervised_training_takes_better_answers(tmp_path):
    tokenizer = byte_tokenizer()
    trainer = trl.SFTTrainer(
        llama(len(tokenizer), eos=tokenizer.eos_token_id),
        args=arguments(trl.SFTConfig, tmp_path),
        train_dataset=file_of(CONVERSATIONS, tmp_path, format="sft"),
        processing_class=tokenizer,
    )
    assert trainer.train().training_loss > 0.0


def test_formats_are_known_to_trl(tmp_path):
    from trl.data_utils import is_conversational, maybe_apply_chat_template

    rows = file_of(CONVERSATIONS, tmp_path, format="unpaired")
    assert is_conversational(rows[0]) and rows.features["label"].dtype == "bool"
    said = maybe_apply_chat_template(rows[0], byte_tokenizer())
    assert said["prompt"].endswith("<|im_start|>assistant\n") and said["completion"].startswith("one 0")
    (tmp_path / "steps").mkdir()
    steps = file_of(STEPS, tmp_path / "steps", format="stepwise")
    assert steps[0]["completions"] == ["1+1=2", "2+1=3", "so 3"] and steps[0]["labels"] == [True, True, False]
    assert steps.features["labels"].feature.dtype == "bool"
