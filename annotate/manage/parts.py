"""What the tabs of Manage are made of: fragments of HTML from templates, and how their buttons reach Python."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
import jinja2
from gradio.context import Context

from prefrl.data.store.texts import storable
from prefrl.errors import PrefrlError

ASSETS = Path(__file__).parents[1] / "assets"
_STYLES = '<link rel="stylesheet" href="/assets/manage.css">'


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a button in a fragment sends.

    action  what it is for
    id      what it is about
    ids     what is ticked
    fields  what was typed beside it, by name
    """

    action: str
    id: str = ""
    ids: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, event: gr.EventData) -> Sent:
        """The message of an event; whatever is missing, or of another type than ours, is empty."""
        given = event._data if isinstance(event._data, dict) else {}
        ids, fields = given.get("ids"), given.get("fields")
        return cls(
            action=str(given.get("action", "")),
            id=str(given.get("id", "")),
            ids=tuple(map(str, ids)) if isinstance(ids, list) else (),
            fields={str(k): str(v) for k, v in fields.items()} if isinstance(fields, dict) else {},
        )


def fragment(name: str, **given: Any) -> str:
    """A template as HTML; whatever it is given is escaped."""
    return storable(_templates().get_template(f"{name}.html.j2").render(now=time.time(), **given))


def view(value: str = "", **options: Any) -> gr.HTML:
    """A place for a fragment. Its elements with `data-action` send a `Sent` by the event submit."""
    script = (ASSETS / "manage.js").read_text(encoding="utf-8")
    return gr.HTML(value, js_on_load=script, head=_STYLES, apply_default_css=False, elem_classes="pm-view", **options)


def button(words: str, **options: Any) -> gr.Button:
    """A button beside fields, on their lower edge."""
    options.setdefault("min_width", 140)
    return gr.Button(words, size="md", scale=0, elem_classes="pm-end", **options)


def note(text: str, tone: str = "") -> str:
    """A line of text that says what happened, or why there is nothing."""
    return fragment("note", text=text, tone=tone)


def on_open(fn: Callable[..., Any], inputs: Sequence[Any] | None, outputs: Any, *, first: bool = False) -> None:
    """Call a function when the tab that is being built is opened; `first` of the tab that a page begins with."""
    tab, page = Context.block, Context.root_block
    triggers = [tab.select] if isinstance(tab, gr.Tab) else []
    if page is not None and (first or not triggers):
        triggers.append(page.load)
    gr.on(triggers, fn, inputs, outputs, show_progress="hidden", api_visibility="private")


def on_press(shown: gr.HTML, fn: Callable[..., Any], inputs: Any, outputs: Any) -> None:
    """Call a function when a button within a fragment is pressed."""
    shown.submit(fn, inputs, outputs, show_progress="hidden", api_visibility="private")


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Show errors that a person can do something about; all others are defects and stay what they are."""
    try:
        yield
    except PrefrlError as error:
        raise gr.Error(str(error), print_exception=False) from error


def ago(seconds: float) -> str:
    """A time span in words, of one unit."""
    for unit, size in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "less than a minute"


def percent(value: float | None, digits: int = 0) -> str:
    """A share in percent; a dash where there is none."""
    return "\N{EN DASH}" if value is None or not math.isfinite(value) else f"{value:.{digits}%}"


def place(value: float, low: float, high: float) -> float:
    """Where a value stands between two others, in percent, and at the nearer one of them outside."""
    return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 2)


def _number(value: float | None, digits: int = 2) -> str:
    return "\N{EN DASH}" if value is None or not math.isfinite(value) else f"{value:z.{digits}f}"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("annotate", "manage/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"ago": ago, "percent": percent, "number": _number, "clock": _clock, "place": place}
    return environment
