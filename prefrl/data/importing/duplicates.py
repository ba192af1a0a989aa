"""Texts that are nearly the same, found among many without comparing each with each."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

_WORDS, _LETTERS = 3, 8  # of a shingle: words, or letters where a text has few words
_SHARED = 2 / 3  # Jaccard similarity from which on two sets of shingles meet among their rarest
_MOST_CANDIDATES = 20  # of one text, those that share most of its rare shingles
_COMPARED = 5_000  # characters
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+")


def near_duplicates(texts: Sequence[str], similarity: float = 0.9) -> dict[int, int]:
    """For every text that is much like an earlier one, the index of that one.

    Two texts are compared (`rapidfuzz` ratio) where they share one of the rarest third of their shingles, as any two do
    whose sets of shingles have a Jaccard similarity of 2/3 or more. Texts whose numbers differ are different questions.
    Neither case nor spaces count; equal texts are near duplicates too.

    Args:
        texts: what to compare.
        similarity: share of equal characters from which on two texts are alike, in (0, 1).
    """
    from rapidfuzz import fuzz

    texts = [" ".join(text.lower().split()) for text in texts]
    shingled = [_shingles(text) for text in texts]
    counts = Counter(shingle for shingles in shingled for shingle in shingles)
    holders: dict[int, list[int]] = {}
    found: dict[int, int] = {}
    for index, shingles in enumerate(shingled):
        rare = sorted(shingles, key=lambda shingle: (counts[shingle], shingle))
        rare = rare[: len(rare) - math.ceil(_SHARED * len(rare)) + 1]
        shared = Counter(other for shingle in rare for other in holders.get(shingle, ())[-_MOST_CANDIDATES:])
        for other, _ in shared.most_common(_MOST_CANDIDATES):
            if _NUMBER.findall(texts[index]) != _NUMBER.findall(texts[other]):
                continue
            sides = texts[index][:_COMPARED], texts[other][:_COMPARED]
            if fuzz.ratio(*sides, score_cutoff=100.0 * similarity):
                found[index] = other
                break
        for shingle in rare:
            holders.setdefault(shingle, []).append(index)
    return found


def _shingles(text: str) -> set[int]:
    words = _WORD.findall(text)
    if len(words) >= 4 * _WORDS:
        return {crc32(" ".join(words[i : i + _WORDS]).encode("utf-8", "surrogatepass")) for i in range(len(words) - 2)}
    letters = " ".join(words)
    return {
        crc32(letters[i : i + _LETTERS].encode("utf-8", "surrogatepass"))
        for i in range(max(1, len(letters) - _LETTERS + 1))
    }
