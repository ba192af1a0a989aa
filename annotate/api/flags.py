"""Reports that something is wrong with an item."""

from __future__ import annotations

from fastapi import APIRouter

from annotate.api.bodies import FlagBody
from annotate.api.visit import Writing

router = APIRouter(prefix="/api")


@router.post("/flags")
def flag(body: FlagBody, visit: Writing) -> dict[str, str]:
    """Report an item; the same id again changes nothing."""
    visit.studio.store.work.flag(body.id, body.assignment, visit.name, body.reason, body.note)
    return {"id": body.id}
