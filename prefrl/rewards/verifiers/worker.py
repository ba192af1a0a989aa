"""The process behind `Pool`: `python -P -m prefrl.rewards.verifiers.worker SETTINGS`, JSON lines in and out.

It imports the task once and forks; the child reads jobs and answers them. When the kernel ends the child, for a job
took too long, a fresh fork takes its place within milliseconds. The parent of the fork has one thread and only waits.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from time import process_time
from typing import Any

RENEW_AFTER = 2000  # jobs of one child: caches of libraries grow
RENEW = 3  # exit status of a child that wants to be replaced


def main() -> None:
    """Serve until standard input ends."""
    settings = json.loads(sys.argv[1])
    answers = os.dup(1)
    os.dup2(2, 1)  # what a task prints must not look like an answer
    try:
        module, _, name = settings["task"].partition(":")
        task = getattr(import_module(module), name)
    except Exception as error:
        _send(answers, {"failed": f"{type(error).__name__}: {error}"})
        return
    _send(answers, {"ready": True})
    current = mmap.mmap(-1, 8)  # number of the job in progress, seen by both sides of the fork
    while _generation(task, settings, answers, current):
        pass


def _generation(task: Callable[[Any], Any], settings: dict[str, Any], answers: int, current: mmap.mmap) -> bool:
    """One child, from its fork to its end; False when there is no more work."""
    current[:] = struct.pack("q", 0)
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BrokenPipeError):
            status = _serve(task, settings, answers, current)
        os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (job,) = struct.unpack("q", current[:])
    if job:
        _send(answers, {"id": job, "ended": code})
    return code != 0


def _serve(task: Callable[[Any], Any], settings: dict[str, Any], answers: int, current: mmap.mmap) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (settings["memory"], settings["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # the kernel ends the process, also inside C code
    for _ in range(RENEW_AFTER):
        line = _line()
        if not line:
            return 0
        message = json.loads(line)
        current[:] = struct.pack("q", message["id"])
        signal.setitimer(signal.ITIMER_PROF, settings["timeout"])
        signal.setitimer(signal.ITIMER_REAL, settings["wall"])
        answer = _answer(task, message["job"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, {"id": message["id"], **answer})
        current[:] = struct.pack("q", 0)
        if "memory" in answer:
            return RENEW
    return RENEW


def _answer(task: Callable[[Any], Any], job: Any) -> dict[str, Any]:
    start = process_time()
    try:
        answer: dict[str, Any] = {"value": task(job)}
        json.dumps(answer)
    except MemoryError:
        answer = {"error": "it needs more memory than a worker has", "memory": True}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    return {**answer, "cost": process_time() - start}


def _line() -> bytes:
    """One line of standard input, unbuffered: what follows belongs to the next child, should this one die."""
    parts = []
    while part := os.read(0, 1 << 16):
        parts.append(part)
        if part.endswith(b"\n"):
            return b"".join(parts)
    return b""


def _send(where: int, message: dict[str, Any]) -> None:
    data = memoryview(json.dumps(message).encode() + b"\n")
    while data:
        data = data[os.write(where, data) :]


if __name__ == "__main__":
    main()
