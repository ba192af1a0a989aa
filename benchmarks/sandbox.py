"""Verdicts per second of the sandbox, cold and warm, at every level that this machine offers.

    python benchmarks/sandbox.py [--verdicts 400] [--slots 2]

A verdict is one small function judged on four cases. Cold starts a server for each; warm forks from one that is there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time

from prefrl.sandbox import LEVELS, Limits, Sandbox, Setup, check, probe
from prefrl.sandbox.cases import read_tests
from prefrl.sandbox.compare import Same
from prefrl.sandbox.judging import judge_calls

SOURCE = "def middle(xs):\n    xs = sorted(xs)\n    return xs[len(xs) // 2]\n"
CASES = read_tests([{"args": [[3, 1, n]], "expected": sorted([3, 1, n])[1]} for n in range(4)], "middle")
LIMITS = Limits(seconds=30.0)


def judge(sandbox: Sandbox) -> None:
    """One verdict; raises AssertionError when it is wrong."""
    with sandbox.session(LIMITS) as session:
        tally, _ = judge_calls(session, SOURCE, CASES, "", Same())
    assert all(tally.passed), tally.notes


def cold(level: str, repeats: int = 5) -> float:
    """Median seconds to start a server and have one verdict."""
    seconds = []
    for _ in range(repeats):
        sandbox = Sandbox(floor="B", level=level, slots=1)
        begun = time.perf_counter()
        judge(sandbox)
        seconds.append(time.perf_counter() - begun)
        sandbox.close()
    return statistics.median(seconds)


def warm(level: str, slots: int, verdicts: int) -> float:
    """Verdicts per second of all slots together, one thread each."""
    sandbox = Sandbox(floor="B", level=level, slots=slots)

    def work(count: int) -> None:
        for _ in range(count):
            judge(sandbox)

    for count in (1, verdicts // slots):  # the first is to start the servers
        threads = [threading.Thread(target=work, args=(count,)) for _ in range(slots)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rate = slots * count / (time.perf_counter() - begun)
    sandbox.close()
    return rate


def main() -> None:
    """Print one line for each level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=400)
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    print(f"level taken here: {probe(Setup(level='')).best or 'none'}; load {os.getloadavg()[0]:.1f}")
    for level in LEVELS:
        problem = check(Setup(level=level))
        if problem:
            print(f"{level}  not offered: {problem}")
            continue
        first, alone = cold(level), warm(level, 1, arguments.verdicts)
        together = warm(level, arguments.slots, arguments.verdicts)
        print(f"{level}  cold {1000 * first:.0f} ms, {1 / first:.0f}/s; warm {alone:.0f}/s in one slot, ", end="")
        print(f"{together:.0f}/s in {arguments.slots}")


if __name__ == "__main__":
    main()
