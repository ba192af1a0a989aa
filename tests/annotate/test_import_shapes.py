"""A file with one wrong value is refused, or all that reads the project goes on working."""

from __future__ import annotations

import copy
import itertools
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
from annotating import check, pair, steps
from fastapi.responses import JSONResponse
from stores import settle

from annotate.api.views import title as asked
from annotate.api.views import view
from annotate.manage.catalogue import searched, title
from annotate.manage.detail import detail, drawn
from annotate.manage.overview import labellers
from prefrl.data.comparisons import Clip, Label
from prefrl.data.exporting import Choices, Labelled, export
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store import Gold, Invalid
from prefrl.errors import DataError
from prefrl.types import Prompt

WRONG = (None, 5, -1, 1.5, "x", "", [], {}, True, ["a"], {"a": 1}, float("nan"), 10**30, "\ud800")
CHAT = Prompt(id="p", messages=({"role": "user", "content": "Q?"}, {"role": "assistant", "content": None}))
CLIPS = (Clip(frames=("a" * 64,), states=((0.5,),), names=("x",)), Clip(states=((0.5,),), names=("x",)))


def lines(tmp_path):
    """A line of every kind, as an export has them."""
    with PreferenceStore(tmp_path / "whole.db") as store:
        settle(store)
        tasks = [pair(), steps(), check(), replace(pair(2), prompt=CHAT), replace(pair(3), clips=CLIPS)]
        store.add_tasks(tasks, gold={tasks[1].id: Gold(outcome="steps", ratings=(1, 0, -1))})
        details = {"criteria": {"c": 1}, "active_ms": 5, "answer": {"text": "t", "from": "first"}, "exchanged": True}
        store.submit(tasks[0].id, "ann", "first", details=details)
        more = {"ratings": [1, 0, -1], "alternatives": {"1": "x"}, "unsure": [2]}
        store.submit(tasks[1].id, "ann", "steps", details=more)
        store.submit(tasks[2].id, "ann", "skip", details={"reasons": ["r"]})
        store.work.flag("f0", store.work.next("bob", 1)[0].id, "bob", "Offensive")
        store.export(tmp_path / "whole.jsonl")
    return [json.loads(line) for line in (tmp_path / "whole.jsonl").read_text().splitlines()]


def leaves(value, path=()):
    """Where there is a value, or a list or object of them."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from leaves(child, (*path, key))


def changed(rows, number, path, value):
    rows = copy.deepcopy(rows)
    place = rows[number]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return rows


def read_all(store):
    """What pages and exports read of a project."""
    assert store.check() == []
    labels, states = store.labels(), store.item_states()
    labellers(labels, 0.0)
    for task in store.tasks():
        place = SimpleNamespace(id="a", exchanged=True, lease_until=0.0)
        assert JSONResponse(view(place, task)).body
        asked(task).encode()
        assert isinstance(title(task) + searched(task), str)
        drawn(detail(store, task.id)).encode()
        assert states[task.id].overlap >= 1
    data = Labelled.of(store)
    for format_ in ("preference", "unpaired", "stepwise", "prm800k", "sft", "votes"):
        try:
            export(data, Choices(format=format_))
        except DataError as error:
            assert "Nothing to" in str(error) or "no " in str(error).lower(), error


@pytest.mark.slow
@pytest.mark.parametrize("shift", range(0, 14, 5))
def test_one_wrong_value_is_refused_or_does_no_harm(tmp_path, shift):
    rows, taken, count = lines(tmp_path), 0, itertools.count()
    PreferenceStore(tmp_path / "empty.db").close()
    for number, row in enumerate(rows):
        for tried, path in zip(count, leaves(row), strict=False):
            wrong = WRONG[(4 * tried + shift) % len(WRONG)]
            (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, changed(rows, number, path, wrong))))
            shutil.copy(tmp_path / "empty.db", tmp_path / "a.db")
            with PreferenceStore(tmp_path / "a.db") as store:
                try:
                    store.import_(tmp_path / "a.jsonl")
                except DataError:
                    assert store.labels() == [] and store.count_items() == 0
                    continue
                taken += 1
                try:
                    read_all(store)
                except Exception as error:
                    raise AssertionError(f"{path} = {wrong!r} was taken: {error!r}") from error
    tried = next(count)
    assert tried > 200 and taken < tried / 3


def test_labels_say_what_can_be_said_of_their_item(tmp_path):
    with PreferenceStore(tmp_path / "a.db") as store:
        store.add_tasks([pair(), steps(), check()])
        for item, outcome in ((pair().id, "right"), (steps().id, "first"), (check().id, "tie")):
            label = Label(id="l", item=item, annotator="ann", version=1, outcome=outcome)
            with pytest.raises(DataError, match=f"{outcome!r}"):
                store.add_labels([label])
        for wrong in (
            {"time": "yesterday"},
            {"time": "0001-01-01T00:00:00"},
            {"version": 0},
            {"details": {"criteria": [1]}},
            {"note": None},
        ):
            label = Label(**{"id": "l", "item": pair().id, "annotator": "ann", "version": 1, "outcome": "tie", **wrong})
            with pytest.raises(Invalid, match="l"):
                store.add_labels([label])
        assert store.labels() == []
        with pytest.raises(Invalid, match="ratings"):
            store.submit(pair().id, "ann", "tie", details={"ratings": "good"})
