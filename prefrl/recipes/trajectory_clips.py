"""Fragments as clips that people can look at: pictures where a state can be drawn, and its numbers as curves.

Pictures are drawn from observations, so that no environment has to render, and look the same on every machine.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefrl.data.comparisons import Clip
from prefrl.types import Rollout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SECONDS = 0.05  # a step, where nothing says how long one takes
_INCHES, _DPI = 2.0, 110
_GROUND, _BODY, _PIVOT = "#8a8f98", "#c2603a", "#30343b"

Keep = Callable[[str, bytes], str]  # a picture of a type -> its name; see `Media.put`


@dataclass(frozen=True)
class View:
    """How an environment is shown.

    names    of the numbers of an observation; empty numbers them
    seconds  a step takes
    draw     a state onto empty axes; None where only numbers can be shown
    """

    names: tuple[str, ...] = ()
    seconds: float = SECONDS
    draw: Callable[[Axes, Sequence[float]], None] | None = None


def clip_of(fragment: Rollout, view: View, keep: Keep | None = None) -> Clip:
    """The clip of a fragment: one state and, with `keep` and a way to draw it, one picture for every step.

    Args:
        fragment: with observations.
        view: of its environment.
        keep: puts a picture into a store and says its name; None draws none.
    """
    assert fragment.observations is not None, "a fragment has observations"
    states = fragment.observations[: len(fragment.completion_ids)].tolist()
    names = view.names if len(view.names) == len(states[0]) else ()
    frames = () if keep is None or view.draw is None else tuple(keep("image/png", p) for p in pictures(states, view))
    shown = tuple(tuple(float(f"{value:.4g}") for value in state) for state in states)
    return Clip(frames=frames, states=shown, names=names, seconds=view.seconds)


def pictures(states: Sequence[Sequence[float]], view: View) -> Iterator[bytes]:
    """Every state as a PNG, drawn on one canvas."""
    from matplotlib.figure import Figure

    assert view.draw is not None, "asked for only where it can be drawn"
    figure = Figure(figsize=(_INCHES, _INCHES), dpi=_DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    for state in states:
        axes.clear()
        axes.set_axis_off()
        axes.set_aspect("equal")
        view.draw(axes, state)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        yield buffer.getvalue()


def _pendulum(axes: Axes, state: Sequence[float]) -> None:
    cos, sin = state[0], state[1]
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
    axes.plot([0.0, 0.0], [0.0, 1.1], color=_GROUND, lw=0.8, ls=":")
    axes.plot([0.0, -sin], [0.0, cos], color=_BODY, lw=7.0, solid_capstyle="round")
    axes.plot([0.0], [0.0], "o", color=_PIVOT, markersize=5.0)


def _cart_pole(axes: Axes, state: Sequence[float]) -> None:
    x, angle = state[0], state[2]
    axes.set(xlim=(-2.6, 2.6), ylim=(-1.4, 1.8))
    axes.plot([-2.4, 2.4], [0.0, 0.0], color=_GROUND, lw=1.0)
    for end in (-2.4, 2.4):
        axes.plot([end, end], [-0.1, 0.1], color=_GROUND, lw=1.0)
    axes.plot([x - 0.3, x + 0.3], [0.0, 0.0], color=_PIVOT, lw=9.0, solid_capstyle="butt")
    axes.plot([x, x + math.sin(angle)], [0.1, 0.1 + math.cos(angle)], color=_BODY, lw=5.0, solid_capstyle="round")


_VIEWS = {
    "Pendulum-v1": View(("cosine", "sine", "speed"), 0.05, _pendulum),
    "CartPole-v1": View(("position", "speed", "angle", "turning"), 0.02, _cart_pole),
}


def view_of(environment: str) -> View:
    """How an environment is shown; one that is not known by its numbers, and as long a step as it says."""
    return _VIEWS.get(environment) or View(seconds=_seconds(environment))


def _seconds(environment: str) -> float:
    """How long a step takes, as the environment's picture rate says."""
    from prefrl.errors import ConfigError
    from prefrl.rollout.gym import require_gymnasium

    gymnasium: Any = require_gymnasium()
    try:
        rate = gymnasium.spec(environment).make(disable_env_checker=True).metadata.get("render_fps")
    except (gymnasium.error.Error, ImportError, ConfigError):
        return SECONDS
    return 1.0 / rate if rate else SECONDS
