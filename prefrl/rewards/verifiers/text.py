"""Checks on the text itself: equality, multiple choice, regular expressions, length."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.verifiers.common import Verifier, gold_of, gold_text
from prefrl.rewards.verifiers.verdict import Status, Verdict, failure, graded
from prefrl.types import Rollout


def exact(column: str = "answer", *, strip: bool = True, ignore_case: bool = False) -> Verifier:
    """1 when the completion equals the column, else 0; an empty gold text is an error.

    `strip` removes white space around both, `ignore_case` folds the case of both.
    """

    def normal(text: str) -> str:
        text = text.strip() if strip else text
        return text.casefold() if ignore_case else text

    def check(rollout: Rollout) -> Verdict:
        gold = gold_of(rollout, column, "exact")
        wanted = "" if gold is None else normal(str(gold))
        if not wanted:
            return failure(f"the column {column!r} is {gold!r}; expected a text")
        return graded(parsed=bool(rollout.text.strip()), correct=normal(rollout.text) == wanted)

    return Verifier("exact", check, gold=gold_text(column))


def choice(column: str = "answer", options: str | Sequence[str] = "ABCD") -> Verifier:
    """1 when the completion chooses the gold option, else 0; an ambiguous or missing choice is unparsed.

    A stated answer counts first ("answer is B", "Answer: (B)", "answer: **B**"). Without one, letters
    count as "(B)", as "B." / "B)" / "B:" at the start of a line, after option, choice, choose, pick or
    select, alone, or at the end of the text; longer options count wherever they occur as whole words. More
    than one option left means unparsed.

    Args:
        column: dataset column with an option (case and brackets ignored), or its 0-based index.
        options: single characters as one string, or a list.

    Raises:
        ConfigError: fewer than two options, an empty one, or two that differ in case only.
    """
    chooser = _Chooser(tuple(str(option).strip() for option in options))

    def check(rollout: Rollout) -> Verdict:
        gold = gold_of(rollout, column, "choice")
        wanted = chooser.gold(gold)
        if wanted is None:
            return failure(f"the column {column!r} is {gold!r}; expected one of {list(chooser.options)}")
        chosen = chooser.chosen(rollout.text)
        return graded(parsed=chosen is not None, correct=chosen == wanted)

    return Verifier("choice", check, gold=gold_text(column))


class _Chooser:
    """Finds the one option that a text chooses."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.by_key = {option.casefold(): option for option in options}
        if len(options) < 2 or "" in options or len(self.by_key) < len(options):
            raise ConfigError(
                f"choice: options={list(options)}; expected two or more, none empty, no two that differ in case only"
            )
        self.options = options
        self.letters = all(len(option) == 1 for option in options)
        # Emphasis and LaTeX around an option say nothing; characters of the options themselves stay.
        self.markup = str.maketrans(dict.fromkeys(set('*_`$"{}\\') - set("".join(options)), ""))
        names = "|".join(re.escape(option) for option in sorted(options, key=len, reverse=True))
        # Whole words only: not in "A-level", "A's", "3.5".
        before, after = r"(?<!\w)(?<!\w[-'])(?<!\d[.,])", r"(?!\w|[-'\u2019]\w|[.,]\d)"
        fold = "(?i:{})" if not self.letters else "{}"  # the article "a" is not the option A
        bare = before + fold.format(f"(?:{names})") + after
        more = rf"(?:[\])'.]*\s*(?:,|/|&|\bor\b|\band\b)\s*(?:or\s+)?[\[('|]*{bare})*"
        self.option = re.compile(bare)
        self.stated = re.compile(
            r"(?i:\banswer(?:\s+(?:is|was|(?:should|must|would)\s+be)\b\s*[:=]?|\s*[:=]|\s*\n))\s*"
            rf"(?i:(?:the\s+)?(?:option|choice|letter)\s+)?[\[(']*({bare}{more})"
        )
        self.marked = [
            re.compile(rf"[(\[]((?i:{names}))[)\]]"),
            re.compile(rf"^\s*({bare})\s*[.):]", re.MULTILINE),
            re.compile(rf"(?i:\b(?:option|choice|choose|pick|select)\s*:?)\s*[\[(']*({bare})"),
            re.compile(rf"\A\W*((?i:{names}))\W*\Z"),
        ]
        self.ending = re.compile(rf"{bare}\W*\Z")

    def gold(self, value: Any) -> str | None:
        """The option a gold value names, or None."""
        named = self.by_key.get(str(value).strip().strip("()[].:").casefold())
        if named is None and isinstance(value, int) and not isinstance(value, bool):
            return self.options[value] if 0 <= value < len(self.options) else None
        return named

    def chosen(self, text: str) -> str | None:
        """The option that the text chooses, or None when it chooses none or several."""
        text = re.sub(r"\\(?:boxed|text|textbf|mathrm|mathbf)\b", "", text).translate(self.markup)
        statements = self.stated.findall(text)
        found = self._keys(option for statement in statements for option in self.option.findall(statement))
        if not found:
            found = self._keys(self._marks(text) if self.letters else self.option.findall(text))
        return self.by_key[found.pop()] if len(found) == 1 else None

    def _marks(self, text: str) -> list[str]:
        marks = [mark for pattern in self.marked for mark in pattern.findall(text)]
        # At the end a bare letter is a choice, but only if no other one stands in the text ("A or B").
        return marks + (self.option.findall(text) if self.ending.search(text) else [])

    @staticmethod
    def _keys(options: Iterable[str]) -> set[str]:
        return {option.casefold() for option in options}


def regex(
    pattern: str, column: str | None = None, *, group: int | str | None = None, ignore_case: bool = False
) -> Verifier:
    """1 when the pattern occurs in the completion; with a column, when what it captures equals the column.

    The pattern may match anywhere (anchor it with `\\A` and `\\Z`); of several matches the last one counts.
    The captured text and the column are compared without surrounding white space. Flags go into the
    pattern: `(?s)`, `(?m)`.

    Args:
        pattern: Python regular expression.
        column: dataset column with the text that the capture must equal.
        group: number or name of the captured group; by default the first group, or the whole match if
            there is none. Only with `column`.
        ignore_case: for the pattern and for the comparison.

    Raises:
        ConfigError: the pattern does not compile, has no such group, or `group` comes without `column`.
    """
    try:
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, TypeError, OverflowError) as error:
        raise ConfigError(f"regex: the pattern {pattern!r} is not valid: {error}") from error
    if group is not None and column is None:
        raise ConfigError(f"regex: group={group!r} needs a column to compare with; add column=...")
    key = min(compiled.groups, 1) if group is None else group
    if key not in [*range(compiled.groups + 1), *compiled.groupindex]:
        raise ConfigError(f"regex: the pattern {pattern!r} has no group {key!r}; it has {compiled.groups} groups")

    def check(rollout: Rollout) -> Verdict:
        match = None
        for match in compiled.finditer(rollout.text):  # noqa: B007 - the last one counts
            pass
        if column is None:
            return graded(parsed=match is not None, correct=match is not None)
        gold = gold_of(rollout, column, "regex")
        if gold is None:
            return failure(f"the column {column!r} is None; expected a text")
        captured = match[key] if match else None
        if captured is None:
            return graded(parsed=False, correct=False)
        a, b = captured.strip(), str(gold).strip()
        return graded(parsed=True, correct=a.casefold() == b.casefold() if ignore_case else a == b)

    return Verifier("regex", check)


UNITS: dict[str, Callable[[Rollout], int]] = {
    "words": lambda rollout: len(rollout.text.split()),
    "characters": lambda rollout: len(rollout.text),
    "tokens": lambda rollout: sum(rollout.mask),
}


def length_band(low: int, high: int, unit: str = "words") -> Verifier:
    """1 for a length in [low, high], falling linearly outside to 0 at the distance `high - low`.

    `max(0, 1 - d / (high - low))`, d the distance to the band; with low == high only that length scores.
    An empty completion scores 0 unless `low` is 0. Parts: `length`.

    Args:
        low, high: bounds of the band, both included.
        unit: "words" (split at white space), "characters" (of the text), or "tokens" (that the policy
            sampled, the end-of-turn token included).

    Raises:
        ConfigError: not 0 <= low <= high, or an unknown unit.
    """
    if not 0 <= low <= high:
        raise ConfigError(f"length_band: got low={low}, high={high}; expected 0 <= low <= high")
    if unit not in UNITS:
        raise ConfigError(f"length_band: unknown unit {unit!r}; one of {', '.join(UNITS)}.{did_you_mean(unit, UNITS)}")
    measure = UNITS[unit]

    def check(rollout: Rollout) -> Verdict:
        length = measure(rollout)
        distance = max(low - length, length - high, 0)
        value = float(distance == 0) if low == high else max(0.0, 1.0 - distance / (high - low))
        empty = not rollout.text.strip() and low > 0
        return Verdict(status=Status.OK, score=0.0 if empty else value, parts={"length": float(length)})

    return Verifier("length_band", check)
