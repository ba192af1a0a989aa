"""Worker processes that can be killed, for work that can hang or eat memory.

A worker is a clean interpreter started by `subprocess`, so it does not matter which threads or libraries the caller has
loaded. The caller's process uses no signals, and any thread may hand in work. This is no sandbox: the code that
runs is trusted, only its input is not.
"""

from __future__ import annotations

import functools
import json
import os
import selectors
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Semaphore
from time import monotonic
from typing import Any

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.calls import run_calls
from prefrl.rewards.verifiers.verdict import Status

START = 120.0  # seconds to import the task, on a machine that is busy
GRACE = 20.0  # seconds by which the kernel may be late to end an overdue child


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one job: `value` where the status is ok, else `evidence`; `cost` in seconds of work."""

    status: Status
    value: Any = None
    evidence: str = ""
    cost: float = 0.0


class Pool:
    """Runs jobs of one task in worker processes.

    Args:
        task: `package.module:function`, imported by the worker; takes a JSON value and returns one.
        timeout: seconds of processor time per job. Waiting for a worker, and for a processor, does not count.
        wall: seconds of real time per job, for jobs that wait instead of working; ten times `timeout` by default.
        workers: processes, started when first needed; as many as there are processors by default, at most four.
        memory: bytes of address space of a worker.

    Raises:
        ConfigError: a limit that is not positive.
    """

    def __init__(
        self,
        task: str,
        *,
        timeout: float = 1.0,
        wall: float | None = None,
        workers: int | None = None,
        memory: int = 1 << 30,
    ) -> None:
        self.workers = min(4, os.cpu_count() or 1) if workers is None else workers
        self.wall = 10 * timeout if wall is None else wall
        self.task, self.timeout, self.memory = task, timeout, memory
        if not min(timeout, self.wall, self.workers, memory) > 0:
            raise ConfigError(f"pool of {task}: timeout={timeout}, wall={wall}, workers={workers}, memory={memory}; "
                              "expected positive numbers")  # fmt: skip
        self._alive: set[_Worker] = set()
        self._reset()
        self._finalizer = weakref.finalize(self, _end, self._alive)
        _POOLS.add(self)

    def _reset(self) -> None:
        self._idle: list[_Worker] = []
        self._lock, self._free = Lock(), Semaphore(self.workers)

    def map(self, jobs: Sequence[Any]) -> list[Done]:
        """What became of every job, in order.

        Raises:
            RewardError: the task cannot be imported by a worker.
        """
        calls: list[Callable[[], Done]] = [functools.partial(self.run, job) for job in jobs]
        outcomes = run_calls(calls, timeout=None, workers=min(self.workers, len(jobs)) or 1)
        for outcome in outcomes:
            if outcome.raised is not None:
                raise outcome.raised
        return [outcome.value for outcome in outcomes]

    def run(self, job: Any) -> Done:
        """What became of one job; waits for a free worker. Raises RewardError as `map` does."""
        with self._free:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            worker = worker or self._start()
            try:
                message = worker.ask(job, self.wall + GRACE)
            except BaseException:  # an interrupted caller leaves an answer behind that nobody waits for
                self._discard(worker)
                raise
            if message is None:
                self._discard(worker)
                return Done(Status.ERROR, evidence="the worker process ended")
            with self._lock:
                self._idle.append(worker)
        return self._done(message)

    def close(self) -> None:
        """End the workers; jobs in progress become errors, and a later job starts new workers."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._alive.difference_update(idle)
            for worker in self._alive:  # its pipes belong to the thread that reads them
                worker.kill()
        _end(set(idle))

    def _start(self) -> _Worker:
        limits = {"task": self.task, "timeout": self.timeout, "wall": self.wall, "memory": self.memory}
        worker = _Worker(json.dumps(limits))
        with self._lock:
            self._alive.add(worker)
        said = worker.read(START)
        if said is None or "failed" in said:
            self._discard(worker)
            why = said["failed"] if said else f"it did not start within {START:g} s"
            raise RewardError(f"a worker process cannot run {self.task!r}: {why}")
        return worker

    def _discard(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self._alive.discard(worker)

    def _done(self, message: dict[str, Any]) -> Done:
        if "value" in message:
            return Done(Status.OK, value=message["value"], cost=message["cost"])
        if "error" in message:
            return Done(Status.ERROR, evidence=message["error"], cost=message["cost"])
        code = message["ended"]
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            limit = f"{self.timeout:g} s of work" if code == -signal.SIGPROF else f"{self.wall:g} s"
            return Done(Status.TIMEOUT, evidence=f"stopped after {limit}", cost=self.timeout)
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return Done(Status.ERROR, evidence=f"the worker process ended with {how}")


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()


@functools.cache
def shared(task: str, timeout: float, workers: int | None = None) -> Pool:
    """The one pool of this process for a task with these limits."""
    return Pool(task, timeout=timeout, workers=workers)


class _Worker:
    """One worker process and the pipes to it; used by one thread at a time."""

    def __init__(self, settings: str) -> None:
        command = [sys.executable, "-P", "-m", "prefrl.rewards.verifiers.worker", settings]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            start_new_session=True,  # an interrupt from the keyboard is for the caller alone
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.jobs, self.answers = self.process.stdin, self.process.stdout
        self.asked, self.rest = 0, b""

    def ask(self, job: Any, seconds: float) -> dict[str, Any] | None:
        """The answer to a job; None when the process ended or is silent."""
        self.asked += 1
        data = memoryview(json.dumps({"id": self.asked, "job": job}).encode() + b"\n")
        with suppress(BrokenPipeError):
            while data:
                data = data[self.jobs.write(data) or 0 :]
        deadline = monotonic() + seconds
        while (said := self.read(deadline - monotonic())) is not None:
            if said.get("id") == self.asked:
                return said
        return None

    def read(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None at the end, or when there is none in time."""
        deadline = monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                if not selector.select(max(0.0, deadline - monotonic())):
                    return None
                part = self.answers.read(1 << 16)
                if not part:
                    return None
                self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def kill(self) -> None:
        """Kill the process and what it forked."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, wait for its end and close the pipes."""
        self.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the pipes, which lets the process end by itself."""
        self.jobs.close()
        self.answers.close()

    def forget(self) -> None:
        """Let go of a process that belongs to the process this one was forked from."""
        self.process.returncode = 0
        self.close()


def _end(workers: set[_Worker]) -> None:
    while workers:
        workers.pop().end()


def _after_fork() -> None:
    for pool in list(_POOLS):
        while pool._alive:
            pool._alive.pop().forget()
        pool._reset()


os.register_at_fork(after_in_child=_after_fork)
