"""The tab that starts a loop."""

from __future__ import annotations

from typing import Any

import gradio as gr

from annotate.loop.algorithms import algorithms
from annotate.loop.asking import allowed, pressed, sent
from annotate.loop.forms import LoopForm, default_name
from annotate.loop.runs import Runs, runs_of
from annotate.studio import Studio
from prefrl.data.importing.uploads import SUFFIXES

INTRODUCTION = """
# A new loop

Each round the policy answers prompts, people compare pairs of its answers on the label page, a reward model learns from
all labels so far, and the policy is optimized against it. Held-out prompts say whether it got better.
"""
MODEL = "A run of this page or a hub id; for admins also a folder."
PROMPTS = "A hub id; for admins also a file on the server."
UPLOADED = "(uploaded)"
DEFAULT = "the default"
Fields = dict[str, Any]
_FORM = LoopForm(policy="", prompts="")


def build(studio: Studio) -> None:
    """Draw the tab."""
    runs = runs_of(studio)
    gr.Markdown(INTRODUCTION)
    with gr.Row():
        with gr.Column(min_width=320):
            gr.Markdown("## Policy and prompts")
            name = gr.Textbox(label="Name of the loop", placeholder="loop-1", elem_id="start-name")
            fields, file = _policy()
        with gr.Column(min_width=320):
            gr.Markdown("## Labels")
            fields |= _labels()
        with gr.Column(min_width=320):
            gr.Markdown("## Learning")
            fields |= _learning()
    with gr.Row():
        begin = gr.Button("Start the loop", variant="primary", scale=0, min_width=220, elem_id="start-begin")

    def start(values: dict[Any, Any], request: gr.Request) -> str:
        with pressed(studio, request) as by:
            given = {key: "" if values[field] is None else values[field] for key, field in fields.items()}
            return _start(runs, values[name], values[file], given, by, request)

    def offered(request: gr.Request) -> Any:
        studio.person_of(request)
        return gr.Dropdown(choices=[(DEFAULT, ""), *((one, one) for one in algorithms())])

    loud: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    gr.on(None, offered, None, fields["algorithm"], queue=False, **loud)
    begin.click(start, {name, file, *fields.values()}, name, **loud)


def _count(field: str, label: str, least: int = 1, info: str | None = None) -> Any:
    """A field for a whole number."""
    value = getattr(_FORM, field)
    return gr.Number(value, label=label, info=info, precision=0, minimum=least, elem_id=f"start-{field}")


def _policy() -> tuple[Fields, Any]:
    fields: Fields = {
        "policy": gr.Textbox(
            label="Policy",
            info=MODEL,
            elem_id="start-policy",
        ),
        "prompts": gr.Textbox(
            label="Prompts",
            info=PROMPTS,
            elem_id="start-prompts",
        ),
    }
    file = gr.File(label="... or upload a file", file_types=list(SUFFIXES), height=110)
    fields["max_new_tokens"] = _count("max_new_tokens", "Most tokens of an answer")
    return fields, file


def _labels() -> Fields:
    fields: Fields = {}
    with gr.Row():
        fields["rounds"] = _count("rounds", "Rounds")
        fields["samples"] = _count("samples", "Answers a prompt", 2)
    with gr.Row():
        fields["pairs"] = _count("pairs", "Pairs a round")
        fields["overlap"] = _count("overlap", "People a pair")
    with gr.Row():
        fields["held_out_pairs"] = _count("held_out_pairs", "Held-out pairs", 0, "They measure the reward model.")
        fields["comparisons"] = _count("comparisons", "Comparisons", 1, "New policy beside its start.")
    ways = [("Where the reward model is unsure", "uncertainty"), ("At random", "random")]
    fields["selection"] = gr.Radio(ways, value=_FORM.selection, label="Which pairs")
    fields["random_share"] = gr.Slider(0.0, 1.0, _FORM.random_share, step=0.05, label="Share at random all the same")
    fields["diversity"] = gr.Slider(
        0.0, 2.0, _FORM.diversity, step=0.25, label="Diversity", info="How much it counts that pairs differ."
    )
    return fields


def _learning() -> Fields:
    fields: Fields = {
        "reward": gr.Textbox(label="Base of the reward model", placeholder="the policy"),
        "members": _count(
            "members", "Members of its ensemble", info="With 2 or more, uncertainty is where they disagree."
        ),
        "algorithm": gr.Dropdown([(DEFAULT, "")], value="", label="Algorithm", elem_id="start-algorithm"),
        "steps": _count("steps", "Optimizer steps a round"),
    }
    with gr.Accordion("Further settings", open=False, elem_id="start-more"):
        fields["more"] = gr.Code(language="yaml", label="YAML, as in prefrl loop --help", lines=6)
    return fields


def _start(runs: Runs, name: str | None, file: str | None, given: dict[str, Any], by: str, request: gr.Request) -> str:
    called = (name or "").strip() or default_name("loop", runs.jobs.folder)
    form = LoopForm(**allowed(runs.studio, request, given, runs.jobs.folder) | ({"prompts": UPLOADED} if file else {}))
    config = form.config(runs.studio.store.address, called)
    runs.jobs.start("loop", called, config, by=by, prompts=sent(file))
    gr.Info(f"{called} has started; see Rounds.")
    return ""
