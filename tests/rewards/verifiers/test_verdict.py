from __future__ import annotations

import math

import pytest

from prefrl.rewards import Status, Verdict, Verifier, checked_scores, graded
from prefrl.rewards.verifiers.verdict import failure
from prefrl.types import Score


def test_the_five_statuses():
    assert [str(status) for status in Status] == ["ok", "invalid", "timeout", "error", "skip"]


def test_a_judged_answer_becomes_a_score():
    verdict = Verdict(status=Status.OK, score=0.25, parts={"fields": 0.25}, evidence="1 of 4")
    assert verdict.to_score() == Score(value=0.25, parts={"fields": 0.25})


def test_an_unreadable_answer_is_a_0_that_says_so():
    assert Verdict(status=Status.INVALID).to_score() == Score(value=0.0, parts={"parsed": 0.0})
    assert Verdict(status=Status.INVALID, score=-1.0).to_score() == Score(value=-1.0, parts={"parsed": 0.0})


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.TIMEOUT, "timeout: 2 s"), (Status.SKIP, "skip: 2 s"), (Status.ERROR, "2 s")],
)
def test_no_judgement_is_no_score(status, error):
    score = Verdict(status=status, evidence="2 s").to_score()
    assert score == Score.failed(error)
    assert math.isnan(score.total)


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.SKIP, Status.ERROR])
def test_no_judgement_cannot_carry_a_number(status):
    with pytest.raises(ValueError, match=r"expected none"):
        Verdict(status=status, score=0.0)


@pytest.mark.parametrize("score", [None, math.nan, math.inf])
def test_a_judgement_has_a_finite_number(score):
    with pytest.raises(ValueError, match="expected a finite number"):
        Verdict(status=Status.OK, score=score)


def test_graded():
    right, wrong, unread = (graded(parsed=p, correct=c) for p, c in [(True, True), (True, False), (False, False)])
    assert [v.status for v in (right, wrong, unread)] == [Status.OK, Status.OK, Status.INVALID]
    assert [v.score for v in (right, wrong, unread)] == [1.0, 0.0, 0.0]
    assert [dict(v.parts) for v in (right, unread)] == [{"parsed": 1, "correct": 1}, {"parsed": 0, "correct": 0}]


def test_the_share_of_errors_stops_a_run_and_one_error_does_not(rollout):
    def check(r):
        return failure("no answer in time", Status.TIMEOUT) if r.text == "slow" else graded(parsed=True, correct=True)

    fast, slow = rollout("fast"), rollout("slow")
    scores = checked_scores(Verifier("v", check), [slow, *[fast] * 99])
    assert [s.error for s in scores] == ["timeout: no answer in time", *[None] * 99]
    with pytest.raises(Exception, match=r"failed on 2 of 4 rollouts .* timeout: no answer in time"):
        checked_scores(Verifier("v", check), [slow, slow, fast, fast])
