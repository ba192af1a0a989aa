"""How a text is written: its repetitions and its language."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers.common import Verifier, gold_of
from prefrl.rewards.verifiers.constraints.languages import is_language
from prefrl.rewards.verifiers.verdict import Status, Verdict, graded
from prefrl.types import Rollout

# Scripts without spaces: a character is a word. Elsewhere a vowel sign or an accent belongs to its letter.
_WIDE = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_MARKS = (
    r"\u0300-\u036f\u0591-\u05c7\u064b-\u0670\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09d7"
    r"\u0a3c-\u0a51\u0b82-\u0d4d"
)
_WORD = re.compile(rf"[{_WIDE}]|(?:[^\W{_WIDE}]|[{_MARKS}])+")
_ASCII = {code: chr(code).lower() if re.match(r"\w", chr(code)) else " " for code in range(128)}


def words_of(text: str) -> list[str]:
    """The words of a text in small letters; a character of a script without spaces is one."""
    if text.isascii():
        return text.translate(_ASCII).split()
    return _WORD.findall(text.casefold())


def repeated_share(text: str, n: int) -> float:
    """Share of the n-grams of words that occurred before; 0 for a text of fewer than n words."""
    return repeated(words_of(text), n)


def repeated(words: Sequence[str], n: int) -> float:
    """The same of a text whose words are known."""
    grams = list(zip(*(words[i:] for i in range(n)), strict=False))
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def repetition(n: int = 3, *, free: float = 0.0) -> Verifier:
    """Minus the share of repeated n-grams of words beyond a free share: 0 for none, -1 for nothing else.

    `-max(0, share - free) / (1 - free)`; the penalty of Yeo et al. 2025 (arXiv:2502.03373) at free = 0.

    Args:
        n: words of an n-gram.
        free: share that costs nothing, as good texts repeat some.

    Parts: `repeated`, the share.

    Raises:
        ConfigError: n below 1, or a free share outside [0, 1).
    """
    if n < 1 or not 0.0 <= free < 1.0:
        raise ConfigError(f"repetition: n={n}, free={free}; expected n of 1 or more, and a share in [0, 1)")

    def check(rollout: Rollout) -> Verdict:
        share = repeated_share(rollout.text, n)
        score = -max(0.0, share - free) / (1.0 - free)
        return Verdict(status=Status.OK, score=score, parts={"repeated": share})

    return Verifier("repetition", check)


def language(code: str | None = None, *, column: str | None = None) -> Verifier:
    """1 when the completion is in a language, 0 otherwise and for a text without letters.

    Args:
        code: ISO 639-1 code, such as `en`, the same for every prompt; or
        column: dataset column with the code.

    Raises:
        ConfigError: both or neither of them.
        RewardError: an unknown code.
    """
    if (code is None) == (column is None):
        raise ConfigError(f"language: code={code!r}, column={column!r}; give exactly one, such as code: en")
    if code is not None:
        is_language("a", code)  # an unknown code is told at once

    def check(rollout: Rollout) -> Verdict:
        wanted = code if column is None else str(gold_of(rollout, column, "language"))
        assert wanted is not None
        return graded(parsed=bool(rollout.text.strip()), correct=is_language(rollout.text, wanted))

    return Verifier("language", check)
