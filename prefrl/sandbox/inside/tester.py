"""Assertions in a process of their own: the submission is reached by messages, so it never sees an expected value.

The source under test is data here: its names are stand-ins that send a message for each call. Each assert statement
    counts for itself; one that fails does not end the others.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from typing import Any

from prefrl.sandbox.inside.values import decode, encode
from prefrl.sandbox.inside.worker import Channel


class RemoteError(Exception):
    """An exception that the submission raised."""


class Link:
    """Sends requests and waits for the answers."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def ask(self, operation: str, target: int | None, name: str, arguments: Any = (), keywords: Any = None) -> Any:
        """The decoded answer. Lists and dicts that the submission changed are changed here as well."""
        raw = [encode(item, _number) for item in arguments]
        named = {key: encode(item, _number) for key, item in (keywords or {}).items()}
        self.channel.send(["ask", operation, target, name, raw, named])
        answer = self.channel.receive()
        if answer is None:
            raise SystemExit
        if not answer[0]:
            raise _exception(*answer[1])
        for mine, before, after in zip(arguments, raw, answer[2], strict=True):
            if before != after:
                _adopt(mine, decode(after, self.remote))
        return decode(answer[1], self.remote)

    def remote(self, number: int, type_name: str) -> Remote:
        """A stand-in for a kept object."""
        return Remote(self, number, type_name)


class Remote:
    """A stand-in for a function of the submission (number None), or for an object that it keeps.

    Comparisons are not sent: what the submission says of equality is no evidence.
    """

    def __init__(self, link: Link, number: int | None, name: str) -> None:
        self._link, self._number, self._name = link, number, name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        name = self._name if self._number is None else ""
        return self._link.ask("call", self._number, name, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self._number is None:
            raise AttributeError(f"{self._name} has no attribute {name!r} here")
        return self._link.ask("get", self._number, name)

    def _method(self, name: str, *arguments: Any) -> Any:
        return self._link.ask("get", self._number, name)(*arguments)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._link.ask("items", self._number, ""))

    def __bool__(self) -> bool:
        return self._number is None or self._link.ask("truth", self._number, "")

    def __len__(self) -> int:
        return self._method("__len__")

    def __getitem__(self, key: Any) -> Any:
        return self._method("__getitem__", key)

    def __str__(self) -> str:
        return f"<{self._name}>" if self._number is None else str(self._method("__str__"))


class _Watch:
    """Context of one assert statement: counts, and keeps an exception to itself."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record

    def __enter__(self) -> None:
        self.record["ran"] = True

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None or isinstance(error, SystemExit):
            return False
        self.record["failed"] = True
        self.record["error"] = self.record["error"] or f"{type(error).__name__}: {str(error)[:200]}"
        return True


class _Guard(ast.NodeTransformer):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def visit_Assert(self, node: ast.Assert) -> ast.With:
        self.texts.append(ast.unparse(node)[:200])
        watch = ast.parse(f"__watch__({len(self.texts) - 1})", mode="eval").body
        return ast.copy_location(ast.With(items=[ast.withitem(context_expr=watch)], body=[node]), node)


def test(channel: Channel) -> None:
    """Run the order's `tests` after its `setup`; reports `["tested", [one record per assert], problem]`."""
    order = channel.receive()
    link, guard = Link(channel), _Guard()
    tree = ast.fix_missing_locations(guard.visit(ast.parse(order["tests"])))
    records = [{"text": text, "ran": False, "failed": False, "error": ""} for text in guard.texts]
    names: dict[str, Any] = {"__name__": "tests", "__watch__": lambda index: _Watch(records[index])}
    problem = ""
    try:
        exec(compile(order["setup"], "setup.py", "exec"), names)
        names |= {name: _stand_in(link, name) for name in _unknown(tree, names)}
        names |= {name: Remote(link, None, order["entry"]) for name in (order["entry"], "candidate")}
        exec(compile(tree, "tests.py", "exec"), names)
        if "check" in names and "check" not in _called(tree):
            names["check"](names["candidate"])
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:200]}"
    channel.send(["tested", records, problem])


def _unknown(tree: ast.Module, names: dict[str, Any]) -> set[str]:
    """Names that the tests use and nobody but the submission can have defined."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    made = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    made |= {
        alias.asname or alias.name
        for node in ast.walk(tree)
        for alias in getattr(node, "names", ())
        if isinstance(alias, ast.alias)
    }
    return used - made - set(names) - set(dir(builtins))


def _stand_in(link: Link, name: str) -> Any:
    """A module of Python that tests forgot to import, else a function of the submission."""
    return sys.modules[name] if name in sys.modules and name in sys.stdlib_module_names else Remote(link, None, name)


def _called(tree: ast.Module) -> set[str]:
    calls = (node.value for node in tree.body if isinstance(node, ast.Expr))
    return {node.func.id for node in calls if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def _number(value: Any) -> int:
    if isinstance(value, Remote) and value._number is not None:
        return value._number
    raise TypeError(f"a {type(value).__name__} cannot be handed to the submission")


def _exception(name: str, text: str) -> Exception:
    """The built-in exception of that name, for tests that expect one; RemoteError otherwise."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:  # one that wants other arguments
            return RemoteError(text)
    return RemoteError(text)


def _adopt(mine: Any, after: Any) -> None:
    if isinstance(mine, list) and isinstance(after, list):
        mine[:] = after
    elif isinstance(mine, dict | set) and isinstance(after, type(mine)):
        mine.clear()
        mine.update(after)
