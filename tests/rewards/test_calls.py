from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from time import monotonic, sleep

import pytest

from prefrl.rewards.calls import run_calls

OVERDUE = "timed out after 0.2 s"


def run(*calls, timeout=0.2, workers=8, is_async=False):
    return run_calls(calls, timeout=timeout, workers=workers, is_async=is_async)


def spin():
    while True:
        pass


def reward_threads():
    return [t for t in threading.enumerate() if t.name.startswith("prefrl-reward")]


def wait_until_no_threads():
    deadline = monotonic() + 3.0
    while reward_threads() and monotonic() < deadline:
        sleep(0.01)
    return reward_threads()


def test_outcomes_come_in_the_order_of_the_calls():
    got = run(*[partial(lambda i: sleep(0.02 * (4 - i)) or i, i) for i in range(4)])
    assert [outcome.value for outcome in got] == [0, 1, 2, 3]


def test_no_calls():
    assert run() == [] and run(is_async=True) == []


def test_more_hanging_calls_than_workers_do_not_keep_the_others_waiting():
    start = monotonic()
    got = run(*[spin] * 3, *[lambda: "done"] * 5, workers=2)
    assert monotonic() - start < 1.2  # two rounds of 0.2 s
    assert [o.error for o in got] == [OVERDUE] * 3 + [None] * 5
    assert [o.value for o in got[3:]] == ["done"] * 5


def test_no_thread_is_left_when_all_calls_return_or_can_be_stopped():
    run(spin, lambda: 1, lambda: 1 / 0)
    assert wait_until_no_threads() == []


def test_catching_exceptions_does_not_keep_a_call_alive():
    def stubborn():
        while True:
            with suppress(Exception):
                sleep(0.001)

    assert run(stubborn)[0].error == OVERDUE
    assert wait_until_no_threads() == []


def test_a_call_inside_c_code_is_abandoned_in_time():
    start = monotonic()
    done = threading.Event()
    assert run(lambda: done.wait(5), lambda: 1)[0].error == OVERDUE
    assert monotonic() - start < 1.2
    done.set()
    assert wait_until_no_threads() == []


def test_late_results_are_ignored():
    def late():
        try:
            sleep(0.8)
        except BaseException:  # swallows being stopped
            return "late"

    others = [partial(lambda i: sleep(0.3) or i, i) for i in (1, 2, 3)]
    got = run(late, *others, timeout=0.6, workers=2)  # "late" arrives while the last of the others runs
    assert [o.error for o in got] == ["timed out after 0.6 s", None, None, None]
    assert [o.value for o in got[1:]] == [1, 2, 3]
    assert wait_until_no_threads() == []


def test_no_limit():
    assert run(lambda: sleep(0.3) or 5, lambda: 6, timeout=None)[0].value == 5


def test_an_interrupt_in_a_call_stops_the_others():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spin, interrupt, timeout=60.0)
    assert wait_until_no_threads() == []


def test_a_slow_coroutine_is_cancelled_and_the_others_finish():
    cancelled = []

    async def slow():
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def quick():
        return 1

    got = run(slow, quick, is_async=True)
    assert [o.error for o in got] == [OVERDUE, None] and got[1].value == 1
    assert cancelled == [True] and wait_until_no_threads() == []


def test_a_coroutines_own_timeout_is_its_own_error():
    async def fails():
        raise TimeoutError("the judge did not answer")

    assert run(fails, is_async=True)[0].error == "TimeoutError: the judge did not answer"


def test_a_coroutine_that_blocks_the_loop_is_stopped():
    async def blocking():
        spin()

    async def quick():
        return 1

    start = monotonic()
    got = run(quick, blocking, is_async=True)
    assert monotonic() - start < 1.2
    assert (got[0].value, got[1].error) == (1, OVERDUE)
    assert wait_until_no_threads() == []


def test_a_coroutine_that_refuses_to_be_cancelled_is_left_behind():
    release = threading.Event()

    async def stubborn():
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    start = monotonic()
    got = run(stubborn, is_async=True)
    assert monotonic() - start < 1.2 and got[0].error == OVERDUE
    release.set()
    assert wait_until_no_threads() == []


def test_an_interrupt_in_a_coroutine_passes():
    async def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupt, is_async=True)


def test_a_call_that_cannot_be_stopped_does_not_block_the_exit_of_the_process():
    code = (
        "import time\n"
        "from prefrl.rewards.calls import run_calls\n"
        "print(run_calls([lambda: time.sleep(60)], timeout=0.1, workers=1)[0].error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "timed out after 0.1 s\n", "")
