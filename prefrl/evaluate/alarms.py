"""What is likely wrong with a run, read off its metrics. Each alarm says what to look at next."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence

from prefrl.evaluate.frontier_metrics import falls
from prefrl.evaluate.patrol import replay
from prefrl.evaluate.run_folder import RunData
from prefrl.evaluate.source_metrics import late, sources
from prefrl.evaluate.wording import plays_episodes, worded

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
        falling_logps,
        _dominated,
        _length_paid,
        _failing_source,
    )
    for check in checks:
        found += check(data, phase)
    alarms = replay(data, phase)
    found += [f"Step {alarm.step}: {alarm.text}" for alarm in alarms]
    if not any(alarm.grave for alarm in alarms):  # the patrol says it earlier, and once is enough
        found += _audit_falls(data, phase)
    found += [*_overoptimized(data, phase, eval_phase), *falls(data)]
    return [worded(text, data, phase) for text in found]


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
    if share > 0.5 and not plays_episodes(data, phase):
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
    if not plays_episodes(data, phase) and first > 0 and (last / first > 1.5 or last / first < 2 / 3):
        yield (
            f"Answers went from {first:.0f} to {last:.0f} tokens on average; check that the reward does not "
            "pay for length itself."
        )


def falling_logps(data: RunData, phase: str) -> Iterator[str]:
    """Chosen *and* rejected answers became less likely: the margin grew without the chosen ones being learnt."""
    if data.series("reward/mean", phase)[0]:  # sampled anew in every step, they are no longer the same answers
        return
    sides = [data.series(name, phase)[1] for name in ("chosen_logp", "rejected_logp")]
    (first, last, _), (before, after, _) = map(ends, sides)
    if all(len(values) >= 6 for values in sides) and all(map(_fell, sides)):
        yield (
            f"The log-probability of chosen answers fell from {first:.1f} to {last:.1f}, and that of rejected ones "
            f"from {before:.1f} to {after:.1f}: the margin grew by pushing rejected answers down further. Add an SFT "
            "term (algorithm.pairs.sft), or make pairs from the policy's own answers."
        )


def _fell(values: Sequence[float]) -> bool:
    first, last, _ = ends(values)
    return last < first - 2 * _noise(values)


def _dominated(data: RunData, phase: str) -> Iterator[str]:
    if data.series("lambda", phase)[0]:  # the price that a constraint has found is no weight to mend
        return
    shares = {
        name: dict(zip(*data.series(f"source/{name}/share", phase), strict=True)) for name in sources(data, phase)
    }
    paid = [name for name, found in shares.items() if found]
    # A source that does not vary has no correlation; what is left alone then dominates nobody.
    varies = {name: set(data.series(f"source/{name}/corr_total", phase)[0]) for name in paid}
    for name in paid:
        others = set().union(*(varies[other] for other in paid if other != name))
        share = late([value for step, value in shares[name].items() if step in others])
        if share > 0.9:
            yield (
                f"{share:.0%} of the variance of the advantage comes from the reward {name}: next to it the weights of "
                "the others mean nothing. Set normalise: group on every reward, and weight them then."
            )


def _length_paid(data: RunData, phase: str) -> Iterator[str]:
    correlation = late(data.series("reward/corr_length", phase)[1])
    if correlation > 0.5 and not plays_episodes(data, phase):
        yield (
            f"Among answers to the same prompt, reward and length correlate by {correlation:.2f}: longer answers are "
            "paid more. Read the samples; constrain the length, or take it out of the reward model."
        )


def _failing_source(data: RunData, phase: str) -> Iterator[str]:
    for name in sources(data, phase):
        rates = [rate for rate in data.series(f"source/{name}/errors", phase)[1] if math.isfinite(rate)]
        if rates and statistics.fmean(rates) > 0.01:
            yield f"The reward {name} failed on {statistics.fmean(rates):.1%} of the answers; samples.jsonl says why."


def _audit_falls(data: RunData, phase: str) -> Iterator[str]:
    rewards, audits = (data.series(name, phase)[1] for name in ("reward/mean", "audit/mean"))
    (first, last, _), (before, after, _) = ends(rewards), ends(audits)
    if min(len(rewards), len(audits)) >= 6 and last > first + 2 * _noise(rewards) and _fell(audits):
        yield (
            f"The training reward rose from {first:.3g} to {last:.3g} while the audit, which nothing optimizes, fell "
            f"from {before:.3g} to {after:.3g} on the same answers: the policy is gaming the reward. Read the samples, "
            "and stop earlier or raise the KL coefficient."
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
