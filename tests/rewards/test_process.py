"""Process rewards: which steps are scored, at which of the policy's tokens they are paid, and as one number."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from stepping import Judge, merging_tokenizer
from tiny import byte_tokenizer, llama

from prefrl.errors import ConfigError
from prefrl.model.process_model import new_process_model
from prefrl.rewards.base import attach, checked_scores
from prefrl.rewards.process import ProcessReward
from prefrl.rewards.specs import build
from prefrl.types import Prompt, Rollout, StopReason

PROMPT = Prompt(id="p", text="question")


def engine(tokenizer):
    return SimpleNamespace(actor=SimpleNamespace(tokenizer=tokenizer))


def written(tokenizer, text, *, stop=StopReason.EOS, group="g", ids=None):
    """A rollout of a text, with an end of turn where it ended by itself."""
    ids = list(ids if ids is not None else tokenizer(text, add_special_tokens=False)["input_ids"])
    ids += [tokenizer.eos_token_id] if stop is StopReason.EOS else []
    return Rollout(
        prompt=PROMPT,
        prompt_ids=(1,),
        completion_ids=tuple(ids),
        mask=(True,) * len(ids),
        logps=(-1.0,) * len(ids),
        text=tokenizer.decode(ids, skip_special_tokens=True),
        stop=stop,
        group=group,
    )


def text_only(text, *, stop=StopReason.EOS):
    return Rollout(prompt=PROMPT, completion_ids=(), mask=(), logps=(), text=text, stop=stop, group="g")


def by_place(*scores):
    return Judge(lambda at, _: scores[at])


def attached(judge, tokenizer=None, **options):
    source = ProcessReward(judge, **options)
    attach(source, engine(tokenizer or merging_tokenizer()))
    return source


TEXT = "We add.\n\n2+2=4.\n\nSo 4"


def test_the_values_of_the_specification():
    source = attached(by_place(0.6, 0.4, 0.0), start=0.3)
    (score,) = checked_scores(source, [written(merging_tokenizer(), TEXT)])
    assert [r for _, r in score.steps] == pytest.approx([0.3, -0.2, -0.4])
    assert score.value is None
    assert score.parts == pytest.approx(
        {"n_steps": 3, "first_below": 1, "min": 0.0, "product": 0.0, "mean": 1 / 3, "last": 0.0}
    )


def test_a_step_is_paid_at_the_token_that_ends_it_and_the_last_one_at_the_end_of_the_turn():
    tokenizer = merging_tokenizer()
    one = written(tokenizer, TEXT)
    (score,) = attached(by_place(0.6, 0.4, 0.0)).score([one])
    tokens = [at for at, _ in score.steps]
    assert [tokenizer.decode(list(one.completion_ids[: at + 1])) for at in tokens] == [
        "We add.\n\n",
        "We add.\n\n2+2=4.\n\n",
        f"{TEXT}<|im_end|>",
    ]
    assert tokenizer.convert_ids_to_tokens(one.completion_ids[tokens[0]]) == ".\u010a\u010a"
    assert tokens[-1] == len(one.completion_ids) - 1  # never on a pad behind it


def test_a_token_across_the_border_ends_the_step_it_finishes():
    """With `\\n` as separator the single token `.\\n\\n` ends the step and a blank piece belongs to it."""
    source = attached(Judge(lambda at, _: 0.5, separator="\n"), start=0.0)
    one = written(merging_tokenizer(), "a.\n\nb")
    assert [at for at, _ in source.score([one])[0].steps] == [1, 3]


def test_part_of_a_character_does_not_end_a_step():
    tokenizer = byte_tokenizer()
    one = written(tokenizer, "é\n\nü", stop=StopReason.STOP)  # two bytes each
    (score,) = attached(by_place(0.6, 0.4), tokenizer).score([one])
    assert [at for at, _ in score.steps] == [3, 5]
    cut = Rollout(**{**_fields(one), "completion_ids": one.completion_ids[:-1], "mask": one.mask[:-1],
                     "logps": one.logps[:-1], "text": tokenizer.decode(list(one.completion_ids[:-1])),
                     "stop": StopReason.LENGTH})  # fmt: skip
    assert [at for at, _ in attached(by_place(0.6, 0.4), tokenizer).score([cut])[0].steps] == [3]


def _fields(rollout):
    return {name: getattr(rollout, name) for name in rollout.__slots__}


def test_the_step_that_the_budget_cut_off_is_not_scored():
    judge = by_place(0.6, 0.4, 0.0)
    cut = written(merging_tokenizer(), TEXT, stop=StopReason.LENGTH)
    (score,) = attached(judge, start=0.3).score([cut])
    assert judge.asked == [("We add.\n\n", "2+2=4.\n\n")]
    assert [r for _, r in score.steps] == pytest.approx([0.3, -0.2])
    assert score.parts["n_steps"] == 2


def test_a_finished_step_counts_though_the_rollout_was_cut_right_after_it():
    judge = by_place(0.6, 0.4)
    attached(judge).score([written(merging_tokenizer(), "a.\n\nb.\n\n", stop=StopReason.LENGTH)])
    assert judge.asked == [("a.\n\n", "b.\n\n")]


def test_cut_off_in_the_first_step_there_is_nothing_to_earn_and_it_still_counts():
    one = written(merging_tokenizer(), "a long", stop=StopReason.LENGTH)
    (score,) = checked_scores(attached(by_place(0.9)), [one])
    assert score.ok and score.steps == ((len(one.completion_ids) - 1, 0.0),) and score.parts == {"n_steps": 0.0}
    (whole,) = checked_scores(attached(by_place(0.9), placement="sequence"), [one])
    assert whole.ok and (whole.value, whole.steps, whole.parts) == (0.0, (), {"n_steps": 0.0})


def test_separators_in_code_end_no_step():
    judge = by_place(0.9, 0.8)
    attached(judge).score([written(merging_tokenizer(), "Run\n```\na\n\nb\n```\n\nDone")])
    assert judge.asked == [("Run\n```\na\n\nb\n```\n\n", "Done")]


def test_the_tokenizers_of_policy_and_model_need_not_be_the_same():
    """Bytes in place of fused tokens: other indices, the same text up to each of them."""
    for tokenizer in (merging_tokenizer(), byte_tokenizer()):
        one = written(tokenizer, TEXT)
        (score,) = attached(by_place(0.6, 0.4, 0.0), tokenizer).score([one])
        ends = [tokenizer.decode(list(one.completion_ids[: at + 1]), skip_special_tokens=True) for at, _ in score.steps]
        assert ends == ["We add.\n\n", "We add.\n\n2+2=4.\n\n", TEXT]


def test_a_text_that_the_tokens_do_not_give_back_is_an_error_of_that_rollout():
    tokenizer = merging_tokenizer()
    good, odd = written(tokenizer, TEXT), written(tokenizer, TEXT)
    odd = Rollout(**{**_fields(odd), "text": "Quite\n\nanother"})
    scores = attached(by_place(0.6, 0.4, 0.0)).score([good, odd])
    assert scores[0].ok and "does not give the text" in scores[1].error


def test_turns_are_steps_and_the_replies_are_read_but_not_scored():
    tokenizer = merging_tokenizer()
    parts = [("hi", True), ("<|im_end|>", True), ("\nuser: no\n", False), ("yo", True), ("<|im_end|>", True)]
    ids, mask = [], []
    for text, sampled in parts:
        own = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += own
        mask += [sampled] * len(own)
    turns = ((0, 3), (len(ids) - 3, len(ids)))
    one = Rollout(
        prompt=PROMPT,
        prompt_ids=(1,),
        completion_ids=tuple(ids),
        mask=tuple(mask),
        logps=(0.0,) * len(ids),
        text="hi\nuser: no\nyo",
        stop=StopReason.LENGTH,
        group="g",
        turns=turns,
    )
    judge = by_place(0.6, 0.123, 0.2)
    (score,) = attached(judge, start=0.5).score([one])
    assert judge.asked == [("hi", "\nuser: no\n", "yo")]
    assert score.steps == ((2, pytest.approx(0.1)), (len(ids) - 1, pytest.approx(-0.4)))
    assert score.parts["n_steps"] == 2


@pytest.mark.parametrize(
    ("placement", "rewards"),
    [("additive", [0.6, 0.4, 0.1]), ("min_form", [0.0, 0.0, 0.1]), ("potential", [0.1, -0.2, -0.3])],
)
def test_placements(placement, rewards):
    source = attached(by_place(0.6, 0.4, 0.1), placement=placement, start=0.5, temperature=0)
    (score,) = source.score([written(merging_tokenizer(), TEXT)])
    assert [r for _, r in score.steps] == pytest.approx(rewards)


def test_group_placement_compares_the_same_step_within_a_group():
    judge = Judge(lambda at, step: 0.9 if "good" in step else 0.1)
    tokenizer = merging_tokenizer()
    texts = ["good\n\ngood", "bad\n\ngood\n\nbad"]
    scores = attached(judge, placement="group").score([written(tokenizer, text) for text in texts])
    assert [[r for _, r in s.steps] for s in scores] == [pytest.approx([0.4, 0.0]), pytest.approx([-0.4, 0.0, 0.0])]


def test_by_default_the_rewards_of_a_group_sum_to_nothing():
    judge = Judge(lambda at, step: 0.9 if "good" in step else 0.1)
    tokenizer = merging_tokenizer()
    texts = ["good\n\ngood", "bad\n\ngood\n\nbad\n\nbad"]
    scores = attached(judge).score([written(tokenizer, text) for text in texts])
    assert [s.total for s in scores] == pytest.approx([0.4, -0.4])


def test_additive_says_what_it_pays_for(caplog):
    with caplog.at_level(logging.WARNING, logger="prefrl.rewards"):
        ProcessReward(by_place(0.5), placement="additive")
        ProcessReward(by_place(0.5))
    assert [record.message for record in caplog.records] == [
        "placement additive pays for every further step: a policy learns to write more of them. The sum of placement "
        "potential does not depend on how many there are."
    ]


@pytest.mark.parametrize(("how", "value"), [("min", 0.0), ("mean", 1 / 3), ("last", 0.0), ("first_below", 1 / 3)])
def test_a_text_gets_one_number(how, value):
    source = ProcessReward(by_place(0.6, 0.4, 0.0), aggregate=how)
    (score,) = checked_scores(source, [text_only(TEXT)])
    assert score.value == pytest.approx(value) and score.steps == ()


def test_one_number_where_it_is_asked_for_or_no_policy_is_attached():
    one = written(merging_tokenizer(), TEXT)
    for source in (
        attached(by_place(0.6, 0.4, 0.2), placement="sequence"),
        ProcessReward(by_place(0.6, 0.4, 0.2)),
    ):
        (score,) = source.score([one])
        assert (score.value, score.steps) == (0.2, ())


def test_what_cannot_be_scored_is_an_error_and_no_zero():
    source = ProcessReward(Judge(lambda at, _: 0.5, most=2))
    scores = source.score([text_only(TEXT), text_only(" "), text_only("a", stop=StopReason.LENGTH), text_only("a")])
    assert [s.error for s in scores] == [
        "1 of 3 steps do not fit into the model",
        "no finished step to score",
        "no finished step to score",
        None,
    ]


def test_a_policy_without_a_tokenizer_is_refused():
    with pytest.raises(ConfigError, match="reads texts; a SimpleNamespace writes none"):
        ProcessReward(by_place(0.5)).attach(SimpleNamespace(actor=SimpleNamespace()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregate": "mim"}, "aggregate is 'mim'.*Did you mean 'min'"),
        ({"placement": "adding"}, "placement is 'adding'"),
        ({"start": "grp"}, "start is 'grp'"),
        ({"gamma": 0.0}, "expected a gamma in"),
        ({"temperature": -1.0}, "temperature of 0 or more"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ProcessReward(by_place(0.5), **options)


def test_a_loaded_model_takes_no_more_tokens_than_it_has_positions_for(tmp_path):
    tokenizer = byte_tokenizer()
    llama(len(tokenizer), max_position_embeddings=64).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    new_process_model(str(tmp_path / "base")).save(tmp_path / "prm")
    path = str(tmp_path / "prm")
    source = ProcessReward.load(path, device="cpu")
    assert source.model.record.max_tokens == 64
    assert "1 of 2 steps do not fit" in str(source.score([text_only("a\n\n" + 64 * "0")])[0].error)
    for wrong in (65, -1):
        with pytest.raises(ConfigError, match=rf"max_tokens is {wrong}; .* has positions for 64 tokens"):
            ProcessReward.load(path, max_tokens=wrong, device="cpu")


def test_its_kind_lists_what_it_takes():
    with pytest.raises(ConfigError, match=r"no argument 'agregate'.*Did you mean 'aggregate'"):
        build([{"kind": "process", "path": "x", "agregate": "min"}])
