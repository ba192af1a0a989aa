"""Lists of answers: where one ends and the next begins."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\begin\{|\\end\{|\\[{}]|\\langle|\\rangle|[(){}\[\]]|[,;]|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<![0-9])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_OPEN = {r"\{", r"\langle", "(", "{", "[", r"\begin{"}
_CLOSE = {r"\}", r"\rangle", ")", "}", "]", r"\end{"}


def split(text: str, *, numbers: bool = True) -> tuple[list[str], str]:
    """The parts of a list outside all brackets, and what joins them: a comma, `and` or `or`.

    Args:
        numbers: a comma before three digits belongs to a number, 1,234.
    """
    grouped = [m.span() for m in _THOUSANDS.finditer(text)] if numbers and "," in text else []
    parts, joins, depth, start = [], set(), 0, 0
    for match in _TOKEN.finditer(text):
        token, at = match[0], match.start()
        if token in _OPEN or token in _CLOSE:
            depth += 1 if token in _OPEN else -1
        elif depth == 0 and not any(low <= at < high for low, high in grouped):
            parts.append(text[start:at].strip())
            joins.add(token.replace(";", ","))
            start = match.end()
    parts.append(text[start:].strip())
    found = [part for part in parts if part and part not in ("either", "both")]
    return found, next((word for word in ("or", "and", ",") if word in joins), "")


def closes(text: str) -> bool:
    """Whether the bracket that a text starts with is closed by its last one, and not before."""
    depth, end = 0, -1
    for match in _TOKEN.finditer(text):
        if match[0] in _OPEN or match[0] in _CLOSE:
            depth += 1 if match[0] in _OPEN else -1
            if depth == 0:
                end = match.end()
                break
    return depth == 0 and end == len(text)
