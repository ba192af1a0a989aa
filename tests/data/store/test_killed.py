"""A process that is killed at any moment leaves a sound store, with all that it acknowledged and nothing by halves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import killed
import pytest
from old_stores import first_version

TESTS = Path(killed.__file__).parent


def kills(folder, act, step=1):
    """What was found after every kill, the last of which came too late."""
    (folder / "scratch").mkdir()
    command = [sys.executable, str(TESTS / "killed.py"), act, str(folder / "given"), str(folder / "scratch"), str(step)]
    environment = {"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["killed"] for one in found] == [True] * (len(found) - 1) + [False] and len(found) > 8
    assert [one for one in found if one["wrong"]] == []
    return found


def test_while_an_old_store_is_brought_up_to_date(tmp_path):
    (tmp_path / "given").mkdir()
    first_version(tmp_path / "given" / "a.db")
    assert {(tuple(one["labels"]), one["items"]) for one in kills(tmp_path, "migrate")} == {
        (("l0", "l1", "l2", "l3"), 3)
    }


def test_while_a_store_is_made(tmp_path):
    (tmp_path / "given").mkdir()
    kills(tmp_path, "create")


@pytest.fixture
def given(tmp_path):
    (tmp_path / "given").mkdir()
    killed.prepare(tmp_path / "given")
    return tmp_path


def test_while_items_are_added(given):
    found = [one["items"] for one in kills(given, "add")]
    assert found == sorted(found) and set(found) == {6, 200, 400, 450}  # whole batches


def test_while_a_project_is_imported(given):
    assert {(one["items"], tuple(one["labels"])) for one in kills(given, "import_", step=3)} == {(0, ()), (6, ("l0",))}


def test_while_people_work(given):
    for one in kills(given, "work", step=3):
        assert set(one["acked"]) <= set(one["labels"]), one  # one more may be there, of which nobody was told
        assert len(one["labels"]) - 1 - len(one["acked"]) in (0, 1), one
