"""Many at once, in threads and in processes, some of which are killed: nothing is lost, twice, or too many."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter

import pytest
from stores import at_once, label_next, opened, pairs

from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import ProjectSettings
from prefrl.data.store import Conflict, Full

OVERLAP, ITEMS, PEOPLE, QUOTA = 3, 150, 20, 20

CHILD = f"""
import random, sys, threading, uuid
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store import Conflict, Full

store, seed, printing = PreferenceStore(sys.argv[1]), int(sys.argv[2]), threading.Lock()

def tell(*words):
    with printing:
        print(*words, flush=True)

def act(person, rng):
    given = store.work.next(person, count=2)
    if not given:
        return
    place = rng.choice(given)
    kind = rng.random()
    if kind < 0.1:
        return store.work.release(place.id, person)
    if kind < 0.2:
        return None  # opened, and left
    id, outcome = uuid.uuid4().hex, rng.choice(["first", "second", "tie", "skip"])
    details = {{"reasons": ["I cannot judge this"]}} if outcome == "skip" else {{}}
    for _ in range(rng.choice([1, 1, 2])):
        label = store.work.submit(place.id, person, outcome, label_id=id, details=details)
        tell("stored", id, label.version)
    if kind < 0.4:
        label = store.work.submit(place.id, person, "tie", label_id=id + "x", base_version=1)
        tell("stored", id + "x", label.version)

def work(number):
    rng = random.Random(seed * 100 + number)
    while True:
        try:
            act(f"person {{number}}", rng)
        except (Conflict, Full):
            pass

tell("ready")
for number in range({PEOPLE}):
    threading.Thread(target=work, args=(number,)).start()
"""


def settle(path, **settings):
    with opened(path, ITEMS, overlap=OVERLAP) as store:
        store.save_settings(ProjectSettings(gold_share=0.0, skip_after=0, quota=QUOTA, **settings))


def wrong(path, acknowledged):
    """What is wrong with a store after all that."""
    with PreferenceStore(path, create=False) as store:
        labels, versions = store.labels(), store.labels(all_versions=True)
        counted = Counter(label.item for label in labels if label.outcome != "skip")
        quota = Counter(label.annotator for label in labels if label.outcome != "skip")
        found = store.check()
        found += [f"lost {id}" for id in acknowledged - {label.id for label in versions}]
        found += [f"{item}: {n} labels" for item, n in counted.items() if n > OVERLAP]
        found += [f"{person}: {n} labels" for person, n in quota.items() if n > QUOTA]
        if len({label.id for label in versions}) < len(versions):
            found.append("a label twice")
        if len({(label.item, label.annotator) for label in labels}) < len(labels):
            found.append("an item twice to a person")
        return found, len(versions)


@pytest.mark.slow
def test_processes_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path):
    path, acknowledged, abandoned = tmp_path / "a.db", set(), 0
    settle(path, lease_minutes=0.02)
    for seed in range(4):
        told = killed(path, seed, after=0.4 + 0.1 * seed)
        acknowledged |= {id for said, id, _ in told if said == "stored"}
        assert wrong(path, acknowledged)[0] == []
        with PreferenceStore(path) as store:
            abandoned += sum(state.leases for state in store.item_states(now=0.0).values())
    assert len(acknowledged) > 40 and abandoned > 0
    later = time.time() + 10.0
    with PreferenceStore(path) as store:  # what the dead had open is free again
        states = store.item_states(now=later)
        assert sum(state.leases for state in states.values()) == 0
        open_now = sum(state.labels < OVERLAP for state in states.values())
        assert store.work.progress("late", now=later).left == min(open_now, QUOTA)
        assert len(store.work.next("late", count=5, now=later)) == min(open_now, 5)
    assert wrong(path, acknowledged)[0] == []


def killed(path, seed, after):
    """What a process told before it was killed in the middle of its work."""
    command = [sys.executable, "-c", CHILD, str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            killer = threading.Timer(after, child.kill)
            killer.start()
            lines = child.stdout.readlines()
        finally:
            child.kill()
    assert child.returncode == -9
    return [words for line in lines if line.endswith("\n") and len(words := line.split()) == 3]


def test_threads_that_do_this_and_that(tmp_path):
    path, acknowledged = tmp_path / "a.db", set()
    settle(path)
    with PreferenceStore(path) as store:

        def work(name, rng):
            for _ in range(8):
                given = store.work.next(name, count=3)
                if not given:
                    return
                place, id = rng.choice(given), uuid.uuid4().hex
                outcome = rng.choice(["first", "second", "tie"])
                try:
                    if rng.random() < 0.15:
                        store.work.release(place.id, name)
                        continue
                    store.work.submit(place.id, name, outcome, label_id=id)
                    acknowledged.add(id)
                    store.work.submit(place.id, name, outcome, label_id=id)
                    store.work.submit(place.id, name, "tie", label_id=id + "x", base_version=rng.choice([0, 1]))
                    acknowledged.add(id + "x")
                except (Conflict, Full):
                    pass

        people = [(f"person {n}", random.Random(n)) for n in range(PEOPLE)]
        assert at_once([lambda one=one: work(*one) for one in people]) == []
    found, count = wrong(path, acknowledged)
    assert found == [] and count == len(acknowledged) > 100


def test_everybody_wants_the_last_places(store):
    store.save_settings(ProjectSettings(gold_share=0.0))
    store.add_items(pairs(2, overlap=2))
    got = []
    errors = at_once([lambda n=n: got.append(label_next(store, f"person {n}")) for n in range(12)])
    assert errors == [] and Counter(got) == {"i0": 2, "i1": 2, None: 8}
    assert store.check() == []


def test_the_same_label_from_everywhere_is_one(store):
    store.add_items(pairs(1))
    (mine,) = store.work.next("ann", count=1)
    same = []
    submit = lambda: same.append(store.work.submit(mine.id, "ann", "first", label_id="l"))  # noqa: E731
    assert at_once([submit] * 10) == []
    assert len(same) == 10 and len(set(map(str, same))) == 1 and len(store.labels(all_versions=True)) == 1


def test_two_processes_write_at_once(place):
    """Another process adds items and labels while this one hands out and takes labels."""
    script = (
        "import sys; sys.path[:0] = sys.argv[2].split('|')\n"
        "from stores import PreferenceStore, pair\n"
        "with PreferenceStore(sys.argv[1]) as store:\n"
        "    for n in range(100, 130):\n"
        "        store.add_items([pair(n)])\n"
        "        store.submit(f'i{n}', 'loop', 'first')\n"
    )
    with opened(place, 30) as store:
        with subprocess.Popen([sys.executable, "-c", script, place, "|".join(sys.path)]) as other:
            mine = [label_next(store, "ann") for _ in range(30)]
            assert other.wait(60) == 0
        assert len(set(mine) - {None}) == 30
        assert Counter(label.annotator for label in store.labels())["loop"] == 30
        assert store.count_items() == 60 and store.check() == []


def test_a_writer_elsewhere_that_does_not_end_is_named(tmp_path, monkeypatch):
    import sqlite3

    from prefrl.errors import DataError

    monkeypatch.setattr("prefrl.data.store.engine.BUSY_SECONDS", 0.05)
    with opened(tmp_path / "a.db", 1) as store:
        other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DataError, match=r"database is locked.*keeps it locked"):
            label_next(store, "ann")
        assert store.items() == pairs(1)  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        assert label_next(store, "ann") == "i0"
