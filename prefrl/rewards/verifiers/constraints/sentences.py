"""Words and sentences of a text by simple, fixed rules, so that counts are the same everywhere."""

from __future__ import annotations

import re

_TITLES = r"(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Inc|Ltd|Co|vs|etc|e\.g|i\.e|No|Fig|U\.S|U\.K|a\.m|p\.m)"
_DOT = "\u2024"  # stands for a full stop that ends no sentence
_PROTECTED = (
    re.compile(rf"\b{_TITLES}\.(?=\s+\S)"),  # an abbreviation before another word
    re.compile(r"(?<=\d)\.(?=\d)"),  # a decimal point
    re.compile(r"\b[A-Z]\.(?=\s?[A-Z])"),  # an initial
    re.compile(r"(?<=\w)\.(?=\w)"),  # an address on the web
    re.compile(r"(?m)^[^\S\n]*\d+\.(?=\s)"),  # the number of a list item
)
_END = re.compile(r"(?:[.!?]+[\"'\u201d\u2019)\]]*|[\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964]+)(?:\s+|$)?|\n\s*\n")
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019][^\W_]+)*")


def split_words(text: str) -> list[str]:
    """Runs of letters, digits and underscores, as IFEval counts words."""
    return re.findall(r"\w+", text)


def tokens(text: str) -> list[str]:
    """Words of a text; hyphens and apostrophes inside a word belong to it."""
    return _TOKEN.findall(text)


def count_sentences(text: str) -> int:
    """Number of sentences: parts that hold a letter or a digit, parted by an end mark or an empty line."""
    for pattern in _PROTECTED:
        text = pattern.sub(lambda found: found[0].replace(".", _DOT), text)
    return sum(any(character.isalnum() for character in part) for part in _END.split(text))
