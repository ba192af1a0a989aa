"""Copies, checks, pictures, jobs, the audit log and the settings of a store."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from stores import PNG, label_next, opened, pairs

from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import ProjectSettings
from prefrl.data.store import Gold, Invalid, NotYours
from prefrl.errors import DataError


def test_a_copy_of_a_store_in_use_is_sound(tmp_path):
    with opened(tmp_path / "a.db", 300) as store:
        stop = threading.Event()

        def labels():
            while not stop.is_set():
                label_next(store, "ann")

        thread = threading.Thread(target=labels)
        thread.start()
        try:
            copies = [store.backup() for _ in range(3)]
        finally:
            stop.set()
            thread.join()
        counts = []
        for path in copies:
            with PreferenceStore(path, create=False) as copy:
                assert copy.check() == [] and copy.count_items() == 300
                counts.append(len(copy.labels()))
        assert counts == sorted(counts) and counts[-1] <= len(store.labels())
        assert {path.parent for path in copies} == {tmp_path / "backups"}
        assert len(list((tmp_path / "backups").glob("*.db"))) == 3  # and nothing half done


def test_a_copy_overwrites_nothing(tmp_path):
    (tmp_path / "b.db").write_text("mine")
    with opened(tmp_path / "a.db") as store, pytest.raises(DataError, match="is a file"):
        store.backup(tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "mine"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("UPDATE items SET given = 5 WHERE id = 'i0'", "item i0: it counts 5 labels and 0 skips"),
        ("UPDATE items SET skipped = 1 WHERE id = 'i1'", "item i1: it counts 0 labels and 1 skips"),
        ("UPDATE assignments SET outcome = 'tie'", "item i0 and ann: the assignment does not tell"),
        ("UPDATE assignments SET version = 2", "item i0 and ann: an assignment is done, and there is no label"),
        ("DELETE FROM bodies WHERE number = 1", "item i0: what it asks is missing"),
        ("UPDATE assignments SET item = 'i9'", "table assignments"),
        (
            "INSERT INTO labels VALUES (9, 'l9', 'i1', 'bob', 2, 'tie', '', '', '', '{}')",
            "item i1 and bob: there are 1 versions, and the last one is 2",
        ),
    ],
)
def test_what_does_not_add_up_is_found(damage, says, tmp_path):
    with opened(tmp_path / "a.db", 2) as store:
        label_next(store, "ann")
        assert store.check() == []
        other = sqlite3.connect(tmp_path / "a.db")
        with other:
            other.execute(damage)
        other.close()
        assert says in "\n".join(store.check())


def test_labels_and_events_stay_whoever_asks(store):
    store.add_items(pairs(1))
    label_next(store, "ann")
    store.log("ann", "hello", {"a": 1})
    for table in ("labels", "events"):
        column = {"labels": "note", "events": "kind"}[table]
        for statement in (f"UPDATE {table} SET {column} = 'x'", f"DELETE FROM {table}"):
            with pytest.raises(DataError, match=f"{table} are append-only"), store._database.writing() as connection:
                connection.exec_driver_sql(statement)
    assert len(store.labels()) == 1 and store.events(kind="hello")[0].body == {"a": 1}


def test_the_audit_log(store):
    store.add_tasks(pairs(2), by="boss")
    store.set_state(["i0"], "closed", by="boss")
    store.set_state(["i0"], "closed", by="boss")  # it is: nothing happens
    store.set_gold("i1", Gold(outcome="tie", note="same"), by="boss")
    store.save_settings(ProjectSettings(name="New"), by="ann")
    store.log("ann", "hello", {})
    found = store.events()
    assert [(event.seq, event.person, event.kind) for event in found] == [
        (1, "boss", "items added"),
        (2, "boss", "items state"),
        (3, "boss", "gold"),
        (4, "ann", "settings"),
        (5, "ann", "hello"),
    ]
    assert found[3].body["name"] == "New" and found[1].body == {"items": ["i0"], "state": "closed"}
    assert [event.seq for event in store.events(person="ann")] == [4, 5]
    assert [event.seq for event in store.events(after=2, limit=2)] == [3, 4]
    assert [event.seq for event in store.events(kind="gold")] == [3]


def test_settings(place):
    with PreferenceStore(place) as store:
        assert store.settings() == ProjectSettings()
        changed = ProjectSettings(name="Mine", scale=8, quota=3, skip_reasons=())
        store.save_settings(changed)
        project = store.project_id
    with PreferenceStore(place) as again:
        assert again.settings() == changed and again.project_id == project


def test_items_that_are_not_there(store):
    store.add_items(pairs(1))
    for change in (
        lambda: store.set_state(["i0", "i9"], "closed"),
        lambda: store.set_priority(["i9"], 1),
        lambda: store.set_gold("i9", None),
        lambda: store.task("i9"),
        lambda: store.add_tasks([], gold={"i9": Gold(outcome="tie")}),
    ):
        with pytest.raises(DataError, match="'i9'"):
            change()
    assert store.item_states()["i0"].state == "open"
    for wrong in (
        lambda: store.set_state(["i0"], "shut"),
        lambda: store.set_overlap(["i0"], 0),
        lambda: store.set_overlap(["i0"], 10**30),
        lambda: store.set_priority(["i0"], -(10**30)),
        lambda: store.set_gold("i0", Gold(outcome="right")),
        lambda: store.set_gold("i0", Gold(outcome="skip")),
    ):
        with pytest.raises(Invalid, match="expected"):
            wrong()


def test_items_are_found(store):
    store.add_tasks(pairs(5), gold={"i2": Gold(outcome="first")})
    store.set_state(["i4"], "closed")
    assert [item.id for item in store.tasks(ids=["i3", "i1", "i9", "i1"])] == ["i1", "i3"]
    assert [item.id for item in store.tasks(state="closed")] == ["i4"]
    assert [item.id for item in store.tasks(gold=True)] == ["i2"] and store.tasks(kind="steps") == []
    assert store.gold() == {"i2": Gold(outcome="first")}
    store.set_gold("i2", None)
    assert store.gold() == {} and store.count_items() == 5


def test_pictures(store):
    name = store.media.put("image/png", PNG)
    assert store.media.put("image/png", PNG) == name and store.media.get(name) == ("image/png", PNG)
    with pytest.raises(NotYours):
        store.media.get("0")
    with pytest.raises(Invalid, match=r"image/svg\+xml.*image/png"):
        store.media.put("image/svg+xml", b"<svg/>")


def test_jobs(store):
    job = store.jobs.add("train", "runs/1", ["python", "-m", "prefrl"])
    assert store.jobs.list() == [job] and job.state == "waiting"
    changed = store.jobs.update(job.id, state="failed", pid=7, error="out of memory", ended=2.0)
    assert (changed.pid, changed.error, store.jobs.list("failed")) == (7, "out of memory", [changed])
    assert store.jobs.list("running") == [] and changed.command == ("python", "-m", "prefrl")
    for wrong, says in (({"kind": "x"}, "'kind' of a job"), ({"state": "lost"}, "'lost'.*running")):
        with pytest.raises(Invalid, match=says):
            store.jobs.update(job.id, **wrong)
    with pytest.raises(NotYours):
        store.jobs.update("nothing", state="done")
