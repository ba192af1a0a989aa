"""report.html: one file that needs no network, in light and dark, on a phone and on paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import (
    Answer,
    Block,
    Definitions,
    Details,
    Figure,
    Headline,
    Report,
    Sample,
    SamplesSideBySide,
    Section,
    Table,
    Text,
    Warnings,
    show,
    show_seconds,
)
from prefrl.evaluate.files import write_atomic, writing
from prefrl.evaluate.fitted_section import temperature_of
from prefrl.evaluate.quality_sections import quality_section
from prefrl.evaluate.run_folder import REPORT, RunData, RunFolder, read
from prefrl.evaluate.sections import (
    curve_sections,
    headline_figures,
    sample_sections,
    setup_sections,
    standard_sections,
)

if TYPE_CHECKING:
    from jinja2 import Template

    from prefrl.evaluate.reward_quality import RewardQuality

__all__ = [
    "Answer",
    "Definitions",
    "Details",
    "Figure",
    "Headline",
    "Report",
    "Sample",
    "SamplesSideBySide",
    "Section",
    "Table",
    "Text",
    "Warnings",
    "curve_sections",
    "headline_figures",
    "quality_section",
    "sample_sections",
    "setup_sections",
    "standard_sections",
    "write_report",
    "write_run_report",
]


@dataclass(frozen=True, slots=True)
class _Cell:
    """A table cell: its text, and whether it is a number."""

    text: str
    number: bool


def write_report(run: RunFolder | str | Path, report: Report | None = None) -> Path:
    """Write report.html into a run folder, and its figures as SVG into figures/.

    Args:
        run: the run or its folder.
        report: what to show; the standard sections when not given.

    Raises:
        RunError: there is no run there, or it cannot be written.
    """
    data = read(run.path if isinstance(run, RunFolder) else run)
    report = report or standard_sections(data)
    pictures = {id(block): figures.to_svg(block.figure) for block in _figures(report.blocks)}
    _save_figures(data.path / "figures", report.blocks, pictures)
    page = data.path / REPORT
    write_atomic(page, _render(report, data, pictures))
    return page


def write_run_report(run: RunFolder | str | Path, quality: RewardQuality | None = None) -> Path:
    """Write the standard report of a run; with a section on its reward model where its quality is given.

    Where the summary has a fitted temperature, the calibration is shown as it was before, too.
    """
    data = read(run.path if isinstance(run, RunFolder) else run)
    if quality is None:
        return write_report(run, standard_sections(data))
    summary = data.status.get("summary") or {}
    temperature = temperature_of(summary)
    before = quality.at_temperature(1.0 / temperature) if temperature != 1.0 else None
    accuracy, which = quality.accuracy, str(summary.get("measured_on", "")).replace("held out", "held-out")
    pairs = f"{accuracy.total} {which} pairs".replace("  ", " ")
    report = standard_sections(
        data,
        title=f"{accuracy.rate:.1%} of {pairs} ranked right",
        headline=[(f"of {pairs} right", f"{accuracy.rate:.1%}", "[{:.1%}, {:.1%}]".format(*accuracy.interval))],
        extra=[quality_section(quality, before=before)],
    )
    return write_report(run, report)


def _render(report: Report, data: RunData, pictures: Mapping[int, str]) -> str:
    sections = [block.title for block in report.blocks if isinstance(block, Section)]
    return _template().render(
        report=report,
        facts=_facts(data),
        folder=data.path.name,
        version=(data.environment.get("packages") or {}).get("prefrl"),
        light=lambda block: figures.svg_data_uri(pictures[id(block)]),
        dark=lambda block: figures.svg_data_uri(figures.for_dark_pages(pictures[id(block)])),
        sections=[(title, _slug(title)) for title in sections] if len(sections) > 1 else [],
    )


def _facts(data: RunData) -> list[str]:
    """The small line above the title."""
    facts = [f"{data.kind} run", data.state]
    try:
        started = datetime.fromisoformat(str(data.status.get("started")))
        facts.append(f"{started.day} {started:%B %Y}, {started:%H:%M} UTC")
    except ValueError:
        facts.append("start unknown")
    if (seconds := data.status.get("seconds")) is not None:
        facts.append(show_seconds(float(seconds)))
    return facts


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "kind": lambda block: type(block).__name__,
        "runs": _runs,
        "slug": _slug,
        "show": show,
        "paragraphs": lambda text: [p for p in re.split(r"\n\s*\n", text.strip()) if p],
        "cells": _cells,
    }
    return environment.get_template("report.html.j2")


def _runs(blocks: Sequence[Block]) -> list[list[Block]]:
    """Neighbouring figures together, so that they can share a grid; every other block alone."""
    runs: list[list[Block]] = []
    for block in blocks:
        if isinstance(block, Figure) and runs and isinstance(runs[-1][-1], Figure):
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs


def _cells(row: Iterable[Any]) -> list[_Cell]:
    return [_Cell(show(value), isinstance(value, int | float)) for value in row]


def _save_figures(folder: Path, blocks: Sequence[Block], pictures: Mapping[int, str]) -> None:
    with writing(folder):
        folder.mkdir(exist_ok=True)
    seen: Counter[str] = Counter()
    for block in _figures(blocks):
        name = _slug(block.title)
        seen[name] += 1
        number = f"-{seen[name]}" if seen[name] > 1 else ""
        write_atomic(folder / f"{name}{number}.svg", pictures[id(block)])


def _figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Section | Details):
            yield from _figures(block.blocks)


def _slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-") or "section"
