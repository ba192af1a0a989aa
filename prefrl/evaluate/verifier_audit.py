"""Whether a reward can be trusted: what it says of answers that are known to be right or wrong, and where it differs
from a second judge that nothing learns from."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.evaluate.probes import Probe
from prefrl.evaluate.statistics import Interval, wilson
from prefrl.rewards.base import parts_of
from prefrl.types import Score

SHOWN = 5  # examples of a problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCount:
    """How a kind of probe fared.

    good      as `Probe.good`
    passed    full marks
    unscored  errors and timeouts, which neither pass nor fail
    examples  where it went wrong, or could not be scored, of as many prompts
    """

    name: str
    good: bool | None
    passed: int
    failed: int
    unscored: int
    examples: tuple[Probe, ...] = ()

    @property
    def wrong(self) -> int:
        """Right answers refused, or wrong ones accepted."""
        if self.good is None:
            return 0
        return self.failed if self.good else self.passed

    @property
    def rate(self) -> float:
        """Share that is wrong among those that were scored; NaN where none was."""
        scored = self.passed + self.failed
        return self.wrong / scored if scored else math.nan

    @property
    def interval(self) -> Interval:
        """95 % Wilson interval of the rate."""
        return wilson(self.wrong, self.passed + self.failed)


def passes(score: Score, full: float) -> bool | None:
    """Whether a score is full marks; None for an error."""
    return score.total >= full - 1e-9 if score.ok else None


def count_probes(probes: Sequence[Probe], said: Sequence[bool | None]) -> list[ProbeCount]:
    """Counts of each kind of probe, those that must pass first, then those that must fail."""
    groups: dict[tuple[str, bool | None], list[tuple[Probe, bool | None]]] = {}
    for probe, passed in zip(probes, said, strict=True):
        groups.setdefault((probe.name, probe.good), []).append((probe, passed))
    found = [_counted(name, good, results) for (name, good), results in groups.items()]
    return sorted(found, key=lambda count: (True, False, None).index(count.good))


def _counted(name: str, good: bool | None, results: Sequence[tuple[Probe, bool | None]]) -> ProbeCount:
    outcomes = [passed for _, passed in results]
    wrong = [probe for probe, passed in results if passed is not None and good is not None and passed != good]
    odd = {
        probe.prompt.id: probe for probe in reversed([*wrong, *(probe for probe, passed in results if passed is None)])
    }
    return ProbeCount(
        name=name,
        good=good,
        passed=outcomes.count(True),
        failed=outcomes.count(False),
        unscored=outcomes.count(None),
        examples=tuple(reversed(odd.values()))[:SHOWN],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A reward beside an independent judge, on answers that both could judge.

    The judge is taken for the truth: a false positive is an answer that the reward passes and the judge does not.
    """

    both_pass: int
    both_fail: int
    false_positives: int
    false_negatives: int
    unscored: int

    @property
    def false_positive_rate(self) -> tuple[float, Interval]:
        """P(judge fails | reward passes) with its Wilson interval."""
        return _rate(self.false_positives, self.both_pass + self.false_positives)

    @property
    def false_negative_rate(self) -> tuple[float, Interval]:
        """P(judge passes | reward fails) with its Wilson interval."""
        return _rate(self.false_negatives, self.both_fail + self.false_negatives)


def compare(reward: Sequence[bool | None], judge: Sequence[bool | None]) -> Disagreement:
    """Count where two judges agree; pairs in which one could not judge are unscored."""
    both = [(r, j) for r, j in zip(reward, judge, strict=True) if r is not None and j is not None]
    return Disagreement(
        both_pass=both.count((True, True)),
        both_fail=both.count((False, False)),
        false_positives=both.count((True, False)),
        false_negatives=both.count((False, True)),
        unscored=len(reward) - len(both),
    )


def _rate(wrong: int, total: int) -> tuple[float, Interval]:
    return wrong / (total or 1), wilson(wrong, total)


def problems(counts: Sequence[ProbeCount]) -> list[str]:
    """Sentences for a person; empty when every probe came out as it must."""
    found = []
    for count in counts:
        total = count.passed + count.failed + count.unscored
        ids = ", ".join(probe.prompt.id for probe in count.examples)
        where = f" {'Prompt' if len(count.examples) == 1 else 'Prompts'}: {ids}." if ids else ""
        if count.wrong and count.good:
            found.append(
                f"False negatives: {count.wrong} of {total} right answers are refused ({count.name}). A policy that "
                f"solves the task is told that it did not.{where}"
            )
        elif count.wrong:
            found.append(
                f"False positives: {count.wrong} of {total} wrong answers get full marks ({count.name}). A policy "
                f"will find that out.{where}"
            )
        if count.unscored and count.good is not None:
            found.append(f"{count.unscored} of {total} answers could not be scored ({count.name}).{where}")
    return found


def wording(source: Any) -> list[str]:
    """Places in the code of reward functions that look for fixed words in an answer; what they do is not judged."""
    found: list[str] = []
    for part in parts_of(source):
        function = getattr(part, "fn", None)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
        except (OSError, TypeError, SyntaxError):  # no Python function, or one without a source
            continue
        found += [f"{part.name} looks for {phrase!r}" for phrase in dict.fromkeys(_phrases(tree))]
    return found


def _phrases(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            yield from _texts([node.left])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            searching = node.func.attr in (
                "search",
                "match",
                "fullmatch",
                "findall",
                "finditer",
                "count",
                "find",
                "index",
            )
            if searching or node.func.attr in ("startswith", "endswith"):
                yield from _texts(node.args[:1])


def _texts(nodes: Sequence[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip():
            yield node.value
