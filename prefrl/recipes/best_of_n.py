"""Best-of-n of a policy by its rewards, and what it does to a measure that nothing optimizes."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from prefrl.config import EvalConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.files import write_atomic
from prefrl.evaluate.frontier_metrics import BEST_OF_N, audits_of, point_metrics
from prefrl.evaluate.overoptimisation import Frontier, best_of_n
from prefrl.evaluate.run_folder import RunFolder
from prefrl.recipes.common import PolicyEvaluation, sample_rows
from prefrl.rewards.base import RewardSource
from prefrl.rewards.compose import Audit, WeightedSum, terms_of
from prefrl.rewards.specs import build


def judge(config: EvalConfig) -> RewardSource:
    """The rewards with the gold measure beside them as their audit.

    Raises:
        ConfigError: nothing is independent of the rewards, or a setting that best-of-n has no use for.
    """
    source = build(config.rewards)
    if config.gold:
        source = WeightedSum([*terms_of(source), (Audit(build(config.gold)), 0.0)])
    if not audits_of(source):
        raise ConfigError(
            "best_of_n needs a measure that the rewards do not contain; expected gold, or a reward of weight 0. "
            "Type: --gold '[{kind: numeric, column: answer}]'"
        )
    if config.against:
        raise ConfigError("best_of_n is of one policy; leave against out.")
    if config.sampling.temperature <= 0:
        raise ConfigError("sampling.temperature is 0, so that all samples are alike; expected a positive one.")
    return source


def analyse(folder: RunFolder, result: PolicyEvaluation, source: RewardSource) -> dict[str, Any]:
    """Log, print and keep the frontier of every gold measure; figures for the run's summary."""
    found = [frontier_of(result, name) for name in audits_of(source)]
    for frontier in found:
        for n, metrics in point_metrics(frontier):
            folder.log(n, metrics, phase=BEST_OF_N)
        Console().print(table(frontier))
    path = folder.path / f"{BEST_OF_N}.json"
    write_atomic(path, json.dumps([frontier.to_dict() for frontier in found], indent=2) + "\n")
    print(f"Figures: {path}")
    return {frontier.gold: _summary(frontier) for frontier in found}


def frontier_of(result: PolicyEvaluation, gold: str) -> Frontier:
    """Best-of-n of an evaluation with many samples a prompt; `gold` is a part of its scores."""
    proxies: dict[str, list[float]] = {}
    golds: dict[str, list[float]] = {}
    for rollout, score in zip(result.rollouts, result.scores, strict=True):
        proxies.setdefault(rollout.group, []).append(score.total)
        golds.setdefault(rollout.group, []).append(score.parts.get(gold, float("nan")))
    return best_of_n(list(proxies.values()), list(golds.values()), name=gold)


def contrast(result: PolicyEvaluation, samples: int) -> list[dict[str, Any]]:
    """Of every prompt its first answer and the one that the rewards like best, side by side."""
    rows = []
    for at in range(0, len(result.rollouts), samples):
        drawn, scores = result.rollouts[at : at + samples], result.scores[at : at + samples]
        scored = [place for place in range(len(drawn)) if scores[place].ok]
        chosen = {"one sample": 0} | (
            {f"best of {samples}": max(scored, key=lambda i: scores[i].total)} if scored else {}
        )
        rows += [row for name, i in chosen.items() for row in sample_rows(drawn[i : i + 1], scores[i : i + 1], name)]
    return rows


def table(frontier: Frontier) -> RichTable:
    """The frontier, and what was fitted to it, for the terminal."""
    counts = f"{frontier.prompts} prompts"
    if frontier.left_out or frontier.unscored:
        counts += f"; left out: {frontier.left_out} prompts short of samples, {frontier.unscored} unscored samples"
    fits = [f"{name}: {fit}" for name, fit in frontier.fits.items()]
    shown = RichTable(
        title=f"Best of n, {counts}", title_justify="left", caption="\n".join(fits), caption_justify="left"
    )
    for column in frontier.columns:
        shown.add_column(escape(column), justify="right")
    for row in frontier.rows():
        shown.add_row(*map(escape, row))
    return shown


def _summary(frontier: Frontier) -> dict[str, Any]:
    start, last, peak = frontier.points[0], frontier.points[-1], frontier.peak
    return {
        "at n = 1": start.gold.mean,
        f"at n = {last.at}": last.gold.mean,
        "highest at n": peak.at,
        "highest": peak.gold.mean,
    }
