"""What a person labelled before, to look at it again and to change it."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter

from annotate.api.sides import shown, shown_outcome
from annotate.api.views import title, view
from annotate.api.visit import Reading, Visit
from prefrl.data.comparisons import Label
from prefrl.data.project import ProjectSettings
from prefrl.data.store import Assignment
from prefrl.data.store.texts import epoch

router = APIRouter(prefix="/api/mine")
MINE = 50


@router.get("")
def mine(visit: Reading) -> list[dict[str, Any]]:
    """The last labels of this person, the newest first."""
    store = visit.studio.store
    settings = store.settings()
    return [
        {
            "assignment": assignment.id,
            "time": label.time,
            "version": label.version,
            "outcome": shown_outcome(label, assignment.exchanged),
            "strength": label.strength,
            "title": title(task),
            "editable": _editable(label, settings),
        }
        for assignment, task, label in store.work.mine(visit.name, limit=MINE)
    ]


@router.get("/{assignment_id}")
def one(assignment_id: str, visit: Reading) -> dict[str, Any]:
    """An item of this person and, where they labelled it, what they said."""
    store = visit.studio.store
    assignment = store.work.assignment(assignment_id, visit.name)
    label = _label(visit, assignment) if assignment.version else None
    seen = view(assignment, store.task(assignment.item), label)
    if label is None:
        return {**seen, "label": None}
    return {**seen, "label": shown(label, assignment.exchanged), "editable": _editable(label, store.settings())}


def _label(visit: Visit, assignment: Assignment) -> Label | None:
    """What this person said of an assignment."""
    of_item = visit.studio.store.labels(items=[assignment.item])
    return next((label for label in of_item if label.annotator == visit.name), None)


def _editable(label: Label, settings: ProjectSettings) -> bool:
    return not settings.edit_minutes or time.time() <= epoch(label.time) + 60.0 * settings.edit_minutes
