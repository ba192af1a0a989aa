"""Whether a reward of the state alone can be recovered from an expert's policy at all, before anything is learnt.

A soft-optimal expert's policy is its soft advantage, log pi(a|s) = r(s) + discount E V(s') - V(s), and that is all that
can be seen of it. So r is known as far as (g, h) -> g(s) + discount E h(s') - h(s) has no null space. One direction is
always there unless episodes end of themselves: a constant reward, with the value that it brings. Any more, and rewards
that are different elsewhere lead to the very same expert here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefrl.rewards.inverse.tabular.mdp import MDP, Array

_SMALL = 1e-9  # of the largest singular value


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifiability:
    """How far a state-only reward can be told from the best possible demonstrations.

    recoverable  up to a constant, in all states in which actions are taken; exactly with a deficiency of 0
    rank         of the design [g, discount E h(s') - h(s)]
    parameters   its columns
    directions   (k, S) orthonormal rewards, besides the constant one, that no expert's policy shows
    unreached    names of states in which no action is ever taken
    sentence     the same in words
    """

    recoverable: bool
    rank: int
    parameters: int
    directions: Array
    unreached: tuple[str, ...]
    sentence: str

    @property
    def deficiency(self) -> int:
        """Parameters less rank."""
        return self.parameters - self.rank

    def __str__(self) -> str:
        return self.sentence


def identifiability(mdp: MDP) -> Identifiability:
    """What can be recovered in a process, from its moves alone.

    An expert at a temperature takes every action, so that it is seen wherever the start leads by any of them.
    """
    reached = _reached(mdp)
    acting = np.flatnonzero(reached.any(0) & ~mdp.terminal)
    design = _design(mdp, reached, acting)
    _, sizes, rows = np.linalg.svd(np.linalg.qr(design, mode="r"))
    rank = int((sizes > _SMALL * sizes[0]).sum())
    hidden = rows[rank:, : len(acting)]  # the part of the null space that is reward
    hidden = hidden - hidden.mean(1, keepdims=True)
    directions = np.zeros((0, mdp.states))
    if len(hidden):
        _, sizes, free = np.linalg.svd(hidden, full_matrices=False)
        free = free[sizes > _SMALL]
        directions = np.zeros((len(free), mdp.states))
        directions[:, acting] = free
    silent = tuple(name for s, name in enumerate(mdp.names) if s not in set(acting.tolist()))
    return Identifiability(
        recoverable=not len(directions),
        rank=rank,
        parameters=design.shape[1],
        directions=directions,
        unreached=silent,
        sentence=_say(mdp, rank, design.shape[1], directions, silent),
    )


def _reached(mdp: MDP) -> NDArray[np.bool_]:
    """Which states can be met at each time, (H, S) bool; (1, S) at any time, without a horizon."""
    moves = (mdp.transitions > 0).any(1) & ~mdp.terminal[:, None]
    now = mdp.start > 0
    if mdp.horizon is None:
        for _ in range(mdp.states):
            now = now | (now @ moves)
        return now[None]
    times = [now]
    for _ in range(mdp.horizon - 1):
        times.append(times[-1] @ moves)
    return np.stack(times)


def _design(mdp: MDP, reached: NDArray[np.bool_], acting: NDArray[np.intp]) -> Array:
    """Rows (t, s, a); columns g(s) of the states that act, then h, of every time at which they are met."""
    steps, states = reached.shape
    column = np.full((steps + 1, states), -1)
    place = [(t, s) for t in range(steps) for s in acting if reached[t, s]]
    for i, (t, s) in enumerate(place):
        column[t, s] = len(acting) + i
    if mdp.horizon is None:
        column[1] = column[0]  # stationary: the value after is the same function
    of_reward = {int(s): i for i, s in enumerate(acting)}
    design = np.zeros((len(place) * mdp.actions, len(acting) + len(place)))
    for i, (t, s) in enumerate(place):
        block = design[i * mdp.actions : (i + 1) * mdp.actions]
        block[:, of_reward[int(s)]] = 1.0
        block[:, column[t, s]] -= 1.0
        known = np.flatnonzero(column[t + 1] >= 0)
        block[:, column[t + 1, known]] += mdp.discount * mdp.transitions[s][:, known]
    return design


def _say(mdp: MDP, rank: int, parameters: int, directions: Array, silent: tuple[str, ...]) -> str:
    design = f"the design [g, discount h(s') - h(s)] has rank {rank} of {parameters}"
    how = "up to a constant" if rank < parameters else "exactly, its constant included"
    text = f"A state-only reward can be recovered {how}: {design}."
    if len(directions):
        one = directions[0] / np.abs(directions[0]).max()
        rise, fall = (_list([mdp.names[s] for s in np.flatnonzero(side)]) for side in (one > 0.5, one < -0.5))
        text = (
            f"A state-only reward can not be recovered: {design}. Besides a constant, {len(directions)} independent "
            f"change(s) of the reward leave the expert's policy as it is; one pays more in {rise}, and less in {fall}."
        )
    if silent:
        text += f" No action is seen in {_list(list(silent))}, so nothing is known of the reward there."
    return text


def _list(names: list[str], most: int = 4) -> str:
    more = f" (and {len(names) - most} more)" if len(names) > most else ""
    return (", ".join(names[:most]) + more) if names else "no state"
