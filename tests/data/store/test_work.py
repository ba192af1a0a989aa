"""Who gets which item, and what becomes of what they say: the faults that labelling tools are known for."""

from __future__ import annotations

import pytest
from stores import at_once, given, label_next, opened, pair, pairs, settle, steps

from prefrl.data.store import Conflict, Full, Invalid, NotYours
from prefrl.errors import DataError

SKIPPED = {"reasons": ["I cannot judge this"]}


def live(store):
    return [(label.item, label.annotator, label.version, label.outcome) for label in store.labels()]


def test_two_who_ask_at_the_same_time_get_different_items(store):
    store.add_items(pairs(20))
    found = []
    people = [f"person {n}" for n in range(10)]
    assert at_once([lambda name=name: found.extend(given(store, name, 2)) for name in people]) == []
    assert sorted(found) == sorted(item.id for item in pairs(20))


def test_an_item_is_offered_until_enough_people_labelled_it_and_blindly(store):
    store.add_items(pairs(1, overlap=2))
    assert label_next(store, "ann") == "i0"
    assert label_next(store, "ann") is None
    assert label_next(store, "bob", "second") == "i0"
    assert label_next(store, "eve") is None
    assert live(store) == [("i0", "ann", 1, "first"), ("i0", "bob", 1, "second")]


def test_people_who_have_an_item_open_count_too(store):
    store.add_items(pairs(1, overlap=2))
    assert [given(store, name) for name in ("ann", "bob", "eve")] == [["i0"], ["i0"], []]
    assert not store.is_open("i0", "eve") and store.is_open("i0", "ann")
    assert store.open_items("eve") == [] and store.item_states()["i0"].leases == 2


def test_an_item_that_was_opened_and_left_goes_back(store):
    settle(store, lease_minutes=30.0)
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1, now=1000.0)
    assert mine.lease_until == 1000.0 + 1800.0
    assert given(store, "bob", now=2799.0) == []
    assert given(store, "bob", now=2800.0) == ["i0"]
    assert store.work.assignment(mine.id, "ann").state == "expired"


def test_a_page_that_is_loaded_again_shows_the_same_item(store):
    store.add_items(pairs(9))
    first = store.work.next("ann", count=2, now=0.0)
    again = store.work.next("ann", count=2, now=60.0)
    assert [(a.id, a.item, a.exchanged) for a in first] == [(a.id, a.item, a.exchanged) for a in again]
    assert given(store, "ann", 2, held=[first[0].id, first[1].id], now=61.0) == ["i2", "i3"]


def test_what_is_on_the_screen_is_kept_for_longer(store):
    store.add_items(pairs(3))
    (mine,) = store.work.next("ann", count=1, now=0.0)
    store.work.next("ann", count=1, held=[mine.id], now=1700.0)
    assert given(store, "bob", 9, now=1801.0) == ["i2"]
    assert store.work.renew(mine.id, "ann", now=3000.0).lease_until == 3000.0 + 1800.0


def test_labels_that_come_late_and_out_of_order_all_arrive_once(store):
    store.add_items(pairs(5))
    mine = store.work.next("ann", count=5, now=0.0)
    for _ in range(2):  # the answers got lost, so everything is sent again
        for place in reversed(mine):
            store.work.submit(place.id, "ann", "first", label_id=f"label {place.item}", now=100_000.0)
    assert sorted(item for item, *_ in live(store)) == ["i0", "i1", "i2", "i3", "i4"]
    assert len(store.labels(all_versions=True)) == 5


def test_a_late_label_is_refused_where_others_took_the_place(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1, now=0.0)
    (theirs,) = store.work.next("bob", count=1, now=5000.0)
    with pytest.raises(Full, match="Others have labelled"):
        store.work.submit(mine.id, "ann", "first", label_id="a", now=5001.0)
    with pytest.raises(Full, match="Others have taken"):
        store.work.renew(mine.id, "ann", now=5001.0)
    store.work.submit(theirs.id, "bob", "first", label_id="b", now=5001.0)
    with pytest.raises(Full):
        store.work.submit(mine.id, "ann", "first", label_id="a", now=5002.0)
    assert live(store) == [("i0", "bob", 1, "first")]


def test_what_others_took_is_not_shown_again(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1, now=0.0)
    assert given(store, "bob", now=5000.0) == ["i0"]
    assert given(store, "ann", now=5001.0) == []
    assert store.work.assignment(mine.id, "ann", now=0.0).state == "expired"


def test_changing_a_label_makes_one_that_counts_and_a_second_version(store):
    store.add_items(pairs(2))
    (mine,) = store.work.next("ann", count=1)
    store.work.submit(mine.id, "ann", "first", label_id="a")
    changed = store.work.submit(mine.id, "ann", "tie", label_id="b", base_version=1)
    assert (changed.version, live(store)) == (2, [("i0", "ann", 2, "tie")])
    assert len(store.labels(all_versions=True)) == 2
    assert store.item_states()["i0"].labels == 1


def test_a_stale_page_cannot_overwrite(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1)
    store.work.submit(mine.id, "ann", "first", label_id="a")
    for base in (0, 2):
        with pytest.raises(Conflict, match=f"version 1 by now, and this changes version {base}"):
            store.work.submit(mine.id, "ann", "second", label_id="b", base_version=base)
    assert live(store) == [("i0", "ann", 1, "first")]


def test_the_same_person_can_label_an_item_once(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1)
    store.work.submit(mine.id, "ann", "first", label_id="a")
    assert store.work.submit(mine.id, "ann", "first", label_id="a").version == 1
    for outcome, label_id in (("second", "a"), ("first", "b")):
        with pytest.raises(Conflict):
            store.work.submit(mine.id, "ann", outcome, label_id=label_id)
    assert len(store.labels(all_versions=True)) == 1


@pytest.mark.parametrize(("skip_after", "asked"), [(0, 4), (1, 1), (2, 2), (3, 3)])
def test_an_item_that_several_skip_is_not_asked_any_more(skip_after, asked, store):
    settle(store, skip_after=skip_after)
    store.add_items(pairs(1))
    found = [label_next(store, name, "skip") for name in ("ann", "bob", "eve", "joe")]
    assert found == ["i0"] * asked + [None] * (4 - asked)
    assert (store.item_states()["i0"].skips, store.item_states()["i0"].labels) == (asked, 0)
    assert store.work.progress("zoe").left == (1 if skip_after == 0 else 0)


def test_a_skip_leaves_the_place_to_others(store):
    store.add_items(pairs(1))
    assert label_next(store, "ann", "skip") == "i0"
    assert label_next(store, "ann") is None
    assert label_next(store, "bob") == "i0"


def test_the_end_is_an_end_when_there_is_less_than_the_quota(store):
    settle(store, quota=20)
    store.add_items(pairs(3))
    assert [label_next(store, "ann") for _ in range(4)] == ["i0", "i1", "i2", None]
    progress = store.work.progress("ann")
    assert (progress.done, progress.left, progress.total, progress.quota) == (3, 0, 3, 20)


def test_abandoned_items_are_freed_and_counts_are_those_of_the_labels(store):
    store.add_items(pairs(4))
    store.people.add("ann", "annotator")
    label_next(store, "ann")
    assert given(store, "ann", 3) == ["i1", "i2", "i3"]
    assert given(store, "bob", 3) == []
    store.people.set_active("ann", False, by="boss")
    assert given(store, "bob", 3) == ["i1", "i2", "i3"]
    assert live(store) == [("i0", "ann", 1, "first")]
    assert [state.labels for state in store.item_states().values()] == [1, 0, 0, 0]
    assert store.check() == []


def test_a_released_item_is_the_next_ones_at_once(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1)
    store.work.release(mine.id, "ann")
    (theirs,) = store.work.next("bob", count=1)
    store.work.submit(theirs.id, "bob", "tie", label_id="b")
    store.work.release(theirs.id, "bob")  # it is labelled: nothing happens
    assert store.work.assignment(theirs.id, "bob").state == "done"


def test_new_items_come_at_once_to_who_was_done(store):
    store.add_items(pairs(1))
    assert [label_next(store, "ann"), label_next(store, "ann")] == ["i0", None]
    store.add_items([pair(7)])
    assert store.work.progress("ann").left == 1
    assert label_next(store, "ann") == "i7"


def test_nothing_comes_twice(store):
    store.add_items(pairs(30, overlap=3))
    found = {name: [label_next(store, name) for _ in range(30)] for name in ("ann", "bob", "eve")}
    assert all(len(set(items)) == 30 for items in found.values())
    assert all(label_next(store, name) is None for name in ("ann", "joe"))


def test_the_quota_holds_for_who_talks_to_the_store_directly(store):
    settle(store, quota=2)
    store.add_items(pairs(9))
    assert given(store, "ann", 9, now=0.0) == ["i0", "i1"]
    mine = store.work.next("ann", count=9, now=0.0)
    third = store.work.next("bob", count=1, now=0.0)
    store.work.submit(mine[0].id, "ann", "first", label_id="a", now=1.0)
    store.work.submit(mine[1].id, "ann", "skip", label_id="b", details=SKIPPED, now=1.0)
    assert given(store, "ann", 9, now=2.0) == ["i3"]  # a skip is no label
    (last,) = store.work.next("ann", count=9, now=2.0)
    store.work.submit(last.id, "ann", "first", label_id="c", now=3.0)
    with pytest.raises(Full, match="all 2 labels"):
        store.work.submit(mine[1].id, "ann", "first", label_id="d", base_version=1, now=4.0)
    assert given(store, "ann", 9, now=5.0) == []
    assert store.work.progress("ann", now=5.0).left == 0
    assert third[0].item == "i2"


def test_two_at_the_quota_at_once(store):
    settle(store, quota=1, skip_after=0)
    store.add_items(pairs(2))
    (one,) = store.work.next("ann", count=1)
    store.work.submit(one.id, "ann", "skip", label_id="s", details=SKIPPED)
    (other,) = store.work.next("ann", count=1)

    def first():
        store.work.submit(one.id, "ann", "first", label_id="a", base_version=1)

    def second():
        store.work.submit(other.id, "ann", "first", label_id="b")

    (error,) = at_once([first, second])
    assert isinstance(error, Full) and store.work.progress("ann").done == 1


def test_an_edited_skip_cannot_take_a_place_twice(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1)
    store.work.submit(mine.id, "ann", "skip", label_id="a", details=SKIPPED)
    label_next(store, "bob")
    with pytest.raises(Full, match="Others have labelled"):
        store.work.submit(mine.id, "ann", "first", label_id="b", base_version=1)
    assert store.item_states()["i0"].labels == 1


def test_a_label_can_be_changed_for_a_while(store):
    settle(store, edit_minutes=10.0)
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1, now=0.0)
    store.work.submit(mine.id, "ann", "first", label_id="a", now=100.0)
    store.work.submit(mine.id, "ann", "second", label_id="b", base_version=1, now=700.0)
    with pytest.raises(Conflict, match="for 10 minutes"):
        store.work.submit(mine.id, "ann", "tie", label_id="c", base_version=2, now=700.1)
    assert live(store) == [("i0", "ann", 2, "second")]


def test_other_peoples_assignments_look_like_none(store):
    store.add_items(pairs(2))
    (mine,) = store.work.next("ann", count=1)
    said = set()
    for id in (mine.id, "0" * 32):
        for call in (
            lambda id=id: store.work.assignment(id, "eve"),
            lambda id=id: store.work.submit(id, "eve", "first", label_id="x"),
            lambda id=id: store.work.release(id, "eve"),
            lambda id=id: store.work.renew(id, "eve"),
            lambda id=id: store.work.flag("f", id, "eve", "Offensive"),
        ):
            with pytest.raises(NotYours) as caught:
                call()
            said.add(str(caught.value).replace(id, "ID"))
    assert said == {"You have no assignment 'ID'; ask for the next item."}


def test_my_work_shows_the_last_first(store):
    store.add_items(pairs(3))
    for n in range(3):
        label_next(store, "ann", now=float(n))
    mine = store.work.mine("ann", limit=2)
    assert [(place.item, task.id, label.item, place.version) for place, task, label in mine] == [
        ("i2", "i2", "i2", 1),
        ("i1", "i1", "i1", 1),
    ]
    assert store.work.mine("bob") == []


def test_flags(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1)
    flag = store.work.flag("f", mine.id, "ann", "Offensive", "look", now=5.0)
    assert store.work.flag("f", mine.id, "ann", "Offensive", "look") == flag
    assert (flag.item, flag.person, flag.reason, flag.note, flag.time) == ("i0", "ann", "Offensive", "look", 5.0)
    with pytest.raises(Conflict, match="another report"):
        store.work.flag("f", mine.id, "ann", "Broken text")
    with pytest.raises(Invalid, match="'Boring'"):
        store.work.flag("g", mine.id, "ann", "Boring")
    store.resolve_flag("f", "boss")
    assert store.flags() == [] and store.flags(open_only=False)[0].resolved_by == "boss"
    with pytest.raises(DataError, match="no flag 'g'"):
        store.resolve_flag("g", "boss")


def test_labels_of_steps(store):
    store.add_tasks([steps()])
    (mine,) = store.work.next("ann", count=1)
    with pytest.raises(Invalid, match="3 of them"):
        store.work.submit(mine.id, "ann", "steps", label_id="a", details={"ratings": [1, 0]})
    label = store.work.submit(mine.id, "ann", "steps", label_id="a", details={"ratings": [1, 0, -1]})
    assert label.details == {"ratings": [1, 0, -1]}
    assert store.labels() == [label]
    assert store.items() == [] and store.judgements() == []


def test_ids_of_labels(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1)
    for wrong in ("", " ", "x" * 201, "\ud800", "\0"):
        with pytest.raises(Invalid, match="1 to 200 characters"):
            store.work.submit(mine.id, "ann", "first", label_id=wrong)
    with pytest.raises(Invalid, match="no name"):
        store.work.next(" ")


def test_what_is_kept_for_somebody_outlasts_the_process(tmp_path):
    with opened(tmp_path / "a.db", 2) as store:
        settle(store)
        (mine,) = store.work.next("ann", count=1, now=0.0)
    with opened(tmp_path / "a.db") as store:
        assert given(store, "bob", 2, now=60.0) == ["i1"]
        assert [a.id for a in store.work.next("ann", count=1, now=60.0)] == [mine.id]
        assert given(store, "bob", 2, now=3 * 3600.0) == ["i0", "i1"]  # nobody kept what they had


def test_a_clock_that_goes_back(store):
    store.add_items(pairs(3, overlap=1))
    settle(store, edit_minutes=5)
    (mine,) = store.work.next("ann", count=1, now=10_000.0)
    store.people.add("ann", "annotator")
    login = store.people.open_session("ann", 1.0, now=10_000.0)
    assert store.people.session(login.token, now=5_000.0) is not None
    assert given(store, "bob", 3, now=5_000.0) == ["i1", "i2"]  # hers is still kept
    first = store.work.submit(mine.id, "ann", "first", label_id="l1", now=5_000.0)
    again = store.work.submit(mine.id, "ann", "second", label_id="l2", base_version=1, now=4_000.0)
    assert (first.version, again.version) == (1, 2) and again.time < first.time
    assert [label.outcome for label in store.labels()] == ["second"] and store.check() == []
    assert store.work.progress("ann", now=0.0).done == 1
