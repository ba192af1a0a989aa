"""Several heads, models or adapters: each scores by itself, wherever it was saved and loaded."""

from __future__ import annotations

import pytest
import torch
from tiny import byte_tokenizer, llama, moved

from prefrl.errors import ModelError
from prefrl.model.ensemble import load_reward_scorer, new_ensemble
from prefrl.model.reward_model import load_reward_model, new_reward_model
from prefrl.model.reward_record import RewardRecord
from prefrl.types import Completion, Prompt

ASKED = [(Prompt(id="a", text="What is it?"), Completion(text=t)) for t in (" A word.", " ", "", " Nothing at all.")]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "model"
    llama(259, layers=2, eos=2).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


def raw(model):
    return model.member_scores([model.encode(*asked) for asked in ASKED])


MAKERS = {
    "heads": lambda base: new_reward_model(base, heads=3),
    "heads, lora": lambda base: new_reward_model(base, heads=3, lora=2),
    "models": lambda base: new_ensemble(base, 3, layers=1),
    "adapters": lambda base: new_ensemble(base, 3, lora=2),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_members_start_apart_but_near_0(base, kind):
    scores = raw(MAKERS[kind](base))
    assert scores.shape == (4, 3)
    assert float(scores.std(1).min()) > 1e-4
    assert float(scores.abs().max()) < 0.7


@pytest.mark.parametrize("kind", MAKERS)
def test_round_trip(base, kind, tmp_path):
    model = moved(MAKERS[kind](base))
    wanted = raw(model)
    assert float(wanted.std(1).min()) > 1e-2
    model.save(tmp_path / "rm")
    again = load_reward_scorer(str(tmp_path / "rm"))
    assert again.members == 3 and again.record == model.record
    torch.testing.assert_close(raw(again), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["models", "adapters"])
def test_every_member_is_a_reward_model_of_its_own(base, kind, tmp_path):
    model = moved(MAKERS[kind](base))
    model.save(tmp_path / "rm")
    for index in range(3):
        member = load_reward_model(str(tmp_path / "rm" / "members" / str(index)))
        torch.testing.assert_close(raw(member)[:, 0], raw(model)[:, index], atol=1e-5, rtol=0)


def test_adapters_share_one_base(base, tmp_path):
    model = moved(MAKERS["adapters"](base))
    model.save(tmp_path / "rm")
    again = load_reward_scorer(str(tmp_path / "rm"))
    for ensemble in (model, again):
        assert len({id(member.model) for member in ensemble.models}) == 1
    assert not list((tmp_path / "rm").rglob("model*.safetensors"))
    assert len(list((tmp_path / "rm").rglob("adapter_model.safetensors"))) == 3


def test_only_the_active_adapter_is_trained(base):
    model = MAKERS["adapters"](base)
    for member in model.models:
        member.activate()
        trained = [name for name, p in member.module.named_parameters() if p.requires_grad]
        assert trained and all(f".{member.adapter}." in name for name in trained)
        assert any("score" in name for name in trained)


def test_a_lost_member_is_missed(base, tmp_path):
    MAKERS["adapters"](base).save(tmp_path / "rm")
    (tmp_path / "rm" / "members" / "1").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"an ensemble of 3 models, but .*members/1 is missing"):
        load_reward_scorer(str(tmp_path / "rm"))


def test_an_ensemble_of_models_is_not_loaded_from_the_hub(monkeypatch):
    record = RewardRecord(kind="models", members=3)
    monkeypatch.setattr("prefrl.model.ensemble.read_record", lambda _: (record, {}))
    with pytest.raises(ModelError, match=r"org/rm is an ensemble of 3 models on the hub.*hf download org/rm "):
        load_reward_scorer("org/rm")


def test_exchanged_members_are_noticed(base, tmp_path):
    moved(MAKERS["models"](base)).save(tmp_path / "rm")
    one, two, spare = (tmp_path / "rm" / "members" / n for n in ("0", "1", "spare"))
    one.rename(spare)
    two.rename(one)
    spare.rename(two)
    with pytest.raises(ModelError, match="belongs to another model: the head"):
        load_reward_scorer(str(tmp_path / "rm"))
