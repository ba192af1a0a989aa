"""Finding items among many: filters on where they stand, words in what they ask, and pages of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from annotate.manage.pace import standing
from prefrl.data.comparisons import Item, StepItem, Task
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store.records import ItemState

PAGE = 25
_AT_ONCE = 500  # items that are read at a time, for their texts
ORDERS: dict[str, Callable[[int, ItemState], tuple[int, ...]]] = {
    "As added": lambda place, state: (place,),
    "Newest first": lambda place, state: (-place,),
    "Most wanted": lambda place, state: (-state.priority, state.labels, place),
    "Most labels": lambda place, state: (-state.labels, place),
    "Most skips": lambda place, state: (-state.skips, place),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which items are shown; what is empty filters nothing.

    words     each of which is in the question or an answer, in any case; or the beginning of the item's id
    standing  open, complete, closed or adjudication
    only      ids of which an item must be one
    """

    words: str = ""
    standing: str = ""
    kind: str = ""
    gold: bool = False
    only: Collection[str] | None = None
    order: str = "As added"


class Catalogue:
    """Texts of the items of a store, read once: what is asked never changes."""

    def __init__(self, store: PreferenceStore) -> None:
        self._store = store
        self._texts: dict[str, str] = {}
        self._lock = threading.Lock()

    def find(self, states: Mapping[str, ItemState], wanted: Filter) -> list[str]:
        """Ids of the items that pass, in order."""
        passing = [
            (place, state)
            for place, state in enumerate(states.values())
            if (not wanted.standing or standing(state) == wanted.standing)
            and (not wanted.kind or state.kind == wanted.kind)
            and (not wanted.gold or state.gold)
            and (wanted.only is None or state.id in wanted.only)
        ]
        words = wanted.words.casefold().split()
        if words:
            texts = self._read(states)
            passing = [(n, s) for n, s in passing if s.id.startswith(words[0]) or all(w in texts[s.id] for w in words)]
        order = ORDERS.get(wanted.order, ORDERS["As added"])
        return [state.id for _, state in sorted(passing, key=lambda entry: order(*entry))]

    def _read(self, states: Mapping[str, ItemState]) -> Mapping[str, str]:
        with self._lock:
            missing = [id for id in states if id not in self._texts]
            for ids in (missing[n : n + _AT_ONCE] for n in range(0, len(missing), _AT_ONCE)):
                self._texts |= {task.id: searched(task) for task in self._store.tasks(ids=ids)}
            return self._texts


def searched(task: Task) -> str:
    """What the words of a search are looked for in."""
    return "\n".join([*(text for _, text in turns(task)), *(text for _, text, _ in answers(task))]).casefold()


def title(task: Task, length: int = 110) -> str:
    """The beginning of the question, in one line."""
    words = " ".join(task.prompt.question.split())
    return words if len(words) <= length else words[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"


def turns(task: Task) -> list[tuple[str, str]]:
    """Role and text of every message of the prompt."""
    if task.prompt.text is not None:
        return [("prompt", task.prompt.text)]
    return [(str(m.get("role", "")), str(m.get("content", ""))) for m in task.prompt.messages or ()]


def answers(task: Task) -> list[tuple[str, str, str]]:
    """Heading, text and checkpoint of everything that is judged."""
    if isinstance(task, Item):
        sides = zip(("First answer", "Second answer"), (task.first, task.second), task.checkpoints, strict=True)
        return [(heading, side.text, checkpoint) for heading, side, checkpoint in sides]
    if isinstance(task, StepItem):
        return [(f"Step {n}", step, task.checkpoint) for n, step in enumerate(task.steps, start=1)]
    return [(task.question or "Answer", task.completion.text, task.checkpoint)]


def page_of(ids: Sequence[str], page: int) -> tuple[list[str], int, int]:
    """The ids on a page, its number from 1, and how many there are; for a page that is not there, the nearest one."""
    pages = max(1, -(-len(ids) // PAGE))
    number = min(max(1, page), pages)
    return list(ids[(number - 1) * PAGE : number * PAGE]), number, pages
