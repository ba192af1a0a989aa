"""Manage, Import: a file or a dataset of the hub, what its columns mean, what is left out and why, then all the rest.

Whatever a handler is given comes from the browser. A file is read only where it was uploaded, within limits; what a
person chose is worked out again when they press Import, so nothing is kept between two clicks but a read table.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from annotate.manage import parts
from annotate.studio import Studio
from prefrl.data.comparisons import Item, Task
from prefrl.data.importing import (
    MAY_HAVE,
    NEEDED,
    SHAPES,
    Layout,
    Plan,
    Rules,
    carry_out,
    guess,
    is_archive,
    keys_of,
    plan,
    read_hub,
    read_upload,
    texts_of,
    uploaded,
)
from prefrl.data.tables import Table
from prefrl.errors import DataError

KEPT = 2  # tables that are kept read, so that a changed choice is quick
SHOWN = 5  # items of the preview
_LONGEST = 400  # characters of a text in the preview
ROLES = tuple(dict.fromkeys(["prompt", *(role for shape in SHAPES for role in NEEDED[shape] + MAY_HAVE[shape])]))
_SHAPES = {
    "Pairs of answers": "pair",
    "Several answers, compared pair by pair": "completions",
    "Solutions in steps": "steps",
    "Single answers to check": "check",
}
_DOUBTS = {"Keep and mark": "keep", "Leave out": "leave_out"}
_NAMES = {shape: name for name, shape in _SHAPES.items()}
_PREVIEW = ["Question", "Answer 1 (or step, or answer)", "Answer 2"]
_COUNTS = ["What", "Rows", "First row", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What was chosen on the page."""

    file: str | None
    hub: str
    shape: str
    near: str
    leaks: str
    labels: bool
    overlap: int
    roles: Mapping[str, str]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Form:
        """The values of the components in the order of `Imports.inputs`."""
        file, hub, shape, near, leaks, labels, overlap, *columns = values
        roles = {role: column for role, column in zip(ROLES, columns, strict=True) if column}
        return cls(
            file=file,
            hub=str(hub or "").strip(),
            shape=_SHAPES.get(shape, ""),
            near=_DOUBTS.get(near, "keep"),
            leaks=_DOUBTS.get(leaks, "keep"),
            labels=bool(labels),
            overlap=int(overlap or 1),
            roles=roles,
        )

    def layout(self, table: Table) -> Layout:
        """What the columns mean; a first column that is called chosen says which answer is the better one."""
        shape: Any = self.shape
        allowed = NEEDED[shape] + MAY_HAVE[shape] if shape in NEEDED else ()
        roles = {role: column for role, column in self.roles.items() if role in allowed}
        found = Layout(shape=shape, roles=roles, chosen=roles.get("first") == guessed_first(table))
        found.check(table.columns)
        return found

    def rules(self) -> Rules:
        """What is taken."""
        near: Any = self.near
        leaks: Any = self.leaks
        return Rules(near=near, leaks=leaks, labels=self.labels, overlap=self.overlap)


class Imports:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._tables: OrderedDict[tuple[str, float], Table] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, request: gr.Request, file: str | None, hub: str) -> list[Any]:
        """What is in a file or dataset: the shape and the column of every role, as their names suggest."""
        self._studio.person_of(request)
        with parts.plainly():
            table = self._table(file, str(hub or "").strip())
            if is_archive(table.columns):
                told = f"{len(table.rows)} lines of an exported project. Import adds what is not here yet."
                return [
                    parts.note(told),
                    gr.update(),
                    *(gr.update(choices=[], value=None, visible=False) for _ in ROLES),
                ]
            layout = _guessed(table)
        told = f"{len(table.rows)} rows with the columns {', '.join(table.columns)}."
        return [parts.note(told), _NAMES[layout.shape], *_dropdowns(layout, table.columns)]

    def columns(self, request: gr.Request, file: str | None, hub: str, shape: str) -> list[Any]:
        """The columns that a shape asks for."""
        self._studio.person_of(request)
        with parts.plainly():
            table = self._table(file, str(hub or "").strip())
        wanted: Any = _SHAPES.get(shape, "pair")
        known = _guessed(table)
        layout = known if known.shape == wanted else Layout(shape=wanted, roles={})
        return _dropdowns(layout, table.columns)

    def preview(self, request: gr.Request, *values: Any) -> tuple[str, list[list[Any]], list[list[str]]]:
        """What an import would bring."""
        self._studio.person_of(request)
        with parts.plainly():
            found = self._plan(Form.of(values))
        tone = "" if found.tasks else "bad"
        return parts.note(found.summary(), tone), counts(found), [shown(task) for task in found.tasks[:SHOWN]]

    def carry_out(self, request: gr.Request, *values: Any) -> Iterator[str]:
        """Import, in batches between which labels come in; after each one, how far it is."""
        person = self._studio.person_of(request).name
        form, store = Form.of(values), self._studio.store
        with parts.plainly():
            table = self._table(form.file, form.hub)
            if is_archive(table.columns):
                file = self._file(form.file)
                with _by_name(file):
                    added = store.import_(file)
                yield parts.note(f"Imported {added} items, labels and reports that were not here.", "good")
                return
            found = self._plan(form)
            if not found.tasks:
                raise DataError(f"There is nothing to import: {found.summary()}.")
            for done in carry_out(store, found, by=person):
                yield parts.note(f"{done} of {len(found.tasks)} items are stored.")
        store.log(
            person, "import", {"origin": table.origin, "items": len(found.tasks), "left_out": dict(found.left_out)}
        )
        yield parts.note(f"Imported {found.summary()}.", "good")

    def _plan(self, form: Form) -> Plan:
        table = self._table(form.file, form.hub)
        if is_archive(table.columns):
            raise DataError("This is an exported project, which has no columns to choose. Press Import.")
        return plan(table, form.layout(table), rules=form.rules(), known=keys_of(self._studio.store))

    def _table(self, file: str | None, hub: str) -> Table:
        if bool(file) == bool(hub):
            raise DataError("Upload a file, or name a dataset of the hub: one of the two.")
        path = None if file is None else self._file(file)
        key = (hub, 0.0) if path is None else (str(path), path.stat().st_mtime)
        with self._lock:
            if key not in self._tables:
                with _by_name(path):
                    self._tables[key] = read_hub(hub) if path is None else read_upload(path)
            self._tables.move_to_end(key)
            while len(self._tables) > KEPT:
                self._tables.popitem(last=False)
            return self._tables[key]

    def _file(self, file: str | None) -> Path:
        return uploaded(file or "", get_upload_folder())


def build(studio: Studio) -> None:
    """Draw the tab."""
    page = Imports(studio)
    with gr.Row():
        file = gr.File(label="JSONL, JSON, CSV or Parquet", file_types=[".jsonl", ".json", ".csv", ".parquet"], scale=2)
        hub = gr.Textbox(label="Or a dataset of the hub", placeholder="org/name:split", scale=1)
    look = gr.Button("Read it", variant="primary")
    told = parts.view()
    shape = gr.Dropdown(list(_SHAPES), value=next(iter(_SHAPES)), label="A row is")
    with gr.Accordion("What the columns mean"), gr.Row():
        roles = [gr.Dropdown([], label=role.replace("_", " "), visible=False, min_width=180) for role in ROLES]
    with gr.Row():
        near = gr.Radio(list(_DOUBTS), value="Keep and mark", label="Nearly the same question twice")
        leaks = gr.Radio(list(_DOUBTS), value="Keep and mark", label="A model that names itself")
        overlap = gr.Number(value=studio.store.settings().overlap, minimum=1, precision=0, label="People per item")
        labels = gr.Checkbox(value=False, label="The file says which answer is better: take that as labels")
    with gr.Row():
        preview = gr.Button("Preview")
        start = gr.Button("Import", variant="primary")
    result = parts.view()
    counted = gr.Dataframe(headers=_COUNTS, label="Left out, or doubtful", interactive=False)
    first = gr.Dataframe(headers=_PREVIEW, label="The first items", interactive=False, wrap=True)
    inputs = [file, hub, shape, near, leaks, labels, overlap, *roles]
    look.click(page.read, [file, hub], [told, shape, *roles], api_visibility="private")
    file.upload(page.read, [file, hub], [told, shape, *roles], api_visibility="private")
    shape.input(page.columns, [file, hub, shape], roles, api_visibility="private")
    preview.click(page.preview, inputs, [result, counted, first], api_visibility="private")
    start.click(page.carry_out, inputs, result, api_visibility="private")


@contextlib.contextmanager
def _by_name(path: Path | None) -> Iterator[None]:
    """Errors that call a file by its name, and not by where the server keeps it."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error).replace(f"{path.parent}/", "") if path else str(error)) from error


def counts(found: Plan) -> list[list[Any]]:
    """Why rows are left out or doubtful, how many, and where the first one is."""
    left = [[why, count, found.first[why], "left out"] for why, count in found.left_out.items()]
    kept = [[why, count, found.first[why], "kept"] for why, count in found.warnings.items()]
    beside = [[f"column {name}", found.rows, 1, "kept beside the question"] for name in found.unused]
    return left + kept + beside


def shown(task: Task) -> list[str]:
    """A task as one row of the preview."""
    texts = [*texts_of(task), ""][:2] if isinstance(task, Item) else ["\n".join(texts_of(task)), ""]
    return [text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..." for text in (task.prompt.question, *texts)]


def guessed_first(table: Table) -> str:
    """The column that is the better answer by its name; empty where there is none."""
    layout = _guessed(table)
    return layout.roles.get("first", "") if layout.chosen else ""


def _guessed(table: Table) -> Layout:
    try:
        return guess(table.columns)
    except DataError:  # then it is for the person to say
        return Layout(shape="pair", roles={})


def _dropdowns(layout: Layout, columns: Sequence[str]) -> list[Any]:
    asked = NEEDED[layout.shape] + MAY_HAVE[layout.shape]
    return [
        gr.update(
            choices=["", *columns], value=layout.roles.get(role, ""), visible=role in asked, label=_label(role, layout)
        )
        for role in ROLES
    ]


def _label(role: str, layout: Layout) -> str:
    return role.replace("_", " ") + (" (needed)" if role in NEEDED[layout.shape] else "")
