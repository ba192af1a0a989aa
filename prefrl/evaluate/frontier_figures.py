"""Figures and the report's section on over-optimisation: proxy and gold reward against KL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Block, Figure, Section, Table
from prefrl.evaluate.frontier_metrics import frontiers
from prefrl.evaluate.overoptimisation import Estimate, Fit, Frontier
from prefrl.evaluate.run_folder import RunData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

_CURVE_POINTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Rewards against KL and, dotted, the curve fitted to them; dashed where they are what was optimized."""

    kls: Sequence[float]
    rewards: Sequence[Estimate]
    curve: Callable[[float], float] | None = None
    dashed: bool = False


def rewards_over_kl(lines: Mapping[str, Line], *, ylabel: str = "reward", title: str = "") -> MatplotlibFigure:
    """Lines over KL with their 95% intervals as bands."""

    def draw(axes: Axes) -> None:
        for index, (name, line) in enumerate(lines.items()):
            colour, dash = figures.PALETTE[index % len(figures.PALETTE)], "--" if line.dashed else "-"
            low, high = [r.low for r in line.rewards], [r.high for r in line.rewards]
            axes.fill_between(line.kls, low, high, color=colour, alpha=0.13, linewidth=0)
            means = [r.mean for r in line.rewards]
            axes.plot(line.kls, means, dash, color=colour, lw=1.5, marker="o", markersize=3.0, label=name)
            if line.curve is not None:
                places = [max(line.kls) * i / _CURVE_POINTS for i in range(_CURVE_POINTS + 1)]
                axes.plot(places, [line.curve(kl) for kl in places], ":", color=figures.INK, lw=1.1, zorder=3)
        figures.legend(axes)

    return figures.plot(draw, xlabel="KL to the start (nats per answer)", ylabel=ylabel, title=title, grid="both")


def proxy_and_gold(frontier: Frontier, *, ylabel: str = "", title: str = "") -> MatplotlibFigure:
    """Gains of both over the start, with fitted curves.

    Both are in standard deviations over the start's answers, so that they can share an axis whatever their units; as
    they are where a standard deviation is not known or 0.
    """
    known = all(std > 0 for std in frontier.stds)
    units = frontier.stds if known else (1.0, 1.0)
    lines = {
        name: _line(frontier, side, unit, dashed=side == "proxy")
        for name, side, unit in zip(("reward (proxy)", frontier.gold), ("proxy", "gold"), units, strict=True)
    }
    return rewards_over_kl(lines, ylabel=ylabel or ("gain (std of the start)" if known else "gain"), title=title)


def golds(each: Mapping[str, Frontier], *, ylabel: str = "gold reward", title: str = "") -> MatplotlibFigure:
    """The same gold measure when different proxies are optimized."""
    lines = {name: Line(kls=_kls(f), rewards=[p.gold for p in f.points]) for name, f in each.items()}
    return rewards_over_kl(lines, ylabel=ylabel, title=title)


def overoptimisation_sections(data: RunData) -> list[Block]:
    """One section for every frontier of the run together; nothing for a run without an audit."""
    blocks: list[Block] = []
    found = frontiers(data)
    for name, frontier in found.items():
        title = f"Reward and {frontier.gold} against distance"
        caption = "Dashed: what is optimized. Solid: what nothing optimizes. Dotted: fitted curves."
        blocks.append(Figure(proxy_and_gold(frontier), title if len(found) == 1 else f"{title} ({name})", caption))
        blocks.append(
            Table(frontier.columns, frontier.rows(), f"{name}. Means; 95% intervals over prompts in brackets.")
        )
        fits = [("reward" if side == "proxy" else frontier.gold, str(fit)) for side, fit in frontier.fits.items()]
        blocks.append(Table(("gain over the start", "fitted with d = sqrt(KL)"), fits))
    if not blocks:
        return []
    lead = (
        "The reward that is optimized always rises. Whether it still means anything is told by the measure that is "
        "not: where the two part, more optimization buys nothing."
    )
    return [Section("Over-optimisation", blocks, lead)]


def _line(frontier: Frontier, side: str, unit: float, *, dashed: bool) -> Line:
    found: list[Estimate] = [getattr(point, side) for point in frontier.points]
    start, fit = found[0].mean, frontier.fits[side]

    def gain(value: float) -> float:
        return (value - start) / unit

    def curve(kl: float) -> float:
        return fit.gain(kl) / unit if isinstance(fit, Fit) else math.nan

    gains = [Estimate(gain(r.mean), gain(r.low), gain(r.high)) for r in found]
    return Line(kls=_kls(frontier), rewards=gains, curve=curve if isinstance(fit, Fit) else None, dashed=dashed)


def _kls(frontier: Frontier) -> list[float]:
    return [point.kl for point in frontier.points]
