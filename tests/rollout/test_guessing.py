"""Number guessing: its rules, its two forms, and exact figures by dynamic programming."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.errors import DataError
from prefrl.rollout.guessing import (
    Game,
    GuessingByNumber,
    GuessingInWords,
    State,
    consistent,
    evaluate_play,
    guess_value,
    narrowing,
    observe,
    optimal_play,
    state_value,
    uniform_blind,
    uniform_consistent,
)
from prefrl.types import Prompt


def hidden(target, **more):
    return Prompt(id="p", **({"text": ""} | more), columns={"target": target})


def played(target, *texts):
    """The environment in words after some turns, and its replies."""
    environment = GuessingInWords()
    assert environment.reset(hidden(target)) == ""
    return environment, [environment.step(text) for text in texts]


def test_a_game_that_is_won():
    environment, replies = played(11, "8", "I say 12.", "10", "11")
    assert [r.text for r in replies] == ["\nhigher\n", "\nlower\n", "\nhigher\n", "\ncorrect\n"]
    assert [r.ended for r in replies] == [False, False, False, True]
    report = environment.report()
    narrowed = report.pop("narrowing")
    assert report == {"success": 1.0, "turns": 4, "ruled_out": 0, "out_of_range": 0, "invalid": 0}
    # 8 of 16: 7 below, 8 above. 12 of 9..16: 3 and 4. 10 of 9..11: 1 and 1. 11 of 11 alone.
    assert narrowed == pytest.approx([1 - 113 / 256, 1 - 25 / 64, 7 / 9, 1.0])


def test_a_game_that_is_lost_after_four_guesses():
    environment, replies = played(16, "1", "2", "3", "4")
    assert [r.ended for r in replies] == [False, False, False, True]
    assert environment.report()["success"] == 0.0


@pytest.mark.parametrize("text", ["", "no idea", "7 or 8", "2.5", "seven"])
def test_what_is_no_guess_costs_one_and_tells_nothing(text):
    environment, (reply,) = played(7, text)
    assert reply == ("\ninvalid\n", False, "user")
    assert environment.game.state == State(1, 16, 3)
    report = environment.report()
    assert (report["invalid"], report["out_of_range"], report["narrowing"]) == (1, 0, [0.0])


@pytest.mark.parametrize("text", ["0", "17", "-7", "100"])
def test_out_of_range_costs_a_guess_and_tells_nothing(text):
    environment, (reply,) = played(7, text)
    assert reply.text == "\ninvalid\n"
    assert environment.game.state == State(1, 16, 3)
    assert (environment.report()["invalid"], environment.report()["out_of_range"]) == (0, 1)


def test_a_repeated_guess_is_answered_as_before():
    environment, replies = played(7, "4", "4", "2")
    assert [r.text for r in replies] == ["\nhigher\n"] * 3
    assert environment.game.state == State(5, 16, 1)
    report = environment.report()
    assert (report["ruled_out"], report["narrowing"][1:]) == (2, [0.0, 0.0])


def test_a_conversation_is_answered_by_bare_messages():
    environment = GuessingInWords()
    environment.reset(hidden(7, text=None, messages=({"role": "user", "content": "Guess"},)))
    assert environment.step("9").text == "lower"


@pytest.mark.parametrize("target", [None, 0, 17, "7", True])
def test_a_target_that_is_none(target):
    with pytest.raises(DataError, match="expected a column 'target' with a whole number from 1 to 16"):
        Game(hidden(target))


def test_the_form_for_control_policies():
    environment = GuessingByNumber()
    first = environment.reset(hidden(11))
    assert first.tolist() == [1.0] * 16 + [0, 0, 0, 1]
    observation, ended = environment.step(7)  # guesses 8
    assert observation.tolist() == [0.0] * 8 + [1.0] * 8 + [0, 0, 1, 0]
    assert not ended
    assert consistent(torch.stack([first, observation])).sum(-1).tolist() == [16, 8]
    observation, ended = environment.step(10)
    assert ended
    assert environment.report()["success"] == 1.0
    assert observe(State(5, 5, 0)).tolist() == [0, 0, 0, 0, 1.0] + [0] * 15


def test_success_of_known_policies():
    assert state_value(State()) == pytest.approx(15 / 16)
    assert evaluate_play(optimal_play()).success == pytest.approx(0.9375)
    assert evaluate_play(uniform_consistent).success == pytest.approx(0.579924, abs=5e-7)
    assert evaluate_play(uniform_consistent).kl == pytest.approx(0.0, abs=1e-12)
    blind = evaluate_play(uniform_blind)
    assert blind.success == pytest.approx(1 - (15 / 16) ** 4)
    assert blind.success == pytest.approx(0.227524, abs=5e-7)
    assert blind.kl == math.inf


def test_three_candidates_and_two_guesses():
    assert [guess_value(State(9, 11, 2), g) for g in (9, 10, 11)] == pytest.approx([2 / 3, 1.0, 2 / 3])
    assert optimal_play()(State(9, 11, 2)) == {9: 0.0, 10: 1.0, 11: 0.0}


@pytest.mark.parametrize(
    ("beta", "value", "success", "kl"),
    [
        (0.5, 0.599531, 0.619650, 0.040238),
        (0.25, 0.620007, 0.661488, 0.165922),
        (0.1, 0.680807, 0.775515, 0.947075),
    ],
)
def test_the_optimum_under_a_kl_penalty(beta, value, success, kl):
    assert state_value(State(), beta) == pytest.approx(value, abs=5e-7)
    figures = evaluate_play(optimal_play(beta))
    assert figures == pytest.approx((success, kl), abs=5e-7)
    assert figures.success - beta * figures.kl == pytest.approx(value, abs=5e-7)


def test_figures_are_those_of_games_that_are_played():
    def low_or_middle(state):
        middle = (state.low + state.high) // 2
        return {state.low: 0.25, middle: 0.75} if middle > state.low else {middle: 1.0}

    def won(target, state):
        if not state.left:
            return 0.0
        guesses = low_or_middle(state).items()
        return sum(p * (g == target or won(target, state.answered(g, target))) for g, p in guesses)

    wins = sum(won(target, State()) for target in range(1, 17)) / 16
    assert evaluate_play(low_or_middle).success == pytest.approx(wins)


def test_kl_adds_up_over_the_game():
    # Two candidates, two guesses: p = (3/4, 1/4), then the one that is left, where there is no choice.
    figures = evaluate_play(lambda s: {1: 0.75, 2: 0.25} if s.low < s.high else {s.low: 1.0}, State(1, 2, 2))
    assert figures == pytest.approx((1.0, 0.75 * math.log(1.5) + 0.25 * math.log(0.5)))


@pytest.mark.parametrize("wrong", [{1: 0.5}, {0: 1.0}, {1: 1.5, 2: -0.5}])
def test_what_is_no_distribution(wrong):
    with pytest.raises(ValueError, match=r"expected probabilities of 1\.\.16"):
        evaluate_play(lambda state: wrong)


def test_greedy_narrowing_is_best_play():
    def greedy(state):
        return {max(state.candidates, key=lambda g: narrowing(state, g)): 1.0}

    assert evaluate_play(greedy).success == pytest.approx(0.9375)
    assert narrowing(State(9, 16), 3) == 0.0
