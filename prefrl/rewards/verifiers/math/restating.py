"""Answers that only say the question again."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPACING = re.compile(r"\s+|\\[,;:! ]|\\(?:left|right|displaystyle|limits)\b|[$]")
_WORK = re.compile(
    r"[-+*/^=!|_]|\\(?:[dt]?frac|sqrt|cdot|times|div|sum|prod|int|log|ln|sin|cos|tan|[dt]?binom|lceil|lfloor|overline)\b"
)
_VALUE = re.compile(r"[-+]?[0-9.,]+(?:/[0-9]+)?%?|[-+]?\\[dt]?frac\{[0-9]+\}\{[0-9]+\}|[-+]?\\[dt]?frac[0-9]{2}")


def restates(answers: Iterable[str], golds: Iterable[str], question: str) -> bool:
    """Whether a final answer stands in the question word for word, with work still to do in it.

    An unevaluated expression equals its value, so that by value alone the question would be its own answer. A plain
    number or fraction is none of these, for a question may offer it as a choice; nor is an expression that is a gold
    answer as it stands ("which of these is a square?").
    """
    asked = _bare(question)
    accepted = {_bare(gold) for gold in golds}
    told = (_bare(answer).rstrip("=?.:") for answer in answers)
    return any(
        answer in asked and _WORK.search(answer) and not _VALUE.fullmatch(answer) and answer not in accepted
        for answer in told
        if answer
    )


def _bare(text: str) -> str:
    return _SPACING.sub("", text)
