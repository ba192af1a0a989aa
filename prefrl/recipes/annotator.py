"""A declared preference: an annotator whose taste is written down, so that what was learned can be checked.

utility(prompt, text) = .40 topic + .15 (direct + finished + length + plain)        in [0, 1]
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prefrl.errors import ConfigError, DataError
from prefrl.types import Completion, Pair, Prompt, Rollout

WEIGHTS: Mapping[str, float] = {"direct": 0.15, "topic": 0.4, "finished": 0.15, "length": 0.15, "plain": 0.15}
ENOUGH_KEYWORDS = 3
SHORTEST, LONGEST = 8, 30

DESCRIPTION = (
    "Simulated annotator, not a person. It prefers an answer that is on topic (touches three of the words "
    "listed for the question; weight .40), direct (no filler, talk about itself, question in return or mere "
    "echo; .15), finished (ends by itself, with a full stop; .15), of 8 to 30 words (.15) and plain (whole "
    "sentences without lists, letters to fill in, repetition or symbols; .15)."
)

_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
_FILLER = re.compile(
    r"(?:sure|certainly|absolutely|of course|hello|hi|hey|welcome)\b|(?:ah|oh|ugh|well|hmm|um)[,.!:]"
    r"|(?:(?:what|that(?:'s| is)) an? )?(?:great|good|excellent|wonderful) (?:question|choice|idea)\b"
    r"|thank(?:s| you) for (?:asking|your|reaching|the)\b|let me\b|when it comes to\b"
    r"|(?:while )?i(?:'m| am) (?:(?:always|so|very|just) )?(?:happy|here|ready|excited|delighted|an?)\b"
    r"|i(?:'m| am) (?:glad|sorry),? (?:but|you asked|to hear|i|for (?:any|the|this))\b"
    r"|i(?:'d| would) (?:be|love)\b|i can (?:help|assist)\b|there(?:'s| is) no one-size\b"
    r"|here(?:'s| is| are) (?:an?|some|the|my|your|\w+ (?:tips|ways|steps))\b"
)
_SELF = re.compile(r"\b(?:as|i'm|i am) (?:an? )?(?:[\w-]+ ){0,2}(?:ai|assistant|chatbot|language model)\b")
_LIST = re.compile(r"^\s*(?:[-*\u2022]|#{1,6}|\(?\d{1,2}[.):])[\s*]|\*\*", re.MULTILINE)
_LETTER = re.compile(r"\A\W*(?:(?:dear|hi|hello) [^.!?\n]{0,40}\n|subject:)|\[[^\]\n]*(?:\]|\Z)|[{<]\w", re.I)
_CLOSED = re.compile(r"[.!?][\"')\]]*\Z")
_STOP = frozenset(re.findall(
    r"\w+",
    "a about all also an and any are as at be because been but by can do does for from has have how i if "
    "in into is it its just like may more most my no not of on one or other our should so some such than "
    "that the their them then there these they this to up use was we what when where which while who why "
    "will with would you your",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAnnotator:
    """Compares two answers by a utility that anyone can read.

    noise      probability that a label is flipped, 0 <= noise < 0.5
    tolerance  utilities at most this far apart are a tie, which gets no label
    """

    noise: float = 0.05
    tolerance: float = 0.03

    def __post_init__(self) -> None:
        for name, value, limit in (("noise", self.noise, 0.5), ("tolerance", self.tolerance, 1.0)):
            if not 0.0 <= value < limit:
                raise ConfigError(f"{name} is {value}; expected 0 <= {name} < {limit:g}, such as 0.02.")

    @property
    def description(self) -> str:
        """`DESCRIPTION` with tolerance and noise, for reports."""
        ties = f"Utilities within {self.tolerance:g} of each other are ties and get no label"
        return f"{DESCRIPTION} {ties}; {self.noise:.0%} of the labels are flipped at random."

    def parts(self, prompt: Prompt, text: str, *, finished: bool) -> dict[str, float]:
        """The five components of the utility, each in [0, 1]; `finished` is False for a cut-off text.

        Raises:
            DataError: the prompt has no `keywords`.
        """
        text = text.strip().translate(_QUOTES)
        words = _words(text)
        touched = sum(any(word.startswith(keyword) for word in words) for keyword in _keywords(prompt))
        count = len(text.split())
        return {
            "direct": float(_direct(prompt.question, text.lower(), words)),
            "topic": min(1.0, touched / ENOUGH_KEYWORDS),
            "finished": (1.0 if _CLOSED.search(text) else 0.5) if finished and words else 0.0,
            "length": min(1.0, (count / SHORTEST) ** 2, LONGEST / max(count, 1)),
            "plain": max(0.0, 1.0 - 0.5 * _faults(text, words)),
        }

    def utility(self, prompt: Prompt, text: str, *, finished: bool) -> float:
        """Weighted sum of the parts, in [0, 1]."""
        parts = self.parts(prompt, text, finished=finished)
        return sum(weight * parts[name] for name, weight in WEIGHTS.items())

    def prefer(self, prompt: Prompt, a: Rollout, b: Rollout) -> float:
        """1 when `a` is better, 0 when `b` is, 0.5 for a tie; without noise."""
        left, right = (self.utility(prompt, side.text, finished=side.terminated) for side in (a, b))
        return 0.5 if abs(left - right) <= self.tolerance else float(left > right)

    def label(self, prompt: Prompt, a: Rollout, b: Rollout, rng: random.Random) -> Pair | None:
        """The pair as this annotator labels it, flipped with probability `noise`; None for a tie."""
        outcome = self.prefer(prompt, a, b)
        if outcome == 0.5:
            return None
        flipped = rng.random() < self.noise
        chosen, rejected = (a, b) if (outcome == 1.0) != flipped else (b, a)
        return Pair(prompt=prompt, chosen=_completion(chosen), rejected=_completion(rejected))


def _completion(side: Rollout) -> Completion:
    return Completion(text=side.text, ids=side.completion_ids, logps=side.logps, finished=side.terminated)


def _keywords(prompt: Prompt) -> Sequence[str]:
    keywords = prompt.columns.get("keywords")
    if isinstance(keywords, str) or not isinstance(keywords, Sequence) or not keywords:
        raise DataError(
            f"prompt {prompt.id!r}: the column 'keywords' is {keywords!r}; expected a list of lower-case "
            f'word starts. Type "keywords": ["rice", "fry", "egg"].'
        )
    return keywords


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.lower())


def _direct(question: str, text: str, words: Sequence[str]) -> bool:
    asks_back = "?" in re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0] or text.endswith("?")
    echo = set(words) <= _STOP.union(_words(question))
    return not (asks_back or echo or _FILLER.match(text) or _SELF.search(text))


def _faults(text: str, words: Sequence[str]) -> int:
    """Number of ways in which a text is not plain."""
    triples = list(zip(words, words[1:], words[2:], strict=False))
    sentences = [s for s in re.split(r"[.!?\n]+\s*", text.lower()) if s]
    doubled = any(a == b for a, b in pairwise(words))
    faults = (
        _LIST.search(text),
        _LETTER.search(text),
        doubled or len(set(triples)) < len(triples) or len(set(sentences)) < len(sentences),
        text.count("\n") > 1,
        any(unicodedata.category(character) in ("So", "Cn", "Co") for character in text),
        6 * sum(word in _STOP for word in words) < len(words),  # words in a row are no sentence
    )
    return sum(map(bool, faults))
