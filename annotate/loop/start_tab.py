"""The tab that starts a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from annotate.loop.algorithms import algorithms
from annotate.loop.asking import pressed, refuse_settings
from annotate.loop.forms import LoopForm, default_name
from annotate.loop.runs import Runs, runs_of
from annotate.studio import Studio

INTRODUCTION = """
# A new loop

Each round the policy answers prompts, people compare pairs of its answers on the label page, a reward model learns from
all labels so far, and the policy is optimized against it. Held-out prompts say whether it got better.
"""
UPLOADED = "(uploaded)"


def build(studio: Studio) -> None:
    """Draw the tab."""
    runs = runs_of(studio)
    default = LoopForm(policy="", prompts="")
    gr.Markdown(INTRODUCTION)
    fields: dict[str, Any] = {}
    with gr.Row():
        with gr.Column(min_width=320):
            gr.Markdown("## Policy and prompts")
            name = gr.Textbox(label="Name of the loop", placeholder="loop-1", elem_id="start-name")
            fields["policy"] = gr.Textbox(
                label="Policy", info="A folder with a model, a run folder, or a hub id.", elem_id="start-policy"
            )
            fields["prompts"] = gr.Textbox(
                label="Prompts", info="A file on the server with a column prompt, or a hub id.", elem_id="start-prompts"
            )
            file = gr.File(label="... or upload a file", file_types=[".jsonl", ".json", ".csv", ".parquet"], height=110)
            fields["max_new_tokens"] = gr.Number(
                default.max_new_tokens, label="Most tokens of an answer", precision=0, minimum=1, elem_id="start-tokens"
            )
        with gr.Column(min_width=320):
            gr.Markdown("## Labels")
            with gr.Row():
                fields["rounds"] = gr.Number(
                    default.rounds, label="Rounds", precision=0, minimum=1, elem_id="start-rounds"
                )
                fields["samples"] = gr.Number(default.samples, label="Answers a prompt", precision=0, minimum=2)
            with gr.Row():
                fields["pairs"] = gr.Number(
                    default.pairs, label="Pairs a round", precision=0, minimum=1, elem_id="start-pairs"
                )
                fields["overlap"] = gr.Number(default.overlap, label="People a pair", precision=0, minimum=1)
            with gr.Row():
                fields["held_out_pairs"] = gr.Number(
                    default.held_out_pairs,
                    label="Held-out pairs",
                    info="They measure the reward model.",
                    precision=0,
                    minimum=0,
                    elem_id="start-held-out",
                )
                fields["comparisons"] = gr.Number(
                    default.comparisons,
                    label="Comparisons",
                    info="New policy beside its start.",
                    precision=0,
                    minimum=1,
                    elem_id="start-comparisons",
                )
            fields["selection"] = gr.Radio(
                [("Where the reward model is unsure", "uncertainty"), ("At random", "random")],
                value=default.selection,
                label="Which pairs",
            )
            fields["random_share"] = gr.Slider(
                0.0, 1.0, default.random_share, step=0.05, label="Share at random all the same"
            )
            fields["diversity"] = gr.Slider(
                0.0, 2.0, default.diversity, step=0.25, label="Diversity", info="How much it counts that pairs differ."
            )
        with gr.Column(min_width=320):
            gr.Markdown("## Learning")
            fields["reward"] = gr.Textbox(label="Base of the reward model", placeholder="the policy")
            fields["members"] = gr.Number(
                default.members,
                label="Members of its ensemble",
                info="With 2 or more, uncertainty is where they disagree.",
                precision=0,
                minimum=1,
                elem_id="start-members",
            )
            fields["algorithm"] = gr.Dropdown(
                [("the default", "")], value="", label="Algorithm", elem_id="start-algorithm"
            )
            fields["steps"] = gr.Number(
                default.steps, label="Optimizer steps a round", precision=0, minimum=1, elem_id="start-steps"
            )
            with gr.Accordion("Further settings", open=False, elem_id="start-more"):
                fields["more"] = gr.Code(language="yaml", label="YAML, as in prefrl loop --help", lines=6)
    with gr.Row():
        begin = gr.Button("Start the loop", variant="primary", scale=0, min_width=220, elem_id="start-begin")

    def start(values: dict[Any, Any], request: gr.Request) -> str:
        with pressed(studio, request) as by:
            given = {key: _filled(values[field]) for key, field in fields.items()}
            return _start(runs, values[name], values[file], given, by, request)

    def offered(request: gr.Request) -> Any:
        studio.person_of(request)
        return gr.Dropdown(choices=[("the default", ""), *((one, one) for one in algorithms())])

    gr.on(None, offered, None, fields["algorithm"], show_progress="hidden", queue=False, api_visibility="private")
    begin.click(start, {name, file, *fields.values()}, name, queue=False, api_visibility="private")


def _start(runs: Runs, name: str | None, file: str | None, given: dict[str, Any], by: str, request: gr.Request) -> str:
    refuse_settings(runs.studio, request, given["more"])
    called = (name or "").strip() or default_name("loop", runs.jobs.folder)
    form = LoopForm(**given | ({"prompts": UPLOADED} if file else {}))
    runs.jobs.start("loop", called, form.config(runs.store, called), by=by, prompts=Path(file) if file else None)
    gr.Info(f"{called} has started; see Rounds.")
    return ""


def _filled(value: Any) -> Any:
    """What a field holds; an empty one of text holds an empty text."""
    return "" if value is None else value
