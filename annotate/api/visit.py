"""Who is asking: the checks that every route makes before it does anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from annotate.api.errors import Refused
from annotate.security import same_token
from annotate.studio import Studio
from prefrl.data.store import Login, Person

SIGN_IN = "You are signed out. Sign in again; what you wrote is kept in this browser."


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody who is signed in."""

    studio: Studio
    login: Login

    @property
    def person(self) -> Person:
        """Who it is."""
        return self.login.person

    @property
    def name(self) -> str:
        """How the store knows them."""
        return self.login.person.name


def studio_of(request: Request) -> Studio:
    """The project that this server serves."""
    studio: Studio = request.app.state.studio
    return studio


def reading(request: Request) -> Visit:
    """Somebody who is signed in.

    Raises:
        Refused: 401, nobody is.
    """
    studio = studio_of(request)
    login = studio.login(request.cookies.get(studio.cookie))
    if login is None:
        raise Refused(401, "login", SIGN_IN)
    return Visit(studio, login)


def writing(request: Request) -> Visit:
    """Somebody who is signed in, through a page of ours, and not faster than a person can be.

    Raises:
        Refused: 401, nobody is signed in; 403, the token of the page is missing or another one; 429, too fast.
    """
    visit = reading(request)
    if not same_token(request.headers.get("x-csrf-token", ""), visit.login.csrf):
        raise Refused(403, "csrf", "This page is of an earlier session. Load it again; what you wrote is kept.")
    if wait := visit.studio.limits.writes.take(visit.name):
        raise Refused(429, "slow_down", "Too many requests at once; this one is sent again in a moment.", wait)
    return visit


Reading = Annotated[Visit, Depends(reading)]
Writing = Annotated[Visit, Depends(writing)]
