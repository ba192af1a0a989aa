"""Code that is run: function cases, assertions, and programs on standard input."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.calls import run_calls
from prefrl.rewards.verifiers.code_text import extract_code
from prefrl.rewards.verifiers.common import Verifier, gold_of, gold_text
from prefrl.rewards.verifiers.partial import Credit
from prefrl.rewards.verifiers.verdict import Status, Verdict, failure
from prefrl.sandbox import Limits, Look, Sandbox, Session, shared
from prefrl.sandbox.cases import CaseFault, expects_value, read_tests
from prefrl.sandbox.compare import Same
from prefrl.sandbox.judging import Tally, flag_parts, judge_calls, shuffled
from prefrl.types import Rollout

OUTPUTS = ("lines", "tokens", "exact")
Box = Sandbox | Mapping[str, Any] | None
Judge = Callable[[Session, str], tuple[Tally, Look, dict[str, float]]]


def code(
    column: str = "cases",
    *,
    cases: Sequence[Any] | None = None,
    function: str | None = None,
    entry: str = "entry_point",
    prefix: str | None = None,
    partial: str = "all",
    alpha: float = 0.5,
    compare: str = "json",
    rtol: float = 0.0,
    atol: float = 0.0,
    seconds: float = 5.0,
    memory: int = 512,
    processes: int = 0,
    sandbox: Box = None,
) -> Verifier:
    """Whether the code of a completion does what the cases ask. It runs in the sandbox; expected values stay outside.

    A case is `{args: [[3, 1, 2]], expected: [1, 2, 3]}`, with `function`, `kwargs` and `weight` where needed, and
    instead of `expected` the arguments as they should be `after` the call, or the name of the exception that it
    `raises`; or `{class: Stack, init: [], calls: [[push, [1]], [pop, []]], expected: [null, 1]}`; or an assertion,
    `"assert f((1, 2)) == {3}"`. Instead of a list a column may hold its JSON, or test source, with a function
    `check(candidate)` where that is usual. Assertions that are not a call of plain data compared with plain data run
    in a second confined process, which reaches the submission by messages.

    Parts: `parsed` (is there Python code), `strict` (all cases pass), `fraction`, `tampered`, `out_of_time`, and
    `flag/...` of `sandbox/inside/flags.py` and `judging.flag_parts`. A submission that crashes, does not end or uses
    too much fails its cases; a machine that is too busy to tell is a timeout, and has no score.

    Args:
        column: dataset column with the cases.
        cases: the same cases for every prompt, in place of a column.
        function: name of the function, for cases that do not say. By default the column `entry`, where there is one.
        entry: dataset column with that name.
        prefix: dataset column with code that goes before the completion's, say the imports and the head of the
            function.
        partial: all, fraction, weighted or scaled; alpha: of scaled. See `partial.Credit`.
        compare: json, exact or python; rtol, atol: tolerance of floats. See `sandbox.compare.Same`.
        seconds: for one submission, all its cases together.
        memory: MiB.
        processes: that a submission may start.
        sandbox: a `Sandbox`, or its settings, such as {floor: D}.

    Raises:
        ConfigError: a wrong setting.
        SandboxError: the machine offers less than the sandbox's floor.
    """
    credit, same = Credit(partial, alpha), Same(compare, rtol, atol)
    limits, box = _limits(seconds, memory, processes), _box(sandbox)

    def tests_of(rollout: Rollout) -> tuple[Any, str | None, str]:
        columns = rollout.prompt.columns
        value = gold_of(rollout, column, "code") if cases is None else cases
        name = function or (str(columns[entry]) if entry in columns else None)
        return value, name, str(gold_of(rollout, prefix, "code")) if prefix else ""

    def key(rollout: Rollout) -> tuple[str, ...]:
        return rollout.text, json.dumps(tests_of(rollout), default=repr)

    def judge(rollout: Rollout) -> Verdict:
        value, name, setup = tests_of(rollout)
        tests = read_tests(value, name)
        text = extract_code(rollout.text, [name] if name else [case.function for case in tests.cases])
        asked = [case.args for case in tests.cases if expects_value(case)]
        expected = [case.expected for case in tests.cases if expects_value(case)]

        def run(session: Session, text: str) -> tuple[Tally, Look, dict[str, float]]:
            tally, look = judge_calls(session, text, tests, setup, same)
            return tally, look, flag_parts(look, asked, expected)

        return _judged(box, limits, credit, text, run)

    gold = gold_text("solution", "canonical_solution", "code")
    return Verifier("code", batch=_threads(judge, box), key=key, version="1", gold=gold)


def stdio(
    column: str = "cases",
    *,
    cases: Sequence[Any] | None = None,
    output: str = "lines",
    atol: float = 0.0,
    partial: str = "all",
    alpha: float = 0.5,
    seconds: float = 5.0,
    memory: int = 512,
    processes: int = 0,
    sandbox: Box = None,
) -> Verifier:
    """Whether the program of a completion prints what the cases ask. Each case is a run in a fresh confined process.

    A case is `{input: "3 4\\n", output: "7\\n"}`, with a `weight` where needed; the column holds a list of them, its
    JSON, or `{inputs: [...], outputs: [...]}`. A program that ends with another status than 0 fails its case. Parts
    as of `code`.

    Args:
        column, cases, partial, alpha, memory, processes, sandbox: as of `code`.
        output: lines (white space at the ends of lines and of the text does not count), tokens (no white space counts),
            or exact.
        atol: by which numbers among the tokens may differ; needs output tokens.
        seconds: for one run.

    Raises:
        ConfigError: a wrong setting.
        SandboxError: the machine offers less than the sandbox's floor.
    """
    if output not in OUTPUTS:
        raise ConfigError(f"output={output!r}; expected one of {', '.join(OUTPUTS)}.{did_you_mean(output, OUTPUTS)}")
    if not 0 <= atol < math.inf or (atol and output != "tokens"):
        raise ConfigError(f"atol={atol} with output={output}; expected 0, or a finite number with output: tokens")
    credit, limits, box = Credit(partial, alpha), _limits(seconds, memory, processes), _box(sandbox)

    def value_of(rollout: Rollout) -> Any:
        return gold_of(rollout, column, "stdio") if cases is None else cases

    def key(rollout: Rollout) -> tuple[str, ...]:
        return rollout.text, json.dumps(value_of(rollout), default=repr)

    def judge(rollout: Rollout) -> Verdict:
        pairs = _pairs(value_of(rollout))
        same = functools.partial(_same_output, output, atol)

        def run(session: Session, text: str) -> tuple[Tally, Look, dict[str, float]]:
            return _judge_program(session, text, pairs, same)

        return _judged(box, limits, credit, extract_code(rollout.text), run)

    return Verifier("stdio", batch=_threads(judge, box), key=key, version="1")


def _judged(box: Sandbox, limits: Limits, credit: Credit, text: str | None, run: Judge) -> Verdict:
    if text is None:
        parts = {"strict": 0.0, "fraction": 0.0}
        return Verdict(status=Status.INVALID, parts=parts, evidence="there is no Python code in the completion")
    with box.session(limits) as session:
        tally, look, flags = run(session, text)
    return _verdict(tally, look, flags, credit).stamped("", session.cost)


def _verdict(tally: Tally, look: Look, flags: Mapping[str, float], credit: Credit) -> Verdict:
    """The verdict; without a score where the machine was too busy to tell."""
    if tally.stopped == "starved":
        return failure("the machine was too busy to run it in time", Status.TIMEOUT)
    score, parts = credit.of(tally.passed, tally.weights)
    parts |= {"tampered": float(tally.tampered), "out_of_time": float(tally.stopped == "time"), **flags}
    note = look.syntax or (tally.notes[0] if tally.notes else "")
    evidence = f"{sum(tally.passed)} of {len(tally.passed)} passed" + (f"; {note}" if note else "")
    if look.syntax:
        return Verdict(status=Status.INVALID, score=score, parts=parts, evidence=evidence)
    return Verdict(status=Status.OK, score=score, parts={"parsed": 1.0, **parts}, evidence=evidence)


def _judge_program(
    session: Session, text: str, pairs: Sequence[tuple[str, str, float]], same: Callable[[str, str], bool]
) -> tuple[Tally, Look, dict[str, float]]:
    problems: dict[int, str] = {}
    stopped, look = "", Look()
    for index in shuffled(len(pairs), text, pairs):
        given, expected, _ = pairs[index]
        done = session.program(text, given)
        look, stopped = done.look, stopped or done.stopped
        if done.problem:
            problems[index] = f"with the input {given[:100]!r}: {done.problem} {done.errors.strip()[-200:]}".rstrip()
        elif not same(done.output, expected):
            problems[index] = f"with the input {given[:100]!r}: expected {expected[:100]!r}, got {done.output[:100]!r}"
    tally = Tally(stopped=stopped)
    for index, (_, _, weight) in enumerate(pairs):
        tally.add(index not in problems, problems.get(index, ""), weight)
    return (
        tally,
        look,
        flag_parts(look, [(given,) for given, _, _ in pairs], [wanted.strip() for _, wanted, _ in pairs]),
    )


def _pairs(value: Any) -> list[tuple[str, str, float]]:
    """(input, output, weight) of every case; raises CaseFault."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, Mapping):
            rows = zip(value["inputs"], value["outputs"], strict=True)
            value = [{"input": given, "output": wanted} for given, wanted in rows]
        pairs = [(_text(case["input"]), _text(case["output"]), float(case.get("weight", 1.0))) for case in value]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CaseFault(f"cannot read the cases ({error!r}); expected a list of {{input, output}}") from None
    if not pairs:
        raise CaseFault("no cases: without any, nothing can be passed")
    return pairs


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _same_output(how: str, atol: float, got: str, expected: str) -> bool:
    if how == "exact":
        return got == expected
    if how == "lines":
        ours, theirs = ([line.rstrip() for line in text.rstrip().splitlines()] for text in (got, expected))
        return ours == theirs
    mine, wanted = got.split(), expected.split()
    return len(mine) == len(wanted) and all(a == b or _near(a, b, atol) for a, b in zip(mine, wanted, strict=True))


def _near(got: str, expected: str, atol: float) -> bool:
    try:
        return atol > 0 and abs(float(got) - float(expected)) <= atol
    except ValueError:
        return False


def _threads(judge: Callable[[Rollout], Verdict], box: Sandbox) -> Callable[[Sequence[Rollout]], list[Verdict]]:
    """Judge many rollouts at once, one per slot; what fails costs its own rollout alone."""

    def batch(rollouts: Sequence[Rollout]) -> list[Verdict]:
        calls = [functools.partial(judge, rollout) for rollout in rollouts]
        outcomes = run_calls(calls, timeout=None, workers=max(1, min(box.slots, len(calls))))
        return [failure(o.error) if o.error is not None else o.value for o in outcomes]

    return batch


def _box(given: Box) -> Sandbox:
    return given if isinstance(given, Sandbox) else shared(given)


def _limits(seconds: float, memory: int, processes: int) -> Limits:
    if not (0 < seconds < math.inf and memory >= 64 and processes >= 0):
        raise ConfigError(
            f"seconds={seconds}, memory={memory}, processes={processes}; expected a finite time above 0, "
            "at least 64 MiB, and 0 processes or more"
        )
    return Limits(seconds=seconds, memory=memory << 20, processes=processes)
