"""What a refusal looks like: {"error": {"code": ..., "message": what to do}}."""

from __future__ import annotations

import logging
import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from prefrl.data.store.errors import Conflict, Full, Invalid, NotYours
from prefrl.errors import DataError

log = logging.getLogger(__name__)
STORE = "The project could not be written or read just now; the terminal of the server says why. Nothing was changed."
DEFECT = "The server could not do this. What you wrote is kept in this browser; tell who runs the project."
NOT_YOURS = "There is no such item among yours. It may have been given to somebody else; go on with the next one."
OTHER = {
    404: ("not_found", "There is nothing at this address."),
    405: ("invalid", "This address takes another method."),
}


class Refused(Exception):
    """A request that is not done, and why; `wait` says in how many seconds it can be."""

    def __init__(self, status: int, code: str, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.wait = status, code, message, wait


def body(code: str, message: str) -> dict[str, dict[str, str]]:
    """The JSON of a refusal."""
    return {"error": {"code": code, "message": message}}


def install(app: FastAPI) -> None:
    """Turn every exception that a person can cause into a refusal."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(DataError, _data)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _defect)


def _answer(status: int, code: str, message: str, wait: float = 0.0) -> JSONResponse:
    headers = {"retry-after": str(math.ceil(wait))} if wait else None
    return JSONResponse(body(code, message), status, headers)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return _answer(error.status, error.code, error.message, error.wait)


def _data(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, NotYours):
        return _answer(404, "not_yours", NOT_YOURS)
    kinds: dict[type[DataError], tuple[int, str]] = {Conflict: (409, "conflict"), Full: (409, "full")}
    kinds[Invalid] = (400, "invalid")
    for kind, (status, code) in kinds.items():
        if isinstance(error, kind):
            return _answer(status, code, str(error))
    log.error("%s", error)
    return _answer(503, "store", STORE)


def _defect(request: Request, error: Exception) -> JSONResponse:
    """The server itself writes down where it broke; nobody else needs to know."""
    return _answer(500, "server", DEFECT)


def _malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(map(str, e['loc'][1:])) or 'the body'}: {e['msg']}" for e in error.errors()]
    return _answer(400, "invalid", f"This was sent in another form than expected. {'; '.join(found[:5])}")


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code, message = OTHER.get(error.status_code, ("invalid", str(error.detail)))
    return _answer(error.status_code, code, message)
