"""The pages that Gradio draws: who gets them, and that their handlers ask too."""

from __future__ import annotations

import re
import sys
import types

import gradio as gr
import httpx
import pytest

from annotate import serve
from annotate.studio import Studio
from prefrl.data.comparisons import Item
from prefrl.types import Completion, Prompt

ROUTES = ("run/predict", "queue/join", "api/predict", "upload", "component_server", "cancel", "reset")
LOOKS = (
    "config",
    "theme.css",
    "gradio_api/info",
    "gradio_api/queue/data?session_hash=abc",
    "gradio_api/startup-events",
)


def tab(studio: Studio) -> None:
    """A tab whose handlers say who called them, with the queue and without."""
    out, button = gr.Textbox(), gr.Button()

    def who(request: gr.Request) -> str:
        return studio.person_of(request).name

    def anybody(request: gr.Request) -> str:
        return studio.person_of(request, ("annotator",)).name

    for handler in (who, anybody):
        button.click(handler, None, out, queue=False, api_visibility="private")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    probe = types.ModuleType("probe_tab")
    probe.build = tab
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "probe_tab", probe)
        from annotate.manage import shell

        patch.setattr(shell, "MANAGE_TABS", (("Probe", "probe_tab"),))
        patch.setattr(shell, "LOOP_TABS", (("Probe", "probe_tab"),))
        patch.setattr(shell, "REVIEW_TABS", (("Probe", "probe_tab"),))
        with serve.Running(tmp_path_factory.mktemp("project")) as server:
            prompt = Prompt(id="p", text="Q?")
            item = Item(prompt=prompt, first=Completion(text="1"), second=Completion(text="2"))
            server.studio.store.add_items([item])
            with client(server, "somebody") as somebody:
                assert somebody.get("/label/").status_code == 200  # loaded, before anything else happens here
            yield server


def client(running, name="", role="annotator"):
    headers, cookies = {"origin": running.url}, {}
    if name:
        people = running.studio.store.people
        if people.get(name) is None:
            people.add(name, role)
        login = people.open_session(name, 1.0)
        headers["x-csrf-token"], cookies[running.studio.cookie] = login.csrf, login.token
    return httpx.Client(base_url=running.url, headers=headers, cookies=cookies, timeout=60)


def test_labels_can_be_given_before_the_pages_are_loaded(tmp_path):
    with serve.Running(tmp_path) as server, client(server, "ann") as ann:
        assert ann.get("/api/me").json()["name"] == "ann"
        page = ann.get("/label/")  # waits for Gradio
        assert page.status_code == 200 and "gradio" in page.text


def test_pages_are_for_those_whom_they_concern(running):
    with client(running) as nobody, client(running, "ann") as ann, client(running, "boss", "manager") as boss:
        for path in ("/label", "/manage", "/loop", "/label/", "/manage/"):
            answer = nobody.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={path.rstrip('/')}")
        codes = {
            path: (ann.get(path).status_code, boss.get(path).status_code) for path in ("/label/", "/manage/", "/loop/")
        }
        assert codes == {"/label/": (200, 200), "/manage/": (403, 200), "/loop/": (403, 200)}
        assert "Ask one of them" in ann.get("/manage/").text
        assert ann.get("/steps").headers["location"] == "/label" and ann.get("/").headers["location"] == "/label"


def test_reviewers_have_a_page_of_their_own(running):
    with client(running, "rita", "reviewer") as rita, client(running, "ann") as ann:
        text = rita.get("/review/").text
        assert all(f'href=\\"{path}\\"' in text for path in ("/label", "/review", "/logout"))
        assert 'href=\\"/manage\\"' not in text  # which is for others
        assert [rita.get(path).status_code for path in ("/label/", "/manage/", "/loop/")] == [200, 403, 403]
        assert ann.get("/review/").status_code == 403
        assert ann.post("/review/gradio_api/queue/join", json={}).status_code == 403
        assert rita.post("/review/gradio_api/upload", files={"files": ("a.csv", b"x")}).status_code == 404


def test_pages_of_managers_lead_to_the_others_and_out(running):
    with client(running, "boss", "manager") as boss:
        for page in ("/manage/", "/loop/"):
            text = boss.get(page).text
            assert all(f'href=\\"{path}\\"' in text for path in ("/label", "/manage", "/loop", "/logout")), page


@pytest.mark.parametrize("page", ["/manage", "/loop"])
def test_no_route_behind_a_page_of_managers_answers_an_annotator(running, page):
    body = {"data": [], "fn_index": 0, "session_hash": "abc"}
    with client(running) as nobody, client(running, "ann") as ann, client(running, "rita", "reviewer") as rita:
        for person, refused in ((nobody, (401, "login")), (ann, (403, "role")), (rita, (403, "role"))):
            answers = {route: person.post(f"{page}/gradio_api/{route}", json=body) for route in ROUTES}
            answers |= {route: person.get(f"{page}/{route}") for route in LOOKS}
            found = {route: (answer.status_code, answer.json()["error"]["code"]) for route, answer in answers.items()}
            assert found == dict.fromkeys((*ROUTES, *LOOKS), refused)


def test_every_handler_asks_who_calls(running):
    def call(person, function):
        body = {"data": [], "fn_index": function, "session_hash": "abc"}
        return person.post("/manage/gradio_api/run/predict", json=body)

    with client(running, "boss", "manager") as boss:
        assert call(boss, 0).json()["data"] == ["boss"]
        refused = call(boss, 1)  # a handler that is for others
        assert refused.status_code == 500 and "This is for annotator only" in refused.text
        evil = boss.post("/manage/gradio_api/run/predict", json={}, headers={"origin": "http://localhost:9999"})
        assert (evil.status_code, evil.json()["error"]["code"]) == (403, "origin")
        running.studio.store.people.set_role("boss", "annotator")
        assert call(boss, 0).status_code == 403
        running.studio.store.people.set_role("boss", "manager")


def test_scripts_run_with_the_nonce_of_the_page_only(running):
    with client(running, "ann") as ann:
        pages = [ann.get("/label/") for _ in range(2)]
    policies = [page.headers["content-security-policy"] for page in pages]
    nonces = [re.search(r"script-src 'self' 'nonce-([\w-]+)' 'unsafe-eval';", policy)[1] for policy in policies]
    assert nonces[0] != nonces[1]
    for page, nonce in zip(pages, nonces, strict=True):
        scripts = re.findall(r"<script[^>]*>", page.text)
        assert len(scripts) >= 4 and all(f'nonce="{nonce}"' in script for script in scripts)
    assert "connect-src 'self';" in policies[0] and "img-src 'self' data: blob:;" in policies[0]
    assert "frame-ancestors 'none'" in policies[0] and "https:" not in policies[0]


def test_gradio_neither_shares_with_other_origins_nor_keeps_runs(running):
    with client(running, "ann") as ann:
        page = ann.get("/label/")
        assert not [name for name in page.headers if name.startswith("access-control")]
        assert '"run_history":false' in page.text and '"analytics_enabled":false' in page.text
        assert '"footer_links":[]' in page.text and '"connect_heartbeat":false' in page.text  # no state, no unload
