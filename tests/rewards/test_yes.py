"""The yes-probability as a reward: values by the model itself, errors, warnings, and from settings."""

from __future__ import annotations

import logging

import pytest
from tiny import byte_tokenizer, digit_tokenizer, language_model, llama, rollout

from prefrl.errors import ConfigError
from prefrl.model.language import LanguageModel
from prefrl.model.yes_probability import YesModel, query_row
from prefrl.model.yes_record import FILE, YesRecord
from prefrl.rewards.specs import build
from prefrl.rewards.yes import YesReward, end_row
from prefrl.types import Completion, Prompt, StopReason

RECORD = YesRecord(question="1=0", yes=("1",), no=("0",), low=-1.0, high=1.0)


def verifier(**options):
    return YesReward(YesModel(language_model(layers=2, seed=3), RECORD), **options)


def answered(text, stop=StopReason.EOS):
    made = rollout((1,), text=text, stop=stop)
    return type(made)(**{f: getattr(made, f) for f in made.__slots__} | {"prompt": Prompt(id="a", text="12=")})


def test_the_value_is_the_probability_on_the_scale_of_rewards():
    source = verifier()
    (score,) = source.score([answered("3,4")])
    model = source.model
    ids = [*model.model.tokenizer("12=3,4")["input_ids"], model.model.tokenizer.eos_token_id]
    (answer,) = model.ask([query_row(ids[:3], ids[3:], [4])])[0]
    assert score.value == pytest.approx(2 * answer.probability - 1, abs=1e-6)
    assert score.parts == pytest.approx({"yes": answer.probability, "yesno_mass": answer.mass}, abs=1e-6)


def test_a_cut_off_answer_is_asked_about_without_an_end():
    model = verifier().model
    whole, cut = (end_row(model, Prompt(id="a", text="12="), Completion(text="3,4", finished=f)) for f in (True, False))
    end = model.model.tokenizer.eos_token_id
    assert whole.completion_ids[-2] == end and cut.completion_ids[-2] != end
    assert len(whole.completion_ids) == len(cut.completion_ids) + 1


def test_too_long_an_answer_is_an_error_and_the_others_are_scored():
    source = verifier(max_tokens=7)  # three of the prompt, the answer, and its end
    scores = source.score([answered("3,4"), answered("3,4,5"), answered("3")])
    assert [score.ok for score in scores] == [True, False, True]
    assert "9 tokens, but the verifier takes 7" in str(scores[1].error)
    assert source.score([]) == []


def test_an_answer_that_leaves_no_positions_for_the_question_is_an_error():
    tokenizer = digit_tokenizer()
    short = llama(len(tokenizer), max_position_embeddings=20)
    source = YesReward(YesModel(LanguageModel(short, tokenizer, name="short"), RECORD))
    room = 20 - len(source.model.question.plain)
    scores = source.score([answered("", stop=StopReason.LENGTH), answered("3,4,5,6,7,8,9,1")])
    assert scores[0].ok and f"19 tokens, but the verifier takes {room}" in str(scores[1].error)


def test_a_low_mass_is_warned_of_once(caplog):
    source = verifier()
    with caplog.at_level(logging.WARNING, logger="prefrl.rewards"):
        source.score([answered("3"), answered("4")])
        source.score([answered("5")])
    assert len(caplog.records) == 1 and "below 0.50" in caplog.text
    with caplog.at_level(logging.WARNING, logger="prefrl.rewards"):
        verifier(floor=0.0).score([answered("3")])
    assert len(caplog.records) == 1
    with pytest.raises(ConfigError, match=r"floor=1.5; expected a probability"):
        verifier(floor=1.5)


def test_from_settings(tmp_path):
    tokenizer = byte_tokenizer()
    LanguageModel(llama(len(tokenizer), eos=tokenizer.eos_token_id), tokenizer, name="bytes").save(tmp_path / "base")
    base = str(tmp_path / "base")
    with pytest.raises(ConfigError, match="No spelling of yes"):
        build({"kind": "yes", "model": base})
    source = build({"kind": "yes", "model": base, "yes_words": ["+"], "no_words": ["-"], "question": "ok?"})
    assert source.name == "yes" and source.model.record.question == "ok?"
    assert build({"kind": True, "model": base, "yes_words": ["+"], "no_words": ["-"]}).name == "yes"  # as YAML has it
    source.model.save(tmp_path / "yes")
    assert (tmp_path / "yes" / FILE).exists()
    trained = build({"kind": "yes", "model": str(tmp_path / "yes"), "high": 2.0})
    assert trained.model.record.question == "ok?" and trained.model.record.high == 2.0
