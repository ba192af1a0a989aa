"""One submission in one process: loads it, then answers calls, or runs it as a program.

Nothing here is trusted once the submission has begun to run: it shares the interpreter and can write to the channel
itself. All that it can achieve is to give other answers, and answers are judged outside.
"""

from __future__ import annotations

import ast
import itertools
import os
import sys
import types
from collections.abc import Callable
from typing import Any, BinaryIO

from prefrl.sandbox.inside.flags import branches, constants, static_flags
from prefrl.sandbox.inside.values import decode, encode, read_line, write_line

ITEMS = 100_000  # that are taken of an iterator at most


class Channel:
    """Lines of JSON over a socket."""

    def __init__(self, number: int) -> None:
        self.reader: BinaryIO = os.fdopen(number, "rb", buffering=1 << 16, closefd=False)
        self.number = number

    def receive(self) -> Any:
        """The next message; None at the end."""
        line = self.reader.readline()
        return read_line(line) if line else None

    def send(self, message: Any) -> None:
        """Write one message in full."""
        data = memoryview(write_line(message))
        while data:
            data = data[os.write(self.number, data) :]


def solve(channel: Channel) -> None:
    """Load the submission, then answer `[id, operation, target, name, arguments, keywords]` until the channel closes.

    Operations: `call` a name of the module (target None) or a kept object itself (name ""), `get` an attribute of a
    kept object, `items` and `truth` of one. Answers: `[id, True, value, arguments after the call]` or `[id, False,
    [exception, text]]`.
    """
    order = channel.receive()
    tree = _hello(channel, order["code"])
    if tree is None:
        return
    module = _module("submission")
    problem = _problem(lambda: exec(compile(tree, "submission.py", "exec"), module.__dict__))
    channel.send(["loaded", problem])
    kept: dict[int, Any] = {}
    while problem is None and (request := channel.receive()) is not None:
        channel.send(_answer(request, module.__dict__, kept))


def run(channel: Channel) -> None:
    """Run the submission as the main program on the standard streams; reports how it ended."""
    order = channel.receive()
    tree = _hello(channel, order["code"])
    if tree is None:
        return
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False) for number, mode in enumerate("rww")
    )
    sys.argv = ["program.py"]
    module = _module("__main__")
    problem = _problem(lambda: exec(compile(tree, "program.py", "exec"), module.__dict__))
    problem = _problem(sys.stdout.flush) or problem
    channel.send(["ended", problem])


def _hello(channel: Channel, code: str) -> ast.Module | None:
    """Say what the text looks like, before any of it runs; None when it is no Python."""
    try:
        tree = ast.parse(code)
        compile(tree, "submission.py", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        channel.send(["hello", {"syntax": _described(error)}])
        return None
    seen = {"flags": static_flags(tree), "constants": constants(tree), "branches": branches(tree)}
    channel.send(["hello", {"syntax": None, **seen}])
    return tree


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module


def _problem(action: Callable[[], object]) -> list[str] | None:
    """What `action` raised, as the name and the text of the exception; None when it did not, or left with status 0."""
    try:
        action()
    except SystemExit as leave:
        return None if leave.code in (None, 0) else ["SystemExit", f"SystemExit: {leave.code}"[:300]]
    except BaseException as error:
        return [type(error).__name__, _described(error)]
    return None


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = "(its text cannot be made)"
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    line = (
        f" (line {where.tb_lineno})" if where is not None and "submission" in where.tb_frame.f_code.co_filename else ""
    )
    return f"{type(error).__name__}: {text[:300]}{line}"


def _answer(request: Any, names: dict[str, Any], kept: dict[int, Any]) -> list[Any]:
    ident, operation, target, name, raw, keywords = request
    arguments: list[Any] = []
    result: list[Any] = []

    def keep(value: Any) -> int:
        kept[len(kept)] = value
        return len(kept) - 1

    def find(number: int, _: str) -> Any:
        return kept[number]

    def act() -> None:
        arguments.extend(decode(item, find) for item in raw)
        value = _value(operation, None if target is None else kept[target], name, names)
        if operation == "call":
            value = value(*arguments, **{key: decode(item, find) for key, item in keywords.items()})
        result.extend((encode(value, keep), [encode(item, keep) for item in arguments]))

    problem = _problem(act)
    if problem is None and not result:
        problem = ["SystemExit", "SystemExit: 0"]
    return [ident, True, *result] if problem is None else [ident, False, problem]


def _value(operation: str, target: Any, name: str, names: dict[str, Any]) -> Any:
    if operation == "items":
        return list(itertools.islice(target, ITEMS))
    if operation == "truth":
        return bool(target)
    if target is not None:
        return getattr(target, name) if name else target
    if name not in names:
        raise NameError(f"the submission does not define {name!r}")
    return names[name]
