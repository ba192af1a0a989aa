"""What is likely wrong with a run, read off its metrics. Each alarm says what to look at next."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence

from prefrl.evaluate.run_folder import RunData

EVALUATIONS = ("win_rate", "success", "accuracy", "accuracy_given_parsed")
"""Measures that training never optimizes, the most telling one first; all are shares."""


def find_alarms(data: RunData, *, phase: str = "train", eval_phase: str = "eval") -> list[str]:
    """Sentences for a person; empty when nothing looks wrong."""
    found = [*_ending(data), *_integrity(data)]
    checks: tuple[Callable[[RunData, str], Iterator[str]], ...] = (
        _no_signal,
        _truncated,
        _unscored,
        _length_drift,
        _falling_logps,
    )
    for check in checks:
        found += check(data, phase)
    return [*found, *_overoptimized(data, phase, eval_phase)]


def ends(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean of the first and of the last tenth of the finite values (one at least), and how many that is."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan, 0
    size = max(1, len(finite) // 10)
    return statistics.fmean(finite[:size]), statistics.fmean(finite[-size:]), size


def _ending(data: RunData) -> Iterator[str]:
    if data.state == "failed":
        yield f"The run failed: {data.status.get('error', 'no reason was noted')}."
    elif data.state != "finished" and data.status.get("pid") != os.getpid():
        yield "The run has not finished: it is still at work, or it was killed. These are its figures so far."


def _integrity(data: RunData) -> Iterator[str]:
    for name, count in data.nonfinite().items():
        yield f"{name} was NaN or infinite at {_times(count, 'step')}. Curves have a gap there."
    skipped = data.skipped_metrics + data.skipped_samples
    if skipped:
        yield f"{_times(skipped, 'unreadable line')} of metrics or samples left out; a killed run leaves one."


def _no_signal(data: RunData, phase: str) -> Iterator[str]:
    _, mixed, _ = ends(data.series("groups/mixed", phase)[1])
    if mixed < 0.1:
        yield (
            f"At the end only {mixed:.0%} of the groups had answers of different reward; the others give no "
            "gradient. Look at all-fail groups first: does the reward accept a known good answer, is the "
            "task too hard, or are all attempts alike?"
        )


def _truncated(data: RunData, phase: str) -> Iterator[str]:
    _, share, _ = ends(data.series("stop/length", phase)[1])
    if share > 0.5:
        yield f"The token budget cut off {share:.0%} of the last answers; raise sampling.max_new_tokens."


def _unscored(data: RunData, phase: str) -> Iterator[str]:
    errors = [value for value in data.series("errors", phase)[1] if value > 0]
    if errors:
        yield (
            f"Some answers could not be scored in {_times(len(errors), 'step')}, at worst {max(errors):.0%} "
            "of a step. They are in no reward, baseline or loss."
        )


def _length_drift(data: RunData, phase: str) -> Iterator[str]:
    first, last, _ = ends(data.series("length/mean", phase)[1])
    if first > 0 and (last / first > 1.5 or last / first < 2 / 3):
        yield (
            f"Answers went from {first:.0f} to {last:.0f} tokens on average; check that the reward does not "
            "pay for length itself."
        )


def _falling_logps(data: RunData, phase: str) -> Iterator[str]:
    _, values = data.series("chosen_logp", phase)
    first, last, _ = ends(values)
    if len(values) >= 6 and last < first - 2 * _noise(values):
        yield (
            f"The log-probability of chosen answers fell from {first:.1f} to {last:.1f}: the margin grew by "
            "pushing rejected answers down further. Add an SFT term, or make pairs from the policy's own "
            "answers."
        )


def _overoptimized(data: RunData, phase: str, eval_phase: str) -> Iterator[str]:
    _, rewards = data.series("reward/mean", phase)
    measures = (*EVALUATIONS, "reward/mean")
    name = next((name for name in measures if len(data.series(name, eval_phase)[1]) > 1), None)
    if name is None or len(rewards) < 6:
        return
    first, last, _ = ends(rewards)
    before, after, _ = ends(data.series(name, eval_phase)[1])
    if last > first + 2 * _noise(rewards) and after <= before:
        yield (
            f"Training reward rose from {first:.3g} to {last:.3g} while {name.replace('_', ' ')} on held-out "
            f"prompts did not ({before:.3g} to {after:.3g}): the policy may be gaming the reward, or "
            "remembering its prompts. Read the samples."
        )


def _noise(values: Sequence[float]) -> float:
    """Standard error of a mean at either end, from step-to-step differences, which a trend hardly touches."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return math.inf
    jumps = [(b - a) ** 2 / 2 for a, b in itertools.pairwise(finite)]
    return math.sqrt(statistics.fmean(jumps) * 2 / max(1, len(finite) // 10))


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
