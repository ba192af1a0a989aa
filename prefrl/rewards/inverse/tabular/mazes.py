"""Small worlds of which everything is known: grids, a maze with a barrier, a torus."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prefrl.errors import ConfigError
from prefrl.rewards.inverse.tabular.mdp import MDP, Array

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1), "stay": (0, 0)}
_NAME = re.compile(r"(?P<kind>grid|maze|torus):(?P<rows>\d+)x(?P<columns>\d+)(:(?P<gap>\d+))?")


def grid(
    rows: int,
    columns: int,
    *,
    horizon: int | None = None,
    discount: float = 1.0,
    start: int | Sequence[int] | None = None,
    slip: float = 0.0,
    stay: bool = False,
    walls: Collection[frozenset[int]] = (),
) -> MDP:
    """A grid of cells numbered row by row; a move into a wall or over the edge stays where it is.

    Args:
        start: the first cell or cells, equally likely; all of them where not given.
        slip: probability that the move is a uniformly random one instead of the chosen.
        stay: whether standing still is a fifth action.
        walls: pairs of neighbouring cells with a wall between them.
    """
    cells = np.arange(rows * columns)
    moves = list(MOVES.values())[: 5 if stay else 4]
    certain = np.zeros((len(cells), len(moves), len(cells)))
    for action, (down, right) in enumerate(moves):
        row, column = cells // columns + down, cells % columns + right
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        target = np.where(inside, row * columns + column, cells)
        walled = np.array([frozenset(pair) in walls for pair in zip(cells.tolist(), target.tolist(), strict=True)])
        certain[cells, action, np.where(walled, cells, target)] = 1.0
    return MDP(
        transitions=(1.0 - slip) * certain + slip * certain.mean(1, keepdims=True),
        start=_first(len(cells), start),
        horizon=horizon,
        discount=discount,
        names=_names(rows, columns),
    )


def maze(gap: int = 0, *, rows: int = 4, columns: int = 4, discount: float = 0.9, slip: float = 0.0) -> MDP:
    """A grid with a wall down the middle that is open in one row; episodes start anywhere left of it.

    Args:
        gap: the row where the wall can be passed.
    """
    middle = columns // 2
    walls = [frozenset((columns * r + middle - 1, columns * r + middle)) for r in range(rows) if r != gap]
    left = [columns * row + column for row in range(rows) for column in range(middle)]
    return grid(rows, columns, discount=discount, start=left, slip=slip, walls=walls)


def torus(rows: int, columns: int, *, discount: float = 0.9, stay: bool = False) -> MDP:
    """A grid without edges. With even sides and without `stay` every move changes the colour of a chessboard."""
    cells = np.arange(rows * columns)
    moves = list(MOVES.values())[: 5 if stay else 4]
    transitions = np.zeros((len(cells), len(moves), len(cells)))
    for action, (down, right) in enumerate(moves):
        target = (cells // columns + down) % rows * columns + (cells % columns + right) % columns
        transitions[cells, action, target] = 1.0
    start = _first(len(cells), None)
    return MDP(transitions=transitions, start=start, discount=discount, names=_names(rows, columns))


def cells_reward(mdp: MDP, paid: Mapping[int, float]) -> Array:
    """A reward (S,): what the given states pay, 0 elsewhere."""
    found = np.zeros(mdp.states)
    found[list(paid)] = list(paid.values())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A process by name, with a reward (S,) to demonstrate in it, and the one to carry a learnt reward to, if any."""

    name: str
    shape: tuple[int, int]
    mdp: MDP
    reward: Array
    elsewhere: MDP | None = None


def named(name: str, *, horizon: int | None = None, discount: float = 0.9) -> World:
    """The world of a name: grid:5x5, maze:4x4, maze:4x4:3 (the wall is open in row 3) or torus:4x4.

    A grid pays 1 in its last cell, -1 in the middle and 0.5 at the end of the first row; a maze 3 at the right of row
    1; a torus 1 in its first cell. A maze is carried to one whose wall is open at the other end.

    Raises:
        ConfigError: the name is none of these.
    """
    found = _NAME.fullmatch(name)
    if found is None or (found["gap"] and found["kind"] != "maze"):
        raise ConfigError(
            f"environment is {name!r}; expected grid:ROWSxCOLUMNS, torus:ROWSxCOLUMNS, maze:ROWSxCOLUMNS or "
            "maze:ROWSxCOLUMNS:GAP. Type: --environment maze:4x4:3"
        )
    rows, columns, gap = int(found["rows"]), int(found["columns"]), int(found["gap"] or 0)
    if min(rows, columns) < 2 or gap >= rows:
        raise ConfigError(f"environment is {name!r}; expected 2 rows and columns or more, and a gap in one of the rows")
    last = rows * columns - 1
    paid = {last: 1.0, last // 2: -1.0, columns - 1: 0.5} if found["kind"] == "grid" else {0: 1.0}
    elsewhere = None
    if found["kind"] == "maze":
        mdp, paid = maze(gap, rows=rows, columns=columns), {2 * columns - 1: 3.0}
        other = 0 if gap >= rows / 2 else rows - 1
        elsewhere = replace(maze(other, rows=rows, columns=columns), horizon=horizon, discount=discount)
    else:
        mdp = (grid if found["kind"] == "grid" else torus)(rows, columns, discount=0.9)
    mdp = replace(mdp, horizon=horizon, discount=discount)
    return World(name=name, shape=(rows, columns), mdp=mdp, reward=cells_reward(mdp, paid), elsewhere=elsewhere)


def _names(rows: int, columns: int) -> tuple[str, ...]:
    return tuple(f"({row}, {column})" for row in range(rows) for column in range(columns))


def _first(cells: int, start: int | Sequence[int] | None) -> Array:
    if start is None:
        return np.full(cells, 1.0 / cells)
    found = np.zeros(cells)
    found[start] = 1.0
    return found / found.sum()
