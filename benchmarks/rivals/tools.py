"""What the comparison asks of every labelling app, and the two that are started from Python."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
from playwright.sync_api import Page

from rivals.pairs import Pair, Wish

HOST = Path(__file__).with_name("host.py")
ROOT = Path(__file__).parents[2]
PASSWORD = "labelling-123"
FOREIGN = "http://elsewhere.example"
SHORT_OF = {"first": "second", "second": "first"}


@dataclass(frozen=True)
class Seen:
    """A pair as somebody was given it: what the app calls it, and whether the first answer is on the left."""

    pair: Pair
    handle: str
    first_left: bool

    def side(self, wish: Wish) -> str:
        """The side on which an answer is, or what else was said."""
        return {True: "a", False: "b"}[(wish == "first") == self.first_left] if wish in SHORT_OF else wish


class Person(Protocol):
    """Somebody who labels over HTTP."""

    def next(self) -> Seen | None: ...

    def say(self, seen: Seen, wish: Wish) -> int | None:
        """The status of the answer; None where this cannot be said."""

    def forge(self) -> int:
        """The status of a label of an item that there is not."""

    def from_elsewhere(self, seen: Seen) -> int:
        """The status of a label that a page of another site sends along with this person's cookie."""

    def progress(self) -> str: ...


class Tool(Protocol):
    """A labelling app.

    name     with its version
    actions  what somebody does until the first label
    button   selector of a button by which one votes
    """

    name: str
    actions: tuple[str, ...]
    button: str

    def open(self, folder: Path, pairs: Sequence[Pair]) -> None:
        """Serve a new project of these pairs."""

    def close(self) -> None: ...

    def work(self) -> float:
        """Seconds of a processor that the server has used."""

    def enter(self, page: Page) -> None:
        """From nothing to the label page, as somebody who has just installed the app."""

    def vote(self, page: Page) -> None:
        """Choose a side; on return the label is stored."""

    def person(self, name: str) -> Person: ...

    def stranger(self) -> int:
        """The status of the queue for somebody who is not signed in."""

    def result(self, pair: Pair) -> str:
        """What a program is told of a pair."""

    def export(self, folder: Path) -> list[Path]:
        """All files in which labels can be had, the one for training first."""

    def chosen(self, file: Path) -> list[tuple[str, str]]:
        """Question and better answer of every row of the first file."""


class Hosted:
    """An app in a process of `host.py`."""

    module = ""
    actions: tuple[str, ...] = ()
    button = ""

    def __init__(self, python: str, name: str) -> None:
        self._python, self.name = python, name
        self._process: subprocess.Popen[str] | None = None
        self._begun: dict[str, Any] = {}
        self._log = Path()
        self._clients: list[httpx.Client] = []
        self.pairs: dict[str, Pair] = {}

    @property
    def url(self) -> str:
        return str(self._begun["url"])

    def open(self, folder: Path, pairs: Sequence[Pair]) -> None:
        folder.mkdir(parents=True)
        (folder / "pairs.json").write_text(json.dumps([asdict(pair) for pair in pairs]))
        command = [self._python, str(HOST), self.module, str(folder), str(folder / "pairs.json")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
        self._log = folder / "log.txt"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self._begun = self._read()
        self.pairs = dict(zip(self._begun["ids"], pairs, strict=True))

    def close(self) -> None:
        for http in self._clients:
            http.close()
        self._clients.clear()
        if self._process is not None:
            with self._process as ending:
                ending.terminate()
            self._process = None

    def client(self, **headers: str) -> httpx.Client:
        """Connections of a person, which end with the app."""
        self._clients.append(httpx.Client(base_url=self.url, timeout=60, headers=headers))
        return self._clients[-1]

    def work(self) -> float:
        assert self._process is not None
        return processor_seconds(self._process.pid)

    def ask(self, what: str, argument: str) -> Any:
        """Have the process do something."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, argument]) + "\n")
        self._process.stdin.flush()
        return self._read()

    def result(self, pair: Pair) -> str:
        return json.dumps(self.ask("wait", self.id_of(pair)), ensure_ascii=False)

    def export(self, folder: Path) -> list[Path]:
        path = folder / f"{uuid.uuid4().hex[:6]}.jsonl"
        self.ask("export", str(path))
        return [path] if path.exists() else []

    def chosen(self, file: Path) -> list[tuple[str, str]]:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        return [(row["prompt"], row["chosen"]) for row in rows]

    def id_of(self, pair: Pair) -> str:
        """What the app calls a pair."""
        return next(id for id, known in self.pairs.items() if known == pair)

    def by_prompt(self, prompt: str) -> Pair:
        """The pair of a question."""
        return next(pair for pair in self.pairs.values() if pair.prompt == prompt)

    def _read(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self.module} ended with status {self._process.wait()}: {self._log.read_text()[-500:]}"
            )
        return json.loads(line)


class Feedloop(Hosted):
    """feedloop: one person, without an account."""

    module = "feedloop"
    actions: tuple[str, ...] = ("run four lines of Python, which open the page", "press 1")
    button = "button:has-text('Prefer A')"

    def enter(self, page: Page) -> None:
        page.goto(self.url)
        page.wait_for_selector(self.button)

    def vote(self, page: Page) -> None:
        with page.expect_response(lambda response: "/api/feedback" in response.url):
            page.keyboard.press("1")

    def person(self, name: str) -> Person:
        return _Anybody(self)

    def stranger(self) -> int:
        return httpx.get(f"{self.url}/api/pending").status_code


class _Anybody:
    def __init__(self, tool: Feedloop) -> None:
        self._tool, self._http = tool, tool.client()

    def next(self) -> Seen | None:
        found = self._http.get("/api/pending").json()
        if found is None:
            return None
        pair = self._tool.pairs[found["id"]]
        return Seen(pair, found["id"], found["output_left"] == pair.first)

    def say(self, seen: Seen, wish: Wish) -> int | None:
        return self._post(seen.handle, {"a": "left", "b": "right"}.get(side := seen.side(wish), side))

    def forge(self) -> int:
        return self._post(uuid.uuid4().hex, "left")

    def from_elsewhere(self, seen: Seen) -> int:
        return self._post(seen.handle, "left", origin=FOREIGN)

    def progress(self) -> str:
        found = self._http.get("/api/pending").json()
        return f"{found['progress_completed']} of {found['progress_total']}"

    def _post(self, id: str, side: str, **headers: str) -> int:
        body = {"comparison_id": id, "chosen_side": side}
        return self._http.post("/api/feedback", json=body, headers=headers).status_code


class Annotate(Hosted):
    """This project's app."""

    module = "annotate"
    actions: tuple[str, ...] = (
        "run four lines of Python, which open the page",
        "type a name and press Enter",
        "press 1, then Enter",
    )
    button = "#work .bar .choice"

    def enter(self, page: Page) -> None:
        page.goto(str(self._begun["link"]))
        page.fill("#name", "Ann")
        page.press("#name", "Enter")
        page.wait_for_selector(self.button)

    def vote(self, page: Page) -> None:
        with page.expect_response(lambda response: "/api/labels" in response.url):
            page.keyboard.press("1")
            page.keyboard.press("Enter")

    def person(self, name: str) -> Person:
        return _Member(self, str(self.ask("invite", name)), name)

    def stranger(self) -> int:
        return httpx.post(f"{self.url}/api/next", json={}, headers={"Origin": self.url}).status_code


class _Member:
    def __init__(self, tool: Annotate, link: str, name: str) -> None:
        self._tool = tool
        self._http = tool.client(Origin=tool.url)
        self._http.post(link, data={"name": name})
        self._http.headers["X-CSRF-Token"] = self._http.get("/api/me").json()["csrf"]

    def next(self) -> Seen | None:
        items = self._post("/api/next", {"count": 1}).json()["items"]
        if not items:
            return None
        pair = self._tool.by_prompt(items[0]["prompt"][-1]["raw"])
        return Seen(pair, items[0]["assignment"], items[0]["a"]["raw"] == pair.first)

    def say(self, seen: Seen, wish: Wish) -> int | None:
        reasons = ["I cannot judge this"] if wish == "skip" else []
        return self._label(seen.handle, seen.side(wish), reasons=reasons)

    def forge(self) -> int:
        return self._label(uuid.uuid4().hex, "a")

    def from_elsewhere(self, seen: Seen) -> int:
        body = {"id": uuid.uuid4().hex, "assignment": seen.handle, "outcome": "a"}
        return self._http.post("/api/labels", json=body, headers={"Origin": FOREIGN}).status_code

    def progress(self) -> str:
        found = self._http.get("/api/me").json()["progress"]
        return f"{found['done']} of {found['total']}, {found['skipped']} skipped"

    def _label(self, assignment: str, outcome: str, **more: Any) -> int:
        return self._post(
            "/api/labels", {"id": uuid.uuid4().hex, "assignment": assignment, "outcome": outcome, **more}
        ).status_code

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        while (response := self._http.post(path, json=body)).status_code == 429:
            time.sleep(float(response.headers["Retry-After"]))
        return response


def processor_seconds(pid: int) -> float:
    """What a process has used of a processor until now; NaN where the system does not say so in /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def version_of(python: str, package: str) -> str:
    """The version of a package in an environment."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return re.sub(r"\s", "", found)
