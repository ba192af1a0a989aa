from __future__ import annotations

import time

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
        ("-" * 99 + "1", "-1"),
        ("12345678901 / 2", "6172839450.5"),  # not rounded to a whole number
        ("-12345678901 / 3", "-4115226300.3333333333"),
        ("1e15 + 0.5", "1000000000000000.5"),
        ("1 / 8e10", "1.25e-11"),
        ("1 / 3e9", "3.333333333e-10"),
        ("2 / 3", "0.6666666667"),
        ("347 \u00d7 589 \u2212 1", "204382"),
        ("6 \u00f7 4", "1.5"),
        ("1 // 2", "error: expected numbers, brackets and + - * /"),
        ("1if 1else 2", "error: expected numbers, brackets and + - * /"),  # the parser would warn
        ("'\\d'", "error: expected numbers, brackets and + - * /"),
        ("\u0663", "error: expected numbers, brackets and + - * /"),
        ("", "error: expected numbers, brackets and + - * /"),
        ("1\n+ 2", "error: expected numbers, brackets and + - * /"),
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


@pytest.mark.parametrize(
    ("said", "answer", "success"),
    [
        ("-5", -5, 1.0),
        ("\u22125", -5, 1.0),
        ("1,234", "1,234", 1.0),
        ("1,2,3", 123, None),
        ("3/4", 0.75, 1.0),
        ("1/0", 1, None),
        (".5", "1/2", 1.0),
        ("9" * 5000, 9, None),
        ("five", 5, None),
        ("NUMBER</answer> it is, so <answer>5", 5, 1.0),
        ("", 5, None),
    ],
)
def test_what_counts_as_an_answer(said, answer, success):
    (reply,), report = episode(f"<answer> {said}\n</answer>", answer=answer)
    assert reply.ended == (success is not None)
    assert report["success"] == (success or 0.0)
    assert report["malformed"] == (success is None)


@pytest.mark.parametrize("turn", ["<calc>" * 200_000, "<answer>" + "1" * 1_000_000, "<answer>" * 100_000])
def test_no_turn_takes_long(turn):
    start = time.process_time()
    assert episode(turn)[1]["malformed"] == 1
    assert time.process_time() - start < 1.0
