"""Grids as figures: what a reward pays in every cell, the walls, and where a policy goes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prefrl.evaluate.figures import GREY, INK, MUTED, PALETTE
from prefrl.rewards.inverse.tabular.mazes import MOVES
from prefrl.rewards.inverse.tabular.mdp import MDP, Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAINT = 0.02  # probability under which an arrow is left out
_LONG = 0.34  # cells, of the arrow of a certain action


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One grid to draw.

    shape    rows and columns
    reward   (S,), or (S, A) of which the mean under the policy is shown
    policy   (S, A), or (H, S, A) of which the first step is shown
    title    above it
    note     below it, muted
    share    in [0, 1], as a bar below; none where not given
    colour   of the bar
    marked   cells with a ring, such as the goal
    """

    mdp: MDP
    shape: tuple[int, int]
    reward: Array
    policy: Array
    title: str
    note: str = ""
    share: float | None = None
    colour: str = PALETTE[0]
    marked: Collection[int] = ()


def boards(some: Sequence[Board], *, width: float = 2.0) -> Figure:
    """Grids side by side."""
    from matplotlib.figure import Figure

    tall = any(board.share is not None for board in some)
    figure = Figure(figsize=(width * len(some), width * (1.42 if tall else 1.26)), layout="constrained")
    axes = figure.subplots(1, len(some), squeeze=False)[0]
    for board, at in zip(some, axes, strict=True):
        _draw(at, board)
    return figure


def _draw(axes: Axes, board: Board) -> None:
    from matplotlib.patches import Circle

    rows, columns = board.shape
    policy = board.policy[0] if board.policy.ndim == 3 else board.policy
    paid = (policy * board.reward).sum(1) if board.reward.ndim == 2 else board.reward
    _cells(axes, paid.reshape(rows, columns))
    _walls(axes, board.mdp, rows, columns)
    for cell in board.marked:
        centre = (cell % columns + 0.5, cell // columns + 0.5)
        axes.add_patch(Circle(centre, 0.38, fill=False, edgecolor=PALETTE[3], linewidth=1.2, zorder=3))
    _arrows(axes, policy, board.mdp, columns)
    axes.text(0, -0.16, board.title, fontsize=9, fontweight="bold", color=INK, va="bottom")
    low = rows + 0.12
    if board.share is not None:
        for length, colour in ((1.0, "#eef1f5"), (max(board.share, 0.006), board.colour)):
            axes.plot([0, columns * length], [low + 0.14] * 2, color=colour, linewidth=5, solid_capstyle="butt")
        low += 0.34
    if board.note:
        axes.text(0, low, board.note, fontsize=8, color=MUTED, va="top")
        low += 0.5
    axes.set(xlim=(-0.06, columns + 0.06), ylim=(low, -0.45), aspect="equal")
    axes.set_axis_off()


def _cells(axes: Axes, paid: Array) -> None:
    """Blue what pays more than the median cell, orange what pays less; differences under 1e-3 are faint."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    away = paid - np.median(paid)
    most = max(float(np.abs(away).max()), 1e-3)
    for (row, column), value in np.ndenumerate(away):
        strength = 0.62 * abs(float(value)) / most
        tint = np.array(to_rgb(PALETTE[0] if value > 0 else PALETTE[1]))
        face = tuple((1.0 - strength) * np.array(to_rgb("#f6f8fb")) + strength * tint)
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=face, edgecolor="white", linewidth=1.5))


def _walls(axes: Axes, mdp: MDP, rows: int, columns: int) -> None:
    """Lines where a move to a neighbour never gets there, and around it all."""
    right, down = list(MOVES).index("right"), list(MOVES).index("down")
    for cell in range(rows * columns):
        row, column = divmod(cell, columns)
        if column + 1 < columns and not mdp.transitions[cell, right, cell + 1]:
            axes.plot([column + 1] * 2, [row, row + 1], color=INK, linewidth=3.5, solid_capstyle="butt", zorder=3)
        if row + 1 < rows and not mdp.transitions[cell, down, cell + columns]:
            axes.plot([column, column + 1], [row + 1] * 2, color=INK, linewidth=3.5, solid_capstyle="butt", zorder=3)
    axes.plot([0, columns, columns, 0, 0], [0, 0, rows, rows, 0], color=GREY, linewidth=1.0, zorder=2)


def _arrows(axes: Axes, policy: Array, mdp: MDP, columns: int) -> None:
    """One arrow an action, as long as it is likely; faint ones are left out."""
    for cell, chances in enumerate(policy):
        if mdp.terminal[cell]:
            continue
        row, column = divmod(cell, columns)
        for (down, right), chance in zip(MOVES.values(), chances.tolist(), strict=False):
            if chance < _FAINT or (down, right) == (0, 0):
                continue
            length = _LONG * chance
            axes.annotate(
                "",
                xy=(column + 0.5 + right * (0.08 + length), row + 0.5 + down * (0.08 + length)),
                xytext=(column + 0.5, row + 0.5),
                arrowprops={
                    "arrowstyle": f"-|>,head_length={0.14 + 0.24 * chance:.3f},head_width={0.08 + 0.15 * chance:.3f}",
                    "color": INK,
                    "alpha": 0.25 + 0.75 * chance,
                    "linewidth": 0.5 + 0.9 * chance,
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
                zorder=4,
            )
