"""Export and import: everything that is data, the same bytes twice, and back again."""

from __future__ import annotations

import json

import pytest
from stores import PNG, at_once, checked, label_next, opened, pair, pairs, steps

from prefrl.data.comparisons import Clip, Label
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import Criterion, ProjectSettings
from prefrl.data.store import Gold
from prefrl.errors import DataError


def fill(store):
    store.save_settings(ProjectSettings(name="Été", scale=7, criteria=(Criterion(name="truth"),), gold_share=0.0))
    picture = store.media.put("image/png", PNG)
    clip = Clip(frames=(picture,), states=((0.1, 1 / 3),), names=("x", "y"))
    store.add_tasks([*pairs(2, overlap=2), pair(2, clips=(clip, clip)), steps(uncertainty=1 / 3), checked()])
    store.set_gold("s0", Gold(outcome="steps", note="no", ratings=(1, 1, -1)))
    store.set_priority(["i1"], 3)
    store.set_state(["c0"], "closed")
    store.set_overlap(["i0"], 3)
    store.people.add("boss", "admin", "secret hash")
    first = store.work.next("ann", count=1)[0]
    store.work.submit(first.id, "ann", "first", strength="much", label_id="a", details={"criteria": {"truth": 1}})
    store.work.submit(first.id, "ann", "tie", label_id="b", base_version=1, note="half a pair \ud800")
    store.work.flag("f", first.id, "ann", "Offensive", "see")
    store.submit("s0", "bob", "steps", details={"ratings": [1, 0, None], "unsure": [2]})
    store.submit("i0", "bob", "skip")


def everything(store):
    states = [(s.id, s.state, s.priority, s.overlap, s.labels, s.skips, s.gold) for s in store.item_states().values()]
    data = (store.settings(), store.tasks(), store.labels(all_versions=True), store.gold(), store.flags())
    return data, states, [place.version for place, _, _ in store.work.mine("ann")]


def test_a_copy_has_everything(store, tmp_path):
    fill(store)
    one, two, three = (tmp_path / f"{n}.jsonl" for n in range(3))
    assert store.export(one) == store.export(two) == 1 + 1 + 5 + 4 + 1
    with PreferenceStore(tmp_path / "copy.db") as copy:
        assert copy.import_(one) == 5 + 4 + 1
        assert copy.import_(one) == 0
        assert everything(copy) == everything(store)
        assert copy.media.get(copy.items()[2].clips[0].frames[0]) == ("image/png", PNG)
        assert copy.check() == [] and copy.people.list() == []
        copy.export(three)
    assert one.read_bytes() == two.read_bytes() == three.read_bytes()
    assert "secret" not in one.read_text()


def test_one_label_is_one_row(store, tmp_path):
    store.add_items(pairs(1))
    label_next(store, "ann")
    store.export(tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["label"]["item"] for row in rows if "label" in row] == ["i0"]


def test_files_of_the_first_version_can_be_read(tmp_path):
    label = {"id": "l", "item": "i0", "annotator": "ann", "version": 1, "outcome": "first"}
    rows = [{"item": pair().to_dict()}, {"label": {**label, "strength": "", "note": "", "time": ""}}]
    (tmp_path / "old.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with opened(tmp_path / "a.db") as store:
        assert store.import_(tmp_path / "old.jsonl") == 2
        assert store.items() == [pair()] and len(store.labels()) == 1 and store.check() == []


def test_settings_that_are_here_stay(tmp_path):
    with opened(tmp_path / "a.db") as store:
        store.save_settings(ProjectSettings(name="theirs"))
        store.add_items(pairs(1))
        store.export(tmp_path / "out.jsonl")
    for mine in ("mine", ""):
        with opened(tmp_path / f"{mine}.db") as store:
            if mine:
                store.save_settings(ProjectSettings(name=mine))
            store.import_(tmp_path / "out.jsonl")
            assert store.settings().name == (mine or "theirs")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"settings": {"scale": 5}}, "line 2 is no item or label.*scale is 5"),
        ({"media": {"hash": "0", "type": "image/png", "body": "AA=="}}, "line 2.*hash is another"),
        ({"item": {**pair(5).to_dict(), "overlap": 0}}, "line 2.*overlap from 1"),
        ({"item": pair(5).to_dict(), "state": "lost"}, "line 2.*state 'lost'"),
        ({"item": pair(5).to_dict(), "gold": {"outcome": "steps", "note": "", "ratings": []}}, "line 2.*'steps'"),
        ({"label": {"id": "l", "item": "i9", "annotator": "a", "version": 1, "outcome": "tie"}}, "line 2: .*nowhere"),
        ({"label": {"id": "l", "item": "i0", "annotator": "a", "version": 2, "outcome": "tie"}}, "have gaps"),
        ({"label": {"id": "l", "item": "i0", "annotator": "a", "version": 1, "outcome": "x"}}, "line 2.*outcome"),
        ({"flag": {"id": "f", "item": "i9", "person": "a", "reason": "", "note": "", "time": 0}}, "nowhere"),
        ({"other": 1}, "line 2 is no item or label"),
    ],
)
def test_an_import_is_whole_or_nothing(line, says, store, tmp_path):
    lines = [{"item": pair().to_dict()}, line]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    with pytest.raises(DataError, match=says):
        store.import_(tmp_path / "in.jsonl")
    assert store.count_items() == 0 and store.labels() == [] and store.flags() == []


def test_labels_that_were_given_elsewhere(store):
    store.add_items(pairs(2, overlap=2))
    made = [Label(id=f"l{n}", item=f"i{n}", annotator="ann", version=1, outcome="first") for n in range(2)]
    assert store.add_labels(made, by="boss") == 2
    assert store.add_labels(made) == 0
    assert [label.time[-6:] for label in store.labels()] == ["+00:00", "+00:00"]
    assert store.work.progress("ann").done == 2 and store.work.next("ann") == []
    with pytest.raises(DataError, match="'l0' is another one here"):
        store.add_labels([Label(id="l0", item="i0", annotator="ann", version=1, outcome="second")])
    with pytest.raises(DataError, match="'l9' is of item 'i9', which is nowhere"):
        store.add_labels([Label(id="l9", item="i9", annotator="ann", version=1, outcome="second")])
    assert store.check() == []


def test_labels_come_in_while_items_are_added(tmp_path):
    with opened(tmp_path / "a.db", 40) as store:
        long = "word " * 400
        many = [pair(n, judge=long) for n in range(100, 1300)]
        labelled = []
        errors = at_once(
            [
                lambda: store.add_tasks(many),
                lambda: [labelled.append((label_next(store, "ann"), store.count_items())) for _ in range(40)],
            ]
        )
        assert errors == [] and len({item for item, _ in labelled}) == 40
        assert labelled[0][1] < 1240 and store.count_items() == 1240


def test_a_file_that_cannot_be_written(tmp_path):
    with opened(tmp_path / "a.db", 1) as store, pytest.raises(DataError, match=r"nowhere/out\.jsonl"):
        store.export(tmp_path / "nowhere" / "out.jsonl")
