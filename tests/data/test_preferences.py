"""The preference store: nothing lost, nothing twice, nothing overwritten."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading

import pytest

from prefrl.data.comparisons import Item, Judgement, to_pairs
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import DataError
from prefrl.types import Completion, Prompt


def item(number=0, **more):
    prompt = Prompt(id=f"p{number}", messages=({"role": "user", "content": f"Say {number}"},), columns={"n": number})
    first = Completion(text=f"one {number}", ids=(1, 2), logps=(-0.1, -1 / 3), finished=False)
    return Item(prompt=prompt, first=first, second=Completion(text=f"two {number}"), **more)


@pytest.fixture
def store(tmp_path):
    with PreferenceStore(tmp_path / "preferences.db") as store:
        yield store


def outcomes(store, **more):
    return [(label.item, label.annotator, label.version, label.outcome) for label in store.labels(**more)]


def test_items_come_back_as_they_were(store):
    given = [
        item(
            0, round=2, checkpoints=("start", "round_1/policy"), judge="round_1/reward", uncertainty=1 / 3, why="random"
        ),
        Item(prompt=Prompt(id="t", text="plain \ud800"), first=Completion(text="a"), second=Completion(text="b\ud800")),
    ]
    assert store.add_items(given) == 2
    assert store.items() == given


def test_an_item_is_stored_once(store):
    assert store.add_items([item(0), item(1)]) == 2
    assert store.add_items([item(1), item(2)]) == 1
    assert [found.prompt.id for found in store.items()] == ["p0", "p1", "p2"]
    assert item(0).id != item(0, round=1).id


def test_a_label_of_every_kind(store):
    items = [item(n) for n in range(4)]
    store.add_items(items)
    for one, outcome in zip(items, ("first", "second", "tie", "skip"), strict=True):
        label = store.submit(one.id, "ann", outcome, strength="much", note="why")
        assert (label.version, label.strength, label.note) == (1, "much", "why")
        assert label.time.endswith("+00:00")
    pairs = store.pairs({"much": 2.0})
    assert [(p.chosen.text, p.rejected.text, p.label, p.tie, p.margin, p.annotator) for p in pairs] == [
        ("one 0", "two 0", 1.0, 0.0, 2.0, "ann"),
        ("two 1", "one 1", 1.0, 0.0, 2.0, "ann"),
        ("one 2", "two 2", 0.5, 1.0, 0.0, "ann"),
    ]
    assert pairs[0].chosen == items[0].first  # ids, log-probs and whether it was cut off


def test_changing_ones_mind_adds_a_version(store):
    one = item()
    store.add_items([one])
    store.submit(one.id, "ann", "first")
    store.submit(one.id, "bob", "second")
    store.submit(one.id, "ann", "tie")
    assert outcomes(store) == [(one.id, "bob", 1, "second"), (one.id, "ann", 2, "tie")]
    assert outcomes(store, all_versions=True)[0] == (one.id, "ann", 1, "first")
    assert [j.label.outcome for j in store.judgements()] == ["second", "tie"]


def test_labels_can_be_neither_changed_nor_deleted(store):
    one = item()
    store.add_items([one])
    store.submit(one.id, "ann", "first")
    other = sqlite3.connect(store.path)
    for statement in ("UPDATE labels SET outcome = 'second'", "DELETE FROM labels"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            other.execute(statement)
    other.close()


def test_a_name_that_is_no_text_is_kept_by_its_escape(store):
    store.add_items([item()])
    assert store.is_open(item().id, "jos\udce9")
    assert store.submit(item().id, "jos\udce9", "first").annotator == "jos\\udce9"
    assert store.open_items("jos\udce9") == [] and not store.is_open(item().id, "jos\udce9")


def test_the_same_submission_twice_is_one_label(store):
    one = item()
    store.add_items([one])
    first = store.submit(one.id, "ann", "first", label_id="x")
    assert store.submit(one.id, "ann", "first", label_id="x") == first
    assert len(store.labels(all_versions=True)) == 1
    with pytest.raises(DataError, match="used for another"):
        store.submit(one.id, "ann", "second", label_id="x")


def test_open_items(store):
    items = [item(0), item(1, overlap=2), item(2)]
    store.add_items(items)
    store.submit(items[0].id, "ann", "first")
    store.submit(items[1].id, "ann", "skip")
    assert [i.prompt.id for i in store.open_items("ann")] == ["p2"]
    assert [i.prompt.id for i in store.open_items("bob")] == ["p1", "p2"]  # the first one has all its labels
    store.submit(items[1].id, "bob", "first")
    store.submit(items[1].id, "bob", "second")  # a version is no further person
    assert [i.prompt.id for i in store.open_items("eve")] == ["p1", "p2"]  # a skip is no label


def test_more_people_can_be_asked_later(store):
    store.add_items([item(0)])
    store.submit(item(0).id, "ann", "first")
    assert not store.is_open(item(0).id, "bob")
    assert store.add_items([item(0, overlap=2)]) == 0
    assert store.is_open(item(0).id, "bob") and not store.is_open(item(0).id, "ann")
    store.add_items([item(0)])  # nobody is sent away again
    assert [found.overlap for found in store.items()] == [2]
    assert store.open_items("bob") == store.items()


def test_judgements_go_by_item_then_time(store):
    items = [item(0, overlap=2), item(1)]
    store.add_items(items)
    store.submit(items[1].id, "ann", "first")
    store.submit(items[0].id, "bob", "first")
    store.submit(items[0].id, "ann", "second")
    assert [(j.item.prompt.id, j.label.annotator) for j in store.judgements()] == [
        ("p0", "bob"),
        ("p0", "ann"),
        ("p1", "ann"),
    ]
    assert to_pairs(store.judgements()) == store.pairs()
    assert isinstance(store.judgements()[0], Judgement)


def filled(path):
    with PreferenceStore(path) as store:
        items = [item(n, uncertainty=0.1 * n, overlap=2) for n in range(3)]
        store.add_items(items)
        store.submit(items[0].id, "ann", "first", note="half a pair \ud800")
        store.submit(items[2].id, "bob", "tie")
        store.submit(items[0].id, "ann", "second")
        return store.items(), store.labels(all_versions=True)


def test_export_and_import_are_exact(tmp_path):
    items, labels = filled(tmp_path / "a.db")
    with PreferenceStore(tmp_path / "a.db") as store:
        assert store.export(tmp_path / "one.jsonl") == 6
        store.export(tmp_path / "two.jsonl")
    with PreferenceStore(tmp_path / "b.db") as copy:
        assert copy.import_(tmp_path / "one.jsonl") == 6
        assert copy.import_(tmp_path / "one.jsonl") == 0
        assert (copy.items(), copy.labels(all_versions=True)) == (items, labels)
        copy.export(tmp_path / "three.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "three.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"pair": 1}, "line 7 is no item or label"),
        ({"label": {"id": "z", "item": "nowhere", "annotator": "ann", "version": 1, "outcome": "tie"}}, "line 7"),
        ({"item": {"prompt": {"id": "p", "text": "t"}}}, "line 7"),
    ],
)
def test_an_import_is_whole_or_nothing(line, says, tmp_path):
    filled(tmp_path / "a.db")
    with PreferenceStore(tmp_path / "a.db") as store:
        store.export(tmp_path / "out.jsonl")
    with (tmp_path / "out.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    with PreferenceStore(tmp_path / "b.db") as copy:
        with pytest.raises(DataError, match=says):
            copy.import_(tmp_path / "out.jsonl")
        assert copy.items() == []


def test_an_import_that_contradicts_is_refused(tmp_path):
    filled(tmp_path / "a.db")
    with PreferenceStore(tmp_path / "a.db") as store:
        store.export(tmp_path / "out.jsonl")
        changed = (tmp_path / "out.jsonl").read_text().replace('"outcome": "tie"', '"outcome": "first"')
        (tmp_path / "changed.jsonl").write_text(changed)
        with pytest.raises(DataError, match="is another one here"):
            store.import_(tmp_path / "changed.jsonl")


def test_what_cannot_be_submitted(store):
    store.add_items([item()])
    for arguments, says in (
        (("nowhere", "ann", "first"), "no item 'nowhere'"),
        ((item().id, "ann", "better"), "'better'.*first, second, tie, both_bad"),
        ((item().id, " ", "first"), "and a name"),
    ):
        with pytest.raises(DataError, match=says):
            store.submit(*arguments)
    assert store.labels() == []


def test_files_that_are_no_store(tmp_path):
    with pytest.raises(DataError, match=r"There is no preference store"):
        PreferenceStore(tmp_path / "none.db", create=False)
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(DataError, match="name another file"):
        PreferenceStore(tmp_path / "text.db")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE labels (x)")
    other.close()
    with pytest.raises(DataError, match="another kind of database"):
        PreferenceStore(tmp_path / "other.db")


def test_files_of_others_are_left_as_they_are(tmp_path):
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    (tmp_path / "empty.db").touch()
    before = path.read_bytes()
    with pytest.raises(DataError, match="another kind"):
        PreferenceStore(path)
    with pytest.raises(DataError, match="is empty"):
        PreferenceStore(tmp_path / "empty.db", create=False)
    assert path.read_bytes() == before and (tmp_path / "empty.db").read_bytes() == b""


def test_a_damaged_store_is_noticed(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    data = bytearray(path.read_bytes())
    data[4096 * 2 + 8 : 4096 * 2 + 600] = b"\xff" * 592
    path.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        PreferenceStore(path)


def test_labels_survive_a_process_that_dies(tmp_path):
    path = tmp_path / "a.db"
    one = item()
    with PreferenceStore(path) as store:
        store.add_items([one])
    script = (
        "import os, sys\nfrom prefrl.data.preferences import PreferenceStore\n"
        f"PreferenceStore(sys.argv[1]).submit({one.id!r}, 'ann', 'first')\nos.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)]).returncode == -9
    with PreferenceStore(path) as store:
        assert outcomes(store) == [(one.id, "ann", 1, "first")]


def test_opening_waits_for_another_program_that_is_making_the_file(tmp_path):
    path = tmp_path / "a.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("VACUUM")  # a file without tables
    other.execute("BEGIN IMMEDIATE")  # SQLite would not wait for this one before it changes the kind of journal
    release = threading.Timer(0.3, lambda: other.execute("COMMIT"))
    release.start()
    with PreferenceStore(path) as store:
        assert store.items() == []
        assert not release.is_alive()
    other.close()


def test_many_who_label_at_once(tmp_path):
    path, items = tmp_path / "a.db", [item(n, overlap=4) for n in range(10)]

    def work(name):
        with PreferenceStore(path) as store:
            store.add_items(items)
            for one in items:
                store.submit(one.id, name, "first", label_id=f"{name}-{one.id}")

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob", "eve", "joe")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with PreferenceStore(path) as store:
        assert len(store.items()) == 10
        assert len(store.labels()) == len({(label.item, label.annotator) for label in store.labels()}) == 40
