from __future__ import annotations

import math
import sys

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.recipes.golds import gold_figures
from prefrl.rewards.questions import Vote
from prefrl.rewards.verifiers import rubric
from prefrl.types import Prompt


class Reader:
    """Says yes where the last word of the criterion stands in the answer, and keeps what it was asked."""

    name = "reader"

    def __init__(self):
        self.asked = []

    def vote(self, questions):
        self.asked += questions
        return [self._say(question.text) for question in questions]

    def _say(self, text):
        answer, criterion = text.split("Answer:")[1].split("What is to be checked:")
        word = criterion.split("<<<")[-1].splitlines()[0].split()[-1].strip(".")
        if word == "unreadable":
            return Vote(error="no verdict")
        return Vote(probabilities=(1.0, 0.0) if word in answer else (0.0, 1.0))


@pytest.fixture
def reader(monkeypatch):
    made = Reader()
    module = sys.modules[rubric.__module__]  # its name in the package is that of the function
    monkeypatch.setattr(module, "voter_of", lambda model, url, options: made)
    return made


def test_the_weighted_share_of_what_is_met(rollout, reader):
    source = rubric(["It names moss.", {"text": "It names fern.", "weight": 3}], model="any")
    (verdict,) = source.verdicts([rollout("moss and oak")])
    assert verdict.score == 0.25
    assert verdict.parts == {"criterion_1": 1.0, "criterion_2": 0.0, "met": 0.5}
    assert verdict.evidence == "It names fern."
    assert len(reader.asked) == 2


def test_a_fault_has_a_negative_weight(rollout, reader):
    source = rubric(["It names moss.", {"text": "It names mud.", "weight": -0.5}], model="any")
    assert [s.value for s in source.score([rollout("moss"), rollout("moss, mud"), rollout("mud")])] == [1.0, 0.5, 0.0]


def test_rubrics_of_each_prompt_and_replies_that_cannot_be_read(rollout, reader):
    source = rubric(column="rubric", model="any")
    rollouts = [rollout("moss", rubric=["moss"]), rollout("moss", rubric=["moss", "unreadable"])]
    good, failed = source.verdicts(rollouts)
    assert (good.score, good.parts) == (1.0, {"met": 1.0})
    assert (str(failed.status), failed.score, failed.evidence) == ("error", None, "no verdict")


@pytest.mark.parametrize(
    "criteria",
    [
        [],
        [""],
        [{"weight": 1}],
        [{"text": "a", "weight": 0}],
        [{"text": "a", "weight": math.nan}],
        [{"text": "a", "weight": math.inf}],
        [{"text": "a", "weight": True}],
        [{"text": "a", "weight": -1}],
        ["a", {"text": "a", "weight": 2}],
        [3],
    ],
)
def test_what_is_no_rubric(reader, criteria):
    with pytest.raises(RewardError, match="rubric"):
        rubric(criteria, model="any")
    with pytest.raises(RewardError, match="rubric"):  # before anything is learnt
        gold_figures(rubric(column="rubric", model="any"), [Prompt(id="p", text="q", columns={"rubric": criteria})])


def test_settings(reader):
    with pytest.raises(ConfigError, match="exactly one of criteria and column"):
        rubric(model="any")
    with pytest.raises(ConfigError, match=r"lacks \{criterion\}"):
        rubric(["a"], model="any", template="{completion}")
