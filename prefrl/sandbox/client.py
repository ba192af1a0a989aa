"""Talking to submissions: what is sent in, what may come back, and when the conversation is over."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from prefrl.sandbox.inside.values import Opaque, ValueFault, decode, encode
from prefrl.sandbox.slot import Child, Limits, SandboxError, Slot, Stopped

GRACE = 1.0  # seconds in which a program whose streams are closed may end


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call came to: `value` and the `arguments` after the call where `ok`, else the `error`'s text.

    raised  name of the exception that the submission raised, empty when it did not answer at all
    """

    ok: bool
    value: Any = None
    arguments: tuple[Any, ...] = ()
    raised: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the text of a submission shows: no Python (`syntax` says why), flags, literals, and literal branches."""

    syntax: str = ""
    flags: tuple[str, ...] = ()
    constants: tuple[Any, ...] = ()
    branches: tuple[tuple[Any, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A program's run: its streams, and why it did not end well (empty when it did)."""

    output: str
    errors: str
    problem: str
    stopped: str  # as `Stopped.why`, empty when the program ended by itself
    look: Look


class Submission:
    """A loaded submission that answers calls, one at a time.

    problem   why it cannot be called: no Python, or an exception while it loaded; empty otherwise
    stopped   as `Stopped.why` once it gives no more answers
    tampered  it wrote what nobody had asked for: another id, a second answer, or no answer in form
    """

    def __init__(self, child: Child, code: str) -> None:
        self.child, self.problem, self.stopped, self.tampered = child, "", "", False
        self.look = Look()
        try:
            child.send({"code": code})
            self.look = _look(child.receive())
            self.problem = self.look.syntax or _text(_expect(child.receive(), "loaded"))
        except Stopped as stop:
            self._stop(stop)

    def ask(self, operation: str, target: int | None, name: str, raw: Sequence[Any], keywords: Any) -> list[Any]:
        """One request in the form of the wire: `[ok, value, arguments]` or `[False, [exception, text]]`.

        After it has stopped, every request is answered with why.
        """
        if self.problem:
            return [False, ["", self.problem]]
        ident = secrets.token_hex(8)
        try:
            self.child.send([ident, operation, target, name, raw, keywords])
            answer = self.child.receive()
            if not isinstance(answer, list) or len(answer) < 3 or answer[0] != ident or not _formed(answer[1:]):
                raise Stopped("garbled", "an answer that nobody asked for")
        except Stopped as stop:
            self._stop(stop)
            return [False, ["", self.problem]]
        return answer[1:]

    def call(self, name: str, arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None) -> Answer:
        """Call a function of the submission with plain data."""
        return self.call_on(None, name, arguments, keywords)

    def call_on(
        self, target: int | None, name: str, arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None
    ) -> Answer:
        """Call a method of an object that the submission keeps, by its number (`Opaque.number`)."""
        raw = [encode(item) for item in arguments]
        if target is not None:
            got = _answer(self.ask("get", target, name, [], {}))
            if not isinstance(got.value, Opaque):
                return Answer(ok=False, raised=got.raised, error=got.error or f"{name} cannot be called")
            target, name = got.value.number, ""
        return _answer(self.ask("call", target, name, raw, {k: encode(v) for k, v in (keywords or {}).items()}))

    def close(self) -> None:
        """End the conversation; sets `tampered` when there was more to read than was asked for."""
        if not self.stopped and self.child.leftovers():
            self.tampered = True
        self.child.finish()

    def _stop(self, stop: Stopped) -> None:
        self.stopped, self.problem = stop.why, str(stop)
        self.tampered = self.tampered or stop.why == "garbled"


@dataclass(slots=True)
class Session:
    """Everything that runs in one slot for one submission; nothing of it is left when the context ends."""

    slot: Slot
    limits: Limits
    children: list[Child] = field(default_factory=list)
    sound: bool = False  # the slot can be used again
    cost: float = 0.0  # seconds of processor time

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for child in self.children:
                child.finish()
                self.cost += child.cpu
            if self.limits.processes or self.slot.setup.disk or self.slot.setup.level == "B":
                self.slot.clear()
        except SandboxError:
            self.sound = False
            if kind is None:
                raise
        else:
            self.sound = kind is None or issubclass(kind, Stopped)

    def submission(self, code: str) -> Submission:
        """Load a submission in a process of its own."""
        return Submission(self._child("solve"), code)

    def program(self, code: str, stdin: str) -> Run:
        """Run a submission as a program, in a process of its own."""
        return _run(self, code, stdin)

    def tests(self, submission: Submission, tests: str, setup: str, entry: str) -> tuple[list[dict[str, Any]], str]:
        """Run assertions in a second process that reaches the submission through this one.

        Returns:
            For every assert statement whether it ran, whether it failed, its text and its first error; and what ended
            the tests early, if anything did.

        Raises:
            Stopped: the tests, not the submission, took too long or were not in form.
        """
        child = self._child("test")
        child.send({"tests": tests, "setup": setup, "entry": entry})
        while (message := child.receive())[0] == "ask":
            child.send(submission.ask(*message[1:]))
        return message[1], message[2]

    def _child(self, mode: str, streams: Sequence[int] = ()) -> Child:
        child = self.slot.fork(mode, self.limits, streams)
        self.children.append(child)
        return child


def _run(session: Session, code: str, stdin: str) -> Run:
    out, theirs_out = os.pipe()
    err, theirs_err = os.pipe()
    with tempfile.TemporaryFile() as given:
        given.write(stdin.encode())
        given.seek(0)
        try:
            child = session._child("run", (given.fileno(), theirs_out, theirs_err))
        except BaseException:
            _close(out, err)
            raise
        finally:
            _close(theirs_out, theirs_err)
    streams: dict[int, list[bytes]] = {out: [], err: []}
    stopped, problem, look = "", "", Look()
    try:
        child.send({"code": code})
        look = _look(child.receive())
        problem = look.syntax or _follow(child, streams)
    except Stopped as stop:
        stopped, problem = stop.why, str(stop)
    child.finish(0.0 if stopped else GRACE)
    problem = problem or ("" if child.code == 0 else f"it ended with status {child.code}")
    texts = [b"".join(parts).decode(errors="replace") for parts in streams.values()]
    _close(*streams)
    return Run(output=texts[0], errors=texts[1], problem=problem, stopped=stopped, look=look)


def _close(*numbers: int) -> None:
    for number in numbers:
        os.close(number)


def _follow(child: Child, streams: dict[int, list[bytes]]) -> str:
    """Collect both streams until they are closed, or the program is gone; what it said of its end."""
    open_streams = set(streams)
    watched = {child.handle} if child.handle is not None else set()
    while open_streams:
        numbers = child.ready([*open_streams, *watched])
        for number in open_streams & set(numbers):
            part = child.take(number)
            streams[number].append(part)
            if not part:
                open_streams.discard(number)
        if not open_streams & set(numbers):
            break  # only its end: whoever still holds the streams is a stranger
    try:
        return _text(_expect(child.receive(), "ended"))
    except Stopped as stop:
        if stop.why != "ended":
            raise
        return ""  # it left by itself, and its status says how


def _look(message: Any) -> Look:
    seen = _expect(message, "hello")
    try:
        if seen["syntax"] is not None:
            return Look(syntax=str(seen["syntax"]))
        return Look(
            flags=tuple(map(str, seen["flags"])),
            constants=tuple(decode(item) for item in seen["constants"]),
            branches=tuple((decode(a), decode(b)) for a, b in seen["branches"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Stopped("garbled", str(error)[:300]) from None


def _expect(message: Any, word: str) -> Any:
    if not isinstance(message, list) or len(message) != 2 or message[0] != word:
        raise Stopped("garbled", f"something else than {word!r}")
    return message[1]


def _formed(answer: list[Any]) -> bool:
    if answer[0] is True:
        return len(answer) == 3 and isinstance(answer[2], list)
    error = answer[1]
    return answer[0] is False and isinstance(error, list) and len(error) == 2 and all(isinstance(e, str) for e in error)


def _answer(said: list[Any]) -> Answer:
    if not said[0]:
        return Answer(ok=False, raised=said[1][0], error=said[1][1] or said[1][0])
    with suppress(ValueFault):
        return Answer(ok=True, value=decode(said[1]), arguments=tuple(decode(item) for item in said[2]))
    return Answer(ok=False, error="a value that no submission of ours sends")


def _text(problem: Any) -> str:
    if problem is None:
        return ""
    return str(problem[1])[:500] if isinstance(problem, list) and len(problem) == 2 else "garbled"
