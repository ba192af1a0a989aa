"""Signing in and out, and one-time links by which people join."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from pydantic import ValidationError

from annotate.api.bodies import SignIn
from annotate.api.errors import Refused
from annotate.api.visit import Reading, studio_of
from annotate.pages.plain import page, words
from annotate.security import MAX_PASSWORD, MIN_PASSWORD, network, same_token
from annotate.studio import Studio
from prefrl.data.store import Login
from prefrl.errors import DataError

router = APIRouter(default_response_class=HTMLResponse)
START = "/label"
PAGES = (START, "/steps", "/review", "/manage", "/loop")
Field = Annotated[str, Form(max_length=1000)]


@router.get("/")
def start() -> Response:
    """The label page."""
    return RedirectResponse(START, 303)


@router.get("/health")
async def health() -> Response:
    """That the server runs."""
    return Response('{"status": "ok"}', media_type="application/json")


@router.get("/login")
def login_page(request: Request, next: str = START) -> Response:
    """The form of name and password."""
    return page(request, "login", next=_local(next))


async def sign_in_of(request: Request) -> SignIn:
    """Name and password, from the form of the page or from JSON: the label page asks again without being left."""
    try:
        given = await request.json() if _is_json(request) else dict(await request.form())
        return SignIn.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in error.errors()]) from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "invalid", "This was sent in another form than expected.") from error


@router.post("/login")
def login(request: Request, given: Annotated[SignIn, Depends(sign_in_of)]) -> Response:
    """Sign in; a wrong name and a wrong password look the same, and take as long."""
    studio, name = studio_of(request), given.name.strip()
    if wait := _attempt(studio, request, name):
        return _not_in(request, given, 429, "slow_down", "slow", wait)
    person = studio.store.people.get(name)
    right = studio.passwords.verify(given.password, person.password_hash if person and person.active else "")
    if person is None or not right:
        return _not_in(request, given, 401, "wrong", "wrong")
    _give_back(studio, request, name)
    _sign_out(studio, request)
    to = JSONResponse({"name": person.name}) if _is_json(request) else RedirectResponse(_local(given.next), 303)
    return _signed_in(studio, request, person.name, to)


@router.get("/logout")
def logout_page(request: Request) -> Response:
    """The button that signs out, for pages that have no other."""
    login = studio_of(request).login(request.cookies.get(studio_of(request).cookie))
    if login is None:
        return RedirectResponse("/login", 303)
    return page(request, "logout", name=login.person.name, csrf=login.csrf)


@router.post("/logout")
def logout(request: Request, visit: Reading, csrf: Field = "") -> Response:
    """End this session, here and on the server."""
    if not same_token(request.headers.get("x-csrf-token", csrf), visit.login.csrf):
        raise Refused(403, "csrf", "This page is of an earlier session. Load it again, then sign out.")
    _sign_out(visit.studio, request)
    response = JSONResponse({}) if _is_json(request) else RedirectResponse("/login", 303)
    response.delete_cookie(visit.studio.cookie)
    return response


@router.get("/join/{token}")
def join_page(request: Request, token: str) -> Response:
    """The form of a one-time link."""
    studio = studio_of(request)
    if wait := studio.limits.address.take(_address(request)):
        return page(request, "message", status=429, problem="slow", wait=wait)
    invitation = studio.store.people.invitation(token)
    if invitation is None:
        return page(request, "message", status=404, problem="used")
    studio.limits.address.give_back(_address(request))
    return page(request, "join", role=invitation.role, name=invitation.name, fixed=bool(invitation.name))


@router.post("/join/{token}")
def join(request: Request, token: str, name: Field = "", password: Field = "") -> Response:
    """Become who the link lets one be: of this name, with this password or with none.

    Without a password somebody is signed in here only, until the session ends.
    """
    studio = studio_of(request)
    if wait := studio.limits.address.take(_address(request)):
        return page(request, "message", status=429, problem="slow", wait=wait)
    invitation = studio.store.people.invitation(token)
    if invitation is None:
        return page(request, "message", status=404, problem="used")
    name = invitation.name or name.strip()
    again: dict[str, Any] = {"role": invitation.role, "name": name, "fixed": bool(invitation.name)}
    if password and not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        return page(request, "join", status=400, problem="length", **again)
    hashed = studio.passwords.hash(password) if password else ""
    try:
        person = studio.store.people.redeem(token, name, hashed)
    except DataError as error:
        return page(request, "join", status=400, problem=str(error), **again)
    studio.limits.address.give_back(_address(request))
    _sign_out(studio, request)
    return _signed_in(studio, request, person.name, RedirectResponse(START, 303))


def _signed_in(studio: Studio, request: Request, name: str, response: Response) -> Response:
    """A new session, never one whose token was known before, in a cookie that scripts cannot read."""
    login: Login = studio.store.people.open_session(name, studio.hours)
    response.set_cookie(
        studio.cookie,
        login.token,
        max_age=int(studio.hours * 3600),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https" or studio.url.startswith("https:"),
    )
    return response


def _not_in(request: Request, given: SignIn, status: int, code: str, problem: str, wait: float = 0.0) -> Response:
    if _is_json(request):
        raise Refused(status, code, words(request, problem, wait), wait)
    again = {"next": _local(given.next), "name": given.name}
    return page(request, "login", status=status, problem=problem, wait=wait, **again)


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("application/json")


def _sign_out(studio: Studio, request: Request) -> None:
    if token := request.cookies.get(studio.cookie):
        studio.store.people.close_session(token)


def _attempt(studio: Studio, request: Request, name: str) -> float:
    """Count an attempt; the seconds to wait where there were too many."""
    address, limits = _address(request), studio.limits
    known = limits.address.take(address) or limits.sign_in.take((name, address)) or limits.name.take(name)
    return known or limits.everybody.take("")


def _give_back(studio: Studio, request: Request, name: str) -> None:
    """Count an attempt no more that was right: many may come from one address at once, and nobody guessed."""
    address, limits = _address(request), studio.limits
    limits.address.give_back(address)
    limits.sign_in.give_back((name, address))
    limits.name.give_back(name)


def _address(request: Request) -> str:
    return network(request.client.host) if request.client is not None else ""


def _local(path: str) -> str:
    """A page of ours; whatever else was asked for becomes the label page, so that no link leads elsewhere."""
    return path if path in PAGES else START
