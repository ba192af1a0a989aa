"""Pages of plain HTML without scripts: signing in, joining, and being told why not."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

FOLDER = Path(__file__).parent


def page(
    request: Request, template: str, *, status: int = 200, problem: str = "", wait: float = 0.0, **given: Any
) -> HTMLResponse:
    """A page in the language that the browser asks for.

    Args:
        request: that is answered.
        template: its name.
        status: of HTTP.
        problem: what went wrong, a name in `words/` or the words themselves; empty where nothing did.
        wait: seconds until one may try again; 0 where one need not wait.
        given: what else the template shows.
    """
    language = _language(request)
    shown = {"t": _languages()[language], "language": language, "problem": words(request, problem, wait)}
    project = request.app.state.studio.store.settings().name
    content = _templates().get_template(f"{template}.html.j2").render(project=project, **shown, **given)
    return HTMLResponse(content, status, {"retry-after": str(math.ceil(wait))} if wait else None)


def words(request: Request, problem: str, wait: float = 0.0) -> str:
    """A problem in the language that the browser asks for; one that is not in `words/` stays as it is."""
    texts = _languages()[_language(request)]
    return texts[problem].format(seconds=math.ceil(wait)) if problem in texts else problem


def _language(request: Request) -> str:
    return language_of(request.headers.get("accept-language", ""))


def language_of(accepted: str) -> str:
    """The first language of an Accept-Language header that we speak; English where there is none."""
    for entry in accepted.split(","):
        language = entry.split(";")[0].strip().lower().split("-")[0]
        if language in _languages():
            return language
    return "en"


@cache
def _languages() -> dict[str, dict[str, str]]:
    files = (FOLDER / "words").glob("*.json")
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
