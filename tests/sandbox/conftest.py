"""One sandbox for each level that this machine should offer.

What it should offer is told by its parts, not by the sandbox's own trial: a level that no longer holds must fail here.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from prefrl.sandbox import Sandbox
from prefrl.sandbox.inside import landlock

BUBBLE = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "/bin/true"]


@cache
def offered() -> tuple[str, ...]:
    """B everywhere; C with Landlock; D where a user without rights can start bubblewrap."""
    linux = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    levels = ["B"]
    if linux and landlock.version() > 0:
        levels.append("C")
    if linux and _bubblewrap_works():
        levels.append("D")
    return tuple(levels)


def _bubblewrap_works() -> bool:
    user = 65534 if os.getuid() == 0 else None
    try:
        return subprocess.run(BUBBLE, user=user, cwd="/", capture_output=True).returncode == 0
    except OSError:
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `box` runs at every level."""
    if "box" in metafunc.fixturenames:
        metafunc.parametrize("box", offered(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox of one slot at a level; making it fails when the level does not hold."""
    made = Sandbox(floor="B", level=request.param, slots=1)
    yield made
    made.close()
