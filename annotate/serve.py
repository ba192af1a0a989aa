"""Start and stop the server of a project."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

from annotate.studio import Studio
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store.records import ROLES, Role
from prefrl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import uvicorn

STORE = "preferences.db"
PORTS = range(7860, 7960)
INVITED_HOURS = 24.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    project: str | Path,
    *,
    store: str = "",
    demo: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    url: str = "",
    browser: bool = True,
    invite: str = "",
) -> None:
    """Serve a project until it is interrupted; see `AnnotateConfig` for what the arguments say.

    Raises:
        ConfigError: the port is taken, or the invitation is none.
        DataError: the store cannot be used.
    """
    with bound(host, port) as place, opened(project, store, url, host) as studio:
        if demo and not studio.store.count_items():
            from annotate.demo import fill

            fill(studio.store)
        address = address_of(place, host, url)
        links = [link for link in (first_link(studio, address), invited(studio, invite, address)) if link]
        _announce(studio, address, links, host)
        if browser:
            browse(links[0] if links else address)
        with watching(studio):
            server_of(studio).run(sockets=[place])


class Running:
    """A server in a thread of this process, for scripts and notebooks; use it as a context manager or call `stop`.

    Attributes:
        studio: the project.
        url: its address.
        link: a one-time link for who runs it, empty where somebody can sign in already.
    """

    def __init__(self, project: str | Path, *, store: str = "", host: str = "127.0.0.1", port: int = 0) -> None:
        self._stack = contextlib.ExitStack()
        with self._stack:
            place = self._stack.enter_context(bound(host, port))
            self.studio = self._stack.enter_context(opened(project, store, host=host))
            self._stack.enter_context(watching(self.studio))  # ends after the server, and before the store is closed
            self.url = address_of(place, host)
            self.link = first_link(self.studio, self.url)
            self._server = server_of(self.studio)
            run = {"sockets": [place]}
            self._thread = threading.Thread(target=self._server.run, kwargs=run, name="annotate", daemon=True)
            self._thread.start()
            self._stack = self._stack.pop_all()

    def stop(self) -> None:
        """End the server and close the store; what was said stays. Doing it again changes nothing."""
        self._server.should_exit = True
        self._thread.join()
        self._stack.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def opened(project: str | Path, store: str = "", url: str = "", host: str = "") -> Iterator[Studio]:
    """A project, made where there is none; its folder, or the .db file of a store.

    Raises:
        DataError: the store cannot be used.
        ConfigError: the folder cannot be made.
    """
    path = Path(project).expanduser()
    folder, file = (path.parent, path) if path.suffix == ".db" else (path, path / STORE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot make the project {folder}: {error}. Name a folder that can be written.") from error
    with PreferenceStore(store or file) as opened_store:
        yield Studio(folder=folder, store=opened_store, url=url.rstrip("/"), hosts=names_of(host, url))


def watching(studio: Studio) -> contextlib.AbstractContextManager[None]:
    """Look after the runs of a project while its server runs."""
    from annotate.loop.runs import watched

    return watched(studio)


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens there; port 0 is the first free one of `PORTS`. What comes early waits in its queue.

    Raises:
        ConfigError: the port is taken, or the host is not one of this machine.
    """
    problem: OSError | None = None
    for candidate in (port,) if port else PORTS:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            place = socket.create_server((host, candidate), family=family, backlog=512)
        except OSError as error:
            problem = error
            continue
        with place:
            yield place
        return
    raise ConfigError(f"Cannot listen at {host}, port {port or PORTS}: {problem}. Name another one: --port 8001")


def address_of(place: socket.socket, host: str, url: str = "") -> str:
    """What a person types to reach a socket."""
    if url:
        return url.rstrip("/")
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{place.getsockname()[1]}"


def names_of(host: str, url: str = "") -> frozenset[str]:
    """Names by which a server is reached that only this machine reaches; none of one that others reach by any name."""
    return frozenset({*LOOPBACK, urlsplit(url).hostname or "localhost"}) if host in LOOPBACK else frozenset()


def server_of(studio: Studio) -> uvicorn.Server:
    """The server of a project, not started yet."""
    import uvicorn

    from annotate.app import create_app
    from annotate.connections import Connection

    config = uvicorn.Config(
        create_app(studio),
        http=Connection,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


def first_link(studio: Studio, address: str) -> str:
    """A one-time link that makes somebody the admin, where nobody can sign in as one; else empty."""
    people = studio.store.people
    if any(p.role == "admin" and p.active and p.password_hash for p in people.list()):
        return ""
    return f"{address}/join/{people.invite('admin', INVITED_HOURS)}"


def invited(studio: Studio, wanted: str, address: str) -> str:
    """A one-time link for ROLE or ROLE:NAME; empty where none is wanted.

    Raises:
        ConfigError: no such role.
    """
    if not wanted:
        return ""
    role, _, name = wanted.partition(":")
    for known in get_args(Role):
        if role == known:
            return f"{address}/join/{studio.store.people.invite(known, INVITED_HOURS, name=name.strip())}"
    raise ConfigError(f"invite is {wanted!r}; expected a role of {', '.join(ROLES)}.{did_you_mean(role, ROLES)}")


def _announce(studio: Studio, address: str, links: list[str], host: str) -> None:
    store = studio.store
    lines = [f"{store.settings().name}: {store.count_items()} items in {studio.folder}", f"  {address}"]
    lines += [f"  Works once, within {INVITED_HOURS:.0f} hours:  {link}" for link in links]
    if host not in LOOPBACK and not studio.url.startswith("https:"):
        lines.append("  Others can reach this, and passwords travel unencrypted. Put a proxy with TLS in front: --url")
    print("\n".join([*lines, "  Stop with Ctrl+C; what was said is saved at once."]), flush=True)


def browse(link: str) -> None:
    """Open a browser that has a window; one in the terminal would write over it."""
    if sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
