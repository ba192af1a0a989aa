"""What the text of a submission gives away, read without running it. Flags are hints for people, never rewards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from prefrl.sandbox.inside.values import ValueFault, encode

FLAGS = ("exits", "imports", "frames", "always_equal", "swallows")
MOST = 1000  # constants and branches that are reported

_EXITS = {"exit", "quit", "_exit", "abort", "SystemExit", "kill"}
_IMPORTS = {
    "ctypes", "gc", "importlib", "inspect", "mmap", "multiprocessing", "pickle", "pty", "resource", "signal", "socket",
    "subprocess", "sysconfig", "unittest", "pytest", "urllib", "http", "requests",
}  # fmt: skip
_FRAMES = {
    "_getframe", "_current_frames", "f_back", "f_locals", "f_globals", "co_consts", "get_objects", "get_referrers",
    "__subclasses__", "__globals__", "__code__", "settrace", "setprofile", "excepthook", "__builtins__", "modules",
}  # fmt: skip


def static_flags(tree: ast.AST) -> list[str]:
    """Those of `FLAGS` that show in the syntax tree.

    exits         leaves the process: sys.exit, os._exit, raise SystemExit
    imports       modules that a solution seldom needs and a cheat often does
    frames        looks at frames, code objects, all objects, or the loaded modules
    always_equal  a class whose `__eq__` returns True whatever it is asked
    swallows      an `except` for everything whose handler only passes
    """
    found = {flag for node in ast.walk(tree) for flag in _flags_of(node)}
    return [flag for flag in FLAGS if flag in found]


def _flags_of(node: ast.AST) -> Iterator[str]:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    if name in _EXITS:
        yield "exits"
    if name in _FRAMES:
        yield "frames"
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    if name == "__import__" or any(module.split(".")[0] in _IMPORTS for module in modules):
        yield "imports"
    if isinstance(node, ast.FunctionDef) and node.name == "__eq__" and _returns_true(node):
        yield "always_equal"
    if isinstance(node, ast.ExceptHandler) and _catches_all(node) and all(isinstance(x, ast.Pass) for x in node.body):
        yield "swallows"


def _returns_true(function: ast.FunctionDef) -> bool:
    last = function.body[-1]
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Constant) and last.value.value is True


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    )


def constants(tree: ast.AST) -> list[Any]:
    """Literal values in the text, encoded: numbers, strings, and displays of literals; at most 1000."""
    values = (_literal(node) for node in ast.walk(tree) if isinstance(node, _LITERALS))
    return [value for value, _ in zip((v[0] for v in values if v), range(MOST), strict=False)]


def branches(tree: ast.AST) -> list[list[Any]]:
    """Pairs (literal asked for, literal answered), encoded, of `if x == 5: return 120` and `{5: 120}`; at most 1000."""
    pairs = [pair for node in ast.walk(tree) for pair in _pairs_of(node)]
    return [[key[0], value[0]] for key, value in pairs if key and value][:MOST]


_LITERALS = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp)


def _pairs_of(node: ast.AST) -> Iterator[tuple[list[Any], list[Any]]]:
    if isinstance(node, ast.Dict):
        yield from ((_literal(k), _literal(v)) for k, v in zip(node.keys, node.values, strict=True) if k is not None)
    if isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Compare):
        answer = node.body[0] if isinstance(node, ast.If) else node.body
        value = answer.value if isinstance(answer, ast.Return) else answer if isinstance(answer, ast.expr) else None
        if value is not None and all(isinstance(op, ast.Eq) for op in node.test.ops):
            sides = [node.test.left, *node.test.comparators]
            yield from ((_literal(side), _literal(value)) for side in sides if not isinstance(side, ast.Name))


def _literal(node: ast.expr) -> list[Any]:
    """The encoded value in a list of one; empty when the expression is no literal."""
    if not isinstance(node, _LITERALS):
        return []
    try:
        return [encode(ast.literal_eval(node))]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, ValueFault):
        return []
