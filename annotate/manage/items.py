"""Manage, Items: find them, look into them, and say which are labelled, how soon, by how many, and what is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import gradio as gr

from annotate.manage import parts
from annotate.manage.catalogue import ORDERS, PAGE, Catalogue, Filter, page_of, title
from annotate.manage.detail import detail, drawn
from annotate.manage.pace import standing
from annotate.studio import Studio
from prefrl.data.store.errors import Invalid
from prefrl.data.store.records import Gold, ItemState
from prefrl.evaluate.adjudication import unsettled

STANDINGS = {
    "Anywhere": "",
    "Open": "open",
    "Complete": "complete",
    "Closed": "closed",
    "With reviewers": "adjudication",
}
KINDS = {"All kinds": "", "Comparisons": "pair", "Steps": "steps", "Checks": "check"}
MARKS = ("Any marks", "Known answer", "Disputed", "Reported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table."""

    state: ItemState
    standing: str
    title: str
    disputed: bool
    flags: int


class Items:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._catalogue = Catalogue(studio.store)

    def search(self, request: gr.Request, *filters: str) -> tuple[int, str]:
        """The first page of what passes the filters."""
        return self.show(request, 1, "", *filters)

    def show(self, request: gr.Request, page: int, chosen: str, *filters: str) -> tuple[int, str]:
        """A page of the table: its number, and the fragment."""
        self._studio.person_of(request)
        with parts.plainly():
            return self._table(int(page or 1), chosen, *filters)

    def act(
        self, request: gr.Request, event: gr.EventData, page: int, chosen: str, *filters: str
    ) -> tuple[int, str, str, str]:
        """Do what a button of the table is for: page, chosen item, table, item."""
        person = self._studio.person_of(request)
        sent, store = parts.Sent.of(event), self._studio.store
        with parts.plainly():
            if sent.action == "show":
                chosen = sent.id
            elif sent.action == "page":
                page = whole(sent.id, "page")
            elif sent.action in ("open", "closed", "adjudication"):
                store.set_state(sent.ids, sent.action, person.name)  # type: ignore[arg-type]
            elif sent.action == "priority":
                store.set_priority(sent.ids, whole(sent.fields.get("priority", ""), "priority"), person.name)
            elif sent.action == "overlap":
                store.set_overlap(sent.ids, whole(sent.fields.get("overlap", ""), "overlap"), person.name)
            number, table = self._table(int(page or 1), chosen, *filters)
            return number, chosen, table, self._item(chosen)

    def act_on_item(self, request: gr.Request, event: gr.EventData, chosen: str) -> str:
        """Do what a button of the item is for, and draw it again."""
        person = self._studio.person_of(request)
        sent, store = parts.Sent.of(event), self._studio.store
        with parts.plainly():
            if sent.action == "gold":
                label = next((x for x in detail(store, chosen).labels if x.id == sent.id), None)
                if label is None:
                    raise Invalid("This label was changed in the meantime; open the item again.")
                ratings = tuple(label.details.get("ratings", ()))
                known = Gold(outcome=label.outcome, note=f"as {label.annotator} said", ratings=ratings)
                store.set_gold(chosen, known, person.name)
            elif sent.action == "no-gold":
                store.set_gold(sent.id, None, person.name)
            elif sent.action == "resolve":
                store.resolve_flag(sent.id, person.name)
            return self._item(chosen)

    def _item(self, chosen: str) -> str:
        return drawn(detail(self._studio.store, chosen)) if chosen else ""

    def _table(self, page: int, chosen: str, *filters: str) -> tuple[int, str]:
        words, stands, kind, mark, order = (*filters, *("",) * (5 - len(filters)))
        store = self._studio.store
        states = store.item_states()
        flags = Counter(flag.item for flag in store.flags())
        disputed = unsettled(store.labels())
        only = {"Disputed": disputed.keys(), "Reported": flags.keys()}.get(mark)
        wanted = Filter(
            words=words or "",
            standing=STANDINGS.get(stands, ""),
            kind=KINDS.get(kind, ""),
            gold=mark == "Known answer",
            only=only,
            order=order,
        )
        found = self._catalogue.find(states, wanted)
        ids, number, pages = page_of(found, page)
        titles = {task.id: title(task) for task in store.tasks(ids=ids)}
        rows = [
            Row(
                state=states[id],
                standing=standing(states[id]),
                title=titles[id],
                disputed=id in disputed,
                flags=flags[id],
            )
            for id in ids
        ]
        return number, parts.fragment(
            "items",
            rows=rows,
            chosen=chosen,
            page=number,
            pages=pages,
            first=(number - 1) * PAGE + 1,
            found=len(found),
            total=len(states),
            overlap=store.settings().overlap,
        )


def build(studio: Studio) -> None:
    """Draw the tab."""
    handlers = Items(studio)
    with gr.Row():
        words = gr.Textbox(label="Search", placeholder="words of the question or an answer", scale=3)
        stands = gr.Dropdown(list(STANDINGS), value="Anywhere", label="Stands", min_width=140)
        kind = gr.Dropdown(list(KINDS), value="All kinds", label="Kind", min_width=140)
        mark = gr.Dropdown(list(MARKS), value="Any marks", label="Marks", min_width=140)
        order = gr.Dropdown(list(ORDERS), value="As added", label="Order", min_width=140)
    page, chosen = gr.Number(1, visible=False), gr.Textbox("", visible=False)
    table, item = parts.view(), parts.view()
    filters = [words, stands, kind, mark, order]
    parts.on_open(handlers.show, [page, chosen, *filters], [page, table])
    changed = [words.submit, stands.change, kind.change, mark.change, order.change]
    gr.on(changed, handlers.search, filters, [page, table], api_visibility="private")
    parts.on_press(table, handlers.act, [page, chosen, *filters], [page, chosen, table, item])
    parts.on_press(item, handlers.act_on_item, chosen, item)


def whole(text: str, name: str) -> int:
    """A whole number that was typed.

    Raises:
        Invalid: it is none.
    """
    try:
        return int(text)
    except ValueError:
        raise Invalid(f"Got {text[:20]!r} for the {name}; expected a whole number, such as 2.") from None
