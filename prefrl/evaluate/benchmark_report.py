"""The result of a benchmark as rows, as a table for the terminal, as JSON and as a section of the report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Block, Figure, Section, Table, Text
from prefrl.evaluate.rewardbench import Benchmark, Part
from prefrl.evaluate.shares import number, percent, percents, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure
    from rich.table import Table as RichTable

_INDENT = "\N{EM SPACE}"  # a page leaves out common spaces
COLUMNS = ("part", "prompts", "score", "95% interval", "weight")


def rows(benchmark: Benchmark) -> list[tuple[str, int, str, str, str]]:
    """Overall, then every part with its own parts below it."""
    found = [_row(benchmark.overall, 0)]
    for section in benchmark.sections:
        found += [_row(section, 1), *(_row(part, 2) for part in section.parts)]
    return found


def table(benchmark: Benchmark) -> RichTable:
    """The rows as a table for the terminal."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    caption = "\n".join(benchmark.notes) or None
    found = RichTable(COLUMNS[0], title=benchmark.overall.name, title_justify="left", caption=caption)
    found.caption_justify = "left"
    for name in COLUMNS[1:]:
        found.add_column(name, justify="right")
    for row in rows(benchmark):
        found.add_row(*(escape(str(cell)) for cell in row))
    return found


def to_dict(benchmark: Benchmark) -> dict[str, Any]:
    """The figures as JSON has them; a NaN is None."""
    found: dict[str, Any] = {
        "benchmark": benchmark.name,
        "overall": _part_dict(benchmark.overall),
        "sections": {part.name: _part_dict(part) for part in benchmark.sections},
        "notes": list(benchmark.notes),
    }
    if benchmark.ties is not None:
        names = ("score", "tied", "ref", "preferred", "hard", "margin")
        found["ties"] = plain({name: getattr(benchmark.ties, name) for name in names})
    return found


def benchmark_section(benchmark: Benchmark) -> Section:
    """Bars of the sections and of their subsets, the table, and what the Ties score is made of."""
    blocks: list[Block] = [_bars("Score by section", benchmark.sections)]
    blocks += [_bars(section.name, section.parts) for section in benchmark.sections if section.parts]
    blocks.append(Table(COLUMNS, rows(benchmark), "Parts of weight 0 are not in the score."))
    if (ties := benchmark.ties) is not None:
        cells = [
            ("tied", number(ties.tied), 0.3, "every right answer above every wrong one, several right ones"),
            ("ref", number(ties.ref), 0.3, "the same with one right answer"),
            ("preferred", number(ties.preferred), 0.2, "right and wrong further apart than the right ones"),
            ("hard", number(ties.hard), 0.2, "the same in both versions of the prompt"),
            ("margin", number(ties.margin), 0.01, "tanh of how much further"),
        ]
        blocks.append(Table(("Ties", "value", "weight", "meaning"), cells))
    if benchmark.notes:
        blocks.append(Text("\n\n".join(benchmark.notes)))
    return Section(benchmark.overall.name, blocks)


def _bars(title: str, parts: tuple[Part, ...]) -> Figure:
    known = [part for part in parts if math.isfinite(part.score)]
    drawn: MatplotlibFigure = figures.bars(
        [f"{part.name} ({part.total})" for part in known],
        [part.score for part in known],
        [part.interval if math.isfinite(part.variance) else (part.score, part.score) for part in known],
        coloured=len(known),
        xlabel="score",
    )
    return Figure(drawn, title, "With 95% intervals; in brackets the prompts.")


def _row(part: Part, depth: int) -> tuple[str, int, str, str, str]:
    interval = percents(part.interval) if math.isfinite(part.variance) else "-"
    lost = f" ({part.unscored} unscored)" if part.unscored else ""
    return f"{_INDENT * depth}{part.name}{lost}", part.total, percent(part.score), interval, f"{part.weight:g}"


def _part_dict(part: Part) -> dict[str, Any]:
    return {
        **plain({"score": part.score}),
        "interval": list(part.interval) if math.isfinite(part.variance) else None,
        "prompts": part.total,
        "unscored": part.unscored,
        "weight": part.weight,
        **({"subsets": {inner.name: _part_dict(inner) for inner in part.parts}} if part.parts else {}),
    }
