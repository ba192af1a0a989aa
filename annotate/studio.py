"""A project as the server holds it: its folder, its store, and who may do what."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from annotate.security import Passwords, RateLimiter
from prefrl.data.preferences import PreferenceStore

if TYPE_CHECKING:
    import gradio as gr

    from prefrl.data.store import Login, Person

MANAGERS = ("admin", "manager")
REVIEWERS = (*MANAGERS, "reviewer")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How often one may do something; each is a burst and what is added to it a second.

    Attributes:
        writes: changes by one person: far more than a hand can do, and enough for what was kept while offline.
        sign_in: attempts at the password of one name from one address.
        address: attempts and invitations tried from one address.
        name: attempts at the password of one name from anywhere.
        everybody: attempts at all: hashing is slow, and those who label must not wait for it.
    """

    writes: RateLimiter = field(default_factory=lambda: RateLimiter(burst=120, rate=20.0))
    sign_in: RateLimiter = field(default_factory=lambda: RateLimiter(burst=8, rate=1 / 30))
    address: RateLimiter = field(default_factory=lambda: RateLimiter(burst=30, rate=1 / 5))
    name: RateLimiter = field(default_factory=lambda: RateLimiter(burst=60, rate=1 / 30))
    everybody: RateLimiter = field(default_factory=lambda: RateLimiter(burst=20, rate=10.0))


@dataclass(frozen=True, kw_only=True)
class Studio:
    """A project as the server holds it.

    Attributes:
        folder: the project; its runs are in `runs`, its backups in `backups`.
        store: everything that was asked and said.
        url: the address that people type where a proxy stands in front; empty is the one they reach.
        hosts: names by which it may be reached; none takes all.
        hours: how long somebody stays signed in.
        limits: how often one may do something.
    """

    folder: Path
    store: PreferenceStore
    url: str = ""
    hosts: Collection[str] = ()
    hours: float = 14 * 24.0
    limits: Limits = field(default_factory=Limits)
    passwords: Passwords = field(default_factory=Passwords)

    @property
    def cookie(self) -> str:
        """Name of the session's cookie: all ports of a machine share their cookies, so every project has its own."""
        return f"prefrl_{self.store.project_id}"

    def login(self, token: str | None) -> Login | None:
        """The session of a cookie's value; None where there is none, it ended, or its person may not work any more."""
        login = self.store.people.session(token) if token else None
        return login if login is not None and login.person.active else None

    def person_of(self, request: gr.Request, roles: Collection[str] = MANAGERS) -> Person:
        """Who sent a request of a Gradio page, of one of these roles.

        Every handler calls this first: one that no button of the page leads to can be called all the same.

        Raises:
            gradio.Error: nobody is signed in, or with another role.
        """
        import gradio as gr

        token = None
        with contextlib.suppress(AttributeError):  # a request without cookies has no such attribute
            token = request.cookies.get(self.cookie)
        login = self.login(token)
        if login is None:
            raise gr.Error("You are signed out. Sign in again in another tab, then repeat this; nothing was changed.")
        if login.person.role not in roles:
            raise gr.Error(f"This is for {' and '.join(roles)} only; ask one of them. Nothing was changed.")
        return login.person
