"""One writer at a time, in the order in which they came, and one flush of the disk for all who waited for it.

A flush takes longer than a label. So whoever is done hands the open transaction to the next one who waits, and the last
one commits for all of them. Each has a savepoint, so that one who fails takes back nothing of the others; each returns
only when the commit is over, so what was acknowledged is on the disk.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator

from sqlalchemy import Connection, RootTransaction

MOST_TOGETHER = 32  # in one transaction: the first one must not wait for ever


class _Batch:
    """A transaction that several write in, one after the other."""

    def __init__(self, transaction: RootTransaction) -> None:
        self.connection, self.entered, self.kept = transaction.connection, 0, 0
        self.error: BaseException | None = None  # why nothing of it is kept
        self._transaction, self._over = transaction, threading.Event()

    def end(self) -> None:
        """Commit what was kept, and let those who wait for it know."""
        try:
            with self.connection, contextlib.closing(self._transaction):
                if self.kept and self.error is None:
                    self._transaction.commit()
        except BaseException as error:
            self.error = error
        finally:
            self._over.set()

    def wait(self) -> None:
        """Return when it is on the disk, and raise what kept it from getting there."""
        self._over.wait()
        if self.error is not None:
            raise self.error


class Writer:
    """Gives turns to write.

    Args:
        begin: opens a connection, and begins a transaction that no other process writes in between.
    """

    def __init__(self, begin: Callable[[], RootTransaction]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._busy = False
        self._batch: _Batch | None = None  # belongs to whose turn it is
        self._waiting: deque[threading.Lock] = deque()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Connection]:
        """A connection to write with; what was written is on the disk when the block ends."""
        self._queue()
        try:
            batch = self._batch = self._batch or _Batch(self._begin())
            batch.entered += 1
            with _savepoint(batch):
                yield batch.connection
            batch.kept += 1
        finally:
            self._pass_on()
        batch.wait()

    def _queue(self) -> None:
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            mine.acquire()
        except BaseException:  # an interrupt: the turn must not get lost
            with self._lock:
                is_mine = mine not in self._waiting
                if not is_mine:
                    self._waiting.remove(mine)
            if is_mine:
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Hand the turn to the next, with the transaction; or end that, where nobody waits or it holds enough."""
        while True:
            with self._lock:
                batch = self._batch
                full = batch is not None and (batch.entered >= MOST_TOGETHER or batch.error is not None)
                if self._waiting and not full:
                    self._waiting.popleft().release()
                    return
                self._batch = None
                if batch is None:
                    self._busy = False
                    return
            batch.end()


@contextlib.contextmanager
def _savepoint(batch: _Batch) -> Iterator[None]:
    """Take back what fails, and nothing else; where the database gave up the whole transaction, so does the batch."""
    point = batch.connection.begin_nested()
    try:
        yield
    except BaseException:
        _or_broken(batch, point.rollback)
        raise
    _or_broken(batch, point.commit)


def _or_broken(batch: _Batch, finish: Callable[[], None]) -> None:
    try:
        finish()
    except BaseException as error:
        batch.error = error
        raise
