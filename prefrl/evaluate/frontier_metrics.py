"""The frontier of a run in its metrics: what evaluations log, what reports and alarms read back."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prefrl.evaluate.overoptimisation import Estimate, Frontier, Point, estimate, spread
from prefrl.evaluate.run_folder import RunData
from prefrl.types import Rollout, Score

if TYPE_CHECKING:
    from prefrl.rewards.base import RewardSource

BEST_OF_N = "best_of_n"
"""Phase of the metrics of best-of-n, whose steps are the n; every other phase is of a run."""

_KL, _PROXY, _GOLD = "kl/ref", "reward", "gold/"


def audits_of(source: RewardSource) -> list[str]:
    """Names, in the parts of a score, of what a source only measures: its audit and the terms of weight 0."""
    from prefrl.rewards.base import unique_names
    from prefrl.rewards.compose import WeightedSum

    if not isinstance(source, WeightedSum):
        return []
    named = zip(unique_names(source.children), source.terms, strict=True)
    return [name for name, (_, weight) in named if weight == 0]


def evaluation_metrics(
    rollouts: Sequence[Rollout], scores: Sequence[Score], kls: Sequence[float], audits: Sequence[str]
) -> dict[str, float]:
    """KL to the start and, where there is an audit, the mean of it and of the reward with their intervals.

    Args:
        rollouts, scores: of the evaluation.
        kls: nats from the start of every answer; empty where no reference is kept.
        audits: parts of the scores that training never pays for.
    """
    metrics = {_KL: math.fsum(kls) / len(kls)} if kls else {}
    columns = {_PROXY: [score.total for score in scores]} if audits else {}
    columns |= {_GOLD + name: [s.parts.get(name, math.nan) if s.ok else math.nan for s in scores] for name in audits}
    for name, values in columns.items():
        kept = [(value, r.prompt.id) for value, r in zip(values, rollouts, strict=True) if math.isfinite(value)]
        if kept:
            found = estimate([value for value, _ in kept], [prompt for _, prompt in kept])
            metrics |= _named(name, found, spread([[value for value, _ in kept]]))
    return metrics


def point_metrics(frontier: Frontier) -> list[tuple[int, dict[str, float]]]:
    """A best-of-n frontier as (n, metrics) lines, to log under `BEST_OF_N`."""
    gold = _GOLD + frontier.gold
    return [
        (p.at, {_KL: p.kl} | _named(_PROXY, p.proxy, frontier.stds[0]) | _named(gold, p.gold, frontier.stds[1]))
        for p in frontier.points
    ]


def _named(name: str, found: Estimate, std: float) -> dict[str, float]:
    figures = {"mean": found.mean, "std": std, "low": found.low, "high": found.high}
    return {f"{name}/{key}": value for key, value in figures.items() if math.isfinite(value)}


def frontiers(data: RunData) -> dict[str, Frontier]:
    """Every frontier of a run with two points or more, by phase and gold measure; a point has all three figures."""
    found = {}
    for phase in dict.fromkeys(str(line.get("phase")) for line in data.metrics):
        audits = [name.removesuffix("/mean") for name in data.names(phase) if re.fullmatch(rf"{_GOLD}.*/mean", name)]
        for audit in audits:
            frontier = _read_frontier(data, phase, audit)
            if len(frontier.points) > 1:
                found[f"{phase}/{frontier.gold}"] = frontier
    return found


def _read_frontier(data: RunData, phase: str, audit: str) -> Frontier:
    def column(name: str) -> dict[int, float]:
        return {step: v for step, v in zip(*data.series(name, phase), strict=True) if math.isfinite(v)}

    def estimates(name: str) -> dict[int, Estimate]:
        low, high = column(f"{name}/low"), column(f"{name}/high")
        means = column(f"{name}/mean")
        return {s: Estimate(m, low.get(s, math.nan), high.get(s, math.nan)) for s, m in means.items()}

    kl, proxy, gold = column(_KL), estimates(_PROXY), estimates(audit)
    steps = [step for step in kl if step in proxy and step in gold]
    first = [column(f"{name}/std").get(steps[0], math.nan) if steps else math.nan for name in (_PROXY, audit)]
    return Frontier(
        kind="best_of_n" if phase == BEST_OF_N else "rl",
        points=tuple(Point(step, kl[step], proxy[step], gold[step]) for step in steps),
        gold=audit.removeprefix(_GOLD),
        stds=(first[0], first[1]),
    )


def rounds_frontier(rounds: Sequence[Mapping[str, Any]]) -> Frontier:
    """The frontier of a loop, its start first, with both gains in log-odds of being preferred to the start.

    The proxy is what each round's reward model says was gained, a mean score difference; the gold measure is the win
    rate w as `log(w / (1 - w))`, kept half a comparison away from 0 and 1.

    Args:
        rounds: figures of evaluated rounds: round, kl, reward_gain, won, tied, lost, win_rate, win_low and win_high.
    """
    points = [Point(0, 0.0, Estimate(0.0), Estimate(0.0))]
    for one in rounds:
        edge = 0.5 / (one["won"] + one["tied"] + one["lost"] + 1)
        odds = [_log_odds(min(1 - edge, max(edge, one[name]))) for name in ("win_rate", "win_low", "win_high")]
        points.append(Point(one["round"], one["kl"], Estimate(one["reward_gain"]), Estimate(*odds)))
    return Frontier(kind="rl", points=tuple(points), gold="wins against the start", stds=(1.0, 1.0))


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))


def falls(data: RunData) -> Iterator[str]:
    """An alarm for every frontier on which gold has fallen while the proxy rose."""
    for frontier in frontiers(data).values():
        if not frontier.falls:
            continue
        peak, last, unit = frontier.peak, frontier.points[-1], frontier.columns[0]
        yield (
            f"Over-optimized: from {unit} {peak.at} to {unit} {last.at}, from {peak.kl:.3g} to {last.kl:.3g} nats, the "
            f"reward rose from {peak.proxy.mean:.3g} to {last.proxy.mean:.3g} while {frontier.gold}, which nothing "
            f"optimizes, fell from {peak.gold.mean:.3g} to {last.gold.mean:.3g}. Stop earlier, raise the KL "
            "coefficient, or judge with an ensemble."
        )
