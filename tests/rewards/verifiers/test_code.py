"""Code as a reward: verdicts, statuses, partial credit, flags, and what is an error of whom."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from prefrl import rewards
from prefrl.errors import ConfigError
from prefrl.rewards.verifiers.code import code, stdio
from prefrl.rewards.verifiers.verdict import Status
from prefrl.sandbox import SandboxError, Session, judging

BOX = {"floor": "B"}  # what is tested here does not depend on the level
SQUARES = [{"args": [n], "expected": n * n} for n in (2, 3, 30)]
RIGHT = "Here it is:\n\n```python\ndef square(n):\n    return n * n\n```\n"


@pytest.fixture
def ask(rollout: Any) -> Any:
    """The verdict of a verifier on one text."""

    def verdict(verifier: Any, text: str, **columns: Any) -> Any:
        return verifier.verdicts([rollout(text, **columns)])[0]

    return verdict


@pytest.mark.parametrize(
    ("text", "status", "score", "fraction"),
    [
        (RIGHT, Status.OK, 1.0, 1.0),
        ("def square(n): return n ** 2", Status.OK, 1.0, 1.0),
        ("```python\ndef square(n): return n + n\n```", Status.OK, 0.0, 1 / 3),
        ("```python\ndef other(n): return n * n\n```", Status.OK, 0.0, 0.0),
        ("```python\ndef square(n): raise ValueError\n```", Status.OK, 0.0, 0.0),
        ("```python\ndef square(n): return float(n * n) + 1e-9\n```", Status.OK, 0.0, 0.0),
        ("```python\ndef square(n): return str(n * n)\n```", Status.OK, 0.0, 0.0),
        ("```python\ndef square(n) return n\n```", Status.INVALID, 0.0, 0.0),
        ("I do not know.\n```json\n{}\n```", Status.INVALID, 0.0, 0.0),
        ("", Status.INVALID, 0.0, 0.0),
    ],
)
def test_verdicts(ask: Any, text: str, status: Status, score: float, fraction: float) -> None:
    verdict = ask(code(function="square", sandbox=BOX), text, cases=SQUARES)
    assert (verdict.status, verdict.score, verdict.parts["fraction"]) == (status, score, fraction)
    assert verdict.parts["parsed"] == float(status is Status.OK) and verdict.parts["strict"] == score


def test_one_verdict_each_in_order(rollout: Any) -> None:
    texts = [f"def square(n): return n * n + {n % 3}" for n in range(9)]
    verifier = code(function="square", sandbox=BOX)
    scores = verifier.score([rollout(text, cases=SQUARES) for text in texts])
    assert [score.value for score in scores] == [1.0, 0.0, 0.0] * 3


def test_partial_credit_beside_the_strict_value(ask: Any) -> None:
    text = "def square(n): return n * n if n < 10 else 0"
    scores = {
        "all": 0.0, "fraction": 2 / 3, "weighted": 0.5, "scaled": 0.25,
    }  # fmt: skip
    cases = [SQUARES[0], SQUARES[1], {**SQUARES[2], "weight": 2}]
    for rule, expected in scores.items():
        verdict = ask(code(function="square", partial=rule, sandbox=BOX), text, cases=cases)
        assert verdict.score == pytest.approx(expected)
        assert (verdict.parts["strict"], verdict.parts["fraction"]) == (0.0, pytest.approx(2 / 3))
        assert ask(code(function="square", partial=rule, sandbox=BOX), RIGHT, cases=cases).score == 1.0


def test_cases_of_every_kind(ask: Any) -> None:
    text = (
        "class Stack:\n def __init__(self, items=()): self.items = list(items)\n def push(self, x): "
        "self.items.append(x)\n"
        " def pop(self): return self.items.pop()\n"
        "def sort_in_place(x, reverse=False): x.sort(reverse=reverse)\n"
        "def half(x):\n if x % 2: raise ValueError(x)\n return x // 2\n"
    )
    cases = [
        {"class": "Stack", "init": [[7]], "calls": [["push", [1]], ["pop", []], ["pop", []]], "expected": [None, 1, 7]},
        {"function": "sort_in_place", "args": [[3, 1, 2]], "after": [[1, 2, 3]]},
        {"function": "sort_in_place", "args": [[3, 1, 2]], "kwargs": {"reverse": True}, "after": [[3, 2, 1]]},
        {"function": "half", "args": [3], "raises": "ValueError"},
        {"function": "half", "args": [4], "expected": 2},
        "assert half(8) == 4",
    ]
    verdict = ask(code(partial="fraction", sandbox=BOX), text, cases=cases)
    assert verdict.evidence == "6 of 6 passed" and verdict.score == 1.0
    broken = (
        text.replace(".pop()", ".pop(0)")
        .replace("ValueError(x)", "KeyError(x)")
        .replace("x.sort", "sorted(x) or x.index")
    )
    assert ask(code(partial="fraction", sandbox=BOX), broken, cases=cases).score == pytest.approx(2 / 6)


TESTS = """
METADATA = {"author": "nobody"}

def check(candidate):
    assert candidate(2) == 4
    assert abs(candidate(3) - 9.0) < 1e-6, "with a message"
    assert set(str(candidate(5))) == {"2", "5"}
    assert [candidate(n) for n in range(3)] == [0, 1, 4]
"""


def test_assertions_run_in_a_process_of_their_own(ask: Any) -> None:
    verifier = code(partial="fraction", sandbox=BOX)
    assert ask(verifier, RIGHT, cases=TESTS, entry_point="square").evidence == "4 of 4 passed"
    doubled = ask(verifier, "def square(n): return 2 * n", cases=TESTS, entry_point="square")
    assert doubled.score == 0.25 and doubled.evidence.startswith("1 of 4 passed; assert abs(candidate(3)")
    for cheat in ("import sys\ndef square(n): sys.exit(0)", "class square(int):\n def __eq__(self, o): return True"):
        assert ask(verifier, cheat, cases=TESTS, entry_point="square").parts["strict"] == 0.0


def test_assertions_see_objects_only_through_messages(ask: Any) -> None:
    tests = (
        "def check(candidate):\n    items = [3, 1]\n    box = candidate(items)\n    assert items == [1, 3]\n"
        "    assert len(box) == 2 and box.size == 2 and box.top() == 3 and list(box) == [1, 3]\n    assert box == box\n"
        "    assert not (box == [1, 3])\n    assert math.isclose(box.top(), 3.0)\n"
    )
    text = (
        "class Box:\n def __init__(self, x): self.x, self.size = x, len(x)\n def __len__(self): return self.size\n"
        " def __iter__(self): return iter(self.x)\n def top(self): return self.x[-1]\n def __eq__(self, "
        "other): return True\n"
        "def make(x):\n x.sort()\n return Box(x)"
    )
    verdict = ask(code(function="make", sandbox=BOX), text, cases=tests)
    assert (verdict.score, verdict.evidence) == (1.0, "5 of 5 passed")


def test_code_before_the_completion(ask: Any) -> None:
    head = "import math\n\ndef helper(x):\n    return x + 1\n\ndef area(r):\n    '''Area of a circle.'''\n"
    tests = "def check(candidate):\n    assert candidate(helper(1)) == candidate(2)\n    assert candidate(0) == 0.0"
    verifier = code("test", prefix="prompt_code", sandbox=BOX)
    body = "```python\n    return math.pi * r * r\n```"
    assert ask(verifier, body, test=tests, prompt_code=head, entry_point="area").score == 1.0


def test_a_slow_submission_fails_its_cases_and_a_slow_machine_is_no_verdict(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = code(function="square", seconds=0.3, partial="fraction", sandbox=BOX)
    text = "def square(n):\n if n == 30:\n  while True: pass\n return n * n"
    verdict = ask(verifier, text, cases=SQUARES)
    assert (verdict.status, verdict.parts["strict"], verdict.parts["out_of_time"]) == (Status.OK, 0.0, 1.0)
    waits = itertools.count(0.05, 0.05)  # at every look it has waited for longer
    monkeypatch.setattr("prefrl.sandbox.processes.waited", lambda pids: next(waits))
    begun = time.monotonic()
    late = ask(code(function="square", seconds=0.1, sandbox=BOX), text, cases=SQUARES)
    assert 1.0 < time.monotonic() - begun < 10.0  # ten times its seconds
    assert (late.status, late.score) == (Status.TIMEOUT, None)
    assert late.to_score().error == "timeout: the machine was too busy to run it in time"


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([], "no cases"),
        ("[", "no JSON"),
        ([{"args": [1]}], "expects nothing"),
        ([{"args": [1], "expected": 1, "answer": 2}], "expected a mapping of"),
        ([{"args": [1], "expected": 1, "weight": 0}], "weights"),
        ("def check(candidate):\n    pass", "no cases"),
        ("for x in y: print(x)", "assert nothing"),
        ("assert", "no Python"),
        (3, "expected a list of cases"),
    ],
)
def test_faults_of_the_data_are_errors_never_zero(ask: Any, cases: Any, message: str) -> None:
    verdict = ask(code(function="square", sandbox=BOX), RIGHT, cases=cases)
    assert verdict.status is Status.ERROR and verdict.score is None and message in verdict.evidence


def test_a_failed_sandbox_costs_its_rollout_alone(rollout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Session.submission

    def submission(self: Session, text: str) -> Any:
        if "BOOM" in text:
            raise SandboxError("the sandbox's server ended")
        return real(self, text)

    monkeypatch.setattr(Session, "submission", submission)
    texts = [RIGHT, "# BOOM\ndef square(n): return n * n", RIGHT.replace("n * n", "n")]
    scores = code(function="square", sandbox=BOX).score([rollout(text, cases=SQUARES) for text in texts])
    assert [score.value for score in scores] == [1.0, None, 0.0]
    assert "the sandbox's server ended" in str(scores[1].error)


def test_the_order_of_the_cases_cannot_be_foreseen_and_is_the_same_again() -> None:
    orders = {tuple(judging.shuffled(5, f"def f(): return {n}", SQUARES)) for n in range(20)}
    assert len(orders) > 10 and all(sorted(order) == [0, 1, 2, 3, 4] for order in orders)
    assert judging.shuffled(5, "x") == judging.shuffled(5, "x")


def test_a_submission_that_counts_its_calls_is_found_out(ask: Any) -> None:
    """It answers the cases in the order of the file, which is not the order in which they are asked."""
    cases = [{"args": [n], "expected": n * n} for n in range(12, 20)]
    text = f"answers = iter({[n * n for n in range(12, 20)]})\ndef square(n): return next(answers)"
    verdict = ask(code(function="square", sandbox=BOX), text, cases=cases)
    assert verdict.score == 0.0 and verdict.parts["flag/hard_coded"] == 1.0


FLAGGED = {
    "exits": "import sys\ndef square(n):\n sys.exit(0)",
    "imports": "import ctypes\ndef square(n): return n * n",
    "frames": "import sys\ndef square(n): return sys._getframe().f_back",
    "always_equal": "class A:\n def __eq__(self, other): return True\ndef square(n): return A()",
    "swallows": "def square(n):\n try: return n * n\n except Exception: pass",
    "hard_coded": "def square(n): return {20: 400, 30: 900}[n]",
    "special_cased": "def square(n):\n if n == 30: return 900\n return 0",
}


@pytest.mark.parametrize("flag", FLAGGED)
def test_flags_are_parts_and_no_rewards(ask: Any, flag: str) -> None:
    cases = [{"args": [n], "expected": n * n} for n in (20, 30)]
    verifier = code(function="square", sandbox=BOX)
    assert ask(verifier, FLAGGED[flag], cases=cases).parts[f"flag/{flag}"] == 1.0
    honest = ask(verifier, "def square(n):\n if n == 0: return 0\n return n * n", cases=cases)
    assert {name: part for name, part in honest.parts.items() if name.startswith("flag/") and part} == {}
    assert ask(verifier, FLAGGED["imports"], cases=cases).score == 1.0


PROGRAM = "a, b = map(int, input().split())\nprint(a + b)\n"
PAIRS = [{"input": "3 4\n", "output": "7\n"}, {"input": "10 -2", "output": "8"}]


@pytest.mark.parametrize(
    ("text", "score", "evidence"),
    [
        (PROGRAM, 1.0, "2 of 2 passed"),
        (PROGRAM + "print()", 1.0, "2 of 2 passed"),
        (PROGRAM.replace("+", "-"), 0.0, "expected"),
        (PROGRAM + "raise SystemExit(3)", 0.0, "SystemExit"),
        (PROGRAM + "import os; os._exit(1)", 0.0, "status 1"),
        (PROGRAM + "import sys; sys.exit()", 1.0, "2 of 2 passed"),
        ("import sys\nfor line in sys.stdin:\n print(sum(map(int, line.split())))", 1.0, "2 of 2 passed"),
        ("if __name__ == '__main__':\n " + PROGRAM.replace("\n", "\n "), 1.0, "2 of 2 passed"),
        ("print(7)\nwhile True: pass", 0.0, "time"),
        ("print(", 0.0, "SyntaxError"),
    ],
)
def test_programs(ask: Any, text: str, score: float, evidence: str) -> None:
    verdict = ask(stdio(seconds=0.5, sandbox=BOX), f"```python\n{text}\n```", cases=PAIRS)
    assert verdict.score == score and evidence in verdict.evidence


def test_outputs_are_compared_as_asked(ask: Any) -> None:
    cases = {"inputs": [""], "outputs": ["1.0 2\n3\n"]}
    spread, near = "print('1.0   2 3')", "print('1.0004 2')\nprint(3)"
    assert [ask(stdio(output=how, sandbox=BOX), spread, cases=cases).score for how in ("lines", "tokens", "exact")] == [
        0,
        1,
        0,
    ]
    assert ask(stdio(output="tokens", atol=1e-3, sandbox=BOX), near, cases=cases).score == 1.0
    assert ask(stdio(output="tokens", atol=1e-4, sandbox=BOX), near, cases=cases).score == 0.0
    assert ask(stdio(output="tokens", atol=1e9, sandbox=BOX), "print('nan 2 3')", cases=cases).score == 0.0


def test_large_inputs_and_binary_rubbish(ask: Any) -> None:
    cases = [{"input": "x" * 300_000, "output": "300000"}]
    assert ask(stdio(sandbox=BOX), "print(len(input()))", cases=cases).score == 1.0
    rubbish = "import os\nos.write(1, bytes(range(256)))"
    assert ask(stdio(sandbox=BOX), rubbish, cases=cases).status is Status.OK
    assert ask(stdio(sandbox=BOX), "print(1)", cases=[{"input": 3, "output": "1"}]).status is Status.ERROR


def test_settings() -> None:
    built = rewards.build({"kind": "code", "cases": SQUARES, "function": "square", "sandbox": {"floor": "B"}})
    assert built.name == "code" and rewards.build({"kind": "stdio", "sandbox": {"floor": "B"}}).name == "stdio"
    for wrong, message in (
        ({"partial": "some"}, "partial='some'"),
        ({"compare": "jsn"}, "Did you mean 'json'"),
        ({"seconds": 0}, "seconds=0"),
        ({"alpha": 2}, "alpha=2"),
        ({"rtol": -1}, "rtol=-1"),
        ({"memory": 1}, "64 MiB"),
        ({"sandbox": {"level": "E"}}, "level='E'"),
    ):
        with pytest.raises(ConfigError, match=message):
            code(**{"sandbox": BOX, **wrong})
    for wrong, message in (({"output": "line"}, "Did you mean 'lines'"), ({"atol": 0.1}, "output: tokens")):
        with pytest.raises(ConfigError, match=message):
            stdio(**{"sandbox": BOX, **wrong})


def test_from_many_threads(rollout: Any) -> None:
    verifier, results = code(function="square", sandbox=BOX), {}

    def work(n: int) -> None:
        results[n] = verifier.verdicts([rollout(f"def square(n): return n * n  # {n}", cases=SQUARES)])[0].score

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(6), 1.0)
