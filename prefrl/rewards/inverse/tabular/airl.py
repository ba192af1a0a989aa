"""Adversarial inverse reinforcement learning on exact visits: which reward survives a move to another maze?

A discriminator tells the expert's transitions from the policy's, the policy is improved a little, and so on:

    logit(s, a) = f / temperature - log pi(a | s)        f = g + discount E (1 - terminal(s')) h(s') - h(s)

At the optimum D = 1/2 everywhere and f / temperature = log pi_expert: f is the expert's soft advantage. With g a
function of the state alone it splits into reward and value, g = r and h = V up to constants (where `identifiability`
says so), and g is what can be used elsewhere. With g(s, a), as with the plain discriminator of GAIL, nothing tells the
two apart. Where a move is up to chance, no f(s, a, s') is log pi(a | s) for every s', and one that is fitted to samples
is biased; here f is taken in expectation over s', and exact.

Fu, Luo, Levine (2018), arXiv:1710.11248; Ho, Ermon (2016), arXiv:1606.03476.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from prefrl.errors import RewardError
from prefrl.rewards.inverse.tabular.logistic import best_discriminator
from prefrl.rewards.inverse.tabular.mdp import MDP, Array, action_rewards
from prefrl.rewards.inverse.tabular.planning import lazy_step, occupancy, policy_divergence, solve, uniform_policy

Form = Literal["state", "state_action", "gail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdversarialFit:
    """A reward and an imitating policy.

    reward         what may be taken elsewhere: g (S,) or (S, A); of gail the -log(1 - D) that it ended with, (S, A)
    potential      h (S,); 0 where there is none
    advantage      f (S, A); of gail its reward
    policy         (S, A)
    discriminator  D (S, A)
    divergence     KL(expert || policy) per step
    history        the divergence by round
    """

    reward: Array
    potential: Array
    advantage: Array
    policy: Array
    discriminator: Array
    divergence: float
    history: tuple[float, ...]


def fit(
    mdp: MDP,
    expert: Array,
    form: Form = "state",
    *,
    temperature: float = 1.0,
    step: float = 0.5,
    rounds: int = 200,
    tolerance: float = 1e-12,
) -> AdversarialFit:
    """Discriminator and policy in turn, on exact discounted visits.

    Args:
        expert: the expert's policy (S, A).
        form: state and state_action are AIRL with g(s) and shaping, or with g(s, a) alone; gail has a plain
            discriminator and pays -log(1 - D).
        temperature: of the soft-optimal expert.
        step: how far the policy moves to the best answer in a round, in (0, 1].
        tolerance: KL(expert || policy) per step at which to stop.

    Raises:
        RewardError: the process has a horizon, where policies and potentials would depend on the time.
    """
    if mdp.horizon is not None:
        raise RewardError("exact AIRL is for stationary policies; give an MDP without a horizon, and a discount")
    visits, policy, history = occupancy(mdp, expert), uniform_policy(mdp), []
    judged = _Judged(*(np.zeros(n) for n in ((mdp.states, mdp.actions), mdp.states, mdp.states)))
    for _ in range(rounds):
        judged = _DISCRIMINATORS[form](mdp, visits, policy, temperature, judged)
        history.append(policy_divergence(mdp, expert, policy) / float(visits.sum()))
        if history[-1] <= tolerance:
            break
        if form == "gail":
            policy = _proximal(mdp, policy, judged.reward, step)
        else:
            policy = lazy_step(policy, solve(mdp, judged.advantage(mdp), temperature).policy, step)
    return AdversarialFit(
        reward=judged.reward,
        potential=judged.potential,
        advantage=judged.advantage(mdp),
        policy=policy,
        discriminator=1.0 / (1.0 + np.exp(-judged.logit)),
        divergence=history[-1],
        history=tuple(history),
    )


def shaped_advantage(mdp: MDP, reward: Array, potential: Array) -> Array:
    """f = g + discount (1 - terminal(s')) h(s') - h(s), expected over s', (S, A)."""
    after = np.where(mdp.terminal, 0.0, potential)
    return action_rewards(mdp, reward) + mdp.discount * mdp.transitions @ after - potential[:, None]


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a discriminator says of actions: its logit (S, A), and g and h where it has them."""

    logit: Array
    reward: Array
    potential: Array

    def advantage(self, mdp: MDP) -> Array:
        return shaped_advantage(mdp, self.reward, self.potential)


def _free(mdp: MDP, expert: Array, policy: Array) -> Array:
    """The best logit (S, A) of all: log of the expert's visits over the policy's, 0 where nobody goes."""
    visits = occupancy(mdp, policy)
    both = (expert > 0) & (visits > 0)
    return np.log(np.where(both, expert, 1.0)) - np.log(np.where(both, visits, 1.0))


def _gail(mdp: MDP, expert: Array, policy: Array, temperature: float, before: _Judged) -> _Judged:
    logit = _free(mdp, expert, policy)
    return _Judged(logit, np.logaddexp(0.0, logit), before.potential)  # -log(1 - D) = softplus(logit)


def _state_action(mdp: MDP, expert: Array, policy: Array, temperature: float, before: _Judged) -> _Judged:
    logit = _free(mdp, expert, policy)
    return _Judged(logit, temperature * (logit + np.log(policy)), before.potential)


def _state(mdp: MDP, expert: Array, policy: Array, temperature: float, before: _Judged) -> _Judged:
    """The best g(s) and h(s)."""
    acting = np.flatnonzero(~mdp.terminal)
    own, after = np.eye(mdp.states)[acting], mdp.discount * mdp.transitions[acting] * ~mdp.terminal
    design = np.concatenate(np.broadcast_arrays(own[:, None], after - own[:, None]), -1)
    start = np.concatenate([before.reward, before.potential]) / temperature
    found = temperature * best_discriminator(
        design.reshape(-1, 2 * mdp.states),
        -np.log(policy[acting]).ravel(),
        expert[acting].ravel(),
        occupancy(mdp, policy)[acting].ravel(),
        start,
    )
    g, h = np.split(found, 2)
    return _Judged(shaped_advantage(mdp, g, h) / temperature - np.log(policy), g, h)


_DISCRIMINATORS: dict[Form, Callable[[MDP, Array, Array, float, _Judged], _Judged]] = {
    "state": _state,
    "state_action": _state_action,
    "gail": _gail,
}


def _proximal(mdp: MDP, policy: Array, reward: Array, step: float) -> Array:
    """argmax E reward - KL(. || policy) / step: plain best answers to a discriminator go round in circles."""
    return solve(mdp, action_rewards(mdp, reward) + np.log(policy) / step, 1.0 / step).policy
