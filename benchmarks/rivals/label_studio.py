"""Label Studio: its server, its template for pairs, and its API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page

from rivals.pairs import Pair, Wish
from rivals.tools import FOREIGN, PASSWORD, Person, Seen, processor_seconds

# Its template "Pairwise classification" with the question above, and answers in the columns of the pairs.
TEMPLATE = """<View>
  <Header value="$prompt"/>
  <Pairwise name="pw" toName="text1,text2"/>
  <Text name="text1" value="$first"/>
  <Text name="text2" value="$second"/>
</View>"""
QUIET = ("COLLECT_ANALYTICS", "LATEST_VERSION_CHECK")
STARTS_IN = 900  # seconds


class LabelStudio:
    """The server is started once; every project is one of it."""

    actions: tuple[str, ...] = (
        "start the server, which opens the page",
        "sign up with an address and a password",
        "press Create Project and type a name",
        "upload the file of pairs",
        "choose the template and name the columns in it",
        "press Save",
        "press Label All Tasks",
        "click on an answer",
        "press Submit",
    )
    button = "button:has-text('Submit')"

    def __init__(self, command: str, name: str) -> None:
        self._command, self.name = command, name
        self._process: subprocess.Popen[bytes] | None = None
        self._people: dict[str, httpx.Client] = {}
        self._pairs: dict[str, Pair] = {}
        self._waiting: Sequence[Pair] = ()
        self._project = 0
        self.url = ""

    def open(self, folder: Path, pairs: Sequence[Pair]) -> None:
        self._waiting = pairs
        if self._process is None:
            self._start(folder)
        if self._people:
            self._make()

    def _start(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        quiet = {name: "0" for name in (*QUIET, *map(str.lower, QUIET))} | {"SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": ""}
        command = [self._command, "start", "--no-browser", "--port", str(port), "--internal-host", "127.0.0.1"]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder), "PYTHONPATH": "", **quiet},
        )
        end = time.monotonic() + STARTS_IN
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Label Studio did not start; its status is {self._process.poll()}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        """Nothing: the server goes on for the next project, until `stop`."""

    def work(self) -> float:
        assert self._process is not None
        return processor_seconds(self._process.pid)

    def stop(self) -> None:
        """End the server."""
        for http in self._people.values():
            http.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def enter(self, page: Page) -> None:
        self.client("ann")
        page.goto(f"{self.url}/user/login/")
        page.fill("input[name=email]", "ann@example.com")
        page.fill("input[name=password]", PASSWORD)
        with page.expect_navigation():
            page.press("input[name=password]", "Enter")
        self._make()
        page.goto(f"{self.url}/projects/{self._project}/data?labeling=1")
        page.wait_for_selector(self.button)

    def vote(self, page: Page) -> None:
        page.get_by_text(self._waiting[0].second).first.click()
        with page.expect_response(lambda r: "/annotations" in r.url and r.request.method == "POST"):
            page.click(self.button)

    def _make(self) -> None:
        """A project of the pairs: through the API, as a person would upload a file and paste the template."""
        http = self.client("ann")
        made = http.post("/api/projects", json={"title": "Pairs", "label_config": TEMPLATE}).json()
        self._project = made["id"]
        rows = [{"prompt": p.prompt, "first": p.first, "second": p.second} for p in self._waiting]
        http.post(f"/api/projects/{self._project}/import", json=rows).raise_for_status()
        self._pairs = {pair.prompt: pair for pair in self._waiting}

    def client(self, name: str) -> httpx.Client:
        """The session of a person; the first signs up, the others by a link of theirs."""
        if name not in self._people:
            page = "/user/signup/"
            if self._people:
                page = next(iter(self._people.values())).get("/api/invite").json()["invite_url"]
            http = httpx.Client(base_url=self.url, timeout=60)
            http.get(page)
            form = {"email": f"{name}@example.com", "password": PASSWORD}
            form["csrfmiddlewaretoken"] = http.cookies["csrftoken"]
            http.post(page, data=form, headers={"Referer": self.url + page})
            http.headers.update({"X-CSRFToken": http.cookies["csrftoken"], "Referer": f"{self.url}/"})
            self._people[name] = http
        return self._people[name]

    def person(self, name: str) -> Person:
        return _Annotator(self.client(name), self._project, self._pairs)

    def stranger(self) -> int:
        return httpx.get(f"{self.url}/api/projects/{self._project}/next").status_code

    def result(self, pair: Pair) -> str:
        tasks = self._fetch("JSON")
        found = [a for task in json.loads(tasks) if task["data"]["prompt"] == pair.prompt for a in task["annotations"]]
        return json.dumps([{"was_cancelled": a["was_cancelled"], "result": a["result"]} for a in found])

    def export(self, folder: Path) -> list[Path]:
        files = []
        for kind in ("JSON_MIN", "JSON", "CSV"):
            file = folder / f"{kind}-{self._project}.{'csv' if kind == 'CSV' else 'json'}"
            file.write_bytes(self._fetch(kind))
            files.append(file)
        return files

    def chosen(self, file: Path) -> list[tuple[str, str]]:
        """With the conversion that it takes: which side was selected, and the text that was there."""
        sides = {"left": "first", "right": "second"}
        return [(row["prompt"], row[sides[row["pw"][0]["selected"]]]) for row in json.loads(file.read_text())]

    def _fetch(self, kind: str) -> bytes:
        answer = self.client("ann").get(f"/api/projects/{self._project}/export", params={"exportType": kind})
        return answer.raise_for_status().content


class _Annotator:
    def __init__(self, http: httpx.Client, project: int, pairs: dict[str, Pair]) -> None:
        self._http, self._project, self._pairs = http, project, pairs

    def next(self) -> Seen | None:
        answer = self._http.get(f"/api/projects/{self._project}/next")
        if answer.status_code != 200:
            return None
        task = answer.json()
        return Seen(self._pairs[task["data"]["prompt"]], str(task["id"]), first_left=True)

    def say(self, seen: Seen, wish: Wish) -> int | None:
        if wish == "skip":
            return self._post(seen.handle, {"result": [], "was_cancelled": True})
        side = {"first": "left", "second": "right"}.get(wish)
        return self._post(seen.handle, _result(side)) if side else None

    def forge(self) -> int:
        return self._post("999999", _result("left"))

    def from_elsewhere(self, seen: Seen) -> int:
        """With the cookie alone: a page of another site does not know the token."""
        with httpx.Client(base_url=self._http.base_url, cookies=self._http.cookies) as http:
            headers = {"Origin": FOREIGN, "Referer": f"{FOREIGN}/"}
            answer = http.post(f"/api/tasks/{seen.handle}/annotations/", json=_result("left"), headers=headers)
            return answer.status_code

    def progress(self) -> str:
        found = self._http.get(f"/api/projects/{self._project}").json()
        skipped = found["skipped_annotations_number"]
        return f"{found['finished_task_number']} of {found['task_number']}, {skipped} skipped"

    def _post(self, task: str, body: dict[str, Any]) -> int:
        return self._http.post(f"/api/tasks/{task}/annotations/", json=body).status_code


def _result(side: str) -> dict[str, Any]:
    said = {"from_name": "pw", "to_name": "text1,text2", "type": "pairwise", "value": {"selected": side}}
    return {"result": [said], "lead_time": 1.0}
