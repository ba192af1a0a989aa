"""Answers that a verifier must accept or refuse, made of nothing but the gold answers of a dataset.

A verifier that judges behaviour accepts every wording of a right program and refuses a program that ignores its
input. One that looks for a phrase does neither; nobody has to tell which phrase.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prefrl.types import Prompt


class Probe(NamedTuple):
    """A text to be judged.

    good  True must pass, False must fail; None is only counted: forms that a strict verifier may refuse
    """

    prompt: Prompt
    name: str
    text: str
    good: bool | None


CONSTANTS = ("0", "1", "None", "True", "False", "''", "[]")  # what a program that ignores its input may return


def probes_of(prompts: Sequence[Prompt], golds: Sequence[str]) -> list[Probe]:
    """Every probe of every prompt.

    Args:
        prompts: what is asked.
        golds: an answer to each that is known to be right: a text, or a program that defines a function.
    """
    found: list[Probe] = []
    for index, (prompt, gold) in enumerate(zip(prompts, golds, strict=True)):
        found.append(Probe(prompt, "gold answer", gold, True))
        tree = program(gold)
        found += _of_program(prompt, gold, tree) if tree is not None else _of_text(prompt, gold, golds, index)
        found.append(Probe(prompt, "nothing", "", False))
        if prompt.question.strip() and prompt.question.strip() != gold.strip():
            found.append(Probe(prompt, "the question itself", prompt.question, False))
    return found


def program(text: str) -> ast.Module | None:
    """The program of a text that defines a function, bare or in one fenced block; None for other texts."""
    fenced = re.fullmatch(r"\s*```[a-z]*\n(.*?)```\s*", text, re.DOTALL)
    try:
        tree = ast.parse(fenced[1] if fenced else text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if any(isinstance(node, ast.FunctionDef) for node in tree.body) else None


def _of_text(prompt: Prompt, gold: str, golds: Sequence[str], index: int) -> Iterator[Probe]:
    yield Probe(prompt, "in a sentence", f"The answer is {gold}.", None)
    yield Probe(prompt, "in a box", f"\\boxed{{{gold}}}", None)
    yield Probe(prompt, "in bold", f"**{gold}**", None)
    if gold.strip() != "0":
        yield Probe(prompt, "zero", "0", False)
    others = _others(golds, index)
    if others:
        yield Probe(prompt, "another row's answer", others[0], False)
        yield Probe(prompt, "the right one, or another", f"{gold} or {others[0]}", False)
        yield Probe(prompt, "another, or the right one", f"{others[0]} or {gold}", False)
        yield Probe(prompt, "every answer of the data", "; ".join(dict.fromkeys([others[0], gold, *others])), False)


def _others(golds: Sequence[str], index: int) -> list[str]:
    """Up to eight answers of the rows after this one that differ from its own."""
    own = golds[index].strip().casefold()
    after = [*golds[index + 1 :], *golds[:index]]
    return [gold for gold in after if gold.strip().casefold() != own][:8]


def _of_program(prompt: Prompt, gold: str, tree: ast.Module) -> Iterator[Probe]:
    plain = ast.unparse(tree)
    yield Probe(prompt, "in a fenced block", f"```python\n{plain}\n```", None)
    yield Probe(prompt, "written differently", plain, True)
    renamed = ast.unparse(_Renamed().visit(ast.parse(plain)))
    if renamed != plain:
        yield Probe(prompt, "other names inside", renamed, True)
    turned = ast.unparse(ast.fix_missing_locations(_Turned().visit(ast.parse(plain))))
    if turned != plain:
        yield Probe(prompt, "conditions turned round", turned, True)
    for constant in CONSTANTS:
        text = ast.unparse(ast.fix_missing_locations(_Constant(constant).visit(ast.parse(plain))))
        if text != plain:
            yield Probe(prompt, f"return {constant}", text, False)


class _Renamed(ast.NodeTransformer):
    """Other names for what a function assigns to; its parameters and all that it did not make keep theirs."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rename inside one function."""
        taken = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} | set(dir(builtins))
        fixed = {
            name for inner in ast.walk(node) if isinstance(inner, ast.Global | ast.Nonlocal) for name in inner.names
        }
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - fixed
        made = dict(zip(sorted(stored), _fresh(taken), strict=False))
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in made:
                inner.id = made[inner.id]
        return node


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
