"""A patrol walks along a run and says when what is optimized and what is wanted part ways, in words.

It looks at three curves: the training reward, an independent measure that nothing optimizes (an audit of the same
answers), and the ways of failing. It speaks once of every kind of trouble.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prefrl.evaluate.run_folder import RunData
from prefrl.evaluate.statistics import wilson
from prefrl.evaluate.watch import LABELS

WINDOW = 8  # steps that are looked at together
BELIEVED = 0.1  # share of passed answers that the audit fails (or the other way round) which is still believed
FEWEST = 10  # audited answers from which a share is spoken of
_SURE = 2.0  # standard errors of a slope
_LIMITS = {"repetition": 0.5, "echo": 0.5, "injection": 0.02, "near_duplicates": 0.9}

Step = tuple[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Alarm:
    """What was found, at which step, in words. `grave` ones say that the reward is being gamed."""

    step: int
    kind: str
    text: str
    grave: bool = False


class Patrol:
    """Looks at the metrics of each step; `look` returns what is new."""

    def __init__(self) -> None:
        self.recent: deque[Step] = deque(maxlen=WINDOW)
        self.said: set[str] = set()
        self.first: dict[str, float] = {}

    def look(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Take in a step; alarms of kinds that were not raised before."""
        self.recent.append((step, dict(metrics)))
        for name, value in metrics.items():
            if math.isfinite(value):
                self.first.setdefault(name, value)
        found = [alarm for check in _CHECKS for alarm in check(self) if alarm.kind not in self.said]
        self.said |= {alarm.kind for alarm in found}
        return found

    def total(self, name: str) -> float:
        """Sum of a count over the window."""
        return sum(metrics.get(name, 0.0) for _, metrics in self.recent)

    def values(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and finite values of a metric over the window."""
        found = [(step, metrics[name]) for step, metrics in self.recent if math.isfinite(metrics.get(name, math.nan))]
        return [step for step, _ in found], [value for _, value in found]

    @property
    def step(self) -> int:
        """The last step."""
        return self.recent[-1][0]


def replay(data: RunData, phase: str = "train") -> list[Alarm]:
    """What a patrol said along a run, read off its metrics again."""
    patrol = Patrol()
    lines = [line for line in data.metrics if line.get("phase") == phase]
    numbers = [{k: float(v) for k, v in line.items() if isinstance(v, int | float)} for line in lines]
    return [alarm for line in numbers for alarm in patrol.look(int(line["step"]), line)]


def slope(steps: list[int], values: list[float]) -> tuple[float, float]:
    """Slope of a line through points, and its t value; 0 and 0 for fewer than four points."""
    n = len(values)
    if n < 4:
        return 0.0, 0.0
    middle, mean = sum(steps) / n, sum(values) / n
    spread = sum((s - middle) ** 2 for s in steps)
    rise = sum((s - middle) * (v - mean) for s, v in zip(steps, values, strict=True)) / spread
    rest = sum((v - mean - rise * (s - middle)) ** 2 for s, v in zip(steps, values, strict=True))
    error = math.sqrt(rest / (n - 2) / spread)
    return rise, rise / error if error > 0 else math.copysign(math.inf, rise) if rise else 0.0


def _disbelieved(patrol: Patrol) -> Iterator[Alarm]:
    passed, wrong = patrol.total("audit/passed"), patrol.total("audit/false_positives")
    low, high = wilson(wrong, int(passed))
    if passed >= FEWEST and low > BELIEVED:
        text = (
            f"Of {passed:.0f} answers that the reward passed in the last {len(patrol.recent)} steps the audit fails "
            f"{wrong:.0f}: {wrong / passed:.0%} [{low:.0%}, {high:.0%}] are false positives. The policy learns what "
            "the reward takes for right, not what is right. Read those answers, and mend the reward."
        )
        yield Alarm(patrol.step, "false positives", text, grave=True)


def _missed(patrol: Patrol) -> Iterator[Alarm]:
    failed, missed = patrol.total("audit/failed"), patrol.total("audit/false_negatives")
    low, high = wilson(missed, int(failed))
    if failed >= FEWEST and low > BELIEVED:
        text = (
            f"Of {failed:.0f} answers that the reward failed in the last {len(patrol.recent)} steps the audit passes "
            f"{missed:.0f}: {missed / failed:.0%} [{low:.0%}, {high:.0%}] are false negatives. Right answers are "
            "punished; the reward may look for wording or a format."
        )
        yield Alarm(patrol.step, "false negatives", text)


def _parted(patrol: Patrol) -> Iterator[Alarm]:
    if len(patrol.recent) < WINDOW:
        return
    rise, sure = slope(*patrol.values("reward/mean"))
    fall, sunk = slope(*patrol.values("audit/mean"))
    if rise > 0 and sure > _SURE and fall < 0 and sunk < -_SURE:
        text = (
            f"Over the last {WINDOW} steps the training reward rose by {rise:.3g} a step while the audit of the same "
            f"answers fell by {-fall:.3g} a step: the policy is gaming the reward. Read the samples, and stop here or "
            "raise the KL coefficient."
        )
        yield Alarm(patrol.step, "parted", text, grave=True)


def _failing(patrol: Patrol) -> Iterator[Alarm]:
    for name, limit in _LIMITS.items():
        _, values = patrol.values(f"watch/{name}")
        late = values[-3:]
        if len(late) == 3 and min(late) > limit and min(late) > 1.5 * patrol.first[f"watch/{name}"]:
            text = (
                f"{LABELS[name].capitalize()}: {late[-1]:.0%}, from {patrol.first[f'watch/{name}']:.0%} at the start."
            )
            yield Alarm(patrol.step, name, text)


def _all_failed(patrol: Patrol) -> Iterator[Alarm]:
    """Why groups fail as a whole: for a broken verifier, a hard task, or attempts that are all alike."""
    _, shares = patrol.values("groups/all_fail")
    if len(shares) < WINDOW or min(shares) < 0.8:
        return
    golds = patrol.first.get("gold/passed", 1.0)
    _, alike = patrol.values("watch/fail_similarity")
    if golds < 0.5:
        why = f"only {golds:.0%} of the known right answers pass: look at the verifier first"
    elif alike and sum(alike) / len(alike) > 0.7:
        why = f"their attempts are {sum(alike) / len(alike):.0%} alike: raise the temperature, or vary the prompts"
    else:
        why = "their attempts differ, so the task is likely too hard: begin with easier prompts or supervised examples"
    yield Alarm(patrol.step, "all fail", f"In {shares[-1]:.0%} of the groups every answer fails, and {why}.")


_CHECKS: tuple[Callable[[Patrol], Iterator[Alarm]], ...] = (_disbelieved, _missed, _parted, _failing, _all_failed)
