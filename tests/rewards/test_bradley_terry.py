"""A trained reward model as a source: what it takes, what it cuts, what it takes off, and what several members say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tiny import byte_tokenizer, llama

from prefrl import rewards
from prefrl.errors import ConfigError, ModelError
from prefrl.model.reward_model import new_reward_model
from prefrl.types import Completion, Prompt

PROMPT = Prompt(
    id="a", messages=tuple({"role": r, "content": c} for r, c in (("user", "a?"), ("assistant", "b"), ("user", "c?")))
)
TEXTS = ("yes", "no, not at all", "")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "model"
    llama(259, eos=2).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


def made(base, heads=1, **record):
    model = new_reward_model(base, heads=heads)
    torch.manual_seed(5)
    torch.nn.init.normal_(model.output_layer.weight)
    model.record = replace(model.record, **record)
    return model


def scores(source):
    return source.score_texts([PROMPT] * len(TEXTS), [Completion(text=text) for text in TEXTS])


def values(source):
    return [score.total for score in scores(source)]


def test_long_prompts_are_cut_as_in_training(base):
    model = made(base, max_tokens=40, long="cut")
    rows = [model.encode(PROMPT, Completion(text=text)) for text in TEXTS]
    assert [len(row.prompt_ids) + len(row.completion_ids) for row in rows] == [25, 36, 22]
    found = scores(rewards.BradleyTerry(model))
    assert [score.total for score in found] == pytest.approx(model.scores(rows))
    assert [score.parts for score in found] == [{"cut": 1.0}] * 3
    assert values(rewards.BradleyTerry(made(base))) != pytest.approx([score.total for score in found])


def test_a_completion_that_is_too_long_is_an_error(base):
    found = scores(rewards.BradleyTerry(made(base, max_tokens=10, long="cut")))
    assert [score.ok for score in found] == [True, False, True]
    assert found[1].error.endswith("but the reward model takes 10")


def test_the_limit_is_that_of_training_unless_another_is_given(base):
    model = made(base, max_tokens=20)
    assert [score.ok for score in scores(rewards.BradleyTerry(model))] == [False] * 3
    assert all(score.ok for score in scores(rewards.BradleyTerry(model, max_tokens=100)))
    assert rewards.BradleyTerry(made(base)).max_tokens == 2048


def test_what_length_explains_is_taken_off(base):
    raw = values(rewards.BradleyTerry(made(base)))
    corrected = values(rewards.BradleyTerry(made(base, length_slope=0.5, length_centre=4.0)))
    assert corrected == pytest.approx([score - 0.5 * (len(text) - 4.0) for score, text in zip(raw, TEXTS, strict=True)])


def test_what_members_say(base):
    model = made(base, heads=3)
    rows = [model.encode(PROMPT, Completion(text=text)) for text in TEXTS]
    members = model.member_scores(rows).double()
    mean, std = members.mean(1), members.std(1, correction=0)
    assert float(std.min()) > 0.1
    found = scores(rewards.BradleyTerry(model, combine="lcb", k=0.5))
    assert [score.total for score in found] == pytest.approx((mean - 0.5 * std).tolist(), abs=1e-5)
    assert [score.parts["std"] for score in found] == pytest.approx(std.tolist(), abs=1e-5)
    assert values(rewards.BradleyTerry(model, combine="min")) == pytest.approx(members.amin(1).tolist(), abs=1e-5)
    assert values(rewards.BradleyTerry(model)) == pytest.approx(mean.tolist(), abs=1e-5)


def test_from_settings(base, tmp_path):
    model = made(base, heads=2, mean=1.0, std=4.0)
    model.save(tmp_path / "checkpoints" / "final")
    lowest = values(rewards.BradleyTerry(model, combine="min"))
    source = rewards.build({"kind": "bradley_terry", "path": str(tmp_path), "combine": "min", "standardise": True})
    assert values(source) == pytest.approx([(score - 1.0) / 4.0 for score in lowest], abs=1e-5)
    assert all(math.isfinite(score) for score in lowest)


def test_more_tokens_than_positions_are_refused(base):
    model = made(base)
    with pytest.raises(ConfigError, match=r"max_tokens is 2049; .* has positions for 2048 tokens"):
        rewards.BradleyTerry(model, max_tokens=2049)
    assert rewards.BradleyTerry(model, max_tokens=2048).max_tokens == 2048


def test_refusals(base):
    model = made(base)
    with pytest.raises(ConfigError, match="combine is 'max'; valid: mean, min, lcb"):
        rewards.BradleyTerry(model, combine="max")
    for record in ({}, {"mean": 0.0, "std": 0.0}):
        with pytest.raises(ModelError, match="without the mean and spread of held-out scores"):
            rewards.BradleyTerry(made(base, **record), standardise=True)
