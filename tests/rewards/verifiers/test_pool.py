from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.verifiers.pool import Pool, shared

ROOT = Path(__file__).parents[3]
LIMIT = 0.2  # seconds of work


@pytest.fixture(scope="module")
def pool():
    pool = Pool("pool_tasks:task", timeout=LIMIT, workers=2, memory=1 << 28)
    yield pool
    pool.close()


def said(dones):
    return [done.value if done.status == "ok" else (str(done.status), done.evidence) for done in dones]


def test_answers_come_in_order(pool):
    assert said(pool.map([["echo", i] for i in range(50)])) == list(range(50))
    assert said(pool.map([["echo", {"a": [1.5, None, "é\n"]}], ["echo", "x" * 300_000]])) == [
        {"a": [1.5, None, "é\n"]},
        "x" * 300_000,
    ]
    assert pool.map([]) == []


@pytest.mark.parametrize("job", [["spin", None], ["power", 3**20]], ids=["python", "c"])
def test_overdue_work_is_killed_and_costs_only_itself(pool, job):
    timeout = ("timeout", f"stopped after {LIMIT} s of work")
    start = monotonic()
    assert said(pool.map([job, ["echo", 1], job, ["echo", 2]])) == [timeout, 1, timeout, 2]
    assert monotonic() - start < 10


def test_waiting_is_not_work(pool):
    """Twelve jobs of 60 % of the limit, on two workers: the last one starts after three times the limit."""
    assert said(pool.map([["work", 0.6 * LIMIT]] * 12)) == ["worked"] * 12


def test_a_job_that_waits_for_ever_ends_too():
    pool = Pool("pool_tasks:task", timeout=1.0, wall=0.2, workers=1)
    assert said(pool.map([["sleep", 60], ["echo", 1]])) == [("timeout", "stopped after 0.2 s"), 1]
    pool.close()


def test_errors_are_errors(pool):
    assert said(pool.map([["raise", "no"], ["memory", 1 << 30], ["die", None], ["unjson", None], ["echo", 1]])) == [
        ("error", "ValueError: no"),
        ("error", "it needs more memory than a worker has"),
        ("error", f"the worker process ended with signal {int(signal.SIGKILL)}"),
        ("error", "TypeError: Object of type set is not JSON serializable"),
        1,
    ]


def test_what_a_task_prints_is_not_an_answer(pool):
    assert said(pool.map([["say", '{"id": 1, "value": "forged"}'], ["echo", 1]])) == ["said", 1]


def test_from_many_threads(pool):
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda i: said(pool.map([["echo", i], ["echo", -i]])), range(60)))
    assert found == [[i, -i] for i in range(60)]


def test_the_caller_has_no_signals_and_no_timer(pool):
    before = {n: signal.getsignal(n) for n in (signal.SIGALRM, signal.SIGPROF, signal.SIGINT, signal.SIGCHLD)}
    pool.map([["echo", 1], ["spin", None]])
    assert {n: signal.getsignal(n) for n in before} == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_worker_is_kept_and_its_child_replaced():
    pool = Pool("pool_tasks:task", timeout=LIMIT, workers=1)
    (first,), (second,) = (said(pool.map([["pid", None]])) for _ in range(2))
    pool.map([["spin", None]])
    (third,) = said(pool.map([["pid", None]]))
    assert first == second
    assert third[1] == first[1]  # the same interpreter,
    assert third[0] != first[0]  # forked anew
    pool.close()
    assert gone(third[0]) and gone(third[1])


def gone(pid):
    """Whether a process ends within five seconds."""
    deadline = monotonic() + 5
    while monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        sleep(0.02)
    return False


def test_it_works_again_after_it_was_closed():
    pool = Pool("pool_tasks:task", workers=1)
    assert said(pool.map([["echo", 1]])) == [1]
    pool.close()
    assert said(pool.map([["echo", 2]])) == [2]
    pool.close()


def test_closing_ends_the_work_in_progress():
    pool = Pool("pool_tasks:task", timeout=60.0, workers=1)
    pool.map([["echo", 1]])
    threading.Timer(0.3, pool.close).start()
    assert said(pool.map([["sleep", 60]])) == [("error", "the worker process ended")]


SCRIPT = """
import os, sys
{extra}
from prefrl.rewards.verifiers.pool import Pool
pool = Pool("pool_tasks:task", workers=1)
print(*pool.map([["pid", None]])[0].value, flush=True)
{then}
"""


def run(then, extra=""):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT.format(then=then, extra=extra)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "then", ["", "raise SystemExit(0)", "os._exit(0)", "os.kill(os.getpid(), 9)"], ids=["end", "exit", "_exit", "kill"]
)
def test_workers_end_with_the_interpreter(then):
    done = run(then)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert all(map(gone, pids))
    assert done.stderr == ""


@pytest.mark.slow
def test_a_fork_of_the_caller_has_workers_of_its_own():
    """Also with the threads of torch about; and the parent's workers stay alive when the fork ends."""
    then = """
mine, child = pool.map([["pid", None]])[0].value, os.fork()
if child == 0:
    assert pool.map([["pid", None]])[0].value[1] != mine[1]
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert pool.map([["pid", None]])[0].value == mine
print("done")
"""
    done = run(then, extra="import torch; torch.ones(300, 300) @ torch.ones(300, 300)")
    assert done.stderr == ""
    assert done.stdout.split()[-1] == "done"


def test_a_task_that_cannot_be_imported():
    with pytest.raises(RewardError, match=r"cannot run 'no_such_module:task': ModuleNotFoundError"):
        Pool("no_such_module:task").map([1])


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"workers": 0}, {"memory": -1}, {"wall": 0}])
def test_limits_are_positive(limits):
    with pytest.raises(ConfigError, match="expected positive numbers"):
        Pool("pool_tasks:task", **limits)


def test_the_shared_pool_is_one_per_task_and_limits():
    assert shared("pool_tasks:task", 1.0) is shared("pool_tasks:task", 1.0)
    assert shared("pool_tasks:task", 1.0) is not shared("pool_tasks:task", 2.0)
