"""Small wrongs in Python programs: one change each, for tests that must notice them."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Iterator
from typing import Any

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def parse(source: str) -> ast.Module:
    """The syntax tree, without the warnings about escapes that old programs cause."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def returns_none(source: str, function: str) -> str:
    """The program with every return of the function returning a value that no task asks for."""
    tree = parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.body = [ast.Return(ast.Constant("no such answer"))]
    return ast.unparse(ast.fix_missing_locations(tree))


def mutants(source: str) -> Iterator[str]:
    """The program with one operator exchanged, one whole number raised by 1, or one truth value turned; each once."""
    for index, _ in enumerate(_places(parse(source))):
        tree = parse(source)
        node, name = list(_places(tree))[index]
        old = getattr(node, name)
        setattr(node, name, _other(old))
        yield ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree)))


def _places(tree: ast.AST) -> Iterator[tuple[Any, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in _OPERATORS:
            yield node, "op"
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
            yield node, "ops"
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, "value"


def _other(old: Any) -> Any:
    if isinstance(old, list):
        return [_OPERATORS[type(old[0])]()]
    if isinstance(old, bool):
        return not old
    return old + 1 if isinstance(old, int) else _OPERATORS[type(old)]()
