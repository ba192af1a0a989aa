"""The components of a reward in the report: what each paid, what it was worth, and what it goes with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Block, Figure, Section, Table, show_number
from prefrl.evaluate.run_folder import RunData
from prefrl.evaluate.source_metrics import sources

_COLUMNS = (
    *("source", "mean, first → last", "std", "lowest", "highest", "not scored"),
    *("share of the advantage", "with the reward", "with length", "with the audit"),
)
_LEAD = (
    "Totals before they are normalised, clipped and weighted. The share is that of the variance of the advantage, so "
    "shares sum to 100 %, and a negative one works against the others. What follows are correlations among answers to "
    "the same prompt."
)


def source_sections(data: RunData, *, title: str = "Reward sources", phase: str = "train") -> list[Block]:
    """A table of all components and a figure of their shares; nothing for a reward of one piece."""
    names = sources(data, phase)
    if not names:
        return []
    rows = [_row(data, name, phase) for name in names]
    caption = "Means over all steps; lowest and highest of all answers."
    return [Section(title, [*_shares_figure(data, names, phase), Table(_COLUMNS, rows, caption)], _LEAD)]


def _row(data: RunData, name: str, phase: str) -> tuple[Any, ...]:
    def values(key: str) -> list[float]:
        return [v for v in data.series(f"source/{name}/{key}", phase)[1] if math.isfinite(v)]

    means, errors, share = values("mean"), values("errors"), values("share")
    change = f"{show_number(means[0])} → {show_number(means[-1])}" if means else None
    return (
        name,
        change,
        _mean(values("std")),
        min(values("min"), default=None),
        max(values("max"), default=None),
        f"{sum(errors) / len(errors):.1%}" if errors else None,
        f"{sum(share) / len(share):.0%}" if share else None,
        *(_mean(values(key)) for key in ("corr_total", "corr_length", "corr_audit")),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _shares_figure(data: RunData, names: Sequence[str], phase: str) -> list[Figure]:
    lines = {name: data.series(f"source/{name}/share", phase) for name in names}
    drawn = {name: line for name, line in lines.items() if len(line[0]) > 1}
    if not drawn:
        return []
    caption = "Of the variance of the advantage. One source near 100 % makes the weights of the others meaningless."
    return [Figure(figures.curves(drawn, percent=True), "Who decides the advantage", caption)]
