"""A word that decides, in one step; and labels and states of some items only."""

from __future__ import annotations

import pytest
from stores import at_once, checked, given, label_next, pairs, settle, steps

from prefrl.data.store import Conflict, Invalid


def test_a_decision_is_a_label_that_closes_the_item_at_once(store):
    store.add_items(pairs(2, overlap=3))
    settle(store)
    for person, outcome in (("ann", "first"), ("bob", "second")):
        label_next(store, person, outcome)
    label = store.settle("i0", "ruth", "tie", note="both say it", label_id="d0", details={"why": "x"}, now=5.0)
    assert (label.version, label.outcome, label.note) == (1, "tie", "both say it")
    assert label.details == {"why": "x", "adjudication": True} and label.time.startswith("1970-01-01T00:00:05")
    assert store.item_states()["i0"].state == "closed" and store.check() == []
    (event,) = store.events(kind="settled")
    assert (event.person, event.body) == ("ruth", {"item": "i0", "label": "d0", "outcome": "tie"})
    assert store.settle("i0", "ruth", "tie", note="both say it", label_id="d0", details={"why": "x"}) == label
    assert len(store.events(kind="settled")) == 1 and given(store, "eve") == ["i1"]
    with pytest.raises(Conflict, match="'d0'"):
        store.settle("i0", "ruth", "first", label_id="d0")


def test_who_labelled_an_item_decides_by_another_version(store):
    store.add_items(pairs(1, overlap=2))
    settle(store)
    label_next(store, "ruth", "first")
    label = store.settle("i0", "ruth", "second")
    assert label.version == 2 and len(label.id) == 32 and store.check() == []
    assert [found.outcome for found in store.labels()] == ["second"]


@pytest.mark.parametrize(
    ("item", "outcome", "says"),
    [
        ("i0", "tie", "'tie'.*one of first, second, both_bad$"),  # the project asks for none
        ("i0", "skip", "'skip'"),
        ("i0", "right", "'right'"),
        ("s0", "first", "'first'"),
        ("c0", "tie", "'tie'"),
        ("s0", "steps", "no ratings"),
        ("i9", "first", "'i9'"),
        ("i0", "nonsense", "'nonsense'"),
    ],
)
def test_what_decides_nothing_changes_nothing(store, item, outcome, says):
    store.add_tasks([*pairs(1), steps(), checked()])
    settle(store, tie=False)
    with pytest.raises(Invalid, match=says):
        store.settle(item, "ruth", outcome)
    with pytest.raises(Invalid, match="name"):
        store.settle("i0", " ", "first")
    assert store.labels() == [] and {state.state for state in store.item_states().values()} == {"open"}


def test_steps_are_decided_with_their_ratings(store):
    store.add_tasks([steps()])
    settle(store, rationale="required")
    label = store.settle("s0", "ruth", "steps", details={"ratings": [1, 1, -1]})
    assert label.details == {"ratings": [1, 1, -1], "adjudication": True}


def test_two_who_decide_at_once_both_said_so(store):
    store.add_items(pairs(1))
    settle(store)
    people = [f"r{n}" for n in range(8)]
    assert at_once([lambda p=p: store.settle("i0", p, "first", label_id=p) for p in people]) == []
    assert {label.annotator for label in store.labels()} == set(people) and store.check() == []
    assert store.item_states()["i0"].state == "closed"


def test_labels_and_states_of_some_items(store):
    store.add_items(pairs(450))
    settle(store)
    for number in (3, 400, 3, 7):
        store.submit(f"i{number}", "ann", "tie")
    store.submit("i3", "bob", "first")

    def found(**which):
        return [(label.item, label.annotator, label.version) for label in store.labels(**which)]

    assert found(items=["i400", "i3", "i9", "nothing", "i3"]) == [
        ("i400", "ann", 1),
        ("i3", "ann", 2),
        ("i3", "bob", 1),
    ]
    assert found(items=["i3"], all_versions=True) == [("i3", "ann", 1), ("i3", "ann", 2), ("i3", "bob", 1)]
    assert found(items=[]) == [] and len(found()) == 4
    assert found(items=[f"i{n}" for n in range(450)]) == found()
    assert list(store.item_states(items=["i7", "i3", "nothing"])) == ["i3", "i7"]
    assert store.item_states(items=["i3"])["i3"] == store.item_states()["i3"]
