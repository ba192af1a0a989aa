"""Manage, Settings: how the project asks, as people will see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from annotate.manage import parts
from annotate.render import render
from annotate.studio import Studio
from prefrl.data.project import SCALES, Criterion, ProjectSettings
from prefrl.data.store.errors import Invalid

# How the fields of the form are laid out, in the order in which handlers receive them.
FIELDS = (
    "name",
    "guidelines",
    "scale",
    "tie",
    "both_bad",
    "criteria",
    "rationale",
    "better_answer",
    "skip_reasons",
    "flag_reasons",
    "step_mode",
    "overlap",
    "gold_share",
    "lease_minutes",
    "edit_minutes",
    "skip_after",
    "quota",
)
_SCALES = [
    (f"{points} points" + (f": {', '.join(filter(None, words))}" if any(words) else ""), points)
    for points, words in SCALES.items()
]


class Settings:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def show(self, request: gr.Request) -> tuple[Any, ...]:
        """The settings that hold, field by field, and the preview."""
        self._studio.person_of(request)
        with parts.plainly():
            settings = self._studio.store.settings()
            return *to_form(settings), _preview(settings)

    def preview(self, request: gr.Request, *values: Any) -> str:
        """What people would see."""
        self._studio.person_of(request)
        with parts.plainly():
            return _preview(from_form(values))

    def save(self, request: gr.Request, *values: Any) -> tuple[str, str]:
        """Let the project ask so: what happened, and the preview."""
        person = self._studio.person_of(request)
        with parts.plainly():
            store = self._studio.store
            before, settings = store.settings(), from_form(values)
            if settings == before:
                return parts.note("These settings hold already."), _preview(settings)
            store.save_settings(settings, person.name)
            return parts.note(" ".join(["Saved.", *consequences(before, settings)]), "good"), _preview(settings)


def build(studio: Studio) -> None:
    """Draw the tab."""
    handlers = Settings(studio)
    with gr.Row():
        with gr.Column(scale=3):
            form = [*_asked(), *_answered(), *_dealt()]
            with gr.Row():
                save = parts.button("Save", variant="primary")
                back = parts.button("Undo changes")
            said = parts.view()
        with gr.Column(scale=2):
            shown = parts.view()
    fields = [dict(form)[name] for name in FIELDS]
    parts.on_open(handlers.show, [], [*fields, shown])
    back.click(handlers.show, [], [*fields, shown], api_visibility="private")
    save.click(handlers.save, fields, [said, shown], api_visibility="private")
    changes = [field.blur if isinstance(field, gr.Textbox | gr.Number) else field.input for field in fields]
    gr.on(changes, handlers.preview, fields, shown, api_visibility="private", show_progress="hidden")


def _asked() -> list[tuple[str, Any]]:
    return [
        ("name", gr.Textbox(label="Name of the project", max_length=200)),
        ("guidelines", gr.Textbox(label="Guidelines", info="in Markdown; people can open them at any time", lines=10)),
    ]


def _answered() -> list[tuple[str, Any]]:
    with gr.Accordion("What people may say"):
        with gr.Row():
            scale = gr.Dropdown(_SCALES, label="Scale", info="3 and 7 points have a tie in their middle")
            rationale = gr.Dropdown(["off", "optional", "required"], label="Why", info="whether they say why")
        with gr.Row():
            tie = gr.Checkbox(label="A tie")
            both_bad = gr.Checkbox(label="Both are bad, which is no tie")
            better = gr.Checkbox(label="A better answer of their own")
        criteria = gr.Textbox(
            label="Criteria that are rated apart", info="one a line, as Helpfulness: 2, for -2 to 2", lines=3
        )
        with gr.Row():
            skips = gr.Textbox(label="Reasons to skip", info="one a line; none asks for none", lines=4)
            flags = gr.Textbox(label="Reasons to report", info="one a line", lines=4)
        steps = gr.Radio(
            [("Rate every step", "all"), ("Stop at the first wrong one", "first_error")], label="Solutions in steps"
        )
    names = ("scale", "rationale", "tie", "both_bad", "better_answer", "criteria", "skip_reasons", "flag_reasons")
    return [
        *zip(names, (scale, rationale, tie, both_bad, better, criteria, skips, flags), strict=True),
        ("step_mode", steps),
    ]


def _dealt() -> list[tuple[str, Any]]:
    with gr.Accordion("Who gets what"):
        with gr.Row():
            overlap = gr.Number(label="People an item", info="of items added from now on", precision=0, minimum=1)
            gold = gr.Slider(0, 0.5, step=0.01, label="Share of known answers", info="mixed into what people get")
        with gr.Row():
            lease = gr.Number(label="Minutes an item is kept", info="for who opened it", minimum=1)
            edit = gr.Number(label="Minutes a label may be changed", info="0 is without an end", minimum=0)
        with gr.Row():
            skips = gr.Number(
                label="Skips that end an item", info="0 asks the next person always", precision=0, minimum=0
            )
            quota = gr.Number(label="Most labels of a person", info="0 is without an end", precision=0, minimum=0)
    names = ("overlap", "gold_share", "lease_minutes", "edit_minutes", "skip_after", "quota")
    return list(zip(names, (overlap, gold, lease, edit, skips, quota), strict=True))


def to_form(settings: ProjectSettings) -> list[Any]:
    """The value of every field."""
    values = {name: getattr(settings, name) for name in FIELDS}
    values["criteria"] = "\n".join(f"{criterion.name}: {criterion.points}" for criterion in settings.criteria)
    return ["\n".join(values[name]) if name in ("skip_reasons", "flag_reasons") else values[name] for name in FIELDS]


def from_form(values: Sequence[Any]) -> ProjectSettings:
    """The settings of the values of all fields.

    Raises:
        ConfigError: one that cannot be.
    """
    given = dict(zip(FIELDS, values, strict=True))
    for name in ("overlap", "skip_after", "quota", "scale", "gold_share", "lease_minutes", "edit_minutes"):
        if not isinstance(given[name], int | float) or isinstance(given[name], bool):
            raise Invalid(f"Got {given[name]!r} for {name.replace('_', ' ')}; expected a number.")
    whole = {name: int(given[name]) for name in ("overlap", "skip_after", "quota", "scale")}
    lists = {name: tuple(_lines(given[name])) for name in ("skip_reasons", "flag_reasons")}
    criteria = tuple(map(_criterion, _lines(given["criteria"])))
    return ProjectSettings(**given | whole | lists | {"criteria": criteria})


def consequences(before: ProjectSettings, after: ProjectSettings) -> list[str]:
    """What else follows from a change, in words."""
    found = []
    if before.scale != after.scale:
        found.append("Labels with strengths of the old scale stay, and are in no ordinal agreement of the new one.")
    if before.overlap != after.overlap:
        found.append("Items that are there keep their number of people; set it in Items.")
    if before.quota != after.quota and after.quota:
        found.append("Whoever has more labels than that keeps them, and gets no further items.")
    return found


def _preview(settings: ProjectSettings) -> str:
    return parts.fragment(
        "settings",
        settings=settings,
        strengths=settings.strengths,
        tie=settings.has_tie,
        guidelines=render(settings.guidelines) if settings.guidelines.strip() else "",
    )


def _criterion(line: str) -> Criterion:
    name, _, points = line.rpartition(":") if ":" in line else (line, "", "2")
    if not points.strip().isdecimal():
        raise Invalid(f"Got the criterion {line!r}; expected a name and a number, such as Helpfulness: 2.")
    return Criterion(name=name.strip(), points=int(points))


def _lines(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]
