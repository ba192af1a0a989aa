"""The pages that Gradio draws. Loading it takes seconds, so it is done beside the running server.

Until then requests for a page wait; everything else is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import re
import tempfile
import threading
import warnings
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from annotate.api.errors import OTHER, body
from annotate.api.visit import SIGN_IN
from annotate.pages.plain import page
from annotate.studio import MANAGERS, REVIEWERS, Studio
from prefrl.data.store.records import ROLES

# Address of a page, and who may see it.
PAGES = {"/label": ROLES, "/review": REVIEWERS, "/manage": MANAGERS, "/loop": MANAGERS}
# What a browser asks of Gradio to draw a page and, where there are buttons, to press them. Whatever else Gradio has to
# offer is not there: it takes files from everybody, fetches addresses that it is told, and edits its own code.
_DRAWS = re.compile(
    r"(config|theme\.css|favicon\.ico|manifest\.json|gradio_api/startup-events|(assets|static|svelte)/.+)?"
)
_LOOKS = re.compile(r"gradio_api/(queue/data|upload_progress|heartbeat/\w+|file=.+)")
_PRESSES = re.compile(r"gradio_api/(queue/join|run/\w+|cancel|reset)")
_UPLOADS = re.compile(r"gradio_api/upload")
_WITHOUT_BUTTONS = ("/label",)
_WITHOUT_FILES = ("/label", "/review")
ROLE = "This is for those who run the project; ask one of them."
log = logging.getLogger(__name__)


class GradioPages:
    """An ASGI app of all pages that Gradio draws, each of which asks who is there."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._stopping = asyncio.Event()
        self._loaded = asyncio.Event()
        self._app: ASGIApp | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load and run the pages for as long as the server runs."""
        with tempfile.TemporaryDirectory(prefix="prefrl-", ignore_cleanup_errors=True) as uploads:
            os.environ["GRADIO_TEMP_DIR"] = uploads  # or what is imported would stay in a folder that others can read
            task = asyncio.create_task(self._run())
            try:
                yield
            finally:
                self._stopping.set()
                await task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = await self._instead(request)
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self._loaded.wait()
        if self._app is None:
            await page(request, "message", status=500, problem="loading")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _instead(self, request: Request) -> ASGIApp | None:
        """What a person gets in place of a page that is not for them, or of anything that belongs to it.

        Gradio asks who is there itself, but not on all of its routes.
        """
        path = request.url.path.rstrip("/")
        of = "/" + path.split("/")[1] if path else ""
        if path == "/steps":
            return RedirectResponse("/label", 303)
        if of not in PAGES:
            return _refused(404, *OTHER[404])
        role = await run_in_threadpool(_role, self._studio, request)
        if role in PAGES[of]:
            return None if served(of, request.method, path[len(of) + 1 :]) else _refused(404, *OTHER[404])
        if path != of or request.method != "GET":
            return _refused(401, "login", SIGN_IN) if role is None else _refused(403, "role", ROLE)
        if role is None:
            return RedirectResponse(f"/login?next={path}", 303)
        return page(request, "message", status=403, problem="role")

    async def _run(self) -> None:
        try:
            if not await self._imported():
                return
            app = await asyncio.to_thread(asyncio.run, _build(self._studio))
            async with app.router.lifespan_context(app):
                self._app = app
                self._loaded.set()
                await self._stopping.wait()
        except Exception:
            log.exception("the pages could not be loaded")
        finally:
            self._loaded.set()

    async def _imported(self) -> bool:
        """Import what the pages are made of; False where the server stops first, which then does not wait for it."""
        loop = asyncio.get_running_loop()
        imported: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            problem = None
            try:
                _import()
            except Exception as error:
                problem = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, imported, problem)

        threading.Thread(target=work, name="pages", daemon=True).start()
        stopping = asyncio.create_task(self._stopping.wait())
        either: set[asyncio.Future[Any]] = {imported, stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            imported.cancel()
            return False
        stopping.cancel()
        imported.result()
        return True


def _settle(imported: asyncio.Future[None], problem: Exception | None) -> None:
    if imported.done():  # cancelled
        return
    if problem is None:
        imported.set_result(None)
    else:
        imported.set_exception(problem)


def _import() -> None:
    """Import Gradio and all that builds pages of it: most of the seconds that the pages take."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
    # Of a library for sound that Gradio brings along; nothing here has any.
    warnings.filterwarnings("ignore", message="Couldn't find ffmpeg or avconv", category=RuntimeWarning)
    importlib.import_module("gradio")
    importlib.import_module("annotate.pages.work")
    shell = importlib.import_module("annotate.manage.shell")
    for _, module in (*shell.MANAGE_TABS, *shell.LOOP_TABS):
        importlib.import_module(module)


async def _build(studio: Studio) -> FastAPI:
    """The app; a coroutine, since Gradio makes an event loop for every element, and closes none, where none runs."""
    import gradio as gr

    from annotate.manage import shell
    from annotate.pages import work

    settings = studio.store.settings()
    pages = {
        "/label": work.build(),
        "/review": shell.build(studio, settings.name, shell.REVIEW_TABS, "/review"),
        "/manage": shell.build(studio, settings.name, shell.MANAGE_TABS, "/manage"),
        "/loop": shell.build(studio, settings.name, shell.LOOP_TABS, "/loop"),
    }
    # The colours of the label page, and no font that would have to be fetched.
    theme = gr.themes.Default(
        primary_hue="indigo",
        secondary_hue="indigo",
        neutral_hue="stone",
        font=("Inter", "system-ui", "sans-serif"),
        font_mono=("ui-monospace", "monospace"),
    )
    app = FastAPI(openapi_url=None)
    for path, blocks in pages.items():
        gr.mount_gradio_app(
            app,
            blocks,
            path,
            theme=theme,
            auth_dependency=_dependency(studio, PAGES[path]),
            run_history=False,
            footer_links=[],
            ssr_mode=False,
            mcp_server=False,
            enable_monitoring=False,
            pwa=False,
            show_error=True,
            max_file_size="512mb",
        )
    return app


def _dependency(studio: Studio, roles: tuple[str, ...]) -> Any:
    """What Gradio asks on every route of a page: the name of who is there, None where they may not be."""

    async def who(request: Request) -> str | None:
        login = await run_in_threadpool(studio.login, request.cookies.get(studio.cookie))
        return login.person.name if login is not None and login.person.role in roles else None

    return who


def served(page: str, method: str, path: str) -> bool:
    """Whether a page has something at a path below it."""
    if method in ("GET", "HEAD") and _DRAWS.fullmatch(path):
        return True
    if method == "POST" and _UPLOADS.fullmatch(path):
        return page not in _WITHOUT_FILES
    presses = {"GET": _LOOKS, "POST": _PRESSES}.get(method)
    return page not in _WITHOUT_BUTTONS and presses is not None and presses.fullmatch(path) is not None


def _refused(status: int, code: str, message: str) -> ASGIApp:
    return JSONResponse(body(code, message), status)


def _role(studio: Studio, request: Request) -> str | None:
    login = studio.login(request.cookies.get(studio.cookie))
    return None if login is None else login.person.role
