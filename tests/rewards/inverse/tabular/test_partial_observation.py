"""What memory is worth, exactly: three aliased cells, a locked door, and guesses held near a reference."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from prefrl.rewards.inverse.tabular.mdp import MDP
from prefrl.rewards.inverse.tabular.planning import expected_return, solve
from prefrl.rollout.guessing import State, evaluate_play, optimal_play, state_value

LEFT, RIGHT = 0, 1
ARRIVAL = np.zeros((3, 2, 3))
ARRIVAL[[0, 2], [RIGHT, LEFT], 1] = 1.0  # 1 for reaching B, from A or from C


def aliased(horizon: int | None, discount: float) -> MDP:
    """A, B, C in a row; B is the goal, A and C look alike, walls are bumped into; the start is A or C."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, LEFT, 0] = transitions[0, RIGHT, 1] = transitions[2, LEFT, 1] = transitions[2, RIGHT, 2] = 1.0
    over = np.array([False, True, False])
    start = np.array([0.5, 0.0, 0.5])
    return MDP(transitions=transitions, start=start, horizon=horizon, discount=discount, terminal=over)


def memoryless(right: float) -> np.ndarray:
    """The same chances in A and in C."""
    return np.tile([1.0 - right, right], (3, 1))


@pytest.mark.parametrize(("right", "value"), [(0.0, 0.5), (1.0, 0.5), (0.5, 1 / 1.1)])
def test_without_memory_a_coin_is_best(right, value):
    mdp = aliased(None, 0.9)
    assert expected_return(mdp, memoryless(right), ARRIVAL) == pytest.approx(value, abs=1e-12)
    values = [expected_return(mdp, memoryless(p), ARRIVAL) for p in np.linspace(0, 1, 101)]
    assert np.argmax(values) == 50 and max(values) == pytest.approx(0.9091, abs=5e-5)


def test_the_best_history_policy_tries_one_side_and_then_the_other():
    mdp = aliased(6, 0.9)
    plans = {  # until B is reached nothing is seen, so that a history policy is a list of actions
        actions: expected_return(mdp, np.stack([memoryless(float(a)) for a in actions]), ARRIVAL)
        for actions in product((LEFT, RIGHT), repeat=6)
    }
    best = max(plans, key=plans.get)
    assert plans[best] == pytest.approx(0.95, abs=1e-12)
    assert best[0] != best[1]
    sees = solve(mdp, ARRIVAL, temperature=0.0).policy
    assert expected_return(mdp, sees, ARRIVAL) == pytest.approx(1.0)  # were A and C told apart


def test_success_within_five_actions():
    mdp = aliased(5, 1.0)
    turns = np.stack([memoryless(float(t == 0)) for t in range(5)])
    found = [expected_return(mdp, policy, ARRIVAL) for policy in (memoryless(0.5), memoryless(1.0), turns)]
    assert found == pytest.approx([0.96875, 0.5, 1.0], abs=1e-12)


@pytest.mark.parametrize(("tries", "believed"), [(1, 0.5), (5, 0.96875), (10, 0.9990234375)])
def test_a_model_without_memory_believes_that_any_door_opens_in_the_end(tries, believed):
    locked, unlocked, inside = 0, 1, 2
    transitions = np.zeros((3, 1, 3))
    transitions[locked, 0, locked] = transitions[unlocked, 0, inside] = 1.0
    over = np.array([False, False, True])
    truth = MDP(transitions=transitions, start=np.array([0.5, 0.5, 0.0]), horizon=tries, terminal=over)
    opening = np.zeros((3, 1, 3))
    opening[unlocked, 0, inside] = 1.0
    always = np.ones((3, 1))
    assert expected_return(truth, always, opening) == 0.5
    # A closed door is seen, which opens with probability 1/2 at the first try: without memory, at every other too.
    seen = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    model = MDP(transitions=seen, start=np.eye(2)[0], horizon=tries, terminal=np.array([False, True]))
    paid = np.zeros((2, 1, 2))
    paid[0, 0, 1] = 1.0
    assert expected_return(model, np.ones((2, 1)), paid) == pytest.approx(believed, abs=1e-12)
    assert expected_return(replace(model, horizon=50), np.ones((2, 1)), paid) > 0.999999


@pytest.mark.parametrize(
    ("beta", "value", "success", "divergence"),
    [(1.0, 0.589591, 0.599402, 0.009811), (0.05, 0.757022, 0.874180, 2.343155)],
)
def test_guesses_held_loosely_and_tightly_to_a_reference(beta, value, success, divergence):
    assert state_value(State(), beta) == pytest.approx(value, abs=5e-7)
    assert evaluate_play(optimal_play(beta)) == pytest.approx((success, divergence), abs=5e-7)
