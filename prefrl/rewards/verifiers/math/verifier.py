"""The reward: whether the final answer of a completion is the gold one, mathematically."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from time import perf_counter
from typing import Any

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers import pool
from prefrl.rewards.verifiers.common import Verifier, gold_of, gold_text
from prefrl.rewards.verifiers.math.compare import Comparison, Rules, Undecided
from prefrl.rewards.verifiers.math.deciding import Decision, decide
from prefrl.rewards.verifiers.math.extract import final_answers, gold_answer
from prefrl.rewards.verifiers.math.restating import restates
from prefrl.rewards.verifiers.verdict import Status, Verdict, failure, graded
from prefrl.types import Rollout

VERSION = "2"
EXACT = Rules()
TASK = "prefrl.rewards.verifiers.math.oracle:judge"


@dataclass(frozen=True, slots=True)
class Case:
    """A completion and the gold answers it is held against; the question tells an answer from a repetition of it."""

    golds: tuple[str, ...]
    text: str
    rules: Rules = EXACT
    question: str = ""


def math(
    column: str = "answer",
    *,
    rel_tol: float | str = 0.0,
    abs_tol: float | str = 0.0,
    ordered: bool | str = True,
    timeout: float = 0.6,
    workers: int | None = None,
) -> Verifier:
    """1 when the final answer of the completion equals the gold answer, else 0.

    Equal means equal values (1/2 and 0.5, x(x+1) and x^2+x), sets in any order, intervals and inequalities of the same
    points, equations up to a factor. Several final answers that differ are wrong, and so is an expression of the
    question that is said again with the work still to do. Exact unless a tolerance is given.

    Args:
        column: dataset column with the gold answer: a number, LaTeX or plain text, a worked solution that ends in
            `#### answer` or has it in a box, or a list of answers any of which is right.
        rel_tol, abs_tol: numbers within `max(rel_tol * max(|a|, |gold|), abs_tol)` are equal; a text names a dataset
            column with the tolerance of the row.
        ordered: whether the order of `1, 2` without brackets matters; a text names a column. That of `(1, 2)` always
            does, that of `{1, 2}` and `1 and 2` never.
        timeout: seconds of processor time for one comparison in a worker.
        workers: processes, as many as there are processors by default and at most four, shared by all such rewards.

    Raises:
        ConfigError: a negative tolerance or a timeout that is not positive.
    """
    for name, value in (("rel_tol", rel_tol), ("abs_tol", abs_tol)):
        if not isinstance(value, str) and not (isinstance(value, Real) and value >= 0):
            raise ConfigError(f"math: {name}={value!r}; expected a number >= 0, or the name of a column")
    if not timeout > 0:
        raise ConfigError(f"math: timeout={timeout}; expected a positive number of seconds")
    settings = {"rel_tol": rel_tol, "abs_tol": abs_tol, "ordered": ordered}

    def key(rollout: Rollout) -> Hashable:
        columns = [gold_of(rollout, value, "math") for value in settings.values() if isinstance(value, str)]
        return repr((gold_of(rollout, column, "math"), columns)), rollout.prompt.question, rollout.text

    def batch(rollouts: Sequence[Rollout]) -> list[Verdict]:
        cases = [_case(rollout, column, settings) for rollout in rollouts]
        made = iter(judge_all([case for case in cases if isinstance(case, Case)], timeout=timeout, workers=workers))
        return [next(made) if isinstance(case, Case) else case for case in cases]

    return Verifier("math", batch=batch, version=VERSION, key=key, gold=gold_text(column))


def judge_all(cases: Sequence[Case], *, timeout: float = 0.6, workers: int | None = None) -> list[Verdict]:
    """One verdict per case, in order; what takes more than arithmetic is worked out in killable workers."""
    verdicts: list[Verdict | None] = [None] * len(cases)
    jobs: dict[int, dict[str, Any]] = {}
    for index, case in enumerate(cases):
        start = perf_counter()
        answers = final_answers(case.text)
        if case.question and restates(answers, case.golds, case.question):
            verdicts[index] = _RESTATED.stamped(VERSION, perf_counter() - start)
            continue
        try:
            verdict = _verdict(decide(case.golds, answers, Comparison(case.rules))) if answers else _NO_ANSWER
            verdicts[index] = verdict.stamped(VERSION, perf_counter() - start)
        except Undecided:
            jobs[index] = {"golds": case.golds, "answers": answers, "rules": _record(case.rules)}
    if jobs:
        done = pool.shared(TASK, timeout, workers).map(list(jobs.values()))
        verdicts = [*verdicts]
        for index, result in zip(jobs, done, strict=True):
            verdicts[index] = _worked(result).stamped(VERSION, result.cost)
    return [verdict for verdict in verdicts if verdict is not None]


_NO_ANSWER = graded(parsed=False, correct=False, evidence="no final answer")
_RESTATED = graded(parsed=True, correct=False, evidence="the answer says the question again")


def _record(rules: Rules) -> dict[str, Any]:
    return {"rel_tol": rules.rel_tol, "abs_tol": rules.abs_tol, "ordered": rules.ordered}


def _worked(done: pool.Done) -> Verdict:
    if done.status is Status.OK:
        return _verdict(Decision(**done.value))
    return failure(done.evidence, done.status)


def _verdict(decision: Decision) -> Verdict:
    return graded(parsed=decision.read, correct=decision.correct, evidence=decision.evidence)


def _case(rollout: Rollout, column: str, settings: Mapping[str, Any]) -> Case | Verdict:
    """The case of a rollout, or a verdict that says what is wrong with its row."""
    gold = gold_of(rollout, column, "math")
    golds = tuple(map(_gold_text, gold if isinstance(gold, list | tuple) else (gold,)))
    if not golds or not all(golds):
        return failure(
            f"the column {column!r} is {gold!r}; expected a number, a text with an answer, or a list of those"
        )
    row = {n: gold_of(rollout, v, "math") if isinstance(v, str) else v for n, v in settings.items()}
    for name in ("rel_tol", "abs_tol"):
        if not isinstance(row[name], Real) or not row[name] >= 0:
            return failure(f"the column {settings[name]!r} is {row[name]!r}; expected a number >= 0")
    rules = Rules(float(row["rel_tol"]), float(row["abs_tol"]), bool(row["ordered"]))
    return Case(golds, rollout.text, rules, rollout.prompt.question)


def _gold_text(gold: Any) -> str:
    if isinstance(gold, Real) and not isinstance(gold, bool):
        return repr(gold) if gold == gold and abs(gold) != float("inf") else ""
    return gold_answer(gold) if isinstance(gold, str) else ""
