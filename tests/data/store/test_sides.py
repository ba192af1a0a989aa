"""Which side is A, and when a known answer comes: nobody can work it out from what the server tells."""

from __future__ import annotations

import hashlib

from old_stores import second_version
from stores import given, label_next, pairs, settle

from prefrl.data.comparisons import Label
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store import Gold
from prefrl.data.store.texts import is_exchanged

COUNT = 200


def sides(store, person):
    return {a.item: a.exchanged for a in store.work.next(person, count=COUNT, now=0.0)} | {
        a.item: a.exchanged for a, _, _ in store.work.mine(person, limit=COUNT)
    }


def all_sides(store, person):
    """The sides of all items for a person, who labels one after the other."""
    while label_next(store, person):
        pass
    return sides(store, person)


def test_the_id_that_browsers_know_tells_no_side(store):
    store.add_items(pairs(COUNT))
    settle(store)
    shown = all_sides(store, "ann")
    guessed = sum(is_exchanged(store.project_id, item, "ann") == side for item, side in shown.items())
    assert len(shown) == COUNT and 70 <= guessed <= 130  # 100 +- 4 deviations of a coin
    assert 70 <= sum(shown.values()) <= 130


def test_the_id_that_browsers_know_tells_no_known_answer(store):
    store.add_tasks(pairs(2 * COUNT), gold={f"i{n}": Gold(outcome="first") for n in range(COUNT)})
    settle(store, gold_share=0.5)
    came = [int(label_next(store, "ann")[1:]) < COUNT for _ in range(COUNT)]

    def guess(place):
        draw = hashlib.sha256(f"{store.project_id}|ann|{place}".encode()).digest()
        return int.from_bytes(draw[:8], "big") / 2**64 < 0.5

    assert 70 <= sum(guess(place) == known for place, known in enumerate(came)) <= 130


def test_sides_stay_when_the_store_is_opened_again_and_differ_between_projects(tmp_path):
    found = []
    for name in ("a.db", "a.db", "b.db"):
        with PreferenceStore(tmp_path / name) as store:
            store.add_items(pairs(COUNT))
            found.append([is_exchanged(store.secret, item.id, "ann") for item in store.items()])
    assert found[0] == found[1] != found[2]


def test_the_secret_is_in_no_export(tmp_path):
    with PreferenceStore(tmp_path / "a.db") as store:
        store.add_items(pairs(2))
        label_next(store, "ann")
        store.export(tmp_path / "a.jsonl")
        assert len(store.secret) == 64 and store.secret not in (tmp_path / "a.jsonl").read_text()
        assert store.secret not in repr(store.settings()) + repr(store.events()) and store.secret != store.project_id


def test_a_label_that_comes_from_elsewhere_keeps_the_sides_it_was_given_on(tmp_path):
    with PreferenceStore(tmp_path / "a.db") as store:
        store.add_items(pairs(40))
        settle(store)
        shown = all_sides(store, "ann")
        store.export(tmp_path / "a.jsonl")
    with PreferenceStore(tmp_path / "b.db") as other:
        other.import_(tmp_path / "a.jsonl")
        assert sides(other, "ann") == shown
        told = [Label(id=f"b{n}", item=f"i{n}", annotator="bob", version=1, outcome="tie") for n in range(40)]
        other.add_labels(told)  # they do not say
        assert 5 < sum(sides(other, "bob").values()) < 35


def test_a_store_of_the_second_version_gets_a_secret_and_keeps_the_sides_that_were_shown(tmp_path):
    path = tmp_path / "a.db"
    with PreferenceStore(path) as store:
        store.add_items(pairs(60, overlap=2))
        settle(store)
        for _ in range(20):
            label_next(store, "ann")
        assert len(given(store, "ann", 10)) == 10
        before, project = sides(store, "ann"), store.project_id
        store.people.add("rita", "reviewer")
        links = [store.people.invite("annotator", 1.0), store.people.invite("annotator", 1.0, name="rita")]
    second_version(path)
    with PreferenceStore(path) as store:
        secret = store.secret
        assert store.project_id == project and len(secret) == 64 and store.check() == []
        after = sides(store, "ann")
        assert {item: after[item] for item in before} == before
        offers = [store.people.invitation(link) for link in links]
        assert [(offer.role, offer.name, offer.resets) for offer in offers] == [
            ("annotator", "", False),
            ("reviewer", "rita", True),
        ]
    with PreferenceStore(path) as store:
        assert store.secret == secret
