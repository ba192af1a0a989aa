"""Figures of runs and evaluations: plain lists in, a matplotlib `Figure` out.

Nothing touches pyplot or global settings. Colours are told apart by colour-blind readers and in grey;
an SVG has the font of the page it is shown on, and `for_dark_pages` its colours.
"""

from __future__ import annotations

import base64
import io
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prefrl.evaluate.files import writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Paul Tol's vibrant scheme, reordered; each with its counterpart on a dark page.
PALETTE = ("#0077bb", "#ee7733", "#009988", "#cc3377", "#33bbee", "#8866cc", "#887722")
INK, MUTED, GRID, GREY = "#1d2433", "#667086", "#e3e7ee", "#a9b1bf"
_DARK = {
    "#0077bb": "#58b4f0",
    "#ee7733": "#ff9b62",
    "#009988": "#3fcfbd",
    "#cc3377": "#ff7fb4",
    "#33bbee": "#86dcff",
    "#8866cc": "#b9a1f2",
    "#887722": "#d3c15c",
    INK: "#e8ebf1",
    MUTED: "#9aa4b6",
    GRID: "#2b3342",
    GREY: "#6b7688",
}
_FONT = "DejaVu Sans"  # matplotlib brings it; pages replace it by their own
_PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_STYLE: dict[str, Any] = {
    "font.family": _FONT,
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "prefrl",
}
_SIZE = (4.0, 2.5)  # inches: text stays readable when a phone shows the figure at its full width
_MARKERS_UP_TO = 15  # points that are drawn one by one
_LEGEND_CHARACTERS = 54  # that a row of the legend holds
_RASTER_ABOVE = 2000  # points that would make an SVG heavy

Curve = tuple[Sequence[float], Sequence[float | None]]


def curves(
    lines: Mapping[str, Curve],
    *,
    bands: Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]] | None = None,
    smooth: float = 0.6,
    percent: bool = False,
    xlabel: str = "step",
    ylabel: str = "",
    title: str = "",
) -> Figure:
    """Values over steps, one line per name; gaps where a value is None or NaN.

    Args:
        lines: name -> (steps, values).
        bands: name -> (low, high), drawn behind the line of that name.
        smooth: weight of the past in a moving average, drawn over the faint raw line when there are
            more than 15 points; 0 draws the raw line alone.
        percent: values are shares, shown in percent.
        xlabel, ylabel, title: texts.
    """

    def draw(axes: Axes) -> None:
        for index, (name, (steps, values)) in enumerate(lines.items()):
            colour, numbers = PALETTE[index % len(PALETTE)], _floats(values)
            if bands and name in bands:
                low, high = (_smoothed_if_long(_floats(edge), smooth) for edge in bands[name])
                axes.fill_between(steps, low, high, color=colour, alpha=0.13, linewidth=0)
            if smooth > 0 and len(numbers) > _MARKERS_UP_TO:
                axes.plot(steps, numbers, color=colour, alpha=0.3, linewidth=0.8)
                numbers = _smoothed_if_long(numbers, smooth)
            marker = "o" if len(numbers) <= _MARKERS_UP_TO else ""
            dash = "--" if index >= len(PALETTE) else "-"  # a colour's second turn
            axes.plot(steps, numbers, dash, color=colour, lw=1.7, marker=marker, markersize=3.2, label=name)
        _integer_steps(axes)
        if len(lines) > 1:
            legend(axes)

    return plot(draw, xlabel=xlabel, ylabel=ylabel, title=title, percent=percent)


def stacked(
    steps: Sequence[float],
    shares: Mapping[str, Sequence[float | None]],
    *,
    colours: Sequence[str] = PALETTE,
    ylabel: str = "",
    title: str = "",
) -> Figure:
    """Shares of a whole over steps, stacked from the bottom in the order given."""

    def draw(axes: Axes) -> None:
        places = [*steps, steps[-1] + 1] if len(steps) == 1 else steps  # an area needs two points
        values = [_floats(column) * (2 if len(steps) == 1 else 1) for column in shares.values()]
        axes.stackplot(places, values, labels=list(shares), colors=list(colours), alpha=0.85, linewidth=0)
        axes.set_xlim(min(places), max(places))
        axes.set_ylim(0, 1)
        _integer_steps(axes)
        legend(axes)

    return plot(draw, xlabel="step", ylabel=ylabel, title=title, percent=True)


def histogram(groups: Mapping[str, Sequence[float]], *, bins: int = 30, xlabel: str = "", title: str = "") -> Figure:
    """Distributions on common bins, as outlines over a light fill."""

    def draw(axes: Axes) -> None:
        import numpy as np

        finite = [v for values in groups.values() for v in values if math.isfinite(v)]
        edges = [float(e) for e in np.histogram_bin_edges(finite or [0.0, 1.0], bins)]
        for index, (name, values) in enumerate(groups.items()):
            colour = PALETTE[index % len(PALETTE)]
            kept = [v for v in values if math.isfinite(v)]
            lost = f" ({len(values) - len(kept)} not finite)" if len(kept) < len(values) else ""
            axes.hist(kept, edges, color=colour, alpha=0.16, histtype="stepfilled")
            axes.hist(kept, edges, color=colour, linewidth=1.6, histtype="step", label=name + lost)
        _integer_counts(axes)
        _short_ticks(axes)
        legend(axes)

    return plot(draw, xlabel=xlabel, ylabel="count", title=title)


def calibration(
    predicted: Sequence[float],
    observed: Sequence[float],
    counts: Sequence[int],
    *,
    others: Mapping[str, Curve] | None = None,
    title: str = "",
) -> Figure:
    """Predicted probability against the share that held; a point's area grows with its count.

    `others` are further curves of (predicted, observed), drawn thin.
    """

    def draw(axes: Axes) -> None:
        most = max(counts, default=1)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label="perfect")
        for index, (name, (x, y)) in enumerate((others or {}).items(), start=1):
            axes.plot(x, _floats(y), color=PALETTE[index], linewidth=1.2, marker="o", markersize=2.5, label=name)
        axes.plot(predicted, observed, color=PALETTE[0], linewidth=1.5, label="this reward")
        axes.scatter(
            predicted,
            observed,
            [12 + 70 * n / most for n in counts],
            color=PALETTE[0],
            linewidths=0,
            zorder=3,
        )
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_major_formatter(_percent_formatter())
        legend(axes)

    return plot(
        draw,
        xlabel="predicted: first is preferred",
        ylabel="observed",
        title=title,
        percent=True,
        grid="both",
    )


def kl_reward(points: Mapping[str, Curve], *, ylabel: str = "reward", title: str = "") -> Figure:
    """Reward bought with distance from the reference: (KL, reward) points joined in the order given.

    The last point of each name is larger: where that policy stands now.
    """

    def draw(axes: Axes) -> None:
        for index, (name, (kl, reward)) in enumerate(points.items()):
            colour, values = PALETTE[index % len(PALETTE)], _floats(reward)
            many = len(values) > _RASTER_ABOVE
            axes.plot(kl, values, color=colour, alpha=0.3, linewidth=1.0, rasterized=many)
            axes.scatter(kl[:-1], values[:-1], 12, color=colour, alpha=0.55, linewidths=0, rasterized=many)
            axes.scatter(kl[-1:], values[-1:], 46, color=colour, linewidths=0, zorder=3, label=name)
        if len(points) > 1:
            legend(axes)

    return plot(draw, xlabel="KL to the reference (nats per answer)", ylabel=ylabel, title=title, grid="both")


def bars(
    labels: Sequence[str],
    values: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    *,
    reference: float | None = None,
    coloured: int = 1,
    percent: bool = True,
    xlabel: str = "",
    title: str = "",
) -> Figure:
    """Horizontal bars with intervals from the top, the first `coloured` in colour; `reference` is a dashed line."""

    def draw(axes: Axes) -> None:
        places = range(len(labels), 0, -1)
        colours = [PALETTE[0] if index < coloured else GREY for index in range(len(labels))]
        axes.barh(places, values, 0.56, color=colours, alpha=0.9)
        for place, (low, high) in zip(places, intervals, strict=True):
            axes.plot([low, high], [place, place], color=INK, linewidth=1.3)
        for place, value, (_, high) in zip(places, values, intervals, strict=True):
            text = f"{value:.0%}" if percent else f"{value:.3g}"
            axes.annotate(text, (max(value, high), place), (5, 0), textcoords="offset points", va="center")
        if reference is not None:
            axes.axvline(reference, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_yticks(list(places), [textwrap.fill(label, 24) for label in labels], color=INK)
        axes.margins(x=0.12)
        if percent:
            axes.set_xlim(0, 1.12)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
            axes.xaxis.set_major_formatter(_percent_formatter())

    height = max(1.5, 0.85 + 0.36 * len(labels))
    return plot(draw, xlabel=xlabel, title=title, size=(_SIZE[0], height), grid="x")


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Exponential moving average with the weight of the past, corrected for its start; skips NaN."""
    total = norm = 0.0
    result = []
    for value in values:
        if math.isfinite(value):
            total = weight * total + (1 - weight) * value
            norm = weight * norm + (1 - weight)
        result.append(total / norm if math.isfinite(value) else math.nan)
    return result


def _smoothed_if_long(values: list[float], weight: float) -> list[float]:
    return smoothed(values, weight) if len(values) > _MARKERS_UP_TO else values


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as .svg, or as .png at twice the screen's resolution on white.

    Raises:
        RunError: the file could not be written.
    """
    path = Path(path)
    with writing(path):
        if path.suffix == ".svg":
            path.write_text(to_svg(figure), encoding="utf-8")
        else:
            with _style():
                figure.savefig(path, dpi=200, facecolor="white")
    return path


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element on a transparent ground, with the reader's own font."""
    buffer = io.StringIO()
    with _style():
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(f"'{_FONT}'", _PAGE_FONT)


def for_dark_pages(svg: str) -> str:
    """The SVG of one of these figures in the colours of a dark page."""
    return re.sub("|".join(_DARK), lambda found: _DARK[found[0]], svg)


def svg_data_uri(svg: str) -> str:
    """An SVG as a `data:` address."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def to_data_uri(figure: Figure, *, dark: bool = False) -> str:
    """The figure as a `data:` address of an SVG image."""
    svg = to_svg(figure)
    return svg_data_uri(for_dark_pages(svg) if dark else svg)


def _style() -> AbstractContextManager[None]:
    from matplotlib import rc_context

    return rc_context(_STYLE)  # type: ignore[arg-type]


def plot(
    draw: Callable[[Axes], None],
    *,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    percent: bool = False,
    size: tuple[float, float] = _SIZE,
    grid: Literal["x", "y", "both"] = "y",
) -> Figure:
    """One pair of axes in the style of all figures; `draw` fills them."""
    from matplotlib.figure import Figure

    with _style():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.grid(True, axis=grid)
        draw(axes)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.set_title(title, color=INK)
        if percent:
            axes.yaxis.set_major_formatter(_percent_formatter())
    return figure


def legend(axes: Axes) -> None:
    """Above the plot, in as many columns as fit; the figure grows with the rows."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [_shortened(label, _LEGEND_CHARACTERS - 5) for label in labels]
    widest = max((len(label) for label in labels), default=0) + 5
    columns = max(1, min(len(labels), _LEGEND_CHARACTERS // widest))
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.2,
        columnspacing=1.2,
        labelcolor=INK,
    )
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.set_figheight(_SIZE[1] + 0.18 * (math.ceil(len(labels) / columns) - 1))


def _shortened(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _integer_steps(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))


def _integer_counts(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))


def _short_ticks(axes: Axes) -> None:
    """Few labels of few digits: those of very small and very large values have their power of ten beside the axis."""
    axes.locator_params(axis="x", nbins=6)
    axes.ticklabel_format(axis="x", scilimits=(-2, 4))


def _percent_formatter() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0, decimals=None)


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]
