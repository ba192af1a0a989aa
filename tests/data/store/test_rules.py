"""What a project lets people say."""

from __future__ import annotations

import math

import pytest

from prefrl.data.project import Criterion, ProjectSettings
from prefrl.data.store import Invalid
from prefrl.data.store.rules import Said, check, outcomes

FINE = ProjectSettings(scale=7, criteria=(Criterion(name="truth", points=2),), skip_reasons=("Unclear",))


def said(outcome="first", strength="much", note="", **details):
    return Said(outcome=outcome, strength=strength, note=note, details=details)


def skip(**details):
    return said("skip", "", **details)


def rated(*ratings, **details):
    return said("steps", "", ratings=list(ratings), **details)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (said(), "pair"),
        (said("second", "slightly", "because", criteria={"truth": -2}), "pair"),
        (said("tie", ""), "pair"),
        (said("both_bad", "", active_ms=12.5), "pair"),
        (said("first", answer={"text": "better", "from": "second"}), "pair"),
        (skip(reasons=["Unclear"]), "pair"),
        (rated(1, 0, -1), "steps"),
        (rated(1, None, 1, unsure=[1], alternatives={"1": "other"}), "steps"),
        (said("right", ""), "check"),
        (said("unsure", ""), "check"),
    ],
)
def test_what_can_be_said(given, kind):
    assert check(given, FINE, kind, 3 if kind == "steps" else 0) is None


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (said("right", ""), "pair", "outcome 'right'.*first, second, tie, both_bad, skip"),
        (said("first"), "check", "right, wrong, unsure, skip"),
        (said(strength=""), "pair", "strength ''.*'slightly', 'clearly', 'much'"),
        (said(strength="very"), "pair", "strength 'very'"),
        (said("tie", "much"), "pair", "strength 'much' of tie"),
        (said(note="x" * 200_001), "pair", "at most 200000"),
        (said(criteria={"trust": 1}), "pair", "criterion 'trust'.*truth"),
        (said(criteria={"truth": 3}), "pair", "from -2 to 2"),
        (said(criteria={"truth": True}), "pair", "whole number"),
        (said(criteria=[1]), "pair", "no mapping"),
        (said(reasons=["Unclear"]), "pair", "reason 'Unclear' of first"),
        (said(answer={"text": " "}), "pair", "without a text"),
        (said(answer={"text": "x", "from": "a"}), "pair", "from 'a'"),
        (said(ratings=[1]), "pair", "ratings of first"),
        (said(active_ms=math.nan), "pair", "active_ms nan"),
        (said(active_ms=-1), "pair", "active_ms -1"),
        (said(alternatives={"0": "x"}), "pair", "alternative of step '0'"),
        (said(mood="good"), "pair", "detail 'mood'"),
        (said(reason=["x"]), "pair", "Did you mean 'reasons'"),
        (said(answer={"text": "x" * 200_001}), "pair", "too long"),
        (skip(), "pair", "skip without a reason"),
        (skip(reasons=[]), "pair", "skip without a reason"),
        (skip(reasons=["Dull"]), "pair", "'Dull' of skip"),
        (skip(reasons="Unclear"), "pair", "a list of texts"),
        (said("steps", ""), "steps", "no ratings.*3 of them"),
        (rated(1, 1), "steps", "3 of them, one of each"),
        (rated(1, 2, 0), "steps", "1, 0, -1 or null"),
        (rated(1, True, 0), "steps", "1, 0, -1 or null"),
        (rated(1, None, 0), "steps", "no rating of step 2"),
        (rated(1, 1, 1, unsure=[3]), "steps", "unsure of step 3"),
        (rated(1, 1, 1, alternatives={"3": "x"}), "steps", "0 to 2"),
    ],
)
def test_what_cannot_be_said(given, kind, says):
    with pytest.raises(Invalid, match=says):
        check(given, FINE, kind, 3 if kind == "steps" else 0)


def test_the_first_error_ends_the_ratings():
    first = ProjectSettings(step_mode="first_error")
    assert check(rated(1, -1, None), first, "steps", 3) is None
    assert check(rated(1, 0, 1), first, "steps", 3) is None
    with pytest.raises(Invalid, match="after the first wrong step"):
        check(rated(1, -1, 1), first, "steps", 3)
    with pytest.raises(Invalid, match="no rating of step 1"):
        check(rated(None, -1, None), first, "steps", 3)


def test_rationales():
    required, off = (ProjectSettings(rationale=need) for need in ("required", "off"))
    with pytest.raises(Invalid, match="no rationale"):
        check(said(strength="", note=" "), required, "pair", 0)
    assert check(skip(reasons=["I cannot judge this"]), required, "pair", 0) is None
    with pytest.raises(Invalid, match="does not ask for it"):
        check(said(strength="", note="why"), off, "pair", 0)


def test_what_a_project_does_not_offer():
    assert outcomes(ProjectSettings(scale=2, tie=False, both_bad=False), "pair") == ("first", "second", "skip")
    assert outcomes(ProjectSettings(scale=3, tie=False, both_bad=False), "pair") == ("first", "second", "tie", "skip")
    plain = ProjectSettings(better_answer=False, skip_reasons=())
    assert check(skip(), plain, "pair", 0) is None
    with pytest.raises(Invalid, match="does not ask for one"):
        check(said(strength="", answer={"text": "x", "from": ""}), plain, "pair", 0)
