"""Every route and every handler that there is, found by looking: none answers those whom it does not concern."""

from __future__ import annotations

import asyncio
import inspect
import re
from types import SimpleNamespace
from typing import get_type_hints

import gradio as gr
import pytest
from annotating import place, tasks
from gradio.routes import App

from annotate.gradio_pages import PAGES, served
from annotate.manage import shell

PUBLIC = {
    "GET /",
    "GET /health",
    "GET /login",
    "POST /login",
    "GET /join/{token}",
    "POST /join/{token}",
    "GET /favicon.ico",
    "GET /logout",
}
FOR_MANAGERS = {"GET /report/{name}"}
FOR_BROWSERS = {  # of what Gradio offers: to draw a page, and to press its buttons
    "label": "assets config favicon.ico manifest.json startup-events static svelte theme.css",
    "manage": "assets cancel config favicon.ico file= heartbeat manifest.json queue/data queue/join reset run "
    "startup-events static svelte theme.css upload upload_progress",
}
FOR_BROWSERS |= {"loop": FOR_BROWSERS["manage"], "review": FOR_BROWSERS["manage"].replace(" upload ", " ")}


def routes(router, before=""):
    """Method and path of all routes, those of included routers too."""
    for route in router.routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            prefix = getattr(getattr(route, "include_context", None), "prefix", "") or ""
            yield from routes(inner, before + prefix)
        elif getattr(route, "methods", None):
            yield from ((method, before + route.path) for method in sorted(route.methods - {"HEAD"}))


def test_our_own_routes_answer_nobody_and_reports_managers_only(tmp_path):
    with place(tmp_path) as there:
        found = {f"{method} {path}" for method, path in routes(there.app._app)}
        assert found >= PUBLIC | FOR_MANAGERS and len(found) >= 15
        nobody, ann, rita = there.client(), there.enter("ann"), there.enter("rita", "reviewer")
        for route in sorted(found - PUBLIC):
            method, path = route.split()
            path = re.sub(r"\{\w+\}", "0" * 32, path) + ("?assignment=0" if "media" in path else "")
            assert nobody.request(method, path, json={}).status_code == 401, route
            if route in FOR_MANAGERS:
                assert [p.client.request(method, path).status_code for p in (ann, rita)] == [403, 403], route


@pytest.fixture(scope="module")
def of_gradio():
    async def made():  # Gradio makes an event loop for every element, and closes none, where none runs
        with gr.Blocks() as page:
            gr.HTML("x")
        return App.create_app(page)

    found = sorted(set(routes(asyncio.run(made()))))
    assert len(found) > 60 and ("POST", "/gradio_api/vibe-code") in found  # its own code: they were found
    return found


@pytest.mark.parametrize("page", ["label", "review", "manage", "loop"])
def test_of_all_that_gradio_offers_a_page_serves_what_a_browser_needs(of_gradio, page):
    allowed = set()
    for method, path in of_gradio:
        tried = re.sub(r"\{[\w:]+\}", "abc", path.strip("/"))
        if served(f"/{page}", method, tried):
            allowed.add(re.sub(r"gradio_api/|/?abc$", "", tried))
    assert sorted(allowed - {""}) == FOR_BROWSERS[page].split()


async def built(studio, tabs):
    return shell.build(studio, "x", tabs)


def calls(blocks, request):
    """Every handler of a page, called as somebody: its name, and what it raised."""
    for function in blocks.fns.values():
        hints = get_type_hints(function.fn, {**function.fn.__globals__, "gr": gr})
        given = {gr.Request: request, gr.EventData: gr.EventData(None, {"action": "closed", "ids": ["x"]})}
        values = iter([dict.fromkeys(function.inputs)] if function.inputs_as_dict else [None] * len(function.inputs))
        arguments = []
        for name, parameter in inspect.signature(function.fn).parameters.items():
            if hints.get(name) in given:
                arguments.append(given[hints[name]])
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                arguments += values
            else:
                arguments.append(next(values))
        name = f"{function.fn.__module__}.{function.fn.__qualname__}"
        try:
            result = function.fn(*arguments)
            yield name, f"answered {list(result) if inspect.isgenerator(result) else result!r}"
        except gr.Error as error:
            yield name, error.message


@pytest.mark.parametrize(("page", "tabs"), [("/manage", shell.MANAGE_TABS), ("/loop", shell.LOOP_TABS)])
def test_every_handler_refuses_those_who_get_past_the_page(tmp_path, page, tabs):
    assert PAGES[page] == ("admin", "manager")
    with place(tmp_path) as there:
        there.store.add_tasks(tasks())
        blocks, before = asyncio.run(built(there.studio, tabs)), there.store.events()
        assert len(blocks.fns) >= 14
        login = there.store.people.add("ann", "annotator") and there.store.people.open_session("ann", 1.0)
        for cookies, words in (({}, "signed out"), ({there.studio.cookie: "x"}, "signed out")):
            refused = dict(calls(blocks, SimpleNamespace(cookies=cookies)))
            assert {name: said for name, said in refused.items() if words not in said} == {}
        refused = dict(calls(blocks, SimpleNamespace(cookies={there.studio.cookie: login.token})))
        assert {name: said for name, said in refused.items() if "This is for" not in said} == {}
        assert len(refused) >= 10
        assert [e for e in there.store.events() if e.kind != "login"][: len(before)] == before
        assert {state.state for state in there.store.item_states().values()} == {"open"}
