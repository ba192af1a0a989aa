"""A solution as its steps: cut after separators, but not inside code or displayed mathematics."""

from __future__ import annotations

import re

from prefrl.errors import DataError

Span = tuple[int, int]

# What opens a passage that is never cut: a fence of code on a line of its own, an environment, a display.
_OPENER = re.compile(
    r"^[ \t]*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})[^\n]*$"
    r"|(?<!\\)\\begin\{(?P<environment>[^{}\n]+)\}"
    r"|(?<!\\)(?P<display>\\\[|\\\(|\$\$)",
    re.MULTILINE,
)
_ENDS = {r"\[": r"\]", r"\(": r"\)", "$$": "$$"}


def split_steps(text: str, separator: str = "\n\n") -> tuple[str, ...]:
    """Cut a text after its separators; `"".join` of the steps is the text again, character for character.

    A separator belongs to the step that it ends, several in a row too, and a blank piece to the step before it. None
    counts inside a fence of code (which runs to the end where it is never closed), between `\\begin{x}` and
    `\\end{x}`, or inside `$$`, `\\[` or `\\(`. A text of whitespace alone has no steps.

    Raises:
        DataError: the separator is empty.
    """
    if not separator:
        raise DataError('separator is empty; expected what stands between two steps, such as "\\n\\n" or "\\n".')
    whole = _protected(text)
    steps: list[str] = []
    start = at = 0
    while (found := text.find(separator, at)) >= 0:
        while whole and whole[0][1] <= found:
            whole.pop(0)
        at = found + len(separator)
        if whole and whole[0][0] < at and found < whole[0][1]:
            at = max(at, whole[0][1])
            continue
        _append(steps, text[start:at])
        start = at
    _append(steps, text[start:])
    if len(steps) > 1 and not steps[0].strip():
        steps[:2] = ["".join(steps[:2])]
    return tuple(steps) if text.strip() else ()


def _append(steps: list[str], piece: str) -> None:
    if steps and not piece.strip():
        steps[-1] += piece
    elif piece:
        steps.append(piece)


def _protected(text: str) -> list[Span]:
    """Where the passages lie that are never cut, in order; they do not overlap."""
    spans: list[Span] = []
    unclosed: set[str] = set()  # an opener without an end has none further on either
    at = 0
    while (opener := _OPENER.search(text, at)) is not None:
        name = opener["environment"] or opener["display"] or ""
        end = None if name in unclosed else _end(text, opener)
        if end is None:
            unclosed.add(name)
            at = opener.end()
        else:
            spans.append((opener.start(), end))
            at = max(end, opener.end())
    return spans


def _end(text: str, opener: re.Match[str]) -> int | None:
    """Where a passage ends; None where it never does."""
    if fence := opener["fence"]:
        closing = re.compile(rf"^[ \t]*{fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE).search(text, opener.end())
        return len(text) if closing is None else closing.end()
    if opener["display"]:
        found = text.find(_ENDS[opener["display"]], opener.end())
        return None if found < 0 else found + 2
    depth = 0
    for mark in re.compile(rf"\\(begin|end)\{{{re.escape(opener['environment'])}\}}").finditer(text, opener.start()):
        depth += 1 if mark[1] == "begin" else -1
        if depth == 0:
            return mark.end()
    return None
