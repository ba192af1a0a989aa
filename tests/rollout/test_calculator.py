from __future__ import annotations

import pytest

from prefrl.errors import DataError
from prefrl.rollout.calculator import Calculator, calculate
from prefrl.rollout.environments import find_environment
from prefrl.types import Prompt


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("347 * 589", "204383"),
        ("(1 + 2) * -3", "-9"),
        ("1 / 3 * 3", "1"),
        ("1/3", "0.3333333333"),
        ("0.1 + 0.2", "0.3"),
        ("1 / (2 - 2)", "error: division by zero"),
        ("9 ** 9", "error: expected numbers, brackets and + - * /"),
        ("__import__('os')", "error: expected numbers, brackets and + - * /"),
        ("1 +", "error: expected numbers, brackets and + - * /"),
        ("True + 1", "error: expected numbers, brackets and + - * /"),
        ("1e40", "error: the number is too large"),
        ("9" * 25 + "*" + "9" * 25, "error: the number is too large"),
        ("1+" * 60 + "1", "error: the expression has 121 characters; 100 are the most"),
        ("(" * 99, "error: expected numbers, brackets and + - * /"),
    ],
)
def test_calculate(expression, value):
    assert calculate(expression) == value


def episode(*turns, answer=204383):
    game = find_environment("calculator")()
    assert game.reset(Prompt(id="p", text="What is 347 times 589?", columns={"answer": answer})) == ""
    return [game.step(turn) for turn in turns], game.report()


def test_an_episode():
    replies, report = episode("It is 347 times 589.", "<calc>347 * 589</calc>", "<answer>204,383</answer>")
    assert replies[0].text.startswith("Write <calc>")
    assert replies[1] == ("204383", False, "user")
    assert replies[2].ended
    assert report == {"success": 1.0, "turns": 3, "calls": 1, "failed_calls": 0, "malformed": 1}


def test_wrong_answers_and_failed_calls():
    replies, report = episode("<calc>347 x 589</calc>", "<answer>7</answer>")
    assert replies[0].text.startswith("error")
    assert (report["success"], report["failed_calls"]) == (0.0, 1)
    assert episode("<answer>2.50</answer>", answer=2.5)[1]["success"] == 1.0


@pytest.mark.parametrize("columns", [{}, {"answer": "many"}])
def test_a_prompt_without_an_answer(columns):
    with pytest.raises(DataError, match="expected a column 'answer' with a number"):
        Calculator().reset(Prompt(id="p", text="q", columns=columns))
