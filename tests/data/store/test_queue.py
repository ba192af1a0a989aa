"""Which item is next: sides, priorities, known answers, and what reviewers settle."""

from __future__ import annotations

import pytest
from stores import fix_secret, given, label_next, pair, pairs, settle

from prefrl.data.store import Full, Gold
from prefrl.data.store.texts import is_exchanged


def test_sides_are_stable_and_balanced(store):
    store.add_items(pairs(20, overlap=2))
    for name in ("ann", "bob"):
        first = take(store, name, 10)
        again = [place for place, _, _ in store.work.mine(name)]
        assert {(a.item, a.exchanged) for a in first} == {(a.item, a.exchanged) for a in again}
    for person in ("ann", "bob"):
        shown = [is_exchanged("project", f"item {n}", person) for n in range(2000)]
        assert 0.46 < sum(shown) / 2000 < 0.54
    assert is_exchanged("a", "b", "c") and not is_exchanged("a", "b", "d")  # bytes 165 and 92


def take(store, name, count):
    mine = store.work.next(name, count=count)
    for place in mine:
        label = store.work.submit(place.id, name, "first", label_id=place.id)
        assert label.details["exchanged"] == place.exchanged
    return mine


def test_priority_comes_first_and_then_what_has_the_fewest_labels(store):
    store.add_items(pairs(4, overlap=3))
    store.set_priority(["i3"], 5)
    assert [label_next(store, "ann"), label_next(store, "bob"), label_next(store, "ann")] == ["i3", "i3", "i0"]
    assert label_next(store, "bob") == "i1"  # i0 has a label
    store.set_priority(["i2"], -1)
    assert label_next(store, "bob") == "i0"


def test_closed_items_are_not_asked(store):
    store.add_items(pairs(3))
    (mine,) = store.work.next("ann", count=1)
    assert store.set_state(["i0", "i1"], "closed", "boss") == 2
    assert given(store, "ann", 3) == ["i2"]
    with pytest.raises(Full):
        store.work.submit(mine.id, "ann", "first", label_id="a")
    assert store.set_state(["i0"], "open") == 1
    assert given(store, "bob", 3) == ["i0"]


def test_more_people_can_be_asked(store):
    store.add_items(pairs(1))
    label_next(store, "ann")
    assert label_next(store, "bob") is None
    assert store.set_overlap(["i0"], 2) == 1
    assert label_next(store, "bob") == "i0" and store.tasks() == [pair(0, overlap=2)]


def test_nobody_keeps_the_queue_from_the_others(store):
    store.add_items(pairs(40))
    held = []
    for _ in range(9):
        held += [a.id for a in store.work.next("ann", count=10, held=held)]
    assert len(held) == 16


def test_known_answers_are_mixed_in(store):
    fix_secret(store)
    settle(store, gold_share=0.25)
    store.add_tasks(pairs(200), gold={f"i{n}": Gold(outcome="first") for n in range(160, 200)})
    known = {f"i{n}" for n in range(160, 200)}
    ann, bob = ([a.item for _ in range(6) for a in take(store, name, 10)] for name in ("ann", "bob"))
    shares = [len(known & set(found)) / 60 for found in (ann, bob)]
    assert all(0.10 < share < 0.42 for share in shares), shares
    assert known & set(ann) & set(bob)  # one label is enough of the others, but not of these
    assert not (set(ann) & set(bob)) - known


def test_known_answers_alone_are_asked_as_often_as_the_others(store):
    store.add_tasks(pairs(2), gold={"i0": Gold(outcome="first"), "i1": Gold(outcome="second")})
    assert sorted(label_next(store, "ann") for _ in range(2)) == ["i0", "i1"]
    assert label_next(store, "ann") is None and label_next(store, "bob") is None


def test_what_people_disagree_about_goes_to_reviewers_only(store):
    store.add_items(pairs(2, overlap=2))
    for name in ("ann", "bob"):
        label_next(store, name)
    store.people.add("rita", "reviewer")
    store.people.add("carl", "annotator")
    store.set_state(["i0"], "adjudication", by="boss")
    assert given(store, "carl", 5) == ["i1"]
    assert store.work.progress("rita").left == 1  # carl has the other one open
    (first, *_) = store.work.next("rita", count=1)
    assert first.item == "i0"
    label = store.work.submit(first.id, "rita", "second", label_id="r")
    assert label.details["adjudication"] is True
    assert store.item_states()["i0"].state == "closed"
    changed = store.work.submit(first.id, "rita", "tie", label_id="r2", base_version=1)
    assert changed.details["adjudication"] is True
    assert store.check() == []
