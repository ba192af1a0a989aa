"""The record beside a reward model: read back as it was written, and never believed where it cannot be right."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from tiny import byte_tokenizer, llama

from prefrl.errors import ModelError
from prefrl.model.reward_model import load_reward_model, new_reward_model
from prefrl.model.reward_record import FILE, RewardRecord, read_record, tokenizer_fingerprint

FULL = RewardRecord(
    max_tokens=99,
    long="cut",
    temperature=1.5,
    mean=0.1,
    std=2.0,
    length_slope=0.01,
    length_centre=50.0,
    tie_model="davidson",
    tie_parameter=0.3,
    reliability={"ann": 1.2, "bob": -0.1},
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "model"
    llama(259, eos=2).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def saved(base, tmp_path):
    model = new_reward_model(base)
    torch.nn.init.normal_(model.output_layer.weight)
    model.record = FULL
    model.save(tmp_path / "rm")
    return tmp_path / "rm"


def test_round_trip(saved):
    assert load_reward_model(str(saved)).record == FULL
    content = json.loads((saved / FILE).read_text())
    assert content["format"] == 1 and content["pooling"] == "last position with mask 1"


def test_models_of_others_have_none(saved):
    (saved / FILE).unlink()
    assert read_record(str(saved)) is None
    assert load_reward_model(str(saved)).record == RewardRecord()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("1.5", "1.4"),
        lambda text: text.replace('"cut"', '"refuse"'),
        lambda text: "[]",
        lambda text: text.replace('"checksum"', '"check"'),
    ],
)
def test_damage_is_noticed(saved, damage):
    text = (saved / FILE).read_text()
    assert damage(text) != text
    (saved / FILE).write_text(damage(text))
    with pytest.raises(ModelError, match="is damaged or was changed"):
        load_reward_model(str(saved))


def test_a_later_format_is_not_guessed_at(saved, monkeypatch):
    model = load_reward_model(str(saved))
    monkeypatch.setattr("prefrl.model.reward_record.FORMAT", 2)
    model.save(saved)
    monkeypatch.undo()
    with pytest.raises(ModelError, match="has format 2; this version of prefrl reads format 1"):
        load_reward_model(str(saved))


def test_another_models_record_is_noticed(saved, base, tmp_path):
    other = new_reward_model(base)
    other.save(tmp_path / "other")
    (tmp_path / "other" / FILE).write_text((saved / FILE).read_text())
    with pytest.raises(ModelError, match=r"belongs to another model: the head .* delete that file"):
        load_reward_model(str(tmp_path / "other"))


def test_another_tokenizer_is_noticed(saved):
    tokenizer = byte_tokenizer(chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}")
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.save_pretrained(saved)
    with pytest.raises(ModelError, match="belongs to another model: the tokenizer"):
        load_reward_model(str(saved))


def test_fingerprints_of_tokenizers(saved):
    known = byte_tokenizer()
    first = tokenizer_fingerprint(known)
    assert tokenizer_fingerprint(byte_tokenizer()) == first
    known.pad_token = "<|endoftext|>"
    known.padding_side = "left"
    assert tokenizer_fingerprint(known) == first  # rows carry masks: padding means nothing
    known.chat_template += " "
    assert tokenizer_fingerprint(known) != first
    assert tokenizer_fingerprint(byte_tokenizer(chat_template=None)) != first


def test_the_head_is_known_in_any_precision(saved):
    assert load_reward_model(str(saved), dtype="bfloat16").record == FULL


def test_dividing_keeps_the_record_true(saved, tmp_path):
    model = load_reward_model(str(saved))
    model.divide(2.0)
    model.record = replace(model.record, temperature=3.0)
    model.save(tmp_path / "again")
    assert load_reward_model(str(tmp_path / "again")).record.temperature == 3.0


def test_a_record_on_the_hub_is_read(saved, monkeypatch):
    import transformers.utils.hub

    asked = []

    def cached_file(name, file, **how):
        asked.append((name, file))
        return str(saved / file) if name == "some/model" else None

    monkeypatch.setattr(transformers.utils.hub, "cached_file", cached_file)
    assert read_record("some/model")[0] == FULL
    assert read_record("some/other") is None
    assert asked == [("some/model", FILE), ("some/other", FILE)]


def test_an_unknown_id_has_no_record():
    assert read_record("no-such-name-here") is None
