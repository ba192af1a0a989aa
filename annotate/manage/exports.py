"""Manage, Export: labels as files that trainers read, all data of the project, and backups."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from annotate.manage import parts
from annotate.studio import Studio
from prefrl.data.exporting import Choices, Export, Labelled, export
from prefrl.data.project import ProjectSettings
from prefrl.errors import DataError
from prefrl.evaluate.ratings import choices
from prefrl.evaluate.reliability import dawid_skene

_FORMATS = {
    "Preferences (prompt, chosen, rejected)": "preference",
    "Single answers (prompt, completion, label)": "unpaired",
    "Steps (prompt, completions, labels)": "stepwise",
    "Steps as PRM800K has them": "prm800k",
    "Better answers (prompt, completion)": "sft",
    "All labels, every version": "votes",
}
_VOTES = {"What most people say": "majority", "Shares of the votes": "soft", "One row a label": "each"}
_TIES = {"Leave out": "drop", "Keep with the label 0.5": "soft"}
_KINDS = {"JSON lines": ".jsonl", "Parquet": ".parquet"}
_COUNTS = ["Left out", "How many"]


class Exports:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def make(self, request: gr.Request, *values: Any) -> tuple[str, list[list[Any]], list[str]]:
        """Write the files of an export; what it holds and what it does not."""
        person = self._studio.person_of(request).name
        kind, *rest = values
        with parts.plainly():
            made = self._export(rest)
            name = f"{rest[0]}".partition(" (")[0].lower().replace(" ", "_").replace(",", "")
            files = made.write(_folder() / f"{name}{_KINDS.get(kind, '.jsonl')}")
        self._studio.store.log(person, "export", {"what": rest[0], "rows": len(made.rows)})
        counted = [[why, count] for why, count in made.left_out.items()]
        return parts.note(made.summary(), "good"), counted, [str(file) for file in files]

    def everything(self, request: gr.Request) -> tuple[str, list[str]]:
        """Write all data of the project, which another one can import."""
        person = self._studio.person_of(request).name
        with parts.plainly():
            file = _folder() / "project.jsonl"
            lines = self._studio.store.export(file)
        self._studio.store.log(person, "export", {"what": "project", "rows": lines})
        return parts.note(
            f"{lines} lines: settings, items, labels and reports; neither accounts nor the audit log.", "good"
        ), [str(file)]

    def backup(self, request: gr.Request) -> str:
        """Copy the whole store, accounts too, beside the project; it is not handed out."""
        person = self._studio.person_of(request).name
        with parts.plainly():
            path = self._studio.store.backup()
            wrong = self._studio.store.check()
        self._studio.store.log(person, "backup", {"file": path.name})
        if wrong:
            return parts.note(f"Copied to {path.name}, but the store is not sound: {'; '.join(wrong)}", "bad")
        return parts.note(f"Copied to {path.name} in the folder backups of the project; it was read through.", "good")

    def _export(self, values: Sequence[Any]) -> Export:
        format_, votes, ties, both_bad, edits, gold, neutral, margins, weigh, held_out, seed = values
        store = self._studio.store
        data = Labelled.of(store)
        given: dict[str, Any] = {
            "format": _FORMATS.get(format_, ""),
            "votes": _VOTES.get(votes, ""),
            "ties": _TIES.get(ties, ""),
            "both_bad": _TIES.get(both_bad, ""),
        }
        chosen = Choices(
            **given,
            edits=bool(edits),
            gold=bool(gold),
            neutral=bool(neutral),
            margins=margins_of(store.settings()) if margins else {},
            reliability=reliability_of(data) if weigh else {},
            held_out=float(held_out or 0.0),
            seed=int(seed or 0),
        )
        return export(data, chosen)


def build(studio: Studio) -> None:
    """Draw the tab."""
    page = Exports(studio)
    with gr.Row():
        format_ = gr.Dropdown(list(_FORMATS), value=next(iter(_FORMATS)), label="What", scale=2)
        kind = gr.Radio(list(_KINDS), value="JSON lines", label="As", scale=1)
    with gr.Row():
        votes = gr.Radio(list(_VOTES), value="What most people say", label="Several people about one item")
        ties = gr.Radio(list(_TIES), value="Leave out", label="Ties")
        both_bad = gr.Radio(list(_TIES), value="Leave out", label="Both bad")
    with gr.Row():
        edits = gr.Checkbox(value=True, label="A better answer is a pair with the one that it was made of")
        gold = gr.Checkbox(value=False, label="Items with a known answer too")
        neutral = gr.Checkbox(value=True, label="A neutral step counts as right")
        margins = gr.Checkbox(value=False, label="Margins by strength: 1, 2, ... of the scale")
        weigh = gr.Checkbox(value=False, label="Weigh people by how often they are right (Dawid-Skene)")
    with gr.Row():
        held_out = gr.Slider(0.0, 0.5, value=0.0, step=0.05, label="Share of the questions in a separate test file")
        seed = gr.Number(value=0, precision=0, label="Seed of the test file")
    make = gr.Button("Export", variant="primary")
    told = parts.view()
    counted = gr.Dataframe(headers=_COUNTS, label="Not in the files", interactive=False)
    files = gr.File(label="Files", file_count="multiple", interactive=False)
    with gr.Row():
        everything = gr.Button("Export the whole project")
        backup = gr.Button("Make a backup")
    rest = [format_, votes, ties, both_bad, edits, gold, neutral, margins, weigh, held_out, seed]
    make.click(page.make, [kind, *rest], [told, counted, files], api_visibility="private")
    everything.click(page.everything, None, [told, files], api_visibility="private")
    backup.click(page.backup, None, told, api_visibility="private")


def margins_of(settings: ProjectSettings) -> dict[str, float]:
    """The margin of every strength of the scale: 1 of the weakest, then 2, ...

    Raises:
        DataError: the scale has one strength only.
    """
    if len(settings.strengths) < 2:
        raise DataError("The scale of this project has one strength, so there are no margins. Leave margins out.")
    return {word: float(place) for place, word in enumerate(settings.strengths, start=1)}


def reliability_of(data: Labelled) -> dict[str, float]:
    """How often people are right who say which of two answers is better (Dawid-Skene).

    Raises:
        DataError: too few people judged the same items to tell.
    """
    labels = [label for of_item in data.live().values() for label in of_item]
    found = dawid_skene(choices(label for label in labels if label.outcome in ("first", "second")))
    if found.undefined:
        raise DataError(
            f"Nobody's reliability is known: {found.undefined}. Leave it out, or have items labelled twice."
        )
    return {name: worker.accuracy for name, worker in found.workers.items()}


def _folder() -> Path:
    """A new folder of this export's own, which ends with the server."""
    home = Path(get_upload_folder())
    home.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="export-", dir=home))
