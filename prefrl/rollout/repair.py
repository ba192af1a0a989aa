"""Repairing a file over several turns, with one tool a turn.

    <read/>                  shows the file
    <edit>NEW FILE</edit>    puts a whole new file in its place
    <test/>                  runs the visible tests in the sandbox and shows what failed
    <done/>                  ends the episode

A turn that holds no tool, several, one that does not exist, or an edit without an end is told so, and changes nothing.
Tools in what was thought before the answer (`<think>...</think>`) do not count. Fences around a whole new file are left
out. When the episode ends, by <done/> or because its turns are used up, all tests judge the file as it is then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from prefrl.errors import DataError, did_you_mean
from prefrl.rollout.environments import Reply
from prefrl.sandbox import Limits, Sandbox, SandboxError, shared
from prefrl.sandbox.cases import CaseFault, Tests, read_tests
from prefrl.sandbox.compare import Same
from prefrl.sandbox.judging import Tally, judge_calls
from prefrl.types import Prompt

SHOWN = 3  # failures of a test run that are shown; the others are counted
HOW = (
    "Use one tool: <read/> to see the file, <edit>NEW FILE</edit> to replace it, <test/> to run the visible tests, or "
    "<done/> to finish."
)
_CALL = re.compile(r"<edit>(.*?)</edit>|<(\w+)\s*/>", re.DOTALL)
_FENCE = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)


class Call(NamedTuple):
    """One use of a tool: read, edit (with the new file), test or done."""

    tool: str
    file: str = ""


def read_call(action: str) -> Call | str:
    """The one tool that a turn uses, or what is wrong with the turn, in words for the policy."""
    before, thought, after = action.partition("</think>")
    said = after if thought else before
    if said.lstrip().startswith("<think>"):  # cut off while it thought
        said = ""
    calls = [(found[1], found[2] or "edit") for found in _CALL.finditer(said)]
    if re.search(r"</?edit>", _CALL.sub("", said)):
        return f"An edit begins with <edit> and ends with </edit>; one of them is missing. {HOW}"
    if not calls:
        return f"There is no tool in this turn. {HOW}"
    if len(calls) > 1:
        names = ", ".join(name for _, name in calls)
        return f"There are {len(calls)} tools in this turn ({names}); none was used. {HOW}"
    file, name = calls[0]
    if file is not None:
        fenced = _FENCE.fullmatch(file)
        return Call("edit", (fenced[1] if fenced else file).strip("\n") + "\n")
    if name not in ("read", "test", "done"):
        return f"There is no tool <{name}/>. {HOW}"
    return Call(name)


class Repair:
    """The environment; the prompt itself explains the task and the tools.

    Columns of a prompt: `file`, the Python source to repair; `visible` and `cases`, the tests that are shown and all of
    them, as the reward `code` reads them; `entry_point`, the name of the function that they call.

    Args:
        seconds: for one run of the tests.
        memory: MiB.
        sandbox: a `Sandbox`, or its settings, such as {floor: D}.

    Raises:
        SandboxError: the machine offers less than the sandbox's floor.
    """

    version = "1"

    def __init__(
        self, *, seconds: float = 2.0, memory: int = 512, sandbox: Sandbox | Mapping[str, Any] | None = None
    ) -> None:
        self.sandbox = sandbox if isinstance(sandbox, Sandbox) else shared(sandbox)
        self.limits = Limits(seconds=seconds, memory=memory << 20)

    def reset(self, prompt: Prompt) -> str:
        """Lay out the file.

        Raises:
            DataError: a column is missing, or cannot be read.
        """
        self.file = str(_column(prompt, "file"))
        self.visible, self.hidden = _tests(prompt, "visible"), _tests(prompt, "cases")
        self.counts = {"turns": 0, "edits": 0, "tests": 0, "malformed": 0}
        self.answer = "{}" if prompt.messages is not None else "\n{}\n"
        return ""

    def step(self, action: str) -> Reply:
        """Use the tool of a turn.

        Raises:
            RuntimeError: the sandbox failed; that is no fault of the policy's, and the episode has no result.
        """
        self.counts["turns"] += 1
        call = read_call(action)
        if isinstance(call, str):
            self.counts["malformed"] += 1
            return self._reply(call)
        if call.tool == "edit":
            self.counts["edits"] += 1
            self.file = call.file
            return self._reply(f"The file has {len(call.file.splitlines())} lines now.")
        if call.tool == "test":
            self.counts["tests"] += 1
            return self._reply(_told(self._run(self.visible)))
        return self._reply(self.file) if call.tool == "read" else Reply("", ended=True)

    def report(self) -> Mapping[str, Any]:
        """What all tests say of the file now, and what was done.

        `success`, 1 when all of them pass; `fraction`, how many do; `tampered`, 1 when the file wrote answers to
        questions that nobody asked, and so passes none; `turns`, `edits`, `tests` and `malformed` turns.

        Raises:
            RuntimeError: as `step`.
        """
        tally = self._run(self.hidden)
        share = sum(tally.passed) / len(tally.passed)
        return {"success": float(share == 1.0), "fraction": share, "tampered": float(tally.tampered), **self.counts}

    def _reply(self, text: str) -> Reply:
        return Reply(self.answer.format(text))

    def _run(self, tests: Tests) -> Tally:
        try:
            with self.sandbox.session(self.limits) as session:
                tally, _ = judge_calls(session, self.file, tests, "", Same())
        except SandboxError as error:  # as another kind of error, it ends this episode and not the run
            raise RuntimeError(f"the sandbox failed: {error}") from error
        if tally.stopped == "starved":
            raise RuntimeError("the machine was too busy to run the file in time")
        return tally


def _told(tally: Tally) -> str:
    """What a run of the visible tests showed."""
    passed, total = sum(tally.passed), len(tally.passed)
    if passed == total:
        return f"All {total} visible tests pass."
    more = [f"- and {len(tally.notes) - SHOWN} more"] if len(tally.notes) > SHOWN else []
    lines = [f"- {note}" for note in tally.notes[:SHOWN]]
    return "\n".join([f"{total - passed} of {total} visible tests failed:", *lines, *more])


def _column(prompt: Prompt, name: str) -> Any:
    if name not in prompt.columns:
        raise DataError(
            f"Prompt {prompt.id!r} has no column {name!r}; the environment 'repair' needs file, visible, cases and "
            f"entry_point. Its columns: {', '.join(prompt.columns) or 'none'}.{did_you_mean(name, prompt.columns)}"
        )
    return prompt.columns[name]


def _tests(prompt: Prompt, name: str) -> Tests:
    try:
        return read_tests(_column(prompt, name), str(_column(prompt, "entry_point")))
    except CaseFault as fault:
        raise DataError(f"Prompt {prompt.id!r}, column {name!r}: {fault}") from None
