"""Finite Markov decision processes, their rewards and their trajectories, in float64.

S states, A actions, H steps. A reward is (S,), (S, A) or (S, A, S) and is paid for every action taken: H times in an
episode that does not end before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prefrl.errors import DataError, RewardError

Array: TypeAlias = "NDArray[np.float64]"

_CLOSE = 1e-9  # how far probabilities may sum from 1


@dataclass(frozen=True, kw_only=True)
class MDP:
    """A finite decision process with known dynamics and no reward.

    transitions  (S, A, S) P(s' | s, a); those of terminal states are not looked at
    start        (S,) distribution of the first state
    horizon      number of actions H, or None: the process goes on, discounted
    discount     in (0, 1]; under 1 without a horizon
    features     (S, d) what a reward network sees of a state; one-hot where not given
    terminal     (S,) bool: an episode that reaches such a state is over, nothing is done or paid there
    names        one name a state, for figures and errors; their numbers where not given
    """

    transitions: Array
    start: Array
    horizon: int | None = None
    discount: float = 1.0
    features: Array = field(default_factory=lambda: np.zeros((0, 0)))
    terminal: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "transitions", np.asarray(self.transitions, dtype=np.float64))
        put(self, "start", np.asarray(self.start, dtype=np.float64))
        if not len(self.features):
            put(self, "features", np.eye(self.states))
        if not len(self.terminal):
            put(self, "terminal", np.zeros(self.states, dtype=bool))
        if not self.names:
            put(self, "names", tuple(map(str, range(self.states))))
        _check(self)
        absorbing = np.broadcast_to(np.eye(self.states)[:, None], self.transitions.shape)
        put(self, "transitions", np.where(self.terminal[:, None, None], absorbing, self.transitions))

    @property
    def states(self) -> int:
        """Number of states S."""
        return int(self.transitions.shape[0])

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return int(self.transitions.shape[1])


@dataclass(frozen=True, slots=True)
class Trajectory:
    """States (T + 1,) and the actions (T,) between them."""

    states: tuple[int, ...]
    actions: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.states) != len(self.actions) + 1:
            raise DataError(
                f"a trajectory has {len(self.states)} states and {len(self.actions)} actions; expected one state more "
                "than actions: the one after the last action belongs to it"
            )


def action_rewards(mdp: MDP, reward: ArrayLike) -> Array:
    """Expected reward (S, A) of every action; 0 in terminal states.

    Raises:
        RewardError: the shape is none of (S,), (S, A), (S, A, S), or a number is not finite.
    """
    given = np.asarray(reward, dtype=np.float64)
    states, actions = mdp.states, mdp.actions
    if given.shape not in {(states,), (states, actions), (states, actions, states)}:
        raise RewardError(
            f"a reward of shape {given.shape}; expected ({states},), ({states}, {actions}) or "
            f"({states}, {actions}, {states}): one number a state, a state and action, or a transition"
        )
    if not np.isfinite(given).all():
        raise RewardError(f"{int((~np.isfinite(given)).sum())} of {given.size} rewards are not finite numbers")
    if given.ndim == 3:
        found = np.einsum("sat,sat->sa", mdp.transitions, given)
    else:
        found = np.array(np.broadcast_to(given[:, None], (states, actions)) if given.ndim == 1 else given)
    found[mdp.terminal] = 0.0
    return found


def sample(mdp: MDP, policy: Array, episodes: int, *, seed: int, length: int | None = None) -> list[Trajectory]:
    """Trajectories of a policy; `length` actions at most, the horizon where not given.

    Raises:
        RewardError: neither a horizon nor a length.
    """
    steps = length if length is not None else mdp.horizon
    if steps is None:
        raise RewardError("a process without a horizon gives episodes without an end; give length=... to sample()")
    rng = np.random.default_rng(seed)
    states = np.zeros((episodes, steps + 1), dtype=np.int64)
    actions = np.zeros((episodes, steps), dtype=np.int64)
    states[:, 0] = _draw(rng, np.broadcast_to(mdp.start, (episodes, mdp.states)))
    for t in range(steps):
        now = policy[t] if policy.ndim == 3 else policy
        actions[:, t] = _draw(rng, now[states[:, t]])
        states[:, t + 1] = _draw(rng, mdp.transitions[states[:, t], actions[:, t]])
    return [_until_terminal(mdp, tuple(s), tuple(a)) for s, a in zip(states.tolist(), actions.tolist(), strict=True)]


def empirical_occupancy(mdp: MDP, trajectories: Sequence[Trajectory]) -> Array:
    """Mean discounted visits (S, A) of demonstrations, counted as `occupancy` counts.

    Raises:
        DataError: no trajectories, a state or action that does not exist, or more actions than the horizon.
    """
    if not trajectories:
        raise DataError("there are no demonstrations; expected at least one trajectory")
    found = np.zeros((mdp.states, mdp.actions))
    for index, one in enumerate(trajectories):
        _check_trajectory(mdp, one, index)
        steps = mdp.discount ** np.arange(len(one.actions))
        np.add.at(found, (np.array(one.states[:-1], dtype=int), np.array(one.actions, dtype=int)), steps)
    return found / len(trajectories)


def empirical_start(mdp: MDP, trajectories: Sequence[Trajectory]) -> Array:
    """Share (S,) of demonstrations that start in each state."""
    return np.bincount([one.states[0] for one in trajectories], minlength=mdp.states) / len(trajectories)


def _draw(rng: np.random.Generator, probabilities: Array) -> NDArray[np.int64]:
    """One index a row."""
    cumulative = probabilities.cumsum(-1)
    at = rng.random(len(probabilities))[:, None] * cumulative[:, -1:]
    return (cumulative <= at).sum(-1)


def _until_terminal(mdp: MDP, states: tuple[int, ...], actions: tuple[int, ...]) -> Trajectory:
    ends = next((t for t, state in enumerate(states) if mdp.terminal[state]), len(actions))
    return Trajectory(states[: ends + 1], actions[:ends])


def _check(mdp: MDP) -> None:
    """Refuse what is not a decision process.

    Raises:
        RewardError: it is none; the first fault is named.
    """
    for fault in _faults(mdp):
        raise RewardError(f"not a decision process: {fault}")


def _faults(mdp: MDP) -> Iterator[str]:
    shape, states = mdp.transitions.shape, mdp.transitions.shape[-1]
    if len(shape) != 3 or shape[0] != states:
        yield f"transitions of shape {shape}; expected (S, A, S)"
        return
    for name, array in (("start", mdp.start), ("terminal", mdp.terminal), ("names", np.array(mdp.names))):
        if array.shape != (states,):
            yield f"{name} of shape {array.shape}; expected ({states},)"
            return
    if mdp.features.shape[:-1] != (states,):
        yield f"features of shape {mdp.features.shape}; expected ({states}, d)"
    if not _distributions(mdp.start):
        yield "start is no distribution; expected numbers of at least 0 that sum to 1"
    if not _distributions(mdp.transitions[~mdp.terminal]):
        yield "a row of transitions is no distribution; expected P(s' | s, a) over the last dimension"
    if not 0 < mdp.discount <= 1:
        yield f"discount is {mdp.discount}; expected above 0 and at most 1"
    if mdp.horizon is not None and mdp.horizon < 1:
        yield f"horizon is {mdp.horizon}; expected at least one action"
    if mdp.horizon is None and mdp.discount == 1:
        yield "no horizon and a discount of 1, so values are infinite; give a horizon or a discount under 1"


def _distributions(rows: Array) -> bool:
    return bool((rows >= 0).all() and np.allclose(rows.sum(-1), 1.0, rtol=0.0, atol=_CLOSE))


def _check_trajectory(mdp: MDP, one: Trajectory, index: int) -> None:
    bad_states = [s for s in one.states if not 0 <= s < mdp.states]
    bad_actions = [a for a in one.actions if not 0 <= a < mdp.actions]
    if bad_states or bad_actions:
        raise DataError(
            f"demonstration {index}: state {bad_states[:1]} or action {bad_actions[:1]} does not exist; expected "
            f"states 0..{mdp.states - 1} and actions 0..{mdp.actions - 1}"
        )
    if mdp.horizon is not None and len(one.actions) > mdp.horizon:
        raise DataError(
            f"demonstration {index} has {len(one.actions)} actions; expected at most the horizon, {mdp.horizon}"
        )
