"""Soft planning and everything that follows from a policy, exactly.

Soft means maximum causal entropy at a temperature: pi(a|s) = exp((Q(s,a) - V(s)) / temperature),
V(s) = temperature log sum_a exp(Q(s,a) / temperature), Q = r + discount E V(s'). Temperature 0 is plain planning.
The discount is in the backup, in the visits and in the returns alike, so that each is the others' gradient.

A policy is (S, A), or (H, S, A) where there is a horizon and it depends on the time. Ziebart, Bagnell, Dey (2010),
Modeling Interaction via the Principle of Maximum Causal Entropy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from prefrl.errors import RewardError
from prefrl.rewards.inverse.tabular.mdp import MDP, Array, action_rewards


@dataclass(frozen=True, slots=True)
class Solution:
    """A (soft-)optimal policy and its values; the leading H is there with a horizon only.

    policy  ([H,] S, A), uniform in terminal states
    q       ([H,] S, A)
    values  ([H + 1,] S), 0 in terminal states and at the horizon
    """

    policy: Array
    q: Array
    values: Array


def solve(mdp: MDP, reward: ArrayLike, temperature: float = 1.0) -> Solution:
    """The soft-optimal policy and its values by backward induction, or by soft policy iteration without a horizon.

    Raises:
        RewardError: a reward of the wrong shape, a negative temperature, or no convergence.
    """
    if temperature < 0:
        raise RewardError(f"temperature is {temperature}; expected 0, which is plain planning, or more")
    rewards = action_rewards(mdp, reward)
    if mdp.horizon is None:
        return _iterate(mdp, rewards, temperature)
    values = np.zeros((mdp.horizon + 1, mdp.states))
    q = np.zeros((mdp.horizon, mdp.states, mdp.actions))
    policy = np.zeros_like(q)
    for t in reversed(range(mdp.horizon)):
        q[t] = rewards + mdp.discount * mdp.transitions @ values[t + 1]
        policy[t], values[t] = _greedy(mdp, q[t], temperature)
    return Solution(policy, q, values)


def occupancy(mdp: MDP, policy: Array) -> Array:
    """Expected discounted visits (S, A): sum over t < H of discount^t P(s_t, a_t); sums to (1 - d^H) / (1 - d).

    Args:
        policy: (S, A), or (H, S, A) with a horizon.
    """
    alive = ~mdp.terminal
    if mdp.horizon is None:
        moves = np.einsum("sa,sat->st", policy, mdp.transitions)
        moves[mdp.terminal] = 0.0
        visits = np.linalg.solve(np.eye(mdp.states) - mdp.discount * moves.T, mdp.start)
        return np.asarray((visits * alive)[:, None] * policy)
    found, state = np.zeros((mdp.states, mdp.actions)), mdp.start
    for step in timed(mdp, policy):
        acted = (state * alive)[:, None] * step
        found += acted
        state = mdp.discount * np.einsum("sa,sat->t", acted, mdp.transitions)
    return found


def expected_return(mdp: MDP, policy: Array, reward: ArrayLike) -> float:
    """Expected discounted reward of an episode."""
    return float((occupancy(mdp, policy) * action_rewards(mdp, reward)).sum())


def policy_divergence(mdp: MDP, expert: Array, policy: Array) -> float:
    """KL(expert || policy) of whole trajectories, discounted: sum over t of discount^t E KL of the action at t."""
    total, state = 0.0, mdp.start
    if mdp.horizon is None:
        return float((occupancy(mdp, expert) * _log_ratio(expert, policy)).sum())
    for mine, other in zip(timed(mdp, expert), timed(mdp, policy), strict=True):
        acted = (state * ~mdp.terminal)[:, None] * mine
        total += float((acted * _log_ratio(mine, other)).sum())
        state = mdp.discount * np.einsum("sa,sat->t", acted, mdp.transitions)
    return total


def timed(mdp: MDP, policy: Array) -> Array:
    """The policy as (H, S, A); a stationary one is repeated."""
    if mdp.horizon is None:
        raise RewardError("a process without a horizon has no steps to count; give the MDP a horizon")
    return policy if policy.ndim == 3 else np.broadcast_to(policy, (mdp.horizon, *policy.shape))


def uniform_policy(mdp: MDP) -> Array:
    """Every action equally likely, (S, A)."""
    return np.full((mdp.states, mdp.actions), 1.0 / mdp.actions)


def lazy_step(policy: Array, best: Array, share: float) -> Array:
    """A policy that acts as another one with probability `share`, and as before otherwise."""
    return (1.0 - share) * policy + share * best


def _greedy(mdp: MDP, q: Array, temperature: float) -> tuple[Array, Array]:
    """Policy and values of one backup; at temperature 0 equally good actions share the probability."""
    best = q.max(-1, keepdims=True)
    if temperature == 0.0:
        ties = np.isclose(q, best, rtol=0.0, atol=1e-12)
        policy, values = ties / ties.sum(-1, keepdims=True), best[:, 0].copy()
    else:
        shares = np.exp((q - best) / temperature)
        total = shares.sum(-1, keepdims=True)
        policy, values = shares / total, (best + temperature * np.log(total))[:, 0]
    policy[mdp.terminal], values[mdp.terminal] = 1.0 / mdp.actions, 0.0
    return policy, values


def _iterate(mdp: MDP, rewards: Array, temperature: float, limit: int = 500) -> Solution:
    """Policy iteration, which is Newton's method on the soft Bellman equation: exact after a handful of steps."""
    policy, before = uniform_policy(mdp), np.full(mdp.states, -np.inf)
    for _ in range(limit):
        logs = np.log(policy, out=np.zeros_like(policy), where=policy > 0)
        paid = (policy * (rewards - temperature * logs)).sum(-1) * ~mdp.terminal
        moves = np.einsum("sa,sat->st", policy, mdp.transitions) * ~mdp.terminal[:, None]
        values = np.linalg.solve(np.eye(mdp.states) - mdp.discount * moves, paid)
        q = rewards + mdp.discount * mdp.transitions @ values
        policy, improved = _greedy(mdp, q, temperature)
        if np.abs(improved - before).max() <= 1e-13 * max(1.0, np.abs(improved).max()):
            return Solution(policy, q, improved)
        before = improved
    raise RewardError(
        f"planning did not settle in {limit} rounds; rewards span {np.ptp(rewards):.3g} at temperature "
        f"{temperature:g}: scale the reward down or raise the temperature"
    )


def _log_ratio(policy: Array, other: Array) -> Array:
    """log policy/other; 0 where the policy never goes, infinite where only the other never does."""
    inside = policy > 0
    with np.errstate(divide="ignore"):
        return np.where(inside, np.log(np.where(inside, policy, 1.0)) - np.log(np.where(inside, other, 1.0)), 0.0)
