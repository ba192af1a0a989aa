"""Manage, Overview: how far the project is, how fast labels come in, and from whom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import gradio as gr

from annotate.manage import parts
from annotate.manage.pace import DAY, HOUR, Pace, Tally, by_kind, columns, pace, tally
from annotate.studio import Studio
from prefrl.data.comparisons import Label
from prefrl.data.store.texts import epoch as seconds_of


class Span(NamedTuple):
    """A time span, and the columns that it is shown in."""

    words: str
    unit: str
    step: float
    columns: int


SPANS = {
    "Last day": Span("in the last day", "hour", HOUR, 24),
    "Two weeks": Span("in the last two weeks", "day", DAY, 14),
    "Quarter": Span("in the last thirteen weeks", "week", 7 * DAY, 13),
}
KINDS = {"All kinds": "", "Comparisons": "pair", "Steps": "steps", "Checks": "check"}


class Labeller(NamedTuple):
    """What one person did, and when last."""

    name: str
    labels: int
    skips: int
    last_day: int
    last: float


class Overview:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def show(self, request: gr.Request, span: str, kind: str) -> str:
        """The whole tab."""
        self._studio.person_of(request)
        with parts.plainly():
            return self._page(SPANS.get(span, SPANS["Last day"]), KINDS.get(kind, ""), time.time())

    def _page(self, span: Span, kind: str, now: float) -> str:
        store = self._studio.store
        states = {id: state for id, state in store.item_states(now).items() if not kind or state.kind == kind}
        labels = [label for label in store.labels() if label.item in states]
        times = [epoch(label) for label in labels if label.outcome != "skip"]
        standing, speed, people = tally(states.values()), pace(times, now), labellers(labels, now)
        shown = columns(times, now, step=span.step, count=span.columns)
        return parts.fragment(
            "overview",
            tally=standing,
            pace=speed,
            eta=eta(standing, speed),
            share=standing.given / standing.wanted if standing.wanted else 1.0,
            active=sum(now - person.last < 600 for person in people),
            flags=len(store.flags()),
            span=span,
            columns=shown,
            highest=max(count for _, count in shown),
            kinds=by_kind(states),
            people=people,
            most=max((person.labels for person in people), default=0),
        )


def build(studio: Studio) -> None:
    """Draw the tab."""
    page = Overview(studio)
    with gr.Row():
        span = gr.Radio(list(SPANS), value="Last day", label="Time", scale=2)
        kind = gr.Dropdown(list(KINDS), value="All kinds", label="Kind of item", scale=1)
        refresh = parts.button("Refresh")
    shown = parts.view()
    parts.on_open(page.show, [span, kind], shown, first=True)
    gr.on([refresh.click, span.change, kind.change], page.show, [span, kind], shown, api_visibility="private")


def labellers(labels: Sequence[Label], now: float) -> list[Labeller]:
    """What everybody did, whoever labelled last first."""
    found: dict[str, Labeller] = {}
    for label in labels:
        known, at = found.get(label.annotator, Labeller(label.annotator, 0, 0, 0, 0.0)), epoch(label)
        skip = label.outcome == "skip"
        found[label.annotator] = Labeller(
            known.name,
            known.labels + (not skip),
            known.skips + skip,
            known.last_day + (not skip and at > now - DAY),
            max(known.last, at),
        )
    return sorted(found.values(), key=lambda person: -person.last)


def eta(standing: Tally, speed: Pace) -> str:
    """How long it takes until all wanted labels are there, in words."""
    if not standing.left:
        return "done"
    return parts.ago(HOUR * standing.left / speed.per_hour) if speed.per_hour else "\N{EN DASH}"


def epoch(label: Label) -> float:
    """When a label came, in epoch seconds; 0 where it does not say."""
    return seconds_of(label.time)
