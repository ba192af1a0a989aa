"""The work itself: what is next, what was said, what is given back."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from annotate.api.bodies import AssignmentBody, LabelBody, NextBody
from annotate.api.errors import Refused
from annotate.api.sides import stored
from annotate.api.views import progress, view
from annotate.api.visit import Reading, Visit, Writing
from annotate.render import render
from prefrl.data.comparisons import StepItem
from prefrl.data.project import ProjectSettings
from prefrl.data.store import Assignment, Invalid
from prefrl.data.store.rules import Said, check

router = APIRouter(prefix="/api")


@router.get("/me")
def me(visit: Reading) -> dict[str, Any]:
    """Who is signed in, how the project asks, and how far they are."""
    store = visit.studio.store
    return {
        "name": visit.name,
        "role": visit.person.role,
        "csrf": visit.login.csrf,
        "project": {"id": store.project_id, **_project(store.settings())},
        "progress": progress(store.work.progress(visit.name)),
    }


@router.post("/next")
def next_items(body: NextBody, visit: Writing) -> dict[str, Any]:
    """The next items for this person, besides those that the page holds."""
    store = visit.studio.store
    given = store.work.next(visit.name, count=body.count, held=tuple(body.held))
    return {
        "items": [view(assignment, store.task(assignment.item)) for assignment in given],
        "progress": progress(store.work.progress(visit.name)),
        "done": not given and not body.held,
    }


@router.post("/labels")
def submit(body: LabelBody, visit: Writing) -> dict[str, Any]:
    """Store a label; the same id again changes nothing."""
    work = visit.studio.store.work
    assignment = work.assignment(body.assignment, visit.name)
    outcome, details = stored(body, assignment.exchanged)
    try:
        label = work.submit(
            assignment.id,
            visit.name,
            outcome,
            label_id=body.id,
            strength=body.strength,
            note=body.rationale,
            details=details,
            base_version=body.base_version,
        )
    except Invalid as error:
        raise Refused(400, "invalid", _why(visit, body, assignment)) from error
    return {"id": label.id, "version": label.version, "progress": progress(work.progress(visit.name))}


@router.post("/release")
def release(body: AssignmentBody, visit: Writing) -> dict[str, Any]:
    """Give an item back, for others."""
    visit.studio.store.work.release(body.assignment, visit.name)
    return {}


@router.post("/renew")
def renew(body: AssignmentBody, visit: Writing) -> dict[str, Any]:
    """Keep an item for longer; until when."""
    renewed = visit.studio.store.work.renew(body.assignment, visit.name)
    return {"lease_until": renewed.lease_until}


def _why(visit: Visit, body: LabelBody, assignment: Assignment) -> str:
    """Why a label is refused, as if A were the first in the item: the store's own words would tell whether it is."""
    task, settings = visit.studio.store.task(assignment.item), visit.studio.store.settings()
    outcome, details = stored(body, exchanged=False)
    said = Said(outcome=outcome, strength=body.strength, note=body.rationale, details=details)
    try:
        check(said, settings, task.kind, len(task.steps) if isinstance(task, StepItem) else 0)
    except Invalid as error:
        return str(error)
    return "The project does not ask this; load the page again, as its settings may have changed."


def _project(settings: ProjectSettings) -> dict[str, Any]:
    """What the label page needs of the settings; the rest is not for those who label."""
    return {
        "name": settings.name,
        "guidelines": render(settings.guidelines),
        "scale": settings.scale,
        "strengths": settings.strengths,
        "tie": settings.has_tie,
        "both_bad": settings.both_bad,
        "criteria": [{"name": criterion.name, "points": criterion.points} for criterion in settings.criteria],
        "rationale": settings.rationale,
        "skip_reasons": settings.skip_reasons,
        "flag_reasons": settings.flag_reasons,
        "better_answer": settings.better_answer,
        "step_mode": settings.step_mode,
    }
