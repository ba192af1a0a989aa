"""Small drawings in SVG, in the colours of the page; every one says in words what it shows."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

WIDTH = 320  # of a drawing, in its own units


def interval_bar(rate: float, low: float, high: float, *, label: str) -> str:
    """A share in [0, 1] with its interval on a line from 0 to 100 %, with a mark at one half."""
    x, left, right = (round(WIDTH * value, 1) for value in (rate, low, high))
    words = f"{label}: {rate:.0%}, interval {low:.0%} to {high:.0%}"
    return _svg(
        WIDTH,
        26,
        words,
        f'<line class="axis" x1="0" y1="13" x2="{WIDTH}" y2="13"/>'
        f'<line class="half" x1="{WIDTH / 2}" y1="3" x2="{WIDTH / 2}" y2="23"/>'
        f'<rect class="range" x="{left}" y="8" width="{max(2.0, right - left)}" height="10" rx="5"/>'
        f'<circle class="point" cx="{x}" cy="13" r="6"/>',
    )


def histogram(values: Mapping[str, Sequence[float]], *, most: float, bins: int = 16) -> str:
    """How often values in [0, most] occur, of several kinds on top of each other; empty without any.

    Args:
        values: by kind.
        most: end of the axis.
        bins: bars.
    """
    counts = {kind: _counted(found, most, bins) for kind, found in values.items() if found}
    if not counts:
        return ""
    tallest = max(sum(column) for column in zip(*counts.values(), strict=True))
    width, height = WIDTH / bins, 64
    bars = []
    floors = [0] * bins
    for place, column in enumerate(counts.values()):
        for at, count in enumerate(column):
            top, bottom = (height * (1 - n / tallest) for n in (floors[at] + count, floors[at]))
            floors[at] += count
            if count:
                bars.append(
                    f'<rect class="kind-{place}" x="{at * width + 1:.1f}" y="{top:.1f}" '
                    f'width="{width - 2:.1f}" height="{bottom - top:.1f}"/>'
                )
    words = ", ".join(f"{sum(column)} {kind}" for kind, column in counts.items())
    axis = f'<line class="axis" x1="0" y1="{height}" x2="{WIDTH}" y2="{height}"/>'
    ends = (
        f'<text x="0" y="{height + 14}">0</text><text x="{WIDTH}" y="{height + 14}" text-anchor="end">{most:.2f}</text>'
    )
    return _svg(WIDTH, height + 18, f"Uncertainty of the pairs: {words}", "".join(bars) + axis + ends)


def curve(points: Sequence[tuple[float, float, float]], *, total: int, label: str) -> str:
    """Shares with intervals (share, low, high) over the rounds 1, 2, ... of `total`, on an axis from 0 to 100 %."""
    width, height, left = 480, 150, 40
    step = (width - left - 20) / max(1, total - 1) if total > 1 else 0.0
    xs = [left + 10 + step * n for n in range(len(points))] if total > 1 else [left + (width - left) / 2]

    def y(value: float) -> float:
        return 10 + (height - 34) * (1 - value)

    grid = "".join(
        f'<line class="{"half" if share == 0.5 else "grid"}" x1="{left}" y1="{y(share):.1f}" x2="{width}" '
        f'y2="{y(share):.1f}"/><text x="{left - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0.0, 0.5, 1.0)
    )
    ticks = [left + 10 + step * n for n in range(total)] if total > 1 else xs
    names = "".join(
        f'<text x="{x:.1f}" y="{height - 4}" text-anchor="middle">{n}</text>' for n, x in enumerate(ticks, start=1)
    )
    around = [(x, y(high)) for x, (_, _, high) in zip(xs, points, strict=True)]
    around += [(x, y(low)) for x, (_, low, _) in reversed(list(zip(xs, points, strict=True)))]
    line = [(x, y(share)) for x, (share, _, _) in zip(xs, points, strict=True)]
    drawn = (
        f'<polygon class="band" points="{_path(around)}"/><polyline class="line" points="{_path(line)}"/>'
        if len(points) > 1
        else "".join(
            f'<line class="whisker" x1="{x}" y1="{a:.1f}" x2="{x}" y2="{b:.1f}"/>' for (x, a), (_, b) in [around]
        )
    )
    dots = "".join(f'<circle class="point" cx="{x:.1f}" cy="{at:.1f}" r="5"/>' for x, at in line)
    words = "; ".join(f"round {n}: {share:.0%}" for n, (share, _, _) in enumerate(points, start=1))
    return _svg(width, height, f"{label}: {words}", grid + names + drawn + dots)


def _counted(values: Sequence[float], most: float, bins: int) -> list[int]:
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, math.floor(bins * value / most)))] += 1
    return counts


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _svg(width: float, height: float, words: str, inside: str) -> str:
    said = html.escape(words)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{said}" class="loop-drawing">'
        f"<title>{said}</title>{inside}</svg>"
    )
