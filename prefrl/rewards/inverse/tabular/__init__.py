"""Inverse reinforcement learning where all is known: exact values, visits, gradients and policies, in float64.

from prefrl.rewards.inverse import tabular

mdp = tabular.maze(gap=0)
expert = tabular.solve(mdp, tabular.cells_reward(mdp, {7: 3.0})).policy
found = tabular.airl.fit(mdp, expert)
tabular.solve(tabular.maze(gap=3), found.reward).policy  # the reward at work in another maze
"""

from prefrl.rewards.inverse.tabular import airl, gcl, maxent, sequences
from prefrl.rewards.inverse.tabular.files import TabularReward, load_trajectories, save_trajectories
from prefrl.rewards.inverse.tabular.identifiability import Identifiability, identifiability
from prefrl.rewards.inverse.tabular.mazes import World, cells_reward, grid, maze, named, torus
from prefrl.rewards.inverse.tabular.mdp import MDP, Trajectory, action_rewards, empirical_occupancy, sample
from prefrl.rewards.inverse.tabular.planning import (
    Solution,
    expected_return,
    occupancy,
    policy_divergence,
    solve,
    uniform_policy,
)

__all__ = [
    "MDP",
    "Identifiability",
    "Solution",
    "TabularReward",
    "Trajectory",
    "World",
    "action_rewards",
    "airl",
    "cells_reward",
    "empirical_occupancy",
    "expected_return",
    "gcl",
    "grid",
    "identifiability",
    "load_trajectories",
    "maxent",
    "maze",
    "named",
    "occupancy",
    "policy_divergence",
    "sample",
    "save_trajectories",
    "sequences",
    "solve",
    "torus",
    "uniform_policy",
]
