"""A ready project to try: pairs in many forms, solutions in steps, single answers, and swings of a pendulum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefrl.data.comparisons import CheckItem, Clip, Item, StepItem, Task
from prefrl.data.formats import content_hash
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import Criterion, ProjectSettings
from prefrl.data.store.records import Gold
from prefrl.types import Completion, Prompt

FILE = Path(__file__).with_suffix(".yaml")
WRITERS = ("demo-small", "demo-large")
GUIDELINES = """\
Which answer would **you** rather have got?

1. *Right* comes first: an answer that is wrong or dangerous loses.
2. Then *helpful*: does it answer what was asked, in the form that was asked for?
3. Then *clear*: no longer than it needs to be. Longer is not better.

Say **tie** where you could not choose after a good look, and **both bad** where you would want neither.
"""
SETTINGS = ProjectSettings(
    name="Demo",
    guidelines=GUIDELINES,
    scale=4,
    criteria=(Criterion(name="Right"), Criterion(name="Clear")),
    overlap=1,
)


def fill(store: PreferenceStore) -> int:
    """Put the demo into a store; how many items were new."""
    store.save_settings(SETTINGS, by="demo")
    made, gold = tasks()
    return store.add_tasks(made, by="demo", gold=gold)


def tasks() -> tuple[list[Task], dict[str, Gold]]:
    """The items, and the known answers of some of them by their ids; kinds are mixed."""
    import yaml

    entries = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    made = [(_task(entry, number), _gold(entry)) for number, entry in enumerate(entries)]
    made += [(_swing(*pushes, number), None) for number, pushes in enumerate([(0.05, 0.6), (0.9, 0.3)])]
    made.sort(key=lambda pair: content_hash([{"id": pair[0].id}]))  # a mixed order, the same every time
    return [task for task, _ in made], {task.id: gold for task, gold in made if gold is not None}


def _task(entry: Mapping[str, Any], number: int) -> Task:
    messages = entry.get("messages")
    prompt = Prompt(
        id=f"demo-{number}",
        text=entry.get("prompt"),
        messages=None if messages is None else tuple(messages),
    )
    if "steps" in entry:
        steps, writer = tuple(entry["steps"]), WRITERS[number % 2]
        return StepItem(prompt=prompt, steps=steps, answer=entry["answer"], checkpoint=writer)
    if "completion" in entry:
        completion, asked = Completion(text=entry["completion"]), entry.get("question", "")
        return CheckItem(prompt=prompt, completion=completion, question=asked, answer=entry.get("answer"))
    second = Completion(text=entry["second"], finished=not entry.get("second_cut_off"))
    return Item(prompt=prompt, first=Completion(text=entry["first"]), second=second, checkpoints=_writers(number))


def _writers(number: int) -> tuple[str, str]:
    """Who is said to have written the two answers: the one that wrote most of the better ones is clearly better."""
    return (WRITERS[1], WRITERS[0]) if number % 4 else (WRITERS[0], WRITERS[1])


def _gold(entry: Mapping[str, Any]) -> Gold | None:
    known = entry.get("gold")
    if isinstance(known, list):
        return Gold(outcome="steps", ratings=tuple(known))
    return None if known is None else Gold(outcome=known)


def _swing(first: float, second: float, number: int) -> Item:
    """Two pendulums with these dampings, to say which of them comes to rest as it should."""
    prompt = Prompt(id=f"swing-{number}", text="Bring the pendulum to rest soon and without overshooting much.")
    texts = Completion(text=f"damping {first}"), Completion(text=f"damping {second}")
    return Item(prompt=prompt, first=texts[0], second=texts[1], clips=(_pendulum(first), _pendulum(second)))


def _pendulum(damping: float, steps: int = 80, dt: float = 0.1) -> Clip:
    """The angle and the speed of a pendulum of 1 m that starts at 1 rad, by the semi-implicit Euler method."""
    angle, speed, states = 1.0, 0.0, []
    for _ in range(steps):
        states.append((round(angle, 4), round(speed, 4)))
        speed += dt * (-9.81 * math.sin(angle) - 2.0 * damping * math.sqrt(9.81) * speed)
        angle += dt * speed
    return Clip(states=tuple(states), names=("angle", "speed"), seconds=dt)
