"""Cases of code tasks: what a dataset column says, as calls and expected values.

All of this runs outside. Assertions that only compare a call of plain data with plain data become cases; the others
stay source, for a process of their own.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

KEYS = {"function", "args", "kwargs", "expected", "after", "raises", "weight"}
OBJECT_KEYS = {"class", "init", "calls", "expected", "weight"}
_MISSING = object()
_PARSING = Lock()  # filters of warnings belong to all threads


class CaseFault(ValueError):
    """A case that cannot be used; the fault of the data, never of a submission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call with what it should give, or a row of calls of one object (`calls`, where `function` is the class).

    after   arguments as they should be after the call; None when that does not matter
    raises  name of the exception that is expected in place of a value
    python  compare as an assertion does, with `==`
    """

    function: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = None
    after: tuple[Any, ...] | None = None
    raises: str = ""
    calls: tuple[tuple[str, tuple[Any, ...]], ...] | None = None
    weight: float = 1.0
    python: bool = False

    @property
    def label(self) -> str:
        """The call as a person would write it, shortened."""
        return f"{self.function}({', '.join(map(repr, self.args))})"[:120]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The cases of one task, and the assertions (source, empty without any) that need a process of their own.

    entry  the name under which those call the submission, beside `candidate`
    """

    cases: tuple[Case, ...] = ()
    source: str = ""
    entry: str = ""


def parse(source: str) -> ast.Module:
    """The syntax tree of test source, whose odd escapes in strings are nobody's warning here."""
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def read_tests(value: Any, function: str | None) -> Tests:
    """What a column holds: a list of cases (see `rewards.code`) and assertions, JSON of one, or test source.

    Raises:
        CaseFault: nothing in it, or something that is no case.
    """
    if isinstance(value, str):
        if not value.lstrip().startswith(("[", "{")):
            return _checked(source_tests(value, function), function)
        try:
            value = json.loads(value)
        except ValueError as error:
            raise CaseFault(f"the cases are no JSON: {error}") from None
    if isinstance(value, Mapping) or not isinstance(value, Sequence):
        raise CaseFault(f"the cases are a {type(value).__name__}; expected a list of cases, or tests as text")
    cases: list[Case] = []
    sources: list[str] = []
    for item in value:
        if isinstance(item, str):
            part = source_tests(item, function)
            cases += part.cases
            sources += [part.source] if part.source else []
        else:
            cases.append(_case(item, function))
    return _checked(Tests(cases=tuple(cases), source="\n".join(sources)), function)


def _checked(tests: Tests, function: str | None) -> Tests:
    if not tests.cases and not tests.source.strip():
        raise CaseFault("no cases: without any, nothing can be passed")
    entry = function or next((case.function for case in tests.cases), "")
    if tests.source and not entry:
        raise CaseFault("the assertions do not say which function is tested; give rewards.code(function=...)")
    return replace(tests, entry=entry)


def _case(item: Any, function: str | None) -> Case:
    keys = OBJECT_KEYS if isinstance(item, Mapping) and "class" in item else KEYS
    if not isinstance(item, Mapping) or set(item) - keys:
        raise CaseFault(
            f"got the case {str(item)[:100]}; expected a mapping of {', '.join(sorted(keys))}, or an assertion"
        )
    name = item.get("class", item.get("function", function))
    if not isinstance(name, str):
        raise CaseFault(f"the case {str(item)[:100]} names no function; add one, or give rewards.code(function=...)")
    if "expected" not in item and "after" not in item and "raises" not in item:
        raise CaseFault(f"the case {str(item)[:100]} expects nothing; give expected, after or raises")
    calls = tuple((str(method), tuple(args)) for method, args in item["calls"]) if "class" in item else None
    return Case(
        function=name,
        args=tuple(item.get("init", ()) if calls is not None else item.get("args", ())),
        kwargs=dict(item.get("kwargs", {})),
        expected=item.get("expected", _MISSING),
        after=tuple(item["after"]) if "after" in item else None,
        raises=str(item.get("raises", "")),
        calls=calls,
        weight=float(item.get("weight", 1.0)),
    )


def expects_value(case: Case) -> bool:
    """False for a case that only says what the arguments should be afterwards."""
    return case.expected is not _MISSING


@functools.lru_cache(maxsize=1024)
def source_tests(source: str, function: str | None) -> Tests:
    """Test source, taken apart: simple assertions as cases, the others as source.

    Taken apart are top-level assertions, and those of a function `check(candidate)` that holds nothing else. Any other
    source stays whole.

    Raises:
        CaseFault: no Python.
    """
    try:
        tree = parse(source)
    except SyntaxError as error:
        raise CaseFault(f"the tests are no Python: {error}") from None
    asserts = _only_asserts(tree)
    if asserts is None:
        if not any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
            raise CaseFault("the tests assert nothing")
        return Tests(source=source)
    simple = [(node, _simple(node, function)) for node in asserts]
    return Tests(
        cases=tuple(case for _, case in simple if case is not None),
        source="\n".join(ast.unparse(node) for node, case in simple if case is None),
    )


def _only_asserts(tree: ast.Module) -> list[ast.Assert] | None:
    found: list[ast.Assert] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            inner = [child for child in node.body if not _idle(child)]
            if not all(isinstance(child, ast.Assert) for child in inner):
                return None
            found += [child for child in inner if isinstance(child, ast.Assert)]
        elif isinstance(node, ast.Assert):
            found.append(node)
        elif not _idle(node) and not _calls_check(node):
            return None
    return found


def _idle(node: ast.stmt) -> bool:
    """A docstring, `pass`, or the constant METADATA."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["METADATA"]
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _calls_check(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check"


def _simple(node: ast.Assert, function: str | None) -> Case | None:
    """`assert f(literals) == literal`, either way round, as a case."""
    test = node.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return None
    sides = [test.left, test.comparators[0]]
    call = next((side for side in sides if isinstance(side, ast.Call)), None)
    if call is None or not isinstance(call.func, ast.Name) or any(word.arg is None for word in call.keywords):
        return None
    other = sides[1] if call is sides[0] else sides[0]
    name = function if call.func.id == "candidate" and function else call.func.id
    if hasattr(builtins, name):
        return None
    try:
        return Case(
            function=name,
            args=tuple(ast.literal_eval(arg) for arg in call.args),
            kwargs={str(word.arg): ast.literal_eval(word.value) for word in call.keywords},
            expected=ast.literal_eval(other),
            python=True,
        )
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
