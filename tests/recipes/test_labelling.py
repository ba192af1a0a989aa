"""Simulated annotators: their taste is the declared one, and so are their noise, ties and slips."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from prefrl.config import LabellerConfig
from prefrl.data.comparisons import Item
from prefrl.errors import ConfigError, RewardError
from prefrl.recipes.annotator import SimulatedAnnotator
from prefrl.recipes.common import Checked
from prefrl.recipes.labelling import Everyday, Judge, as_rollout, probability, seed_of, simulator
from prefrl.rewards.functions import function
from prefrl.types import Completion, Prompt


def items(first, second, count=1):
    return [
        Item(
            prompt=Prompt(id=f"p{n}", text=f"question {n}", columns={"keywords": ["rain"]}),
            first=Completion(text=first),
            second=Completion(text=second),
        )
        for n in range(count)
    ]


def number(text):
    return float(text)


@pytest.fixture
def taste(tmp_path):
    """A utility that reads a number."""
    path = tmp_path / "taste.py"
    path.write_text("def number(text):\n    return float(text)\n")
    return [{"kind": f"{path}:number"}]


def say(taste, first, second, count=1, seed=0, **config):
    made = simulator(LabellerConfig(utility=taste, **config), seed)
    return Counter(made.label(items(first, second, count)))


def test_without_noise_the_better_one_is_taken(taste):
    assert say(taste, "2", "1") == {"first": 1}
    assert say(taste, "1", "2") == {"second": 1}
    assert say(taste, "1", "1") == {"tie": 1}


def test_ties_reach_as_far_as_they_are_said_to(taste):
    assert say(taste, "1.25", "1", tie_width=0.25) == {"tie": 1}
    assert say(taste, "1.26", "1", tie_width=0.25) == {"first": 1}


def test_noise_is_a_temperature(taste):
    assert probability(1.0, 0.5) == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert (probability(1.0, 0.0), probability(-1.0, 0.0)) == (1.0, 0.0)
    assert probability(-1e6, 1e-3) == 0.0
    found = say(taste, "2", "1", count=4000, noise=0.5)
    assert found["first"] / 4000 == pytest.approx(0.8808, abs=0.015)  # three standard errors


def test_slips_turn_a_share_of_the_choices(taste):
    found = say(taste, "2", "1", count=4000, flip=0.2)
    assert found["second"] / 4000 == pytest.approx(0.2, abs=0.019)


def test_a_label_depends_on_the_seed_and_the_item_alone(taste):
    made = simulator(LabellerConfig(utility=taste, noise=1.0), 0)
    asked = items("1.2", "1", 50)
    said = made.label(asked)
    assert made.label(list(reversed(asked))) == list(reversed(said))
    assert simulator(LabellerConfig(utility=taste, noise=1.0), 1).label(asked) != said
    assert seed_of(0, "a") != seed_of(0, "b") and 0 <= seed_of(0, "a") < 2**31


def test_the_description_declares_everything(taste):
    text = simulator(LabellerConfig(utility=taste, noise=0.3, tie_width=0.1, flip=0.05), 0).description
    assert all(word in text for word in ("not a person", "number", "sigmoid(difference / 0.3)", "within 0.1", "5%"))


def test_a_judge_skips_what_it_cannot_score():
    judge = Judge(Checked(function(number), max_error_fraction=0.5))
    assert judge.outcomes([*items("2", "1"), *items("x", "1"), *items("0", "1")]) == ["first", "skip", "second"]
    with pytest.raises(RewardError, match="failed on"):
        judge.outcomes(items("x", "y"))


def test_a_judge_sees_two_answers_as_one_group():
    seen = []

    class Watching:
        name = "watching"

        def score(self, rollouts):
            seen.extend((r.group, r.terminated) for r in rollouts)
            return function(number).score(rollouts)

    (one,) = items("2", "1")
    Judge(Checked(Watching())).outcomes([one])
    assert seen == [(one.id, True)] * 2


def test_the_everyday_utility_is_that_of_the_quickstart():
    prompt = Prompt(id="p", text="What is rain?", columns={"keywords": ["rain", "water", "cloud"]})
    answer = Completion(text="Rain is water that falls from a cloud when it grows heavy.")
    (score,) = Everyday().score([as_rollout(prompt, answer, group="g")])
    assert score.total == SimulatedAnnotator().utility(prompt, answer.text, finished=True) == 1.0


@pytest.mark.parametrize("wrong", [{"noise": -1.0}, {"tie_width": -0.1}, {"flip": 0.5}, {"overlap": 0}, {"kind": "x"}])
def test_what_no_labeller_can_be(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LabellerConfig(**wrong)
