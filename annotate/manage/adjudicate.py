"""Manage, Adjudicate: items whose annotators disagree, all votes side by side, and a word that decides.

Whoever decides here gives a label of their own, which counts before all others (`prefrl.evaluate.adjudication`) and
closes the item. What is sent to reviewers comes first in their queue, without the votes; their label decides as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import gradio as gr

from annotate.manage import parts
from annotate.manage.catalogue import page_of, title
from annotate.manage.detail import OUTCOMES, detail, drawn
from annotate.manage.items import whole
from annotate.studio import MANAGERS, REVIEWERS, Studio
from prefrl.data.comparisons import Label, Outcome
from prefrl.data.store.errors import Invalid
from prefrl.data.store.records import Person
from prefrl.data.store.rules import outcomes
from prefrl.evaluate.adjudication import settle, unsettled


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table."""

    id: str
    title: str
    votes: Mapping[str, int]
    disputed: float
    state: str


class Adjudicate:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def show(self, request: gr.Request, page: int, chosen: str) -> tuple[int, str]:
        """A page of disputed items: its number, and the fragment."""
        self._studio.person_of(request, REVIEWERS)
        with parts.plainly():
            return self._table(int(page or 1), chosen)

    def act(
        self, request: gr.Request, event: gr.EventData, page: int, chosen: str
    ) -> tuple[int, str, str, str, Any, Any]:
        """Do what a button of the table is for: page, chosen item, table, item, outcomes, panel."""
        person = self._studio.person_of(request, REVIEWERS)
        sent, store = parts.Sent.of(event), self._studio.store
        with parts.plainly():
            if sent.action == "show":
                chosen = sent.id
            elif sent.action == "page":
                page = whole(sent.id, "page")
            elif sent.action == "adjudication":
                store.set_state(sent.ids, "adjudication", person.name)
            elif sent.action == "more":
                self._ask_one_more(sent.ids, person)
            number, table = self._table(int(page or 1), chosen)
            return number, chosen, table, *self._item(chosen, person)

    def decide(
        self, request: gr.Request, page: int, chosen: str, outcome: str | None, note: str
    ) -> tuple[str, int, str, str, str, Any, Any]:
        """Settle an item by a label of one's own: what happened, page, chosen item, table, item, outcomes, panel."""
        person = self._studio.person_of(request, REVIEWERS)
        with parts.plainly():
            label = self._decision(chosen, outcome, note, person)
            number, table = self._table(int(page or 1), "")
            said = parts.note(
                f"{label.item}: {OUTCOMES[label.outcome]}, as {person.name} decided; it is closed.", "good"
            )
            return said, number, "", table, *self._item("", person)

    def _decision(self, id: str, outcome: str | None, note: str, person: Person) -> Label:
        if not id or not outcome:
            raise Invalid("Choose an item, and what is right of it.")
        return self._studio.store.settle(id, person.name, cast(Outcome, outcome), note=note.strip())

    def _ask_one_more(self, ids: tuple[str, ...], person: Person) -> None:
        states = self._studio.store.item_states(items=ids)
        wanted: dict[int, list[str]] = {}
        for id in ids:
            if id not in states:
                raise Invalid(f"There is no item {id!r}; load the page again.")
            wanted.setdefault(max(states[id].overlap, states[id].labels) + 1, []).append(id)
        for overlap, some in wanted.items():
            self._studio.store.set_overlap(some, overlap, person.name)
        self._studio.store.set_state(ids, "open", person.name)

    def _item(self, chosen: str, person: Person) -> tuple[str, Any, Any]:
        """The item, what can be said of it, and whether anything can; as blind as labelling for who labels too."""
        if not chosen:
            return "", gr.update(choices=[], value=None), gr.update(visible=False)
        shown = detail(self._studio.store, chosen)
        said = [o for o in outcomes(self._studio.store.settings(), shown.task.kind) if o not in ("skip", "steps")]
        radio = gr.update(choices=[(OUTCOMES[outcome], outcome) for outcome in said], value=None)
        blind = person.role not in MANAGERS
        return drawn(shown, "dispute", blind=blind), radio, gr.update(visible=bool(said))

    def _table(self, page: int, chosen: str) -> tuple[int, str]:
        store = self._studio.store
        labels = store.labels()
        disputed = unsettled(labels)
        ids, number, pages = page_of(list(disputed), page)
        votes: dict[str, list[Label]] = {id: [] for id in ids}
        for label in labels:
            if label.item in votes:
                votes[label.item].append(label)
        titles, states = {task.id: title(task) for task in store.tasks(ids=ids)}, store.item_states(items=ids)
        rows = [
            Row(
                id=id,
                title=titles[id],
                votes=_in_order(settle(votes[id]).votes),
                disputed=disputed[id],
                state=states[id].state,
            )
            for id in ids
        ]
        return number, parts.fragment(
            "disputes",
            rows=rows,
            chosen=chosen,
            page=number,
            pages=pages,
            found=len(disputed),
            outcomes=OUTCOMES,
            empty=_nothing(labels),
        )


def build(studio: Studio) -> None:
    """Draw the tab."""
    handlers = Adjudicate(studio)
    page, chosen = gr.Number(1, visible=False), gr.Textbox("", visible=False)
    said, table, item = parts.view(), parts.view(), parts.view()
    with gr.Row(visible=False) as panel:
        outcome = gr.Radio([], label="What is right", scale=3)
        note = gr.Textbox(label="Why", info="for those who labelled it", scale=3)
        decide = parts.button("Decide", variant="primary")
    parts.on_open(handlers.show, [page, chosen], [page, table])
    drawn_again: list[Any] = [page, chosen, table, item, outcome, panel]
    parts.on_press(table, handlers.act, [page, chosen], drawn_again)
    decide.click(handlers.decide, [page, chosen, outcome, note], [said, *drawn_again], api_visibility="private")


def _in_order(votes: Mapping[str, int]) -> dict[str, int]:
    """Votes in the order of all outcomes, so that rows can be compared at a glance."""
    return {outcome: votes[outcome] for outcome in OUTCOMES if outcome in votes}


def _nothing(labels: list[Label]) -> str:
    several = {label.item for label in labels}
    return "Nobody disagrees with anybody." if several else "Nobody has labelled anything yet."
