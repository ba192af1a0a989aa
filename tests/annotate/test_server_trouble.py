"""A disk that is full, a file that is damaged, and two servers of one project: clear words, and nothing lost."""

from __future__ import annotations

import uuid

from annotating import pair, place
from sqlalchemy import event

from annotate.serve import opened


def label_of(view, outcome="tie", **more):
    return {"id": uuid.uuid4().hex, "assignment": view["assignment"], "outcome": outcome, **more}


def fill_up(store):
    """Let SQLite say that the disk is full; returns what makes room again."""
    engine, limit = store._database.engine, [1]

    def restrict(connection, _):
        connection.execute(f"PRAGMA max_page_count = {limit[0]}")

    event.listen(engine, "connect", restrict)
    engine.dispose()

    def make_room():
        limit[0] = 10**9
        engine.dispose()

    return make_room


def test_a_full_disk_refuses_a_label_in_words_and_takes_it_later(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair(n) for n in range(8)])
        there.store.people.add("bob", "annotator", there.studio.passwords.hash("correct horse"))
        ann = there.enter("ann")
        first, second = ann.next(2)
        assert ann.post("/api/labels", label_of(first)).status_code == 200
        make_room = fill_up(there.store)
        label = label_of(second, rationale="x" * 19_000)
        for _ in range(2):
            refused = ann.post("/api/labels", label)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store")
            assert str(tmp_path) not in refused.text and "Nothing was changed" in refused.text
        assert there.client().get("/health").status_code == 200 and ann.get("/api/mine").status_code == 200
        assert len(there.store.labels()) == 1
        make_room()
        assert ann.post("/api/labels", label).json()["version"] == 1
        assert len(there.store.labels()) == 2 and there.store.check() == []


def test_a_file_that_is_damaged_under_the_server_is_told_of_in_words(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair(n) for n in range(30)])
        ann = there.enter("ann")
        there.store._database.engine.dispose()
        path = there.store.path
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\x5a" * (size - 4096))
        refused = ann.post("/api/next", {"count": 1})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store")
        assert str(tmp_path) not in refused.text


def test_two_servers_of_one_project_are_one(tmp_path):
    with place(tmp_path, overlap=1) as one, opened(tmp_path) as again:
        other = type(one)(again)
        one.store.add_items([pair(n) for n in range(6)])
        ann, bob = one.enter("ann"), one.enter("bob")
        there = other.client(**{"x-csrf-token": ann.login.csrf})
        there.cookies.set(again.cookie, ann.login.token)  # the same person, by the other server
        view = ann.next()[0]
        resumed = there.post("/api/next", json={"count": 1}).json()["items"][0]
        assert resumed["assignment"] == view["assignment"] and resumed["a"] == view["a"]
        label = label_of(view)
        answers = [ann.post("/api/labels", label), there.post("/api/labels", json=label)]
        assert [answer.json()["version"] for answer in answers] == [1, 1]
        assert bob.next()[0]["assignment"] != view["assignment"]
        again.store.people.set_active("bob", False)
        assert bob.get("/api/me").status_code == 401
        assert len(one.store.labels()) == 1 and again.store.labels() == one.store.labels() and again.store.check() == []
