"""A throwaway Postgres server, where its programs and a driver are installed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

INITDB, POSTGRES = (shutil.which(name) for name in ("initdb", "postgres"))
AVAILABLE = bool(INITDB and POSTGRES and importlib.util.find_spec("psycopg"))
_UNPRIVILEGED = "nobody"  # the server refuses to run as root


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The URL of a server that listens on a socket in a folder of its own, without the name of a database."""
    user = _UNPRIVILEGED if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg") as name:  # paths of sockets must be short
        folder = Path(name)
        if user:
            shutil.chown(folder, user)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": user, "cwd": folder}
        data = folder / "data"
        subprocess.run([INITDB, "-D", data, "-U", "tester", "--no-sync", "--auth=trust"], check=True, **quiet)
        options = ["-c", "listen_addresses=", "-c", "fsync=off"]
        process = subprocess.Popen([POSTGRES, "-D", data, "-k", folder, *options], **quiet)
        try:
            yield f"postgresql://tester@/{{}}?host={folder}"
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of an empty database on a `server`."""
    name = f"test_{uuid.uuid4().hex}"
    _administer(url, f"CREATE DATABASE {name}")
    try:
        yield url.format(name)
    finally:
        _administer(url, f"DROP DATABASE {name} WITH (FORCE)")


def _administer(url: str, statement: str) -> None:
    import time

    import psycopg

    until = time.monotonic() + 30
    while True:
        try:
            with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
                connection.execute(statement)
            return
        except psycopg.OperationalError:  # the server is still starting
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
