"""Manage, Quality: agreement, reliability and behaviour of those who label, with intervals."""

from __future__ import annotations

import gradio as gr

from annotate.manage import parts
from annotate.studio import Studio
from prefrl.evaluate.annotators import AnnotatorReport, annotator_report
from prefrl.evaluate.behaviour import Thresholds

MOST_NAMES = 24  # in the table of every two people


class Quality:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def show(self, request: gr.Request, gold: float, speed: float, level: float) -> str:
        """The report at these thresholds."""
        self._studio.person_of(request)
        with parts.plainly():
            thresholds = Thresholds(gold=gold / 100, speed=speed, level=level / 100)
            return self._page(self.report(thresholds), thresholds)

    def report(self, thresholds: Thresholds) -> AnnotatorReport:
        """Figures of all labels that count."""
        store = self._studio.store
        answers = {id: known.outcome for id, known in store.gold().items()}
        return annotator_report(store.labels(), answers, store.settings().strengths, thresholds)

    def _page(self, report: AnnotatorReport, thresholds: Thresholds) -> str:
        busiest = sorted(report.people, key=lambda person: -person.labels)[:MOST_NAMES]
        return parts.fragment(
            "quality",
            report=report,
            thresholds=thresholds,
            concerned=[person for person in report.people if person.concerns],
            names=sorted(person.name for person in busiest),
        )


def build(studio: Studio) -> None:
    """Draw the tab."""
    handlers, usual = Quality(studio), Thresholds()
    with gr.Row():
        gold = gr.Slider(
            50, 95, 100 * usual.gold, step=5, label="Known answers", info="least share in percent that passes"
        )
        speed = gr.Slider(1, 5, usual.speed, step=0.5, label="Speed", info="robust deviations that are remarkable")
        level = gr.Slider(
            0.5, 10, 100 * usual.level, step=0.5, label="Chance", info="in percent, of a remark on nobody"
        )
        refresh = parts.button("Refresh")
    shown = parts.view()
    inputs = [gold, speed, level]
    parts.on_open(handlers.show, inputs, shown)
    gr.on(
        [refresh.click, gold.release, speed.release, level.release],
        handlers.show,
        inputs,
        shown,
        api_visibility="private",
    )
