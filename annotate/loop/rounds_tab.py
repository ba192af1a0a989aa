"""The tab of the rounds: where a loop stands, and what to do next."""

from __future__ import annotations

from typing import Any

import gradio as gr

from annotate.loop.asking import pressed
from annotate.loop.draw import EMPTY, STYLE, overview
from annotate.loop.runs import Runs, runs_of
from annotate.studio import Studio
from prefrl.data.waiting import unanswered

EVERY = 2.0  # seconds between two looks


def build(studio: Studio) -> None:
    """Draw the tab."""
    runs = runs_of(studio)
    with gr.Row(elem_classes="loop-controls"):
        chosen = gr.Dropdown(label="Loop", choices=[], min_width=260, elem_id="loop-chosen")
        go_on = gr.Button("Go on", variant="primary", interactive=False, scale=0, min_width=110, elem_id="loop-go-on")
        cancel = gr.Button("Cancel", variant="stop", interactive=False, scale=0, min_width=110, elem_id="loop-cancel")
        automatic = gr.Checkbox(
            label="Go on by itself when the labels are in", container=False, min_width=300, elem_id="loop-automatic"
        )
    view = gr.HTML(STYLE + EMPTY, elem_id="loop-view", js_on_load=None)
    with gr.Accordion("What it prints", open=False):
        log = gr.Textbox(
            show_label=False, lines=14, max_lines=14, interactive=False, autoscroll=True, elem_id="loop-log"
        )
    known = gr.Textbox(visible=False)
    shown = [chosen, known, view, log, go_on, cancel]

    def look(name: str | None, names: str | None, request: gr.Request) -> list[Any]:
        studio.person_of(request)
        return _shown(runs, name, names or "")

    def choose(name: str | None, request: gr.Request) -> Any:
        studio.person_of(request)
        return runs.automatic(name) if name else True

    def continued(name: str | None, names: str | None, request: gr.Request) -> list[Any]:
        with pressed(studio, request) as by:
            runs.jobs.again(name or "", by=by)
        return _shown(runs, name, names or "")

    def cancelled(name: str | None, names: str | None, request: gr.Request) -> list[Any]:
        with pressed(studio, request) as by:
            runs.jobs.cancel(name or "", by=by)
        return _shown(runs, name, names or "")

    def switch(name: str | None, wanted: bool, request: gr.Request) -> None:
        with pressed(studio, request):
            runs.set_automatic(name or "", wanted)

    # What is pressed goes through the queue: without it Gradio shows no message of what cannot be done.
    loud: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    quiet = {**loud, "queue": False}
    gr.on(None, look, [chosen, known], shown, **quiet)
    gr.Timer(EVERY).tick(look, [chosen, known], shown, **quiet)
    chosen.change(choose, chosen, automatic, **quiet)
    automatic.input(switch, [chosen, automatic], None, **loud)
    go_on.click(continued, [chosen, known], shown, **loud)
    cancel.click(cancelled, [chosen, known], shown, **loud)


def _shown(runs: Runs, name: str | None, names: str) -> list[Any]:
    """Values of the tab: a run that has come since the last look is chosen, others stay."""
    loops = [job.folder for job in runs.newest() if job.kind == "loop"]
    listed = "\n".join(loops)
    menu: Any = gr.skip()
    if listed != names:
        fresh = next((loop for loop in loops if loop not in names.split("\n")), None)
        name = fresh or (name if name in loops else next(iter(loops), None))
        menu = gr.Dropdown(choices=loops, value=name)
    run = runs.run(name) if name else None
    if run is None:
        return [menu, listed, STYLE + EMPTY, "", gr.Button(interactive=False), gr.Button(interactive=False)]
    ids = [item.id for one in run.loop.rounds for item in one.asked] if run.loop else []
    missing = set(unanswered(runs.studio.store, ids)) if ids else set()
    drawn = overview(run, {id: id not in missing for id in ids}, runs.jobs.step(run.name))
    state = run.job.state
    return [
        menu,
        listed,
        drawn,
        runs.jobs.log(run.name),
        gr.Button(interactive=state in ("waiting", "failed", "cancelled")),
        gr.Button(interactive=state in ("running", "waiting")),
    ]
