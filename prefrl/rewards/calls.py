"""Run many calls of someone else's code at once, each with a deadline, from any thread.

No signals are used: they work in the main thread only. All threads are daemons, so a call that
cannot be stopped never blocks the exit of the process.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

Call = Callable[[], Any]

# How long after its deadline a coroutine may take to react to its cancellation.
GRACE = 0.5

log = logging.getLogger("prefrl.rewards")


class CallTimeout(BaseException):
    """Raised inside an overdue call; not an Exception, so that `except Exception` does not keep it alive."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call returned, or why it did not: `raised` holds the exception unless it was overdue."""

    value: Any = None
    error: str | None = None
    raised: BaseException | None = None


def run_calls(calls: Sequence[Call], *, timeout: float | None, workers: int, is_async: bool = False) -> list[Outcome]:
    """Run all calls and return their outcomes in order.

    Plain calls run in up to `workers` threads. Coroutine functions run together in a private event loop
    of its own thread, so it does not matter whether the caller has a running loop. A call that takes
    longer than `timeout` seconds ends as "timed out after ..."; a pure-Python loop is really stopped, a
    call inside C code is abandoned. With `timeout=None` and one worker, plain calls run in the caller's
    thread. KeyboardInterrupt stops everything and passes.
    """
    if is_async:
        return _run_coroutines(calls, timeout)
    if timeout is None and workers == 1:
        return [_checked(_attempt(call)) for call in calls]
    return _Pool(calls, timeout, workers).run()


def _attempt(call: Call) -> Outcome | KeyboardInterrupt:
    try:
        value = call()
        return Outcome(_awaited(value) if inspect.isawaitable(value) else value)
    except CallTimeout:
        raise
    except BaseException as error:
        return _failure(error)


def _awaited(value: Awaitable[Any]) -> Any:
    """The result of a plain function that returned a coroutine, such as a lambda around one."""
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _failure(error: BaseException) -> Outcome | KeyboardInterrupt:
    if isinstance(error, KeyboardInterrupt):
        return error
    log.debug("a reward call failed", exc_info=error)
    return Outcome(error=f"{type(error).__name__}: {error}", raised=error)


def _checked(outcome: Outcome | KeyboardInterrupt) -> Outcome:
    if isinstance(outcome, KeyboardInterrupt):
        raise outcome
    return outcome


def _overdue(timeout: float | None) -> Outcome:
    return Outcome(error=f"timed out after {timeout:g} s")


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())


def _stop(thread: threading.Thread) -> None:
    """Raise CallTimeout in a thread, as soon as it runs Python code again."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(CallTimeout))


class _Worker(threading.Thread):
    """Runs the calls whose numbers it finds in its inbox.

    The only things it shares are C-implemented queues: an exception raised into it at any moment can
    therefore never leave a lock held.
    """

    def __init__(self, calls: Sequence[Call], results: SimpleQueue[Any]) -> None:
        super().__init__(name="prefrl-reward", daemon=True)
        self.calls, self.results = calls, results
        self.inbox: SimpleQueue[int | None] = SimpleQueue()

    def run(self) -> None:
        with suppress(CallTimeout):
            while (index := self.inbox.get()) is not None:
                self.results.put((index, _attempt(self.calls[index])))


class _Pool:
    """Hands calls to workers, one at a time each, and replaces the workers whose call is overdue."""

    def __init__(self, calls: Sequence[Call], timeout: float | None, workers: int) -> None:
        self.calls, self.timeout, self.size = calls, timeout, max(1, min(workers, len(calls)))
        self.waiting = deque(range(len(calls)))
        self.results: SimpleQueue[tuple[int, Outcome | KeyboardInterrupt]] = SimpleQueue()
        self.running: dict[int, tuple[_Worker, float | None]] = {}
        self.idle: list[_Worker] = []
        self.outcomes: dict[int, Outcome] = {}

    def run(self) -> list[Outcome]:
        try:
            while len(self.outcomes) < len(self.calls):
                self._start()
                self._collect()
            return [self.outcomes[i] for i in range(len(self.calls))]
        finally:  # also on KeyboardInterrupt
            for worker, _ in self.running.values():
                self._abandon(worker)
            for worker in self.idle:
                worker.inbox.put(None)

    def _start(self) -> None:
        while self.waiting and len(self.running) < self.size:
            worker = self.idle.pop() if self.idle else self._new_worker()
            index = self.waiting.popleft()
            self.running[index] = (worker, None if self.timeout is None else monotonic() + self.timeout)
            worker.inbox.put(index)

    def _new_worker(self) -> _Worker:
        worker = _Worker(self.calls, self.results)
        worker.start()
        return worker

    def _collect(self) -> None:
        """Take one result, or give up on the calls whose deadline has passed."""
        deadlines = [deadline for _, deadline in self.running.values() if deadline is not None]
        try:
            index, outcome = self.results.get(timeout=_remaining(min(deadlines, default=None)))
        except Empty:
            self._expire()
            return
        if index in self.running:  # else: given up on before
            self.idle.append(self.running.pop(index)[0])
            self.outcomes[index] = _checked(outcome)

    def _expire(self) -> None:
        now = monotonic()
        for index, (worker, deadline) in list(self.running.items()):
            if deadline is not None and deadline <= now:
                del self.running[index]
                self.outcomes[index] = _overdue(self.timeout)
                self._abandon(worker)

    @staticmethod
    def _abandon(worker: _Worker) -> None:
        _stop(worker)
        worker.inbox.put(None)  # it may just have finished and be waiting for work


def _run_coroutines(calls: Sequence[Call], timeout: float | None) -> list[Outcome]:
    """All coroutines in one private event loop; those unfinished at timeout + GRACE count as overdue.

    A coroutine that blocks the loop is interrupted then.
    """
    import asyncio

    results: SimpleQueue[tuple[int, Outcome | KeyboardInterrupt]] = SimpleQueue()
    closing = threading.Event()  # from then on an interruption could only leave the loop half closed

    async def one(index: int) -> None:
        outcome: Outcome | KeyboardInterrupt
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                outcome = Outcome(await calls[index]())
        except BaseException as error:
            outcome = _overdue(timeout) if limit.expired() else _failure(error)
        results.put((index, outcome))

    async def everything() -> None:
        await asyncio.gather(*(one(index) for index in range(len(calls))))

    def loop() -> None:
        runner = asyncio.Runner()
        own = runner.get_loop()
        try:
            with suppress(CallTimeout):
                runner.run(everything())
        finally:
            closing.set()
            with suppress(CallTimeout):
                runner.close()
            if not own.is_closed():  # the interruption came just then
                with suppress(ValueError):  # some of it is closed already
                    own.close()

    thread = threading.Thread(target=loop, name="prefrl-reward-loop", daemon=True)
    thread.start()
    outcomes: dict[int, Outcome] = {}
    deadline = None if timeout is None else monotonic() + timeout + GRACE
    try:
        while len(outcomes) < len(calls):
            index, outcome = results.get(timeout=_remaining(deadline))
            outcomes[index] = _checked(outcome)
        thread.join(GRACE)  # let the loop close
    except (Empty, KeyboardInterrupt) as stopped:
        if not closing.is_set():
            _stop(thread)
        if isinstance(stopped, KeyboardInterrupt):
            raise
    return [outcomes.get(index) or _overdue(timeout) for index in range(len(calls))]
