"""What a report is made of. Every text is escaped when the page is written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from prefrl.evaluate.files import to_plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


@dataclass(frozen=True, slots=True)
class Headline:
    """The figures to see first: (label, value, note) each."""

    figures: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text; an empty line starts a paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Warnings:
    """Alarms a reader must not miss; shows nothing when there are none."""

    messages: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names. Numbers are rounded and set to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A matplotlib figure with a title and a sentence that says how to read it."""

    figure: MatplotlibFigure
    title: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one policy answered.

    reward  None when it could not be scored, and `error` says why
    length  in tokens
    kl      nats per answer between this policy and the reference
    badge   a few words, such as preferred; `won` sets it in the colour of success
    """

    policy: str
    text: str
    reward: float | None = None
    error: str = ""
    length: int | None = None
    kl: float | None = None
    stop: str = ""
    won: bool = False
    badge: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and the answers to compare."""

    prompt: str
    answers: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class SamplesSideBySide:
    """Answers next to each other, a card per prompt."""

    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Definitions:
    """Names and exact values, such as a configuration; nested mappings get dotted names."""

    items: Mapping[str, Any]

    def flat(self) -> list[tuple[str, str]]:
        """Dotted names, and values as YAML has them."""
        return [(name, _exact(value)) for name, value in flatten(self.items)]


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks behind a title that opens on a click."""

    title: str
    blocks: Sequence[Block]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading, with an optional sentence before them."""

    title: str
    blocks: Sequence[Block]
    lead: str = ""


Block: TypeAlias = Headline | Text | Warnings | Table | Figure | SamplesSideBySide | Definitions | Details | Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page: what happened in one line, in a few sentences, and then the blocks."""

    title: str
    lead: str = ""
    blocks: Sequence[Block] = field(default_factory=tuple)


def show(value: Any) -> str:
    """A value as a person reads it: four significant digits, separators of thousands, NaN by its name."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return show_number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {show(item)}" for key, item in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(f"{{{show(v)}}}" if isinstance(v, Mapping) else show(v) for v in value) or "none"
    return str(value)


def show_number(value: float) -> str:
    """Three or four significant digits; very small and very large numbers as powers of ten."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}" if size < 1e7 else f"{value:.3g}"
    if value == int(value):
        return str(int(value))
    return f"{value:.3g}" if size < 1 else f"{value:.4g}"


def show_seconds(seconds: float) -> str:
    """A duration in its two largest units."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def flatten(items: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values of nested mappings."""
    flat: list[tuple[str, Any]] = []
    for key, value in items.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat += flatten(value, f"{name}.")
        else:
            flat.append((name, value))
    return flat


def _exact(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    return json.dumps(to_plain(value, finite=False), ensure_ascii=False)
