from __future__ import annotations

import pytest

from prefrl.rewards import build
from prefrl.rewards.verifiers.math.restating import restates
from prefrl.types import Prompt, Rollout, StopReason


@pytest.mark.parametrize(
    ("question", "answer", "gold", "again"),
    [
        ("What is $12 + 5$?", "12+5", "17", True),
        ("What is 12 + 5?", "12 + 5 =", "17", True),
        ("What is 12 + 5?", "17", "17", False),
        (r"Simplify $\sqrt{180}$.", r"\sqrt{180}", r"6\sqrt{5}", True),
        (r"Simplify $\sqrt{180}$.", r"6\sqrt{5}", r"6\sqrt{5}", False),
        (r"Find $\left( 2^3 \right)^{2}$.", r"(2^3)^{2}", "64", True),
        ("Which is larger, 1/2 or 3/4?", "3/4", "0.75", False),
        (r"Is $\frac{1}{2}$ or $\frac{3}{4}$ larger?", r"\frac{3}{4}", "0.75", False),
        ("Is -3 or 2 larger in absolute value?", "-3", "-3.0", False),
        ("Which of $x^2-1$ and $x^2+1$ has real roots?", "x^2 - 1", "x^2-1", False),
        ("Write $x^2-1$ as a product.", "x^2-1", "(x-1)(x+1)", True),
        ("What is 12 + 5?", "", "17", False),
    ],
)
def test_an_expression_of_the_question_with_work_to_do_is_no_answer(question, answer, gold, again):
    assert restates([answer], [gold], question) is again


def test_the_reward_tells_it_from_the_answer_and_does_not_mix_up_questions():
    def said(question, text):
        prompt = Prompt(id="a", text=question, columns={"answer": "17"})
        return Rollout(
            prompt=prompt, completion_ids=(1,), mask=(True,), logps=(0.0,), text=text, stop=StopReason.EOS, group="a"
        )

    rollouts = [said("What is 12 + 5?", "12 + 5"), said("How many are there?", "12 + 5"), said("12 + 5?", "17")]
    assert [score.value for score in build("math").score(rollouts)] == [0.0, 1.0, 1.0]
