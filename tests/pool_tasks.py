"""Tasks that workers run in the tests of the pool."""

from __future__ import annotations

import os
import signal
import time


def task(job):
    """`["kind", argument]`: what the worker is to do."""
    kind, argument = job
    return KINDS[kind](argument)


def _spin(_):
    while True:
        pass


def _work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return "worked"


def _die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(text):
    raise ValueError(text)


def _say(text):
    print(text, flush=True)
    return "said"


KINDS = {
    "echo": lambda value: value,
    "sleep": lambda seconds: time.sleep(seconds) or "slept",
    "spin": _spin,
    "power": lambda n: len(str(9**n)),
    "memory": lambda size: len(bytearray(size)),
    "work": _work,
    "unjson": lambda _: {1},
    "die": _die,
    "raise": _raise,
    "say": _say,
    "pid": lambda _: [os.getpid(), os.getppid()],
}
