"""What can be recovered of a state-only reward, told from the moves, and checked by experts that look the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prefrl.rewards.inverse.tabular import airl
from prefrl.rewards.inverse.tabular.identifiability import identifiability
from prefrl.rewards.inverse.tabular.mazes import cells_reward, grid, maze, torus
from prefrl.rewards.inverse.tabular.mdp import MDP
from prefrl.rewards.inverse.tabular.planning import solve


@pytest.mark.parametrize(
    ("mdp", "deficiency", "recoverable"),
    [
        (maze(0), 1, True),
        (maze(3), 1, True),
        (torus(4, 4), 2, False),  # every move changes the colour of a chessboard
        (torus(4, 4, stay=True), 1, True),
        (torus(3, 3), 1, True),
        (grid(3, 3, horizon=6, start=0), 1, True),
        (replace(torus(4, 4), horizon=5, discount=1.0), 2, False),
    ],
    ids=["maze", "moved gap", "torus", "torus with stay", "odd torus", "horizon", "torus with horizon"],
)
def test_rank_of_small_worlds(mdp, deficiency, recoverable):
    found = identifiability(mdp)
    assert found.deficiency == deficiency and found.recoverable is recoverable
    assert str(found).startswith(f"A state-only reward can {'' if recoverable else 'not '}be recovered")


def test_the_torus_hides_the_colour_of_the_cell():
    found = identifiability(torus(4, 4))
    colour = np.array([(-1.0) ** (row + column) for row in range(4) for column in range(4)])
    assert found.directions.shape == (1, 16)
    assert abs(found.directions[0] @ colour / 4.0) == pytest.approx(1.0, abs=1e-9)
    assert "rank 30 of 32" in found.sentence and "(and 4 more)" in found.sentence


@pytest.mark.parametrize("mdp", [torus(4, 4), replace(torus(4, 4), horizon=5, discount=1.0)])
def test_a_hidden_direction_changes_no_policy_and_any_other_does(mdp):
    (direction,) = identifiability(mdp).directions
    reward = cells_reward(mdp, {0: 1.0, 6: -0.5})
    before, after = solve(mdp, reward).policy, solve(mdp, reward + 3.0 * direction).policy
    assert np.abs(before - after).max() < 1e-10
    other = np.roll(direction, 1) * np.arange(16)
    assert np.abs(before - solve(mdp, reward + other).policy).max() > 1e-2


def test_airl_fails_where_it_says_so():
    mdp = torus(4, 4)
    hidden = identifiability(mdp).directions[0]
    reward = cells_reward(mdp, {0: 1.0}) + 2.0 * hidden
    found = airl.fit(mdp, solve(mdp, reward).policy)
    assert found.divergence < 1e-10
    wrong = found.reward - reward
    wrong -= wrong.mean()
    assert np.abs(wrong).max() > 0.1
    assert np.abs(wrong - (wrong @ hidden) * hidden).max() < 1e-3  # and it is wrong in that direction only


def test_an_end_pins_the_constant():
    transitions = np.zeros((3, 2, 3))
    transitions[[0, 0, 2, 2], [0, 1, 0, 1], [0, 1, 1, 2]] = 1.0
    over = np.array([False, True, False])
    mdp = MDP(transitions=transitions, start=np.array([0.5, 0, 0.5]), discount=0.9, terminal=over, names=tuple("ABC"))
    found = identifiability(mdp)
    assert found.deficiency == 0 and found.recoverable
    assert "exactly" in found.sentence and found.unreached == ("B",)
    assert "No action is seen in B" in found.sentence
    longer = [solve(mdp, np.array([c, 0.0, c])).policy for c in (0.0, 1.0)]
    assert np.abs(longer[0] - longer[1]).max() > 0.1  # a constant is the price of living


def test_states_out_of_reach_are_named():
    mdp = grid(1, 5, horizon=3, start=0)
    found = identifiability(mdp)
    assert found.unreached == ("(0, 3)", "(0, 4)")
