"""Many writers share a flush of the disk, and nothing of one another's fate but that."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from stores import at_once

from prefrl.data.store.engine import Database
from prefrl.data.store.writer import MOST_TOGETHER


@pytest.fixture
def database(place):
    database = Database(place)
    database.prepare()
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER PRIMARY KEY)"))
    yield database
    database.close()


def put(database, x):
    with database.writing() as connection:
        connection.execute(text("INSERT INTO t VALUES (:x)"), {"x": x})


def stored(database):
    with database.reading() as connection:
        return list(connection.execute(text("SELECT x FROM t ORDER BY x")).scalars())


class Commits:
    """Counts commits; the next ones fail while there are errors."""

    def __init__(self, database, monkeypatch):
        self.count, self.errors, self.slow = 0, [], 0.0
        do_commit = database.engine.dialect.do_commit

        def counted(connection):
            time.sleep(self.slow)
            self.count += 1
            if self.errors:
                raise self.errors.pop()
            do_commit(connection)

        monkeypatch.setattr(database.engine.dialect, "do_commit", counted)


def test_those_who_wait_are_committed_together(database, monkeypatch):
    commits = Commits(database, monkeypatch)
    commits.slow = 0.05
    assert at_once([lambda x=x: put(database, x) for x in range(20)]) == []
    assert stored(database) == list(range(20))
    assert commits.count <= 4


def test_a_transaction_does_not_grow_without_an_end(database, monkeypatch):
    commits = Commits(database, monkeypatch)
    commits.slow = 0.05
    count = 2 * MOST_TOGETHER + 2
    assert at_once([lambda x=x: put(database, x) for x in range(count)]) == []
    assert commits.count >= 3 and len(stored(database)) == count


def test_one_who_fails_takes_nothing_of_the_others_back(database, monkeypatch):
    put(database, 7)
    commits = Commits(database, monkeypatch)
    commits.slow = 0.05
    errors = at_once([lambda x=x: put(database, x) for x in (1, 7, 2, 7, 3)])
    assert len(errors) == 2 and all("IntegrityError" in repr(error.__cause__) for error in errors)
    assert stored(database) == [1, 2, 3, 7]


def test_nothing_is_acknowledged_that_was_not_committed(database, monkeypatch):
    commits = Commits(database, monkeypatch)
    commits.slow = 0.05
    commits.errors = [OSError("disk full")]
    errors = at_once([lambda x=x: put(database, x) for x in range(8)])
    assert 1 <= len(errors) <= 8 and all("disk full" in str(error) for error in errors)
    assert len(stored(database)) == 8 - len(errors)
    put(database, 100)
    assert 100 in stored(database)


def test_a_transaction_that_the_database_gave_up_is_given_up_by_all(database):
    """SQLite takes the whole transaction back when the disk is full, not the last statement only."""
    gate, errors = threading.Event(), []

    def gives_up():
        with database.writing() as connection:
            connection.execute(text("INSERT INTO t VALUES (1)"))
            gate.set()
            time.sleep(0.2)  # until the other one waits
            connection.exec_driver_sql("ROLLBACK")

    def waits():
        gate.wait()
        put(database, 2)

    errors = at_once([gives_up, waits])
    assert len(errors) == 1 and stored(database) == [2]


class Interrupted(BaseException):
    """Stands in for control-C."""


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_turn_that_is_interrupted_is_not_lost(handed_over, database):
    """Whether the interrupt comes while somebody waits, or at the moment when the turn is theirs."""
    held, go_on, real = threading.Event(), threading.Event(), threading.Lock

    class Lock:
        def __init__(self):
            self.lock, self.times = real(), 0

        def acquire(self):
            self.times += 1
            if self.times == 2 and handed_over:
                go_on.set()
                self.lock.acquire()
            if self.times == 2:
                raise Interrupted
            self.lock.acquire()

        def release(self):
            self.lock.release()

    def holds():
        with database.writing() as connection:
            connection.execute(text("INSERT INTO t VALUES (1)"))
            held.set()
            go_on.wait()

    thread = threading.Thread(target=holds)
    thread.start()
    held.wait()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefrl.data.store.writer.threading.Lock", Lock)
        with pytest.raises(Interrupted):
            put(database, 2)
    go_on.set()
    thread.join()
    last = threading.Thread(target=put, args=(database, 3), daemon=True)
    last.start()
    last.join(20)
    assert not last.is_alive() and stored(database) == [1, 3]


def test_readers_do_not_wait_and_see_one_moment(database):
    put(database, 1)
    with database.reading() as reader:
        assert reader.execute(text("SELECT COUNT(*) FROM t")).scalar_one() == 1
        put(database, 2)
        assert reader.execute(text("SELECT COUNT(*) FROM t")).scalar_one() == 1
    assert stored(database) == [1, 2]


def test_errors_inside_can_be_handled_inside(database):
    put(database, 1)
    with database.writing() as connection:
        with pytest.raises(IntegrityError), connection.begin_nested():
            connection.execute(text("INSERT INTO t VALUES (1)"))
        connection.execute(text("INSERT INTO t VALUES (2)"))
    assert stored(database) == [1, 2]
