"""What every request passes through: size, origin, and the headers that tie a page's hands."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Collection, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from annotate.api.errors import body
from annotate.security import foreign, stranger

MEGABYTE = 1024 * 1024
# The largest bodies by the beginning of the address; whatever is under none of them is a form or a label.
LIMITS = {
    "/manage/gradio_api/upload": 512 * MEGABYTE,
    "/loop/gradio_api/upload": 512 * MEGABYTE,
    "/manage/": 8 * MEGABYTE,
    "/loop/": 8 * MEGABYTE,
}
LIMIT = MEGABYTE
PIECE, BODY_SECONDS = 8 * MEGABYTE, 60.0  # of a body, and the seconds in which each must come
ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"
PLAIN = f"{NOTHING}; style-src 'self'; img-src 'self'; form-action 'self'"
# A report is one file with its styles and drawings inside; it has no scripts, and could run none.
REPORT = f"{NOTHING}; style-src 'unsafe-inline'; img-src data:; sandbox"
# Gradio makes functions of strings (hence unsafe-eval) and styles elements one by one; a script in the page itself
# runs only with the nonce, so one that came in with a text does not. Nothing is fetched from or sent to elsewhere.
GRADIO = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'self' blob:; manifest-src 'self'; form-action 'self'; base-uri 'self'; frame-ancestors 'none'"
)


class Shield:
    """Refuses what is too large or comes from elsewhere, and sends what protects a page along with every answer.

    Args:
        app: what is behind it.
        url: our public address, where it is not the one that requests reach.
        hosts: names by which we may be reached; none takes all.
        gradio_pages: addresses of the pages that Gradio draws.
    """

    def __init__(
        self, app: ASGIApp, *, url: str = "", hosts: Collection[str] = (), gradio_pages: Sequence[str] = ()
    ) -> None:
        self._app, self._url, self._hosts, self._pages = app, url, hosts, tuple(gradio_pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        out = _Out(send, scope["path"], scope["path"].rstrip("/") in self._pages)
        headers, limit = Headers(scope=scope), _limit(scope["path"])
        if stranger(host := headers.get("host", ""), self._hosts):
            await out.refuse(403, "host", _unknown(host))
        elif foreign(scope["method"], headers, self._url):
            await out.refuse(403, "origin", "This request was made by a page of another site.")
        elif _length(headers) > limit:
            await out.refuse(413, "too_large", _too_large(limit))
        else:
            await self._pass(scope, _Limited(receive, limit), out)

    async def _pass(self, scope: Scope, limited: _Limited, out: _Out) -> None:
        async def send(message: Message) -> None:
            if limited.refusal is None:  # what the app makes of half a body is of no interest
                await out(message)

        try:
            await self._app(scope, limited, send)
        except ClientDisconnect:
            if limited.refusal is None:
                raise
        if limited.refusal is not None and not out.started:
            await out.refuse(*limited.refusal)


class _Limited:
    """A body that breaks off where it becomes too large, or takes too long."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._seen, self._whole = receive, limit, 0, False
        self._end = time.monotonic() + BODY_SECONDS * max(1, limit // PIECE)
        self.refusal: tuple[int, str, str] | None = None

    async def __call__(self) -> Message:
        if self._whole:  # what is left to come is the end of the connection
            return await self._receive()
        try:
            async with asyncio.timeout(self._end - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            message, self.refusal = {}, (408, "too_slow", "This took too long; nothing of it was kept. Send it again.")
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            self.refusal = (413, "too_large", _too_large(self._limit))
        self._whole = self.refusal is not None or not message.get("more_body")
        return {"type": "http.disconnect"} if self.refusal is not None else message


class _Out:
    """An answer on its way, with headers; a page of Gradio is held back until its scripts have the nonce."""

    def __init__(self, send: Send, path: str, gradio: bool) -> None:
        self._send, self._path, self._gradio = send, path, gradio
        self._held: Message | None = None
        self._page = b""
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            await self._start(message)
        elif self._held is None:
            await self._send(message)
        else:
            self._page += message.get("body", b"")
            if not message.get("more_body"):
                await self._release(self._held)

    async def refuse(self, status: int, code: str, words: str) -> None:
        """Answer in place of the app."""
        content = json.dumps(body(code, words)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        if status in (408, 413):
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": content})

    async def _start(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name in [name for name in headers if name.startswith("access-control-")]:
            del headers[name]  # Gradio allows other origins
        headers.update(ALWAYS)
        if self._path.startswith("/api/"):
            headers.setdefault("cache-control", "no-store")
        is_html = headers.get("content-type", "").startswith("text/html")
        if is_html:
            headers["cache-control"] = "no-store"
        if is_html and self._gradio:
            self._held = message
            return
        page = REPORT if self._path.startswith("/report/") else PLAIN
        headers["content-security-policy"] = page if is_html else NOTHING
        await self._send(message)

    async def _release(self, start: Message) -> None:
        nonce = secrets.token_urlsafe(16)
        content = self._page.replace(b"<script", f'<script nonce="{nonce}"'.encode())
        headers = MutableHeaders(scope=start)
        headers["content-security-policy"] = GRADIO.format(nonce=nonce)
        headers["content-length"] = str(len(content))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": content})


def _limit(path: str) -> int:
    return next((size for beginning, size in LIMITS.items() if path.startswith(beginning)), LIMIT)


def _length(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    return int(given) if given.isascii() and given.isdigit() else 0


def _too_large(limit: int) -> str:
    return f"This is more than {limit // MEGABYTE} MB; nothing of it was kept. Shorten it and send it again."


def _unknown(host: str) -> str:
    return (
        "This server does not know itself by this name, which may be one of another site that leads here. Open the "
        f"address that it printed; if this is the right one, start it with --url http://{host[:200]}"
    )
