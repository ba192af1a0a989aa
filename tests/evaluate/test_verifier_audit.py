from __future__ import annotations

import math
import re

import pytest

from prefrl.evaluate.probes import Probe
from prefrl.evaluate.verifier_audit import compare, count_probes, passes, problems, wording
from prefrl.rewards import function
from prefrl.types import Prompt, Score


def probe(name, good, prompt="p"):
    return Probe(Prompt(id=prompt, text="q"), name, "text", good)


def test_full_marks_pass_and_errors_do_neither():
    assert [passes(score, 1.0) for score in (Score(value=1.0), Score(value=0.9), Score.failed("late"))] == [
        True,
        False,
        None,
    ]
    assert passes(Score(value=0.9), 0.9) is True


def test_counts_and_problems_in_words():
    probes = [probe("zero", False, "a"), probe("gold answer", True, "a"), probe("gold answer", True, "b")]
    probes += [probe("in a box", None), probe("gold answer", True, "c")]
    gold, zero, box = count_probes(probes, [True, True, False, False, None])
    assert (gold.name, gold.passed, gold.failed, gold.unscored, gold.wrong, gold.rate) == (
        "gold answer",
        1,
        1,
        1,
        1,
        0.5,
    )
    assert [probe.prompt.id for probe in gold.examples] == ["b", "c"]  # what went wrong, then what was not scored
    assert gold.interval == pytest.approx((0.0945, 0.9055), abs=1e-4)  # Wilson, 1 of 2
    assert (zero.wrong, [probe.prompt.id for probe in zero.examples]) == (1, ["a"])
    assert (box.wrong, box.rate) == (0, 0.0)
    (late,) = count_probes([probe("zero", False)], [None])
    assert math.isnan(late.rate)  # nothing was scored, which is not 0 %
    said = problems([gold, zero, box])
    assert [sentence.split(":")[0] for sentence in said] == [
        "False negatives",
        "1 of 3 answers could not be scored (gold answer). Prompts",
        "False positives",
    ]
    assert problems(count_probes([probe("gold answer", True)], [True])) == []


def test_a_reward_beside_a_judge():
    reward = [True] * 8 + [True] * 2 + [False] * 9 + [False] + [None, True]
    judge = [True] * 8 + [False] * 2 + [False] * 9 + [True] + [True, None]
    found = compare(reward, judge)
    assert (found.both_pass, found.both_fail, found.false_positives, found.false_negatives, found.unscored) == (
        8,
        9,
        2,
        1,
        2,
    )
    assert found.false_positive_rate[0] == 0.2
    assert found.false_negative_rate[0] == 0.1
    assert found.false_positive_rate[1] == pytest.approx((0.0567, 0.5098), abs=1e-4)  # Wilson, 2 of 10
    assert compare([], []).false_positive_rate == (0.0, (0.0, 1.0))


def phrases(text):
    if "value is None" in text or text.startswith("def"):
        return 1.0
    return float(bool(re.search("return", text)) or text.count("moss") > 1)


def behaviour(text, answer):
    return float(text in answer)


def test_fixed_words_in_functions_are_named():
    assert wording(0.5 * function(phrases) + function(behaviour)) == [
        "phrases looks for 'value is None'",
        "phrases looks for 'def'",
        "phrases looks for 'return'",
        "phrases looks for 'moss'",
    ]
    assert wording(function(len, name="length")) == []
