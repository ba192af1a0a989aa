"""Worlds by name, demonstrations and rewards as files."""

from __future__ import annotations

import numpy as np
import pytest

from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.rewards.inverse import tabular


def test_a_reward_comes_back_bit_for_bit(tmp_path):
    mdp = tabular.maze(0)
    found = tabular.airl.fit(mdp, tabular.solve(mdp, tabular.cells_reward(mdp, {7: 3.0})).policy)
    saved = tabular.TabularReward(reward=found.reward, policy=found.policy, record={"environment": "maze:4x4"})
    read = tabular.TabularReward.load(saved.save(tmp_path / "reward"))
    assert np.array_equal(read.reward, found.reward) and np.array_equal(read.policy, found.policy)
    assert read.record == {"environment": "maze:4x4"}
    with pytest.raises(RewardError, match="holds no tabular reward"):
        tabular.TabularReward.load(tmp_path)


def test_demonstrations_come_back(tmp_path):
    mdp = tabular.grid(3, 3, horizon=5)
    demonstrations = tabular.sample(mdp, tabular.uniform_policy(mdp), 7, seed=0)
    tabular.save_trajectories(tmp_path / "some.jsonl", demonstrations)
    assert tabular.load_trajectories(tmp_path / "some.jsonl", mdp) == demonstrations


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1 is no trajectory"),
        ('{"states": [0, 1]}', "line 1 is no trajectory"),
        ('{"states": [0, 1], "actions": [3, 3]}', "one state more"),
        ('{"states": [0, 8], "actions": [3]}', "action 3 in state 0 never leads to state 8"),
        ('{"states": [0, 40], "actions": [3]}', "never leads to state 40"),
    ],
)
def test_lines_that_are_no_demonstrations_are_refused(tmp_path, line, said):
    (tmp_path / "bad.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=said):
        tabular.load_trajectories(tmp_path / "bad.jsonl", tabular.grid(3, 3, horizon=5))
    with pytest.raises(DataError, match="cannot be read"):
        tabular.load_trajectories(tmp_path / "none.jsonl", tabular.grid(3, 3, horizon=5))


def test_worlds_by_name():
    world = tabular.named("maze:4x4", discount=0.9)
    assert np.array_equal(world.mdp.transitions, tabular.maze(0).transitions)
    assert np.array_equal(world.elsewhere.transitions, tabular.maze(3).transitions)
    assert world.reward.nonzero()[0].tolist() == [7]
    back = tabular.named("maze:4x4:3", horizon=9, discount=1.0)
    assert np.array_equal(back.elsewhere.transitions, tabular.maze(0).transitions)
    assert (back.mdp.horizon, back.elsewhere.horizon, back.mdp.discount) == (9, 9, 1.0)
    square = tabular.named("grid:5x5")
    assert {int(s): float(square.reward[s]) for s in square.reward.nonzero()[0]} == {4: 0.5, 12: -1.0, 24: 1.0}
    assert square.elsewhere is None and tabular.named("torus:4x6").mdp.states == 24


@pytest.mark.parametrize("name", ["maze", "grid:5", "grid:5x5:2", "maze:4x4:9", "grid:1x5", "labyrinth:3x3"])
def test_names_of_nothing_are_refused(name):
    with pytest.raises(ConfigError, match="environment is"):
        tabular.named(name)


def test_walls_stop_and_slips_spread():
    mdp = tabular.maze(0)
    assert mdp.transitions[1, 3, 2] == 1.0  # right through the gap in row 0
    assert mdp.transitions[5, 3, 5] == 1.0 and mdp.transitions[6, 2, 6] == 1.0  # row 1: a wall from both sides
    assert mdp.transitions[0, 0, 0] == 1.0 and mdp.transitions[15, 1, 15] == 1.0  # the edge
    assert mdp.start.nonzero()[0].tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    slips = tabular.grid(3, 3, horizon=1, slip=0.2).transitions[4, 0]
    assert slips[[1, 3, 5, 7]].tolist() == pytest.approx([0.85, 0.05, 0.05, 0.05])
    assert tabular.torus(3, 3).transitions[0, 0, 6] == 1.0


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "holds no trajectory"), (b"\xff\xfe", "cannot be read .*start byte")]
)
def test_files_without_trajectories(tmp_path, content, said):
    (tmp_path / "some.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=said):
        tabular.load_trajectories(tmp_path / "some.jsonl", tabular.grid(3, 3, horizon=5))
