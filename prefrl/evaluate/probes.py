"""Answers that a verifier must accept or refuse, made of nothing but the gold answers of a dataset.

A verifier that judges behaviour accepts every wording of a right program and refuses a program that ignores its
input. One that looks for a phrase does neither; nobody has to tell which phrase.

What must fail has to be wrong for sure: an answer of another row that could be this row's in other words, or a constant
that the right program may return, makes no probe.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from prefrl.rewards.verifiers.numeric import numbers_in
from prefrl.rewards.verifiers.style import words_of
from prefrl.types import Prompt


class Probe(NamedTuple):
    """A text to be judged.

    good  True must pass, False must fail; None is only counted: forms that a strict verifier may refuse
    gold  the right answer
    """

    prompt: Prompt
    name: str
    text: str
    good: bool | None
    gold: str = ""


CONSTANTS = ("0", "1", "None", "True", "False", "''", "[]")  # what a program that ignores its input may return
OTHERS = 8  # answers of other rows in one probe
_SEARCHED = 200  # rows in which they are looked for
_LONG = 12  # words from which an answer is a text, whose meaning nobody can tell from its words
_SAME = (  # words that may mean the same
    frozenset({"yes", "true", "correct", "right", "valid", "y", "t"}),
    frozenset({"no", "not", "none", "nothing", "false", "incorrect", "wrong", "invalid", "impossible", "undefined"})
    | {"never", "zero", "nil", "empty", "n", "f", "dne"},
)
_COUNTED = frozenset(
    {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"}
    | {"half", "once", "twice", "a", "an"}
)
_FINAL = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{(\d+)\}\s*\{(\d+)\}|(\d)(\d))")
_MARKUP = re.compile(r"\\(?:text|mathrm|mathbf|textbf|left|right|[,;!%$ ])|[${}*]")
_OPERATORS = re.compile(
    r"[\\^_+=<>|!\u221a\u03c0\u221e\u00d7\u00f7]|[A-Za-z)]\s*\(|\d\s*[*(]|\d\s*/\s*\D|[-\u2212]\s*[A-Za-z(]"
)


def probes_of(prompts: Sequence[Prompt], golds: Sequence[str | Sequence[str]]) -> list[Probe]:
    """Every probe of every prompt.

    Args:
        prompts: what is asked.
        golds: an answer to each that is known to be right, a text or a program that defines something, or several of
            them, of which the first is tried.
    """
    right = [[gold] if isinstance(gold, str) else list(gold) for gold in golds]
    return [
        probe._replace(gold=gold[0])
        for index, (prompt, gold) in enumerate(zip(prompts, right, strict=True))
        for probe in _of(prompt, gold, _others(prompts, right, index))
    ]


def _of(prompt: Prompt, gold: Sequence[str], others: Sequence[str]) -> Iterator[Probe]:
    yield Probe(prompt, "gold answer", gold[0], True)
    tree = program(gold[0]) or _continued(prompt.question, gold[0])
    yield from _of_program(prompt, tree) if tree is not None else _of_text(prompt, gold, others)
    yield Probe(prompt, "nothing", "", False)
    if prompt.question.strip() and not any(words_of(prompt.question) == words_of(one) for one in gold):
        yield Probe(prompt, "the question itself", prompt.question, False)


def _continued(question: str, gold: str) -> ast.Module | None:
    """The program of a question that ends in the head of a function and an answer that is the rest of it."""
    body = textwrap.indent(textwrap.dedent(gold), "    ")
    return program(f"{question}\n{body}") if "def " in question else None


def program(text: str) -> ast.Module | None:
    """The program of a text that defines a function or a class, bare or in one fenced block; None for other texts."""
    fenced = re.fullmatch(r"\s*```\w*\n(.*?)```\s*", text, re.DOTALL)
    try:
        tree = _parsed(fenced[1] if fenced else text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if any(isinstance(node, _DEFINITIONS) for node in tree.body) else None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


def differ(one: str, other: str) -> bool:
    """Whether two answers surely differ: numbers that do not equal, words of which none is the same.

    Formulas, long texts, numbers of different units, and one that holds the other, are not sure.
    """
    a, b = _plain(one), _plain(other)
    x, y = numbers_in(a), numbers_in(b)
    words, others = ({word for word in words_of(text) if word.isalpha()} for text in (a, b))
    if max(len(words_of(a)), len(words_of(b))) > _LONG or _OPERATORS.search(a) or _OPERATORS.search(b):
        return False
    if bool(x) != bool(y):  # a number and words, which may be a number
        return bool(words | others) and not (words | others) & (_COUNTED | _SAME[1])
    if x:
        scales = (1.0, 100.0, 0.01) if "%" in one + other or "percent" in words | others else (1.0,)
        return words == others and not (_within(x, y, scales) or _within(y, x, scales))
    return bool(words and others) and not words & others and not any(words & same and others & same for same in _SAME)


def _within(xs: Sequence[float], ys: Sequence[float], scales: Sequence[float]) -> bool:
    """Whether each number is among the others, perhaps rounded."""
    return all(any(math.isclose(x, y * scale, rel_tol=0.01, abs_tol=1e-6) for y in ys for scale in scales) for x in xs)


def _plain(text: str) -> str:
    """The final answer of a text, without the marks of LaTeX."""
    boxes = _FINAL.findall(text)
    final = boxes[-1] if boxes else text.rpartition("####")[2]
    return _MARKUP.sub(" ", _FRACTION.sub(lambda f: f"{f[1] or f[3]}/{f[2] or f[4]}", final)).strip()


def _of_text(prompt: Prompt, golds: Sequence[str], others: Sequence[str]) -> Iterator[Probe]:
    gold = golds[0]
    yield Probe(prompt, "in a sentence", f"The answer is {gold}.", None)
    yield Probe(prompt, "in a box", f"\\boxed{{{gold}}}", None)
    yield Probe(prompt, "in bold", f"**{gold}**", None)
    if all(differ("0", one) for one in golds):
        yield Probe(prompt, "zero", "0", False)
    if others:
        yield Probe(prompt, "another row's answer", others[0], False)
        yield Probe(prompt, "the right one, or another", f"{gold} or {others[0]}", False)
        yield Probe(prompt, "another, or the right one", f"{others[0]} or {gold}", False)
        yield Probe(prompt, "every answer of the data", "; ".join([others[0], gold, *others[1:]]), False)


def _others(prompts: Sequence[Prompt], golds: Sequence[Sequence[str]], index: int) -> list[str]:
    """Up to eight answers to other questions, of the rows after this one, that surely differ from its own."""
    found: dict[str, None] = {}
    for step in range(1, min(len(golds), _SEARCHED)):
        at = (index + step) % len(golds)
        gold = golds[at][0]
        if prompts[at].question != prompts[index].question and all(differ(gold, one) for one in golds[index]):
            found[gold] = None
        if len(found) == OTHERS:
            break
    return list(found)


def _of_program(prompt: Prompt, tree: ast.Module) -> Iterator[Probe]:
    plain = _unparsed(tree)
    if plain is None:
        return
    yield Probe(prompt, "in a fenced block", f"```python\n{plain}\n```", None)
    yield Probe(prompt, "written differently", plain, True)
    renamed = _unparsed(_Renamed().visit(_parsed(plain)))
    if renamed not in (None, plain):
        yield Probe(prompt, "other names inside", str(renamed), True)
    turned = _unparsed(_Turned().visit(_parsed(plain)))
    if turned not in (None, plain):
        yield Probe(prompt, "conditions turned round", str(turned), True)
    for constant in CONSTANTS:
        text = _unparsed(_Constant(constant).visit(_parsed(plain)))
        if text is not None:
            yield Probe(prompt, f"return {constant}", text, None if _may_return(tree, constant) else False)


def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():  # "\d" in a gold answer is not ours to mend
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _unparsed(tree: ast.Module) -> str | None:
    """The source of a program; None for the few that Python cannot write."""
    with suppress(ValueError, RecursionError):
        return ast.unparse(ast.fix_missing_locations(tree))
    return None


def _may_return(tree: ast.Module, constant: str) -> bool:
    """Whether a program might always return a constant: it has no input, or says so, or returns nothing."""
    value = ast.literal_eval(constant)
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    return any(_always(function, value) for function in functions if not function.name.startswith("_"))


def _always(function: ast.FunctionDef | ast.AsyncFunctionDef, value: Any) -> bool:
    a = function.args
    if not any((a.posonlyargs, a.args, a.kwonlyargs, a.vararg, a.kwarg)):
        return True
    inside = list(ast.walk(function))
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside):
        return False
    returned = [node.value for node in inside if isinstance(node, ast.Return)]
    if not all(node is None or isinstance(node, ast.Constant | ast.List) for node in returned):
        return False
    with suppress(ValueError):
        return all((None if node is None else ast.literal_eval(node)) == value for node in returned or [None])
    return False


class _Renamed(ast.NodeTransformer):
    """Other names for what a function assigns to; its parameters and all that it did not make keep theirs."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rename inside one function."""
        inside = list(ast.walk(node))
        taken = {inner.id for inner in inside if isinstance(inner, ast.Name)} | set(dir(builtins))
        if taken & {"locals", "vars", "eval", "exec", "globals"} & {n.id for n in inside if isinstance(n, ast.Name)}:
            return node
        stored = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - _fixed(inside)
        made = dict(zip(sorted(stored), _fresh(taken), strict=False))
        for inner in inside:
            if isinstance(inner, ast.Name) and inner.id in made:
                inner.id = made[inner.id]
        return node


def _fixed(inside: Sequence[ast.AST]) -> set[str]:
    """Names that are also written elsewhere than in expressions, where they would keep their old form."""
    found: set[str] = set()
    for node in inside:
        if isinstance(node, ast.Global | ast.Nonlocal):
            found |= set(node.names)
        elif isinstance(node, ast.ClassDef):  # what it assigns to are attributes
            found |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        for field in ("arg", "name", "asname", "rest"):  # parameters, definitions, imports, exceptions, patterns
            value = getattr(node, field, None)
            found |= {value} if isinstance(value, str) and not isinstance(node, ast.keyword) else set()
    return found


def _fresh(taken: set[str]) -> Iterator[str]:
    return (f"v{number}" for number in range(1, 10_000) if f"v{number}" not in taken)


class _Turned(ast.NodeTransformer):
    """`a if c else b` becomes `b if not c else a`, and an if with an else likewise: the same behaviour, other words."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        """Turn a conditional expression round."""
        self.generic_visit(node)
        return ast.IfExp(test=_negated(node.test), body=node.orelse, orelse=node.body)

    def visit_If(self, node: ast.If) -> ast.If:
        """Turn a conditional statement round."""
        self.generic_visit(node)
        if not node.orelse:
            return node
        return ast.If(test=_negated(node.test), body=node.orelse, orelse=node.body)


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE:
        return ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


class _Constant(ast.NodeTransformer):
    """A function that returns the same whatever it is given."""

    def __init__(self, constant: str) -> None:
        self.constant = constant

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Replace the body."""
        node.body = ast.parse(f"return {self.constant}").body
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Replace the body."""
        node.body = ast.parse(f"return {self.constant}").body
        return node
