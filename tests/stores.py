"""Items to label, and two ways to keep them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import postgres
from sqlalchemy import update

from prefrl.data.comparisons import CheckItem, Item, StepItem
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import ProjectSettings
from prefrl.data.store import schema
from prefrl.types import Completion, Prompt

BACKENDS = ["sqlite", *(["postgres"] if postgres.AVAILABLE else [])]
PNG = b"\x89PNG\r\n\x1a\n"


def pair(number: int = 0, **more: Any) -> Item:
    """Two completions of a prompt."""
    prompt = Prompt(id=f"p{number}", text=f"Say {number}")
    return Item(prompt=prompt, first=Completion(text="one"), second=Completion(text="two"), id=f"i{number}", **more)


def pairs(count: int, **more: Any) -> list[Item]:
    """So many pairs with the ids i0, i1, ..."""
    return [pair(number, **more) for number in range(count)]


def steps(**more: Any) -> StepItem:
    """A solution in three steps."""
    return StepItem(prompt=Prompt(id="s", text="Add 1 and 1"), steps=("1", "+ 1", "= 3"), id="s0", **more)


def checked(**more: Any) -> CheckItem:
    """A completion to be called right or wrong."""
    prompt = Prompt(id="c", text="Is it?")
    return CheckItem(prompt=prompt, completion=Completion(text="yes"), id="c0", verdicts={"exact": 1.0}, **more)


@contextlib.contextmanager
def opened(place: str | Path, count: int = 0, **more: Any) -> Iterator[PreferenceStore]:
    """A store with so many pairs."""
    with PreferenceStore(place) as store:
        store.add_items(pairs(count, **more))
        yield store


def settle(store: PreferenceStore, **settings: Any) -> None:
    """Choose settings; no known answers are mixed in unless that is asked for."""
    store.save_settings(ProjectSettings(**{"gold_share": 0.0, **settings}))


def fix_secret(store: PreferenceStore, secret: str = "fixed") -> None:
    """Let sides and known answers be drawn the same way every time."""
    with store._database.writing() as connection:
        connection.execute(update(schema.project).values(secret=secret))


def given(store: PreferenceStore, person: str, count: int = 1, **more: Any) -> list[str]:
    """The items that a person is given."""
    return [assignment.item for assignment in store.work.next(person, count=count, **more)]


def label_next(store: PreferenceStore, person: str, outcome: Any = "first", **more: Any) -> str | None:
    """The item that a person is given next and labels; None where there is none."""
    given = store.work.next(person, count=1, now=more.get("now"))
    if not given:
        return None
    if outcome == "skip":
        more["details"] = {"reasons": ["I cannot judge this"]}
    store.work.submit(given[0].id, person, outcome, label_id=f"{given[0].id}-1", **more)
    return given[0].item


def at_once(functions: Sequence[Callable[[], Any]]) -> list[BaseException]:
    """Run functions in threads that start together; what they raised."""
    gate, raised = threading.Barrier(len(functions)), list[BaseException]()

    def run(function: Callable[[], Any]) -> None:
        gate.wait()
        try:
            function()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised
