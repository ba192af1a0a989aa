"""Pictures of the clips that somebody was given to compare."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from annotate.api.errors import NOT_YOURS, Refused
from annotate.api.visit import Reading
from prefrl.data.comparisons import Item

router = APIRouter(prefix="/api")
PICTURES = ("image/png", "image/jpeg", "image/webp", "image/gif")


@router.get("/media/{hash_}")
def picture(hash_: str, assignment: str, visit: Reading) -> Response:
    """A picture of the item of an assignment.

    Raises:
        Refused: 404, the assignment is somebody else's or there is none, or its item has no such picture.
    """
    store = visit.studio.store
    task = store.task(store.work.assignment(assignment, visit.name).item)
    clips = task.clips if isinstance(task, Item) and task.clips is not None else ()
    if not any(hash_ in clip.frames for clip in clips):
        raise Refused(404, "not_yours", NOT_YOURS)
    type_, content = store.media.get(hash_)
    headers = {"cache-control": "private, max-age=31536000, immutable"}
    return Response(content, media_type=type_ if type_ in PICTURES else "application/octet-stream", headers=headers)
