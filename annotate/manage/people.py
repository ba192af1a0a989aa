"""Manage, People: invite them, change what they may do, shut them out, and see what each of them did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import gradio as gr

from annotate.manage import parts
from annotate.manage.overview import Labeller, labellers
from annotate.studio import Studio
from prefrl.data.store.errors import Invalid
from prefrl.data.store.records import Person, Role

ROLES: tuple[str, ...] = get_args(Role)
HOURS = {"One day": 24, "One week": 24 * 7, "One month": 24 * 30}
_HELP = {
    "annotator": "labels, and sees nothing of models, known answers or others",
    "reviewer": "labels, and decides what others disagree about",
    "manager": "sees and changes everything here but managers and admins",
    "admin": "sees and changes everything",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table."""

    person: Person
    did: Labeller | None
    left: int
    mine_to_change: bool


class People:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def show(self, request: gr.Request, chosen: str) -> str:
        """The table."""
        me = self._studio.person_of(request)
        with parts.plainly():
            return self._table(me, chosen)

    def choose(self, request: gr.Request, event: gr.EventData) -> tuple[str, str, str, Any, Any, Any]:
        """Whom the panel below changes: what to say of it, their name, the table, panel, role, and button."""
        me = self._studio.person_of(request)
        with parts.plainly():
            person = self._changeable(me, parts.Sent.of(event).id)
            said = parts.note(f"Change {person.name}, who is {person.role}:")
            role, active = gr.update(value=person.role), gr.update(value=_turn(person))
            return said, person.name, self._table(me, person.name), gr.update(visible=True), role, active

    def invite(self, request: gr.Request, role: str, name: str, hours: str) -> tuple[str, str]:
        """A one-time link for somebody new: what to say of it, and the table."""
        me = self._studio.person_of(request)
        with parts.plainly():
            _may_give(me, role)
            words = f"For {name.strip()}, who becomes" if name.strip() else "Whoever opens this link becomes"
            link = self._link(request, me, role, name.strip(), HOURS.get(hours, 24), fresh=True)
            return self._said(link, f"{words} {role}.", HOURS.get(hours, 24)), self._table(me, "")

    def reset(self, request: gr.Request, chosen: str) -> str:
        """A one-time link by which somebody chooses another password."""
        me = self._studio.person_of(request)
        with parts.plainly():
            person = self._changeable(me, chosen)
            link = self._link(request, me, person.role, person.name, 24)
            return self._said(link, f"{person.name} chooses a new password by this link.", 24)

    def set_role(self, request: gr.Request, chosen: str, role: str) -> tuple[str, str]:
        """Let somebody be something else: what happened, and the table."""
        me = self._studio.person_of(request)
        with parts.plainly():
            person = self._changeable(me, chosen)
            _may_give(me, role)
            self._studio.store.people.set_role(person.name, cast(Role, role), me.name)
            return parts.note(f"{person.name} is {role} now.", "good"), self._table(me, chosen)

    def set_active(self, request: gr.Request, chosen: str) -> tuple[str, str, Any]:
        """Shut somebody out, or let them in again: what happened, the table, and the button."""
        me = self._studio.person_of(request)
        with parts.plainly():
            person = self._changeable(me, chosen)
            if person.name == me.name:
                raise Invalid("You cannot shut yourself out; ask another admin.")
            self._studio.store.people.set_active(person.name, not person.active, me.name)
            words = "is shut out: signed out, and nothing is kept for them" if person.active else "may sign in again"
            button = gr.update(value=_turn(self._changeable(me, chosen)))
            return parts.note(f"{person.name} {words}.", "good"), self._table(me, chosen), button

    def _table(self, me: Person, chosen: str) -> str:
        store, now = self._studio.store, time.time()
        did = {person.name: person for person in labellers(store.labels(), now)}
        people = store.people.list()
        rows = [
            Row(
                person=person,
                did=did.get(person.name),
                left=store.work.progress(person.name, now).left if person.active else 0,
                mine_to_change=_may_change(me, person),
            )
            for person in people
        ]
        strangers = [done for name, done in did.items() if name not in {person.name for person in people}]
        return parts.fragment("people", rows=rows, strangers=strangers, chosen=chosen, me=me.name, roles=_HELP)

    def _changeable(self, me: Person, name: str) -> Person:
        person = self._studio.store.people.get(name) if name else None
        if person is None:
            raise Invalid("Choose somebody first: press Change beside their name.")
        if not _may_change(me, person):
            raise Invalid(f"{person.name} is {person.role}, whom an admin changes; ask one.")
        return person

    def _link(self, request: gr.Request, me: Person, role: str, name: str, hours: float, *, fresh: bool = False) -> str:
        token = self._studio.store.people.invite(cast(Role, role), hours, name, by=me.name, fresh=fresh)
        return f"{self._studio.url or address(request)}/join/{token}"

    def _said(self, link: str, words: str, hours: int) -> str:
        return parts.fragment("link", link=link, words=words, hours=hours)


def build(studio: Studio) -> None:
    """Draw the tab."""
    handlers = People(studio)
    chosen = gr.Textbox("", visible=False)
    with gr.Row():
        role = gr.Dropdown(
            list(ROLES), value="annotator", label="Invite as", info="what they may do, see below", scale=1
        )
        name = gr.Textbox(label="Name", info="empty lets them choose one", scale=2)
        hours = gr.Dropdown(list(HOURS), value="One week", label="The link works for", info="and once only", scale=1)
        invite = parts.button("Make a link", variant="primary")
    said = parts.view()
    table, about = parts.view(), parts.view()
    with gr.Row(visible=False) as panel:
        other = gr.Dropdown(list(ROLES), label="Role", scale=1)
        change = parts.button("Change the role", min_width=170)
        reset = parts.button("Link for a new password", min_width=230)
        active = parts.button("Shut out", variant="stop")
    parts.on_open(handlers.show, [chosen], table)
    parts.on_press(table, handlers.choose, None, [about, chosen, table, panel, other, active])
    for button, fn, inputs, outputs in (
        (invite, handlers.invite, [role, name, hours], [said, table]),
        (change, handlers.set_role, [chosen, other], [said, table]),
        (reset, handlers.reset, [chosen], said),
        (active, handlers.set_active, [chosen], [said, table, active]),
    ):
        button.click(fn, inputs, outputs, api_visibility="private")


def address(request: gr.Request) -> str:
    """The address that a request reached."""
    return f"{request.url.scheme}://{request.url.netloc}"


def _turn(person: Person) -> str:
    return "Shut out" if person.active else "Let in again"


def _may_change(me: Person, person: Person) -> bool:
    """Admins change everybody; managers only those who are neither manager nor admin."""
    return me.role == "admin" or person.role in ("annotator", "reviewer")


def _may_give(me: Person, role: str) -> None:
    allowed: Sequence[str] = ROLES if me.role == "admin" else ("annotator", "reviewer")
    if role not in allowed:
        raise Invalid(f"Got the role {role!r}; expected one of {', '.join(allowed)}. An admin can give all roles.")
