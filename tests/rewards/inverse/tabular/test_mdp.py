"""Decision processes: what is refused, what is counted, and that the discount is used everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prefrl.errors import DataError, RewardError
from prefrl.rewards.inverse.tabular import gcl, maxent
from prefrl.rewards.inverse.tabular.mazes import cells_reward, grid, maze
from prefrl.rewards.inverse.tabular.mdp import (
    MDP,
    Trajectory,
    action_rewards,
    empirical_occupancy,
    empirical_start,
    sample,
)
from prefrl.rewards.inverse.tabular.planning import (
    expected_return,
    occupancy,
    policy_divergence,
    solve,
    timed,
    uniform_policy,
)

# Five states, three actions with at most two outcomes each: {(state, action): {next state: probability}}.
MOVES = {
    (0, 0): {3: 1.0},
    (0, 1): {4: 1.0},
    (0, 2): {0: 1.0},
    (1, 0): {3: 0.0704, 4: 0.9296},
    (1, 1): {0: 0.1827, 1: 0.8173},
    (1, 2): {1: 0.7749, 2: 0.2251},
    (2, 0): {1: 0.1520, 3: 0.8480},
    (2, 1): {4: 1.0},
    (2, 2): {3: 0.1453, 4: 0.8547},
    (3, 0): {0: 0.2352, 3: 0.7648},
    (3, 1): {1: 1.0},
    (3, 2): {2: 1.0},
    (4, 0): {0: 1.0},
    (4, 1): {1: 1.0},
    (4, 2): {0: 0.0631, 1: 0.9369},
}
REWARD = np.array([2.6142, 0.6708, 2.0367, 0.2028, 0.8673])


def random_process(discount: float, horizon: int = 10) -> MDP:
    transitions = np.zeros((5, 3, 5))
    for (state, action), outcomes in MOVES.items():
        transitions[state, action, list(outcomes)] = list(outcomes.values())
    start = np.array([0.0, 0.0, 0.0, 0.1997, 0.8003])
    return MDP(transitions=transitions, start=start, horizon=horizon, discount=discount)


def through_the_end(mdp: MDP, policy: np.ndarray) -> np.ndarray:
    """Discounted visits (S,) at t = 0..H, the state after the last action among them."""
    state = mdp.start
    for step in timed(mdp, policy):
        state = np.einsum("s,sa,sat->t", state, step, mdp.transitions)
    return occupancy(mdp, policy).sum(1) + mdp.discount**mdp.horizon * state


def test_the_discount_is_in_the_policy_too():
    mdp = random_process(0.9)
    right = [4.0064, 0.3927, 0.2450, 0.5231, 1.6947]
    assert through_the_end(mdp, solve(mdp, REWARD).policy) == pytest.approx(right, abs=3e-4)
    forgetful = solve(replace(mdp, discount=1.0), REWARD).policy
    assert through_the_end(mdp, forgetful) == pytest.approx([4.3575, 0.2323, 0.2115, 0.4518, 1.6088], abs=3e-4)
    half = random_process(0.5)
    both = [through_the_end(half, solve(p, REWARD).policy) for p in (half, replace(half, discount=1.0))]
    assert np.abs(both[0] - both[1]).max() == pytest.approx(0.31, abs=0.005)


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.5])
def test_visits_policy_and_value_by_listing_all_trajectories(discount):
    mdp = random_process(discount, horizon=5)
    every = gcl.enumerate_trajectories(mdp)
    assert np.exp(every.log_dynamics).sum() == pytest.approx(3**5, abs=1e-9)  # 1 for every sequence of actions
    solution = solve(mdp, REWARD)
    chances = np.exp(every.log_dynamics + every.log_policy(mdp, solution.policy))
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    visits = np.tensordot(chances, every.visits, 1)
    assert np.abs(visits - occupancy(mdp, solution.policy)).max() < 1e-12
    paid = chances @ every.returns(action_rewards(mdp, REWARD))
    assert expected_return(mdp, solution.policy, REWARD) == pytest.approx(paid, abs=1e-12)
    weights = discount ** np.arange(5)
    steps = solution.policy[np.arange(5), every.states, every.actions]
    surprise = chances @ -(weights * np.log(steps)).sum(1)  # the causal entropy, discounted
    assert mdp.start @ solution.values[0] == pytest.approx(paid + surprise, abs=1e-12)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_soft_optimal_beats_every_neighbour(discount):
    mdp = random_process(discount, horizon=4)
    best = solve(mdp, REWARD)
    rng = np.random.default_rng(0)

    def worth(policy: np.ndarray) -> float:
        flat = np.broadcast_to(1.0 / 3, policy.shape)
        return expected_return(mdp, policy, REWARD) - policy_divergence(mdp, policy, flat)

    for _ in range(20):
        other = np.exp(np.log(best.policy) + 0.1 * rng.normal(size=best.policy.shape))
        assert worth(best.policy) > worth(other / other.sum(-1, keepdims=True))


def test_visits_sum_to_the_discounted_number_of_actions():
    mdp = grid(3, 3, horizon=7, discount=0.8)
    assert occupancy(mdp, uniform_policy(mdp)).sum() == pytest.approx((1 - 0.8**7) / 0.2)
    forever = grid(3, 3, discount=0.8)
    assert occupancy(forever, uniform_policy(forever)).sum() == pytest.approx(5.0)
    demonstrations = sample(mdp, uniform_policy(mdp), 10, seed=0)
    assert empirical_occupancy(mdp, demonstrations).sum() == pytest.approx((1 - 0.8**7) / 0.2)


def test_no_horizon_is_the_limit_of_long_ones():
    forever, long = maze(0), replace(maze(0), horizon=300)
    reward = cells_reward(forever, {7: 3.0})
    first, endless = solve(long, reward), solve(forever, reward)
    assert np.abs(first.values[0] - endless.values).max() < 1e-11
    assert np.abs(first.policy[0] - endless.policy).max() < 1e-11
    assert np.abs(occupancy(long, first.policy) - occupancy(forever, endless.policy)).max() < 1e-11


def corridor(horizon: int) -> MDP:
    """Left or right from A and C; B, between them, is the goal and ends the episode."""
    transitions = np.zeros((3, 2, 3))
    transitions[[0, 0, 2, 2], [0, 1, 0, 1], [0, 1, 1, 2]] = 1.0
    over = np.array([False, True, False])
    return MDP(transitions=transitions, start=np.array([0.5, 0.0, 0.5]), horizon=horizon, terminal=over)


def test_nothing_is_paid_or_done_after_the_end():
    mdp = corridor(5)
    half = uniform_policy(mdp)
    assert occupancy(mdp, half).sum() == pytest.approx(1 + 0.5 + 0.25 + 0.125 + 0.0625)
    assert expected_return(mdp, half, np.array([0.0, 100.0, 0.0])) == 0.0
    assert solve(mdp, np.zeros(3)).values[:, 1].tolist() == [0.0] * 6
    trajectories = sample(mdp, half, 200, seed=1)
    assert {one.states[-1] for one in trajectories if len(one.actions) < 5} == {1}
    assert all(1 not in one.states[:-1] for one in trajectories)
    every = gcl.enumerate_trajectories(mdp)
    assert len(every.states) == 12 and np.exp(every.log_policy(mdp, half)).sum() == pytest.approx(2.0)


def test_temperature_0_is_planning_and_ties_are_shared():
    mdp = grid(2, 2, horizon=2)
    policy = solve(mdp, cells_reward(mdp, {3: 1.0}), temperature=0.0).policy
    assert policy[0, 1].tolist() == [0.0, 1.0, 0.0, 0.0]  # down from (0, 1)
    assert policy[0, 0].tolist() == [0.25] * 4  # too late from (0, 0): the reward is paid for acting in (1, 1)
    assert policy[0, 3].tolist() == [0.0, 0.5, 0.0, 0.5]  # two ways to stay


def test_sampled_visits_agree_with_exact_ones():
    mdp = grid(3, 3, horizon=6, slip=0.3, discount=0.9)
    policy = solve(mdp, cells_reward(mdp, {8: 2.0})).policy
    demonstrations = sample(mdp, policy, 20_000, seed=0)
    assert np.abs(empirical_occupancy(mdp, demonstrations) - occupancy(mdp, policy)).max() < 0.02
    assert np.abs(empirical_start(mdp, demonstrations) - 1 / 9).max() < 0.01
    assert sample(mdp, policy, 5, seed=3) == sample(mdp, policy, 5, seed=3)
    assert sample(mdp, policy, 5, seed=3) != sample(mdp, policy, 5, seed=4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"transitions": np.zeros((9, 4))}, "transitions of shape"),
        ({"start": np.ones(9)}, "start is no distribution"),
        ({"start": np.ones(3)}, "start of shape"),
        ({"transitions": np.full((9, 4, 9), 0.1)}, "a row of transitions"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"horizon": 0}, "horizon is 0"),
        ({"horizon": None}, "no horizon and a discount of 1"),
        ({"features": np.ones((3, 2))}, "features of shape"),
        ({"terminal": np.ones(2, dtype=bool)}, "terminal of shape"),
        ({"names": ("a",)}, "names of shape"),
    ],
)
def test_what_is_no_decision_process_is_refused(change, said):
    with pytest.raises(RewardError, match=said):
        replace(grid(3, 3, horizon=4), **change)


def test_rewards_of_another_shape_are_refused():
    mdp = grid(3, 3, horizon=4)
    with pytest.raises(RewardError, match=r"a reward of shape \(4,\)"):
        solve(mdp, np.zeros(4))
    with pytest.raises(RewardError, match="1 of 9 rewards are not finite"):
        solve(mdp, np.array([np.nan] + [0.0] * 8))
    with pytest.raises(RewardError, match="temperature is -1"):
        solve(mdp, np.zeros(9), temperature=-1.0)
    with pytest.raises(RewardError, match="above 0"):
        maxent.negative_log_likelihood(mdp, np.zeros(9), np.zeros((9, 4)), temperature=0.0)


def test_a_reward_of_the_next_state_is_expected_over_it():
    mdp = grid(2, 2, horizon=1, slip=0.4)
    arrival = np.broadcast_to(cells_reward(mdp, {1: 10.0})[None, None], (4, 4, 4))
    assert action_rewards(mdp, arrival)[0].tolist() == pytest.approx([1.0, 1.0, 1.0, 7.0])  # right: 0.6 + 0.4 / 4


@pytest.mark.parametrize(
    ("trajectory", "said"),
    [
        (Trajectory((0, 99), (1,)), r"state \[99\]"),
        (Trajectory((0, 1), (7,)), r"action \[7\]"),
        (Trajectory((0,) * 6, (0,) * 5), "5 actions; expected at most the horizon, 4"),
    ],
)
def test_demonstrations_that_do_not_fit_are_refused(trajectory, said):
    with pytest.raises(DataError, match=said):
        empirical_occupancy(grid(3, 3, horizon=4), [trajectory])


def test_a_trajectory_ends_with_a_state():
    with pytest.raises(DataError, match="one state more"):
        Trajectory((0, 1), (0, 0))
    with pytest.raises(DataError, match="no demonstrations"):
        empirical_occupancy(grid(3, 3, horizon=4), [])


def test_without_a_horizon_samples_need_a_length():
    with pytest.raises(RewardError, match="length"):
        sample(maze(0), uniform_policy(maze(0)), 1, seed=0)
    assert len(sample(maze(0), uniform_policy(maze(0)), 1, seed=0, length=12)[0].actions) == 12
