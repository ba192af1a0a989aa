"""A project with simulated people, of whom three are careful, one opposes, one likes a side and one hurries."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prefrl.data.comparisons import Item
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import ProjectSettings
from prefrl.data.store.records import Gold
from prefrl.types import Completion, Prompt

START = 1_700_000_000.0
GOLD_ITEMS = 15
POLICIES = {"base": 0.0, "step-100": 1.0, "step-200": 2.0}


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Somebody who is right with a chance, takes what is shown as A with another one, and so many seconds."""

    right: float
    takes_a: float = 0.0
    seconds: float = 12.0


CROWD = {
    "ann": Simulated(right=0.88),
    "bob": Simulated(right=0.86),
    "cat": Simulated(right=0.9),
    "mallory": Simulated(right=0.1),
    "sid": Simulated(right=0.97, takes_a=0.55),
    "hasty": Simulated(right=0.87, seconds=1.2),
}


def simulated(path: Path, items: int = 160) -> dict[str, str]:
    """A store of its own, the same every time: sides and known answers are drawn by the secret of the project."""
    PreferenceStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE project SET id = 'simulated', secret = 'simulated'")
        connection.commit()
    with PreferenceStore(path) as store:
        return fill(store, items=items)


def fill(store: PreferenceStore, *, items: int = 160, overlap: int = 4, seed: int = 2) -> dict[str, str]:
    """Items of three policies with their labels; what is true of every item.

    A tie is true of none, and is said by nobody. Which of two answers is the better one follows from the policies, and
    chance. Labels are an hour's work of each person, and end at `START`.
    """
    rng = np.random.default_rng(seed)
    store.save_settings(ProjectSettings(name="Simulated", overlap=overlap, scale=4, gold_share=0.1))
    tasks, truth = _items(rng, items, overlap)
    known = {task.id: Gold(outcome="first" if truth[task.id] == "first" else "second") for task in tasks[:GOLD_ITEMS]}
    store.add_tasks(tasks, by="boss", gold=known)
    for name in CROWD:
        store.people.add(name, "annotator", by="boss")
    asleep: set[str] = set()
    step = 3000.0 * len(CROWD) / (items * overlap)  # known answers make a few turns more
    for turn in range(items * overlap):
        for name in (n for n in CROWD if n not in asleep):
            if not _label(store, name, truth, rng, START - 3600.0 + step * turn):
                asleep.add(name)
        if len(asleep) == len(CROWD):
            break
    return truth


def _items(rng: np.random.Generator, count: int, overlap: int) -> tuple[list[Item], dict[str, str]]:
    names, tasks, truth = list(POLICIES), [], {}
    for k in range(count):
        one, other = (names[i] for i in rng.choice(len(names), 2, replace=False))
        item = Item(
            prompt=Prompt(id=f"p{k}", messages=({"role": "user", "content": f"Question {k}: how do I keep bread?"},)),
            first=Completion(text=f"Answer {k} of the one: in a **bag**, `dry`."),
            second=Completion(text=f"Answer {k} of the other: in a box."),
            id=f"item-{k:04}",
            checkpoints=(one, other),
            overlap=overlap,
        )
        better = rng.random() < 1 / (1 + math.exp(POLICIES[other] - POLICIES[one]))
        tasks.append(item)
        truth[item.id] = "first" if better else "second"
    return tasks, truth


def _label(store: PreferenceStore, name: str, truth: dict[str, str], rng: np.random.Generator, now: float) -> bool:
    who, given = CROWD[name], store.work.next(name, 1, now=now)
    if not given:
        return False
    place = given[0]
    true = truth[place.item]
    said = true if rng.random() < who.right else {"first": "second", "second": "first"}[true]
    if rng.random() < who.takes_a:
        said = "second" if place.exchanged else "first"
    store.work.submit(
        place.id,
        name,
        said,  # type: ignore[arg-type]
        label_id=uuid.UUID(int=int(rng.integers(2**62))).hex,
        strength="clearly" if rng.random() < 0.6 else "slightly",
        details={"active_ms": 1000.0 * who.seconds * math.exp(0.5 * rng.standard_normal())},
        now=now,
    )
    return True
