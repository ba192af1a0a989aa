"""The claims of examples/08_memory.py and 09_recurrent_q.py, and of recurrent PPO on CartPole without velocities."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def memory():
    """The functions of the example."""
    return runpy.run_path(str(EXAMPLES / "08_memory.py"))


@pytest.fixture(scope="module")
def recurrent_q():
    """The functions of the example."""
    return runpy.run_path(str(EXAMPLES / "09_recurrent_q.py"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_a_memory_a_random_walk_is_the_best(memory, seed):
    policy = memory["learn_aliased"](0, seed)
    assert memory["probability_of_right"](policy) == pytest.approx(0.5, abs=0.05)
    assert memory["value"](policy) == pytest.approx(0.909, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_a_memory_the_other_side_is_tried(memory, seed):
    assert 0.94 <= memory["value"](memory["learn_aliased"](16, seed)) <= 0.95 + 1e-9


@pytest.mark.slow
def test_greedy_values_are_wrong_where_places_look_alike_and_right_for_histories(recurrent_q):
    found = [recurrent_q["greedy_value"](recurrent_q["learn"](memory, seed=0)) for memory in (False, True)]
    assert found == [0.5, pytest.approx(0.95)]


def test_pieces_too_short_for_their_burn_in_are_refused(recurrent_q):
    torch.manual_seed(0)
    q = recurrent_q["Q"](True)
    piece = [(0, 0.0, False), (1, 1.0, True)]
    for burn_in in (0, 1):
        assert bool(recurrent_q["td_loss"](q, q, piece, burn_in).isfinite())
    for short, burn_in in ((piece, 2), (piece[:1], 1), ([], 0)):
        with pytest.raises(ValueError, match=f"none left after a burn-in of {burn_in}"):
            recurrent_q["td_loss"](q, q, short, burn_in)


@pytest.mark.slow
def test_recurrent_ppo_balances_a_pole_of_which_it_does_not_see_the_speed(memory):
    assert memory["cartpole_return"](memory["learn_cartpole"](32, 0)) >= 450.0


@pytest.mark.slow
def test_without_a_memory_the_pole_falls(memory):
    assert memory["cartpole_return"](memory["learn_cartpole"](0, 0)) <= 100.0
