"""Debian's Chromium, and projects to be looked at in it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browsing
import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window; for one file, as its event loop is the thread's while it runs."""
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
        if path is None:
            pytest.skip("There is no Chromium here; make system installs one, as root on Debian.")
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def site(browser: Browser, tmp_path: Any) -> Iterator[Callable[..., browsing.Site]]:
    """Serves a project of these tasks and settings; after the test nothing may have gone elsewhere, or wrong."""
    with contextlib.ExitStack() as stack:
        made: list[browsing.Site] = []

        def serve(tasks: Any, **settings: Any) -> browsing.Site:
            folder = tmp_path / f"project{len(made)}"
            made.append(stack.enter_context(browsing.site(folder, browser, tasks, **settings)))
            return made[-1]

        yield serve
        assert [trouble for one in made for trouble in one.trouble] == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
