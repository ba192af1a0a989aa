"""One submission and its cases: calls them, compares outside, and says what came of it."""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prefrl.sandbox import Answer, Look, Opaque, Session, Submission
from prefrl.sandbox.cases import Case, Tests, expects_value, parse
from prefrl.sandbox.compare import Same
from prefrl.sandbox.inside.flags import FLAGS
from prefrl.sandbox.slot import Stopped

PLAIN = Same("python")


@dataclass(slots=True)
class Tally:
    """What the checks of one submission came to, in the order of the data."""

    passed: list[bool] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # of what failed
    stopped: str = ""
    tampered: bool = False

    def add(self, passed: bool, note: str = "", weight: float = 1.0) -> None:
        """One more check, with what to say of it if it failed."""
        self.passed.append(passed)
        self.weights.append(weight)
        if not passed:
            self.notes.append(note)

    def reject(self, why: str) -> None:
        """Let none of the checks count."""
        self.passed, self.notes = [False] * len(self.passed), [why, *self.notes]


def shuffled(count: int, *secrets: object) -> list[int]:
    """An order of the cases that a submission cannot foresee and that is the same whenever it is judged again."""
    seed = hashlib.sha256(repr(secrets).encode()).digest()
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def judge_calls(session: Session, code: str, tests: Tests, setup: str, same: Same) -> tuple[Tally, Look]:
    """Run every case against one loaded submission, and the assertions in a process of their own.

    `code` is loaded after `setup`, which the process of the assertions loads as well.
    """
    submission = session.submission(f"{setup}\n{code}" if setup else code)
    results: dict[int, str | None] = {}
    for index in shuffled(len(tests.cases), code, tests.cases):
        case = tests.cases[index]
        results[index] = _case_problem(submission, case, _equality(same, case))
    tally = Tally()
    for index, case in enumerate(tests.cases):
        tally.add(results[index] is None, results[index] or "", case.weight)
    if tests.source:
        _assertions(session, submission, tests, setup, tally)
    submission.close()
    tally.stopped, tally.tampered = tally.stopped or submission.stopped, submission.tampered
    if tally.tampered:
        tally.reject("it wrote answers to questions that nobody asked")
    return tally, submission.look


def _equality(same: Same, case: Case) -> Same:
    return Same("python", same.rtol, same.atol) if case.python else same


def _case_problem(submission: Submission, case: Case, same: Same) -> str | None:
    """What is wrong with the answer to one case; None when nothing is."""
    answer = _object_answer(submission, case) if case.calls is not None else _call(submission, case)
    if case.raises:
        return None if answer.raised == case.raises else f"{case.label}: expected {case.raises}, got {_shown(answer)}"
    if not answer.ok:
        return f"{case.label}: {answer.error}"
    if expects_value(case) and not _holds(same, answer.value, case.expected):
        return f"{case.label}: expected {case.expected!r}, got {_shown(answer)}"[:500]
    if case.after is not None and not _holds(same, answer.arguments, case.after):
        return f"{case.label}: the arguments are not {case.after!r} afterwards"[:500]
    return None


def _holds(same: Same, got: Any, expected: Any) -> bool:
    """Never an exception: what a submission returned must not turn its failure into one of the verifier."""
    try:
        return same(got, expected)
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        return False


def _call(submission: Submission, case: Case) -> Answer:
    return submission.call(case.function, case.args, case.kwargs)


def _object_answer(submission: Submission, case: Case) -> Answer:
    """Make the object, call its methods in order; the value is the list of what they returned."""
    made = _call(submission, case)
    if not made.ok or not isinstance(made.value, Opaque):
        return made if not made.ok else Answer(ok=False, error=f"{case.function} made plain data, no object")
    values: list[Any] = []
    for method, arguments in case.calls or ():
        answer = submission.call_on(made.value.number, method, arguments)
        if not answer.ok:
            return answer
        values.append(answer.value)
    return Answer(ok=True, value=values)


def _assertions(session: Session, submission: Submission, tests: Tests, setup: str, tally: Tally) -> None:
    try:
        records, problem = session.tests(submission, tests.source, setup, tests.entry)
    except Stopped as stop:
        tally.stopped = stop.why
        records, problem = [], str(stop)
    for record in records:
        tally.add(
            record["ran"] and not record["failed"], f"{record['text']}: {record['error'] or problem or 'not reached'}"
        )
    missing = sum(isinstance(node, ast.Assert) for node in ast.walk(parse(tests.source))) - len(records)
    for _ in range(missing):
        tally.add(False, problem)
    if problem and all(tally.passed):
        tally.add(False, problem)


def _shown(answer: Answer) -> str:
    try:
        return repr(answer.value)[:200] if answer.ok else answer.error
    except ValueError:  # an integer of too many digits
        return f"a {type(answer.value).__name__} that is too long to show"


def flag_parts(look: Look, asked: Sequence[tuple[Any, ...]], expected: Sequence[Any]) -> dict[str, float]:
    """The parts `flag/...`, 0 or 1 each: those of the text alone, and what it shares with the cases.

    hard_coded    literals of the text are expected values of at least half of the cases
    special_cased the text asks for the argument of a case and answers what is expected there
    Small and empty values, which any program holds, count for neither.
    """
    telling = [value for value in expected if _telling(value)]
    found = [
        value for value in telling if any(PLAIN(constant, value) for constant in look.constants if _telling(constant))
    ]
    pairs = [
        (arguments[0] if len(arguments) == 1 else arguments, value)
        for arguments, value in zip(asked, expected, strict=True)
        if _telling(value) or any(map(_telling, arguments))
    ]
    special = any(PLAIN(a, argument) and PLAIN(b, value) for a, b in look.branches for argument, value in pairs)
    flags = {flag: float(flag in look.flags) for flag in FLAGS}
    flags |= {"hard_coded": float(2 * len(found) >= len(telling) > 0), "special_cased": float(special)}
    return {f"flag/{name}": value for name, value in flags.items()}


def _telling(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) > 9
    if isinstance(value, float):
        return not (value.is_integer() and abs(value) <= 9)
    return len(value) > 2 if hasattr(value, "__len__") else isinstance(value, complex)
