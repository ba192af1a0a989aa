from __future__ import annotations

import math as numbers
from concurrent.futures import ThreadPoolExecutor

import pytest
from math_pairs import says

from prefrl import rewards
from prefrl.errors import ConfigError, RewardError
from prefrl.rewards import fingerprint
from prefrl.rewards.specs import build


def one(source, rollout, text, **columns):
    (score,) = source.score([rollout(text, **columns)])
    return score


@pytest.mark.parametrize(
    "gold", [5, 5.0, "5", "x = 5", "2 + 3 = 5\n#### 5", r"so \boxed{5}", ["6", "5"], ("5",)], ids=repr
)
def test_gold_answers_of_every_kind(rollout, gold):
    assert one(rewards.math(), rollout, "The answer is 5.", answer=gold).value == 1.0
    assert one(rewards.math(), rollout, "The answer is 7.", answer=gold).value == 0.0


@pytest.mark.parametrize(
    "gold", [None, "", [], ["5", None], True, numbers.nan, numbers.inf, "####", {"a": 1}], ids=repr
)
def test_a_gold_answer_that_is_none_is_an_error_and_no_0(rollout, gold):
    score = one(rewards.math(), rollout, "5", answer=gold)
    assert score.error == (
        f"the column 'answer' is {gold!r}; expected a number, a text with an answer, or a list of those"
    )


def test_no_answer_is_invalid(rollout):
    (verdict,) = rewards.math().verdicts([rollout("", answer="5")])
    assert (verdict.status, verdict.score, dict(verdict.parts)) == ("invalid", 0.0, {"parsed": 0.0, "correct": 0.0})
    assert verdict.evidence == "no final answer"


def test_evidence_says_what_was_compared(rollout):
    texts = [r"\boxed{6}", r"\boxed{5} or \boxed{6}", r"\boxed{10/2}", r"\boxed{9^{9^{9}}}"]
    verdicts = rewards.math().verdicts([rollout(text, answer="5") for text in texts])
    assert [v.evidence for v in verdicts] == [
        "6 is not 5",
        "several final answers: 5 | 6 is not 5",
        "10/2 is 5",
        "refused: the power 9^387420489",
    ]
    assert {v.version for v in verdicts} == {"2"}


def test_a_hanging_comparison_has_no_score_and_costs_only_itself(rollout):
    texts = [r"\boxed{\int_0^1 \sin(\cos(\tan(x^{x^x}))) dx}", r"\boxed{\sqrt{25}}", r"\boxed{2\sqrt{6.25}}"]
    scores = rewards.math(timeout=0.3).score([rollout(text, answer="5") for text in texts])
    assert scores[0].error == "timeout: stopped after 0.3 s of work"
    assert [s.value for s in scores[1:]] == [1.0, 1.0]


def test_tolerances_are_declared(rollout):
    rolled = rollout("3.14", answer=r"\pi", slack=0.01, none=0)
    kinds = [{}, {"rel_tol": 0.01}, {"abs_tol": 0.01}, {"rel_tol": "slack"}, {"abs_tol": "slack"}, {"abs_tol": "none"}]
    assert [rewards.math(**kind).score([rolled])[0].value for kind in kinds] == [0.0, 1.0, 1.0, 1.0, 1.0, 0.0]


def test_a_tolerance_of_a_row_that_is_none_is_an_error(rollout):
    score = one(rewards.math(rel_tol="slack"), rollout, "5", answer=6, slack=-1)
    assert score.error == "the column 'slack' is -1; expected a number >= 0"
    with pytest.raises(RewardError, match="needs the dataset column 'slack'"):
        one(rewards.math(rel_tol="slack"), rollout, "5", answer=6)


def test_the_order_of_bare_lists_is_declared(rollout):
    rolled = rollout("2, 1", answer="1, 2", any=False, strict=True)
    kinds = [{}, {"ordered": False}, {"ordered": "any"}, {"ordered": "strict"}]
    assert [rewards.math(**kind).score([rolled])[0].value for kind in kinds] == [0.0, 1.0, 1.0, 0.0]


def test_settings_are_checked():
    for wrong in ({"rel_tol": -1}, {"abs_tol": -0.1}, {"timeout": 0}):
        with pytest.raises(ConfigError, match=r"math: \w+="):
            rewards.math(**wrong)


def test_from_settings(rollout):
    source = build({"kind": "math", "column": "gold", "rel_tol": 0.1})
    assert one(source, rollout, "10.5", gold="10").value == 1.0
    with pytest.raises(ConfigError, match="no argument 'tol'"):
        build({"kind": "math", "tol": 0.1})


def test_its_fingerprint_knows_its_settings():
    ids = [fingerprint(rewards.math(**kind))["id"] for kind in ({}, {}, {"rel_tol": 0.1}, {"ordered": False})]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_threads_and_batches_say_the_same(rollout):
    texts = [rf"\boxed{{\sqrt{{{i * i}}}}}" for i in range(1, 30)]
    rolls = [rollout(text, answer=str(i)) for i, text in enumerate(texts, 1)]
    alone = [rewards.math().score([r])[0].value for r in rolls]
    with ThreadPoolExecutor(6) as threads:
        threaded = list(threads.map(lambda r: rewards.math().score([r])[0].value, rolls))
    assert alone == threaded == [s.value for s in rewards.math().score(rolls)] == [1.0] * 29


SYMMETRIC = [
    ("(0, 12.5)", "0 < x < 12.5"),
    (r"\{1, 2\}", "1, 2"),
    ("y = 2x + 1", "2x - y = -1"),
    ("x = 5", "5"),
    ("50\\%", "0.5"),
    ("5 cm", "50 mm"),
    (r"\pm 2", "2 and -2"),
    ("90^\\circ", r"\frac{\pi}{2}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "(1, 2)"),
]


@pytest.mark.parametrize(("a", "b"), SYMMETRIC)
def test_both_directions(a, b):
    assert says(a, rf"\boxed{{{b}}}") == says(b, rf"\boxed{{{a}}}") == 1.0


def test_every_answer_is_itself_and_not_another():
    answers = ["5", "-5", "1/2", "x + 1", "(1, 2)", "[1, 2]", r"\{1, 2\}", "x = 2", "x > 2", r"\sqrt{3}", "no solution"]
    answers += [
        "Monday",
        "1, 2, 3",
        "A",
        r"\infty",
        "5 kg",
        "7\\%",
        "1011_2",
        "3:4",
        r"\begin{pmatrix} 1 & 2 \end{pmatrix}",
    ]
    found = {(a, b) for a in answers for b in answers if says(a, rf"\boxed{{{b}}}") == 1.0}
    row = r"\begin{pmatrix} 1 & 2 \end{pmatrix}"
    same = {("5", "5 kg"), ("(1, 2)", row)}  # a unit may be left out, and a row is a point
    assert found == {(a, a) for a in answers} | same | {(b, a) for a, b in same}
