"""The label page in a real browser: a project that is served, and people who look at it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from annotate.serve import Running
from prefrl.data.comparisons import CheckItem, Clip, Item, Label, StepItem, Task
from prefrl.data.project import ProjectSettings
from prefrl.types import Completion, Prompt

PASSWORD = "correct horse battery"
SCRIPTS_READY = "#work .bar, #work .ending"


@dataclass
class Site:
    """A project that is served, and the browser in which people look at it.

    trouble  what pages did that none may do: requests to elsewhere, dialogs, errors of scripts
    """

    running: Running
    browser: Browser
    trouble: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def store(self) -> Any:
        return self.running.studio.store

    def context(self, name: str = "ana", **options: Any) -> BrowserContext:
        """A browser of its own, in which somebody is signed in; the account is made where there is none."""
        studio = self.running.studio
        if studio.store.people.get(name) is None:
            studio.store.people.add(name, "annotator", studio.passwords.hash(PASSWORD))
        wide = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", "reduced_motion": "reduce"}
        context = self.browser.new_context(**{**wide, **options})
        context.set_default_timeout(90_000)  # a machine that is busy with other tests is slow, and not wrong
        token = studio.store.people.open_session(name, 1.0).token
        context.add_cookies([{"name": studio.cookie, "value": token, "url": self.url}])
        context.on("request", lambda request: self._watch(request.url))
        context.on("weberror", lambda error: self.trouble.append(f"script: {error.error}"))
        return context

    def open(self, context: BrowserContext | None = None, **options: Any) -> Page:
        """The label page, drawn."""
        page = (context or self.context(**options)).new_page()
        page.on("dialog", self._dialog)
        page.goto(f"{self.url}/label")
        page.wait_for_selector(SCRIPTS_READY)
        return page

    def labels(self) -> list[Label]:
        """The labels that count, in the order of their items' texts."""
        return sorted(self.store.labels(), key=lambda label: self.asked(label.item))

    def asked(self, item: str) -> str:
        """What an item asks."""
        return self.store.task(item).prompt.question

    def shown(self, label: Label) -> str:
        """The side that a label prefers, as its person saw it."""
        other = {"first": "b", "second": "a"} if label.details.get("exchanged") else {"first": "a", "second": "b"}
        return other.get(label.outcome, label.outcome)

    def _watch(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.trouble.append(f"request: {url}")

    def _dialog(self, dialog: Any) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextlib.contextmanager
def site(folder: Path, browser: Browser, tasks: Sequence[Task], **settings: Any) -> Iterator[Site]:
    """Serves a new project; without known answers mixed in, and rationales optional, unless the settings say so."""
    with Running(folder) as running:
        store = running.studio.store
        store.save_settings(ProjectSettings(**{"gold_share": 0.0, "name": "Answers", **settings}), by="test")
        store.add_tasks(tasks, by="test")
        made = Site(running, browser)
        try:
            yield made
        finally:
            for context in browser.contexts:
                context.close()


def pair(number: int = 0, first: str = "", second: str = "", question: str = "", **more: Any) -> Item:
    """Two answers; their texts say which they are."""
    texts = (first or f"First of {number}", second or f"Second of {number}")
    prompt = Prompt(id=f"p{number}", text=question or f"Question {number:03d}?")
    return Item(prompt=prompt, first=Completion(text=texts[0]), second=Completion(text=texts[1]), **more)


def pairs(count: int) -> list[Item]:
    """Many of them."""
    return [pair(number) for number in range(count)]


def solution(number: int = 0, count: int = 4) -> StepItem:
    """A solution in steps."""
    lines = tuple(f"Step {place + 1}: ${place} + 1 = {place + 1}$" for place in range(count))
    return StepItem(prompt=Prompt(id=f"s{number}", text=f"Solve {number:03d}."), steps=lines, answer=str(count))


def check(number: int = 0) -> CheckItem:
    """One answer to be checked."""
    prompt = Prompt(id=f"c{number}", text=f"Verify {number:03d}.")
    return CheckItem(prompt=prompt, completion=Completion(text="It is 7."), question="Is it 7?", answer="7")


def swing(number: int = 0, steps: int = 20) -> Item:
    """Two clips that are drawn from states."""
    states = [tuple((place * rise, 1.0 - rise) for place in range(steps)) for rise in (0.25, 0.5)]
    clips = tuple(Clip(states=rows, names=("angle", "speed"), seconds=0.05) for rows in states)
    return pair(number, question=f"Swing {number:03d}.", clips=(clips[0], clips[1]))


def press(page: Page, *keys: str) -> None:
    """Presses keys, one after the other."""
    for key in keys:
        page.keyboard.press(key)


def current(page: Page) -> str:
    """The assignment that is shown; empty where there is none."""
    return page.locator("#item").get_attribute("data-assignment") or ""


def kind(page: Page) -> str:
    """Its kind."""
    return page.locator("#item").get_attribute("data-kind") or ""


def saved(page: Page) -> None:
    """Waits until the server has acknowledged everything."""
    page.wait_for_selector(".status.saved", state="attached")
