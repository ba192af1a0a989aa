"""The HTTP routes: JSON for the label page, and forms for signing in."""

from __future__ import annotations

from fastapi import APIRouter

from annotate.api import auth, flags, labels, media, mine, reports


def routes() -> APIRouter:
    """All routes but the pages that Gradio draws."""
    router = APIRouter()
    for part in (auth, labels, mine, flags, media, reports):
        router.include_router(part.router)
    return router
