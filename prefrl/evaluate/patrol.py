"""A patrol walks along a run and says when what is optimized and what is wanted part ways, in words.

It looks at three curves: the training reward, an independent measure that nothing optimizes (an audit of the same
answers), and the ways of failing. It speaks once of every kind of trouble.

A run is looked at hundreds of times, so each look must be far surer than one look alone: at two standard errors one
healthy run in ten would be called hacked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from prefrl.evaluate.run_folder import RunData
from prefrl.evaluate.statistics import wilson

# What the figures of `watch.watch_metrics` are called; here, as a report needs none of what it takes to make them.
LABELS = {
    "repetition": "repeated word triples",
    "echo": "answers that copy the question",
    "near_duplicates": "near-duplicates within a group",
    "similarity": "likeness within a group",
    "fail_similarity": "likeness within groups that all fail",
    "injection": "answers that speak to a judge",
}
WINDOW = 8  # steps that are looked at together, where nothing else is said
COUNTED = (
    2,
    8,
    32,
    128,
)  # steps over which answers are counted: short ones see what comes fast, long ones small shares
SLOPES = {
    16: 5.0,
    32: 4.2,
    64: 4.0,
    128: 3.8,
    256: 3.8,
}  # steps -> standard errors by which an audit must fall: p = 1e-4
BELIEVED = (
    0.1  # share of passed answers that the audit fails (or of right ones that are refused) which is still believed
)
SURE = 0.9999  # of the interval of a share: answers to one prompt fail together, and every step is one look more
FEWEST = 20  # audited answers from which a share is spoken of
RISING = 2.5  # standard errors by which the reward must rise
NEXT_TO_NONE = 0.05  # share of answers; an audit that surely accepts fewer of them has not been moved by the reward
LONG = 32  # steps over which that is counted
_LIMITS = {"repetition": 0.5, "echo": 0.5, "injection": 0.02, "near_duplicates": 0.9}
_MORE = 4.0  # standard errors by which a way of failing must be more frequent than at the start
_HIGHER, _EARLY = 7.0, 2  # standard errors by which the reward must be higher than in so many first steps
_LATE = 4  # steps at the end of which it is so

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
        self.recent: deque[Step] = deque(maxlen=max(*SLOPES, *COUNTED))
        self.start: list[Step] = []
        self.said: set[str] = set()

    def look(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Take in a step; alarms of kinds that were not raised before."""
        self.recent.append((step, dict(metrics)))
        if len(self.start) < WINDOW:
            self.start.append(self.recent[-1])
        found = [alarm for check in _CHECKS for alarm in check(self) if alarm.kind not in self.said]
        self.said |= {alarm.kind for alarm in found}
        return found

    def total(self, name: str, window: int) -> int:
        """Sum of a count over the last steps."""
        return round(sum(self.values(name, window)[1]))

    def values(self, name: str, window: int = WINDOW) -> tuple[list[int], list[float]]:
        """Steps and finite values of a metric over the last steps."""
        return _finite(list(self.recent)[-window:], name)

    def first(self, name: str) -> list[float]:
        """Finite values of a metric in the first steps."""
        return _finite(self.start, name)[1]

    @property
    def step(self) -> int:
        """The last step."""
        return self.recent[-1][0]


def replay(data: RunData, phase: str = "train", patrol: Patrol | None = None) -> list[Alarm]:
    """What a patrol said along a run, read off its metrics again; the one that is given remembers it."""
    patrol = patrol or Patrol()
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


def _finite(steps: Sequence[Step], name: str) -> tuple[list[int], list[float]]:
    found = [(step, metrics[name]) for step, metrics in steps if math.isfinite(metrics.get(name, math.nan))]
    return [step for step, _ in found], [value for _, value in found]


def _surely(patrol: Patrol, wrong: str) -> tuple[int, int, str, str] | None:
    """How many were wrong, of how many, when, and the share in words, where it is surely more than what is believed.

    Of false positives the others are the right answers that the reward passed, and so they are of false negatives.
    """
    for window in COUNTED:
        bad = patrol.total(f"audit/{wrong}", window)
        total = bad + patrol.total("audit/passed", window) - patrol.total("audit/false_positives", window)
        low, _ = wilson(bad, total, SURE)
        if total >= FEWEST and low > BELIEVED:
            steps = min(window, len(patrol.recent))
            when = f"in the last {steps} steps" if steps > 1 else "in one step"
            return bad, total, when, f"{bad / total:.0%}, and surely {low:.0%} or more"
    return None


def _disbelieved(patrol: Patrol) -> Iterator[Alarm]:
    if found := _surely(patrol, "false_positives"):
        wrong, passed, when, share = found
        text = (
            f"Of {passed} answers that the reward passed {when} the audit fails {wrong}: {share}, are false positives. "
            "The policy learns what the reward takes for right, not what is right. Read those answers, and mend the "
            "reward."
        )
        yield Alarm(patrol.step, "false positives", text, grave=True)


def _missed(patrol: Patrol) -> Iterator[Alarm]:
    if found := _surely(patrol, "false_negatives"):
        missed, right, when, share = found
        text = (
            f"Of {right} answers that the audit passed {when} the reward refuses {missed}: {share}, are false "
            "negatives. Right answers are punished; the reward may look for wording or a format."
        )
        yield Alarm(patrol.step, "false negatives", text)


def _parted(patrol: Patrol) -> Iterator[Alarm]:
    for window, needed in SLOPES.items():
        if len(patrol.recent) < window:
            return
        rise, sure = slope(*patrol.values("reward/mean", window))
        fall, sunk = slope(*patrol.values("audit/mean", window))
        if sure > RISING and sunk < -needed:
            text = (
                f"Over the last {window} steps the training reward rose by {rise:.3g} a step while the audit of the "
                f"same answers fell by {-fall:.3g} a step: the policy is gaming the reward. Read the samples, and stop "
                "here or raise the KL coefficient."
            )
            yield Alarm(patrol.step, "parted", text, grave=True)
            return


def _unmoved(patrol: Patrol) -> Iterator[Alarm]:
    """The reward has risen, and the audit goes on to accept next to nothing."""
    accepted = patrol.total("audit/passed", LONG) - patrol.total("audit/false_positives", LONG)
    accepted += patrol.total("audit/false_negatives", LONG)
    audited = patrol.total("audit/passed", LONG) + patrol.total("audit/failed", LONG)
    early, late = patrol.first("reward/mean")[:_EARLY], patrol.values("reward/mean")[1]
    if len(patrol.recent) < 2 * WINDOW or len(late) < WINDOW or len(early) < _EARLY:
        return
    before, now = fmean(early), fmean(late)
    noise = math.sqrt(pvariance(late) * (1 / len(early) + 1 / len(late)))  # early steps may be on the rise already
    if wilson(accepted, audited, SURE)[1] < NEXT_TO_NONE and now - before > _HIGHER * noise:
        text = (
            f"The training reward rose from {before:.3g} to {now:.3g}, but the audit accepts {accepted} of {audited} "
            f"answers in the last {min(LONG, len(patrol.recent))} steps. What is learnt is not yet what is wanted: see "
            "in the samples what all answers lack. Credit for parts may be had without the rest, or the audit may be "
            "broken."
        )
        yield Alarm(patrol.step, "unmoved", text)


def _failing(patrol: Patrol) -> Iterator[Alarm]:
    for name, limit in _LIMITS.items():
        early, late = patrol.first(f"watch/{name}"), patrol.values(f"watch/{name}", _LATE)[1]
        if len(late) < _LATE or len(patrol.recent) < len(early) + _LATE or min(late) <= limit:
            continue
        before, now = fmean(early), fmean(late)
        noise = math.sqrt(pvariance(early) / len(early) + pvariance(late) / len(late))
        if now > 1.5 * before and now - before > _MORE * noise:
            yield Alarm(patrol.step, name, f"{LABELS[name].capitalize()}: {now:.0%}, from {before:.0%} at the start.")


def _all_failed(patrol: Patrol) -> Iterator[Alarm]:
    """Why groups fail as a whole: for a broken verifier, a hard task, or attempts that are all alike."""
    _, shares = patrol.values("groups/all_fail")
    if len(shares) < WINDOW or min(shares) < 0.8:
        return
    golds = next(iter(patrol.first("gold/passed")), 1.0)
    _, alike = patrol.values("watch/fail_similarity")
    if golds < 0.5:
        why = f"only {golds:.0%} of the known right answers pass: look at the verifier first"
    elif alike and sum(alike) / len(alike) > 0.7:
        why = f"their attempts are {sum(alike) / len(alike):.0%} alike: raise the temperature, or vary the prompts"
    else:
        why = "their attempts differ, so the task is likely too hard: begin with easier prompts or supervised examples"
    yield Alarm(patrol.step, "all fail", f"In {shares[-1]:.0%} of the groups every answer fails, and {why}.")


_CHECKS: tuple[Callable[[Patrol], Iterator[Alarm]], ...] = (
    *(_disbelieved, _missed, _parted),
    *(_unmoved, _failing, _all_failed),
)
