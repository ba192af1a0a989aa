"""The server as an ASGI app: routes at once, and the pages that Gradio draws as soon as it is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.types import ASGIApp

from annotate.api import errors, routes
from annotate.gradio_pages import PAGES, GradioPages
from annotate.middleware import Shield
from annotate.studio import Studio

ASSETS = Path(__file__).parent / "assets"


def create_app(studio: Studio, *, gradio: bool = True) -> ASGIApp:
    """The app of a project.

    Args:
        studio: the project.
        gradio: whether to draw the pages; without them there are only the routes.
    """
    pages = GradioPages(studio) if gradio else None

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pages.running() if pages is not None else contextlib.nullcontext():
            yield

    app = FastAPI(title=studio.store.settings().name, lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    app.state.studio = studio
    errors.install(app)
    app.include_router(routes())
    app.add_api_route("/favicon.ico", lambda: FileResponse(ASSETS / "icon.svg"))
    app.mount("/assets", StaticFiles(directory=ASSETS), name="assets")
    if pages is not None:
        app.mount("/", pages)
    return Shield(app, url=studio.url, hosts=studio.hosts, gradio_pages=tuple(PAGES))
