"""Accounts, sessions and one-time links. Of secrets only hashes are kept, so a copy of the store opens no door."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any, cast

from sqlalchemy import Connection, delete, func, select, update

from prefrl.data.store.engine import Database
from prefrl.data.store.errors import Conflict, Invalid, NotYours
from prefrl.data.store.journal import record
from prefrl.data.store.names import LONGEST_NAME, checked_name, fold, skeleton
from prefrl.data.store.records import MANAGERS, ROLES, Invitation, Login, Person, Role
from prefrl.data.store.schema import AnyRow, assignments, invitations, people, sessions
from prefrl.data.store.texts import storable
from prefrl.errors import did_you_mean


class People:
    """Who may log in, and as what."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, role: Role, password_hash: str = "", *, by: str = "", now: float | None = None) -> Person:
        """Make an account; without a password its owner needs an invitation.

        Raises:
            Conflict: somebody has that name, or one that looks the same.
            Invalid: no name, or an unknown role.
        """
        with self._database.writing() as connection:
            return _add(connection, name, role, password_hash, by, _at(now))

    def get(self, name: str) -> Person | None:
        """The account of that name, in any case; None where there is none."""
        with self._database.reading() as connection:
            return _find(connection, name)

    def list(self) -> list[Person]:
        """All accounts, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(select(people).order_by(people.c.created, people.c.name)).all()
        return [_person(row) for row in rows]

    def set_role(self, name: str, role: Role, by: str = "") -> None:
        """Let somebody be something else; links that they made, and nobody used, work no more.

        Raises:
            NotYours: there is no such account.
            Invalid: an unknown role, or nobody would be an admin any more.
        """
        _check_role(role)
        with self._database.writing() as connection:
            _withdraw_links(connection, self._change(connection, name, {"role": role}, "role", by))

    def set_password(self, name: str, password_hash: str, by: str = "") -> None:
        """Replace a password; whoever is logged in with the old one is logged out.

        Raises:
            NotYours: there is no such account.
        """
        with self._database.writing() as connection:
            person = self._change(connection, name, {"password_hash": password_hash}, "password", by)
            _close_all(connection, person.name)

    def set_active(self, name: str, active: bool, by: str = "") -> None:
        """Let somebody in, or keep them out: they are logged out, their items are freed, and their links work no more.

        Raises:
            NotYours: there is no such account.
            Invalid: nobody would be an admin any more.
        """
        with self._database.writing() as connection:
            person = self._change(connection, name, {"active": active}, "active", by)
            if not active:
                _close_all(connection, person.name)
                _withdraw_links(connection, person)
                held = (assignments.c.person == person.name, assignments.c.state == "leased")
                connection.execute(update(assignments).where(*held).values(state="released"))

    def open_session(self, person: str, hours: float, now: float | None = None) -> Login:
        """Log somebody in, whose password was checked.

        Raises:
            NotYours: there is no such account, or it is not active.
        """
        at, token = _at(now), secrets.token_urlsafe(32)
        with self._database.writing() as connection:
            found = _find(connection, person)
            if found is None or not found.active:
                raise NotYours(f"{person!r} cannot log in; ask who runs the project.")
            expires = at + 3600.0 * hours
            connection.execute(delete(sessions).where(sessions.c.expires <= at))
            values = {"token_hash": _hash(token), "person": found.name, "expires": expires}
            connection.execute(sessions.insert(), values)
            record(connection, found.name, "login", {}, at)
        return Login(token=token, csrf=_csrf(token), person=found, expires=expires)

    def session(self, token: str, now: float | None = None) -> Login | None:
        """Who a cookie is of; None where it is unknown, over, or of an account that is not active."""
        wanted = (
            select(people, sessions.c.expires)
            .join(sessions, sessions.c.person == people.c.name)
            .where(sessions.c.token_hash == _hash(token), sessions.c.expires > _at(now), people.c.active)
        )
        with self._database.reading() as connection:
            row = connection.execute(wanted).one_or_none()
        if row is None:
            return None
        return Login(token=token, csrf=_csrf(token), person=_person(row), expires=row.expires)

    def close_session(self, token: str) -> None:
        """Log out."""
        with self._database.writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.token_hash == _hash(token)))

    def close_sessions(self, person: str) -> None:
        """Log somebody out everywhere."""
        with self._database.writing() as connection:
            found = _find(connection, person)
            if found is not None:
                _close_all(connection, found.name)

    def invite(
        self,
        role: Role,
        hours: float,
        name: str = "",
        *,
        by: str = "",
        fresh: bool = False,
        now: float | None = None,
    ) -> str:
        """The secret of a link that works once.

        Args:
            role: what whoever follows it becomes.
            hours: how long it works.
            name: what they are called, where that is not theirs to choose. Of an account that there is: it gets a new
                password, and keeps its role.
            by: who invites.
            fresh: whether it must be for somebody who has no account yet.
            now: epoch seconds.

        Raises:
            Conflict: there is somebody of that name, and the link was to be for somebody new.
            Invalid: an unknown role, or no name.
        """
        _check_role(role)
        at, token = _at(now), secrets.token_urlsafe(32)
        called = checked_name(name) if name else ""
        values = {"token_hash": _hash(token), "name": called, "used_by": "", "expires": at + 3600.0 * hours}
        with self._database.writing() as connection:
            found = _find(connection, called) if called else None
            if found is not None and fresh:
                raise Conflict(f"There is somebody called {found.name!r} already; make a link for a new password.")
            role = role if found is None else found.role
            more = {"role": role, "made_by": storable(by), "resets": found is not None}
            connection.execute(invitations.insert(), values | more)
            record(connection, by, "invitation", {"role": role, "name": called}, at)
        return token

    def invitation(self, token: str, now: float | None = None) -> Invitation | None:
        """What a link offers; None where it is unknown, over or used."""
        with self._database.reading() as connection:
            return _invitation(connection, token, _at(now))

    def redeem(self, token: str, name: str, password_hash: str, now: float | None = None) -> Person:
        """Use a link: the account with its password.

        Raises:
            NotYours: the link is unknown, over or used, or its person became somebody else in the meantime.
            Conflict: the name is taken; the link still works.
            Invalid: no name, or another one than the link is for.
        """
        at = _at(now)
        with self._database.writing() as connection:
            offer = _invitation(connection, token, at)
            if offer is None:
                raise NotYours("This link was used, or its time is over; ask for another one.")
            if offer.name and fold(name) != fold(offer.name):
                raise Invalid(f"This link is for {offer.name!r}, and the name was {name[:LONGEST_NAME]!r}.")
            if offer.resets:
                person = self._reset(connection, offer, password_hash)
            else:
                if not offer.name and offer.role not in MANAGERS:
                    _check_unused(connection, checked_name(name))
                person = _add(connection, name, offer.role, password_hash, "", at)
            used = update(invitations).where(invitations.c.token_hash == _hash(token))
            connection.execute(used.values(used_by=person.name))
        return person

    def _reset(self, connection: Connection, offer: Invitation, password_hash: str) -> Person:
        """Give the person of a link a new password; a link for somebody who has risen since then opens nothing."""
        found = _find(connection, offer.name)
        if found is None or not found.active or found.role != offer.role:
            raise NotYours("This link is for somebody whose account was changed since then; ask for another one.")
        person = self._change(connection, found.name, {"password_hash": password_hash}, "password", found.name)
        _close_all(connection, person.name)
        return person

    def _change(self, connection: Connection, name: str, values: dict[str, Any], kind: str, by: str) -> Person:
        found = _find(connection, name)
        if found is None:
            names = connection.execute(select(people.c.name)).scalars().all()
            raise NotYours(f"There is no account {name!r}.{did_you_mean(name, names)}")
        connection.execute(update(people).where(people.c.name == found.name).values(values))
        admins = select(func.count()).select_from(people).where(people.c.role == "admin", people.c.active)
        if found.role == "admin" and found.active and not connection.execute(admins).scalar_one():
            raise Invalid(f"{found.name!r} is the last admin; make somebody else one first.")
        shown = {} if kind == "password" else values
        record(connection, by, f"person {kind}", {"name": found.name, **shown})
        changed = _find(connection, found.name)
        assert changed is not None
        return changed


def _add(connection: Connection, name: str, role: Role, password_hash: str, by: str, now: float) -> Person:
    _check_role(role)
    called = checked_name(name)
    looks = skeleton(called)
    for other in connection.execute(select(people.c.name)).scalars():
        if fold(other) == fold(called) or skeleton(other) == looks:
            raise Conflict(f"There is somebody called {other!r} already; choose another name.")
    person = Person(name=called, role=role, active=True, created=now, password_hash=password_hash)
    values = {"name": called, "folded": fold(called), "role": role, "password_hash": password_hash}
    connection.execute(people.insert(), values | {"active": True, "created": now})
    record(connection, by or called, "person added", {"name": called, "role": role}, now)
    return person


def _find(connection: Connection, name: str) -> Person | None:
    row = connection.execute(select(people).where(people.c.folded == fold(name))).one_or_none()
    return None if row is None else _person(row)


def _person(row: AnyRow) -> Person:
    return Person(
        name=row.name,
        role=cast(Role, row.role),
        active=row.active,
        created=row.created,
        password_hash=row.password_hash,
    )


def _invitation(connection: Connection, token: str, now: float) -> Invitation | None:
    valid = (invitations.c.token_hash == _hash(token), invitations.c.used_by == "", invitations.c.expires > now)
    row = connection.execute(select(invitations).where(*valid)).one_or_none()
    if row is None:
        return None
    return Invitation(role=cast(Role, row.role), name=row.name, expires=row.expires, resets=row.resets)


def _check_unused(connection: Connection, name: str) -> None:
    """Labels that came from elsewhere are not for whoever takes the name of who gave them."""
    theirs = select(assignments.c.id).where(assignments.c.person == name).limit(1)
    if connection.execute(theirs).one_or_none() is not None:
        raise Conflict(f"Somebody called {name!r} has labelled here; choose another name, or ask for a link for it.")


def _withdraw_links(connection: Connection, person: Person) -> None:
    """Let no link work any more that somebody made: it would outlast what they may do."""
    connection.execute(delete(invitations).where(invitations.c.made_by == person.name, invitations.c.used_by == ""))


def _close_all(connection: Connection, person: str) -> None:
    connection.execute(delete(sessions).where(sessions.c.person == person))


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise Invalid(f"Got the role {role!r}; expected one of {', '.join(ROLES)}.{did_you_mean(role, ROLES)}")


def _hash(token: str) -> str:
    return hashlib.sha256(storable(token).encode()).hexdigest()


def _csrf(token: str) -> str:
    """What requests repeat in a header: follows from the secret of the cookie, which other sites cannot read."""
    return hashlib.sha256(f"csrf|{storable(token)}".encode()).hexdigest()


def _at(now: float | None) -> float:
    return time.time() if now is None else now
