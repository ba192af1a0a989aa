"""A store in a file and, where a server is installed, one in Postgres: the same is asked of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from stores import BACKENDS

from prefrl.data.preferences import PreferenceStore


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with postgres.server() as url:
        yield url


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "preferences.db")
        return
    with postgres.database(request.getfixturevalue("postgres_server")) as url:
        yield url


@pytest.fixture
def store(place: str) -> Iterator[PreferenceStore]:
    with PreferenceStore(place) as store:
        yield store
