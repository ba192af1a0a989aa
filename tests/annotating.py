"""A labelling project for tests: its server without a socket, and people who are signed in."""

from __future__ import annotations

import contextlib
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from annotate import gradio_pages
from annotate.app import create_app
from annotate.serve import opened
from annotate.studio import Limits, Studio
from prefrl.data.comparisons import CheckItem, Item, StepItem, Task
from prefrl.data.project import ProjectSettings
from prefrl.types import Completion, Prompt

ORIGIN = "http://testserver"
SECRETS = (
    "checkpoint-one",
    "checkpoint-two",
    "judge-model",
    "0.123456",
    "why-it-was-chosen",
    "verdict-name",
    "known-note",
)


class Place:
    """A project that is open, and its server."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.store = studio, studio.store
        self.app = create_app(studio, gradio=False)

    def client(self, **headers: str) -> TestClient:
        """A browser in which nobody is signed in."""
        return TestClient(self.app, headers={"origin": ORIGIN, **headers}, follow_redirects=False)

    def enter(self, name: str, role: str = "annotator") -> Browser:
        """Somebody who is signed in; the account is made where there is none."""
        if self.store.people.get(name) is None:
            self.store.people.add(name, role)
        return Browser(self, name)


class Browser:
    """A browser in which somebody is signed in."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.login = place.store.people.open_session(name, 1.0)
        self.client = place.client(**{"x-csrf-token": self.login.csrf})
        self.client.cookies.set(place.studio.cookie, self.login.token)

    def get(self, path: str) -> Any:
        return self.client.get(path)

    def post(self, path: str, body: dict[str, Any] | None = None, **more: Any) -> Any:
        return self.client.post(path, json=body or {}, **more)

    def next(self, count: int = 1, held: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """Items as the page gets them."""
        answer = self.post("/api/next", {"count": count, "held": list(held)})
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]

    def views(self, count: int = 3) -> Iterator[dict[str, Any]]:
        """One item after the other until there is none; each is to be labelled before the next."""
        while views := self.next(count):
            yield from views

    def label(self, assignment: str, outcome: str, **more: Any) -> Any:
        """Send a label."""
        body = {"id": uuid.uuid4().hex, "assignment": assignment, "outcome": outcome, **more}
        return self.post("/api/labels", body)


@contextlib.contextmanager
def place(folder: Path, limits: Limits | None = None, **settings: Any) -> Iterator[Place]:
    """A new project with these settings; without known answers mixed in unless they say so."""
    with opened(folder) as studio:
        studio.store.save_settings(ProjectSettings(**{"gold_share": 0.0, "skip_reasons": (), **settings}))
        yield Place(studio if limits is None else Studio(folder=folder, store=studio.store, limits=limits))


def without_gradio(monkeypatch: Any) -> None:
    """Serve no pages: loading Gradio takes seconds, and a thread of its own in which warnings of others turn up."""

    async def nothing(studio: Studio) -> FastAPI:
        return FastAPI()

    monkeypatch.setattr(gradio_pages, "_import", lambda: None)
    monkeypatch.setattr(gradio_pages, "_build", nothing)


def pair(number: int = 0, **more: Any) -> Item:
    """A pair that nobody may know more of than its texts."""
    prompt = Prompt(id=f"p{number}", text=f"Question {number}?", columns={"answer": "known-note"})
    secret = {"checkpoints": SECRETS[:2], "judge": SECRETS[2], "uncertainty": 0.123456, "why": SECRETS[4], "round": 7}
    texts = (Completion(text=f"Left {number}"), Completion(text=f"Right {number}", finished=False))
    return Item(prompt=prompt, first=texts[0], second=texts[1], **{**secret, **more})


def steps(number: int = 0, **more: Any) -> StepItem:
    """A solution of three steps."""
    prompt = Prompt(id=f"s{number}", text=f"Sum {number}?")
    secret = {"checkpoint": SECRETS[0], "guesses": (0.123456, 0.5, 0.5), "why": SECRETS[4]}
    return StepItem(prompt=prompt, steps=("One", "Two", "Three"), answer="4", **{**secret, **more})


def check(number: int = 0, **more: Any) -> CheckItem:
    """An answer that programs disagree about."""
    prompt = Prompt(id=f"c{number}", text=f"Fact {number}?")
    secret = {"checkpoint": SECRETS[0], "verdicts": {SECRETS[5]: 0.123456}, "why": SECRETS[4]}
    return CheckItem(
        prompt=prompt, completion=Completion(text="Yes"), question="Is it?", answer="No", **{**secret, **more}
    )


def tasks() -> list[Task]:
    """An item of every kind."""
    return [pair(), steps(), check()]


def png(shade: int = 0) -> bytes:
    """A picture of one pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixel = zlib.compress(bytes([0, shade]))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
