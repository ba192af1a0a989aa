"""One item with everything that is known of it, for those who run the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from annotate.manage import parts
from annotate.manage.catalogue import answers, turns
from annotate.render import render
from prefrl.data.comparisons import CheckItem, Label, StepItem, Task
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store.records import Flag, Gold, ItemState
from prefrl.evaluate.adjudication import Settled, adjudicates, settle

OUTCOMES = {
    "first": "First is better",
    "second": "Second is better",
    "tie": "Tie",
    "both_bad": "Both bad",
    "steps": "Steps rated",
    "right": "Right",
    "wrong": "Wrong",
    "unsure": "Unsure",
    "skip": "Skipped",
}
MEANS = {
    "adjudicated": "Decided by a reviewer",
    "unanimous": "Said by all",
    "majority": "Said by most",
    "split": "The votes are split",
    "nobody": "Nobody voted",
}
_RATINGS = {1: "good", 0: "neutral", -1: "bad", None: "\N{EN DASH}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """An item, what was said of it, and where it stands."""

    task: Task
    state: ItemState
    labels: Sequence[Label]
    gold: Gold | None
    flags: Sequence[Flag]

    @property
    def settled(self) -> Settled:
        """The answer that counts."""
        return settle(self.labels)


def detail(store: PreferenceStore, id: str) -> Detail:
    """The details of an item.

    Raises:
        DataError: there is no such item.
    """
    task = store.task(id)
    return Detail(
        task=task,
        state=store.item_states(items=[id])[id],
        labels=store.labels(items=[id]),
        gold=store.gold().get(id),
        flags=[flag for flag in store.flags(open_only=False) if flag.item == id],
    )


def drawn(shown: Detail, template: str = "item", *, blind: bool = False, **more: Any) -> str:
    """An item as a fragment.

    Args:
        shown: the item.
        template: its name.
        blind: leave out what those who label may not know: policies, known answers of items, what programs think of
            them, and which side the others saw.
        more: what else the template shows.
    """
    task = shown.task
    return parts.fragment(
        template,
        task=task,
        state=shown.state,
        turns=[(role, render(text)) for role, text in turns(task)],
        answers=[(heading, render(text), "" if blind else policy) for heading, text, policy in answers(task)],
        known=task.answer if isinstance(task, StepItem | CheckItem) else None,
        machine={} if blind else machine(task),
        votes=[vote(label) for label in shown.labels],
        settled=shown.settled,
        gold=None if blind else shown.gold,
        blind=blind,
        flags=shown.flags,
        outcomes=OUTCOMES,
        means=MEANS,
        **more,
    )


def machine(task: Task) -> dict[str, str]:
    """What programs and models think of an item, which those who label it never see."""
    found = {"For": task.why, "Round": str(task.round or "")}
    if task.uncertainty is not None:
        found["Uncertainty"] = f"{task.uncertainty:.3f}"
    if isinstance(task, StepItem) and task.guesses:
        found["Guesses of steps"] = ", ".join(f"{guess:.2f}" for guess in task.guesses)
    if isinstance(task, CheckItem):
        found |= {name: f"{score:g}" for name, score in task.verdicts.items()}
    return {name: text for name, text in found.items() if text}


def vote(label: Label) -> Mapping[str, Any]:
    """A label as a row of a table."""
    details = label.details
    said = OUTCOMES[label.outcome] + (f", {label.strength}" if label.strength else "")
    more = [f"{name}: {points:+d}" for name, points in details.get("criteria", {}).items()]
    if "ratings" in details:
        more.append("steps: " + ", ".join(_RATINGS.get(rating, "?") for rating in details["ratings"]))
    more += [f"step {int(step) + 1} rather: {text}" for step, text in details.get("alternatives", {}).items()]
    more += map(str, details.get("reasons", ()))
    if details.get("answer"):
        more.append(f"wrote: {details['answer'].get('text', '')}")
    return {
        "label": label,
        "said": said,
        "more": more,
        "seconds": details["active_ms"] / 1000 if "active_ms" in details else None,
        "decides": adjudicates(label),
    }
