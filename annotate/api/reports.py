"""Reports of runs, for those who run the project."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from annotate.api.errors import Refused
from annotate.api.visit import Reading
from annotate.loop.runs import runs_of
from annotate.studio import MANAGERS

router = APIRouter()


@router.get("/report/{name}")
def report(name: str, visit: Reading) -> HTMLResponse:
    """The report of a run.

    Raises:
        Refused: 403, for others; 404, there is no such run, or it has no report yet.
    """
    if visit.person.role not in MANAGERS:
        raise Refused(403, "role", "Reports are for those who run the project. Ask one of them.")
    run = runs_of(visit.studio).run(name)
    if run is None or not run.report:
        raise Refused(404, "not_there", f"There is no report of a run {name!r} yet. Look at the list of runs.")
    return HTMLResponse((run.folder / "report.html").read_text(encoding="utf-8"))
