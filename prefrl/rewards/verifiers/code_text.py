"""The code in a completion."""

from __future__ import annotations

import re
from collections.abc import Sequence

PYTHON = ("", "python", "python3", "py")
_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n]*$", re.MULTILINE)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, code) of the fenced blocks of a Markdown text; one without an end reaches to the end of the text.

    As CommonMark has it: a block ends at a fence of the same character that is at least as long as the one that began
        it.
    """
    found, start = [], 0
    while opening := _FENCE.search(text, start):
        fence = opening["fence"]
        closing = re.compile(rf"^ {{0,3}}{fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE).search(text, opening.end())
        end = closing.start() if closing else len(text)
        found.append((opening["language"].lower(), text[opening.end() + 1 : end]))
        start = closing.end() if closing else len(text)
    return found


def extract_code(text: str, names: Sequence[str] = ()) -> str | None:
    """The program in a completion; None when there is none.

    The last fenced block of Python that defines one of `names`, else the last one; the whole text when it has no
    fences. What was thought before the answer (`<think>...</think>`) is left out, and thought without an end is no
    answer.
    """
    answer = _THOUGHT.sub("", text)
    if answer.lstrip().startswith("<think>"):
        return None
    fenced = blocks(answer)
    python = [code for language, code in fenced if language in PYTHON and code.strip()]
    if not fenced:
        return answer if answer.strip() else None
    if not python:
        return None
    defines = [code for code in python if any(_defines(code, name) for name in names)]
    return (defines or python)[-1]


def _defines(code: str, name: str) -> bool:
    return (
        re.search(rf"^\s*((async\s+)?def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*=", code, re.MULTILINE)
        is not None
    )
