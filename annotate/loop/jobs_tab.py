"""The tab of single jobs: a reward model now, pairs to label, two policies compared; and everything that ran."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from annotate.loop.asking import allowed, pressed, sent
from annotate.loop.draw import STATES, STYLE
from annotate.loop.forms import PairsForm, RewardForm, default_name
from annotate.loop.results import result
from annotate.loop.runs import Runs, runs_of
from annotate.loop.start_tab import MODEL, PROMPTS, UPLOADED
from annotate.studio import Studio
from prefrl.data.importing.uploads import SUFFIXES
from prefrl.data.store import Job

EVERY = 3.0  # seconds between two looks
KINDS = {"loop": "loop", "reward": "reward model", "generate": "pairs of answers"}
Fields = dict[str, Any]


def build(studio: Studio) -> None:
    """Draw the tab."""
    runs = runs_of(studio)
    gr.Markdown("# Single jobs")
    with gr.Tabs():
        with gr.Tab("Train a reward model"):
            _reward(studio, runs)
        with gr.Tab("Generate pairs"):
            _generate(studio, runs)
        with gr.Tab("Compare two policies"):
            _compare(studio, runs)
    gr.Markdown("## Everything that ran")
    with gr.Row(elem_classes="loop-controls"):
        chosen = gr.Dropdown(label="Run", choices=[], min_width=260, elem_id="jobs-chosen")
        cancel = gr.Button("Cancel", variant="stop", scale=0, min_width=110, elem_id="jobs-cancel")
    table = gr.HTML(STYLE, elem_id="jobs-table", js_on_load=None)
    with gr.Accordion("What it prints", open=False):
        log = gr.Textbox(show_label=False, lines=14, max_lines=14, interactive=False, autoscroll=True)

    def look(name: str | None, request: gr.Request) -> list[Any]:
        studio.person_of(request)
        return [_table(runs), runs.jobs.log(name) if name else ""]

    def names(name: str | None, request: gr.Request) -> Any:
        studio.person_of(request)
        listed = [job.folder for job in runs.newest()]
        return gr.Dropdown(choices=listed, value=name if name in listed else next(iter(listed), None))

    def cancelled(name: str | None, request: gr.Request) -> list[Any]:
        with pressed(studio, request) as by:
            runs.jobs.cancel(name or "", by=by)
        return look(name, request)

    loud: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    quiet = {**loud, "queue": False}
    gr.on(None, look, chosen, [table, log], **quiet)
    gr.on([chosen.focus], names, chosen, chosen, **quiet)
    gr.Timer(EVERY).tick(look, chosen, [table, log], **quiet)
    cancel.click(cancelled, chosen, [table, log], **loud)


def _reward(studio: Studio, runs: Runs) -> None:
    gr.Markdown("On all labels of pairs that there are now. A part of the prompts is held out to measure it.")
    default = RewardForm(base="")
    with gr.Row():
        fields: Fields = {
            "base": gr.Textbox(label="Base model", info=MODEL, elem_id="reward-base"),
            "members": gr.Number(default.members, label="Members of the ensemble", precision=0, minimum=1),
            "epochs": gr.Number(default.epochs, label="Passes over the labels", precision=0, minimum=1),
            "held_out": gr.Slider(0.05, 0.5, default.held_out, step=0.05, label="Share of prompts held out"),
        }
    _button(studio, runs, "reward", "Train it", fields)


def _generate(studio: Studio, runs: Runs) -> None:
    gr.Markdown("A policy answers prompts several times, and pairs of its answers go to those who label.")
    default = PairsForm(policy="", prompts="")
    with gr.Row():
        fields: Fields = {
            "policy": gr.Textbox(label="Policy", info=MODEL, elem_id="pairs-policy"),
            "against": gr.Textbox(label="Second policy", info="Its answers are mixed in.", placeholder="none"),
            "prompts": gr.Textbox(label="Prompts", info=PROMPTS, elem_id="pairs-prompts"),
            "reward": gr.Textbox(
                label="Reward model", info="Pairs that its ensemble disagrees on.", placeholder="none: all at random"
            ),
        }
    with gr.Row():
        fields |= {
            "pairs": gr.Number(default.pairs, label="Pairs", precision=0, minimum=1, elem_id="pairs-count"),
            "samples": gr.Number(default.samples, label="Answers a prompt", precision=0, minimum=1),
            "random_share": gr.Slider(0.0, 1.0, default.random_share, step=0.05, label="Share at random"),
            "overlap": gr.Number(default.overlap, label="People a pair", precision=0, minimum=1),
            "max_new_tokens": gr.Number(
                default.max_new_tokens, label="Most tokens of an answer", precision=0, minimum=1
            ),
        }
    _button(studio, runs, "generate", "Generate pairs", fields)


def _compare(studio: Studio, runs: Runs) -> None:
    gr.Markdown(
        "Both policies answer the same prompts, which neither should have been trained on. People see the two answers "
        "without knowing whose they are; what they say is the win rate below."
    )
    default = PairsForm(policy="", prompts="")
    with gr.Row():
        fields: Fields = {
            "policy": gr.Textbox(label="Policy", elem_id="compare-policy"),
            "against": gr.Textbox(label="Against", elem_id="compare-against"),
            "prompts": gr.Textbox(label="Held-out prompts", elem_id="compare-prompts"),
        }
    with gr.Row():
        fields |= {
            "pairs": gr.Number(
                default.pairs, label="Prompts compared", precision=0, minimum=1, elem_id="compare-count"
            ),
            "overlap": gr.Number(default.overlap, label="People a pair", precision=0, minimum=1),
            "max_new_tokens": gr.Number(
                default.max_new_tokens, label="Most tokens of an answer", precision=0, minimum=1
            ),
        }
    _button(studio, runs, "compare", "Queue it", fields)


def _button(studio: Studio, runs: Runs, what: str, words: str, fields: Fields) -> None:
    """Name, file and further settings, and the button that starts the job."""
    prompts = "prompts" in fields
    with gr.Row():
        name = gr.Textbox(label="Name of the run", placeholder=f"{what}-1", elem_id=f"{what}-name")
        kinds = list(SUFFIXES)
        file = gr.File(label="... or upload prompts", file_types=kinds, height=110, visible=prompts)
    with gr.Accordion("Further settings", open=False):
        more = gr.Code(language="yaml", label="YAML, as in --help of the command", lines=4)
    with gr.Row():
        begin = gr.Button(words, variant="primary", scale=0, min_width=220, elem_id=f"{what}-begin")

    def start(values: Mapping[Any, Any], request: gr.Request) -> str:
        with pressed(studio, request) as by:
            given = {key: "" if values[field] is None else values[field] for key, field in fields.items()}
            given = allowed(studio, request, given | {"more": values[more] or ""}, runs.jobs.folder)
            given |= {"prompts": UPLOADED} if values[file] else {}
            called = (values[name] or "").strip() or default_name(what, runs.jobs.folder)
            _start(runs, what, called, given, by=by, prompts=sent(values[file]))
            gr.Info(f"{called} has started.")
            return ""

    begin.click(start, {name, file, more, *fields.values()}, name, show_progress="hidden", api_visibility="private")


def _start(runs: Runs, what: str, name: str, given: Mapping[str, Any], *, by: str, prompts: Path | None) -> None:
    if what == "reward":
        runs.jobs.start("reward", name, RewardForm(**given).config(runs.studio.store.address), by=by)
        return
    form = PairsForm(**given, compare=True, samples=1) if what == "compare" else PairsForm(**given)
    runs.jobs.start("generate", name, form.config(runs.studio.store.address), by=by, prompts=prompts)


def _table(runs: Runs) -> str:
    rows = "".join(_row(runs, job) for job in runs.newest())
    if not rows:
        return f"{STYLE}<p class='loop-aside'>Nothing has run yet.</p>"
    heads = "".join(f"<th>{words}</th>" for words in ("Name", "What", "State", "Took", "Found"))
    table = f'<table class="loop-jobs"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f'{STYLE}<div class="loop">{table}</div>'


def _row(runs: Runs, job: Job) -> str:
    run = runs.run(job.folder)
    found = result(run, runs.studio.store) if run is not None else ""
    state = f'<span class="loop-state is-{job.state}">{STATES[job.state]}</span>'
    link = f'<a href="/report/{html.escape(job.folder)}" target="_blank">Report</a>' if run and run.report else ""
    cells = (
        html.escape(job.folder),
        KINDS.get(job.kind, job.kind),
        state,
        _took(job),
        " ".join(filter(None, (html.escape(found), link))),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _took(job: Job) -> str:
    if job.started is None:
        return ""
    seconds = int((job.ended or time.time()) - job.started)
    minutes, rest = divmod(seconds, 60)
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes >= 60
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )
