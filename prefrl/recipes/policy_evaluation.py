"""Evaluate a policy on prompts, alone or against another one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from prefrl.config import EvalConfig, ModelConfig
from prefrl.data.formats import to_prompts
from prefrl.errors import ConfigError
from prefrl.evaluate.blocks import show_number
from prefrl.evaluate.frontier_metrics import BEST_OF_N
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.statistics import WinRate, win_rate
from prefrl.recipes import best_of_n
from prefrl.recipes.common import (
    Checked,
    PolicyEvaluation,
    conclude,
    evaluate_policy,
    fitting_prompts,
    load_policy,
    quiet,
    report_read,
    sample_rows,
    start,
    train_table,
)
from prefrl.rewards.specs import build
from prefrl.types import Score


@dataclass(frozen=True)
class Comparison:
    """A policy against another on the same prompts.

    outcomes  1 where the first answer has the higher reward, 0.5 for equal ones, None where one is unscored
    """

    outcomes: list[float | None]
    wins: WinRate

    @property
    def unscored(self) -> int:
        """Comparisons with an answer that could not be scored: in no other figure."""
        return sum(outcome is None for outcome in self.outcomes)


def compare(one: PolicyEvaluation, other: PolicyEvaluation) -> Comparison:
    """Answer by answer: the i-th one to a prompt against the other policy's i-th one to the same prompt."""
    outcomes = [_outcome(*scores) for scores in zip(one.scores, other.scores, strict=True)]
    decided = [(o, r.prompt.id) for o, r in zip(outcomes, one.rollouts, strict=True) if o is not None]
    return Comparison(outcomes, win_rate([o for o, _ in decided], groups=[name for _, name in decided]))


def _outcome(one: Score, other: Score) -> float | None:
    if not (one.ok and other.ok):
        return None
    return 0.5 if one.total == other.total else float(one.total > other.total)


def run(config: EvalConfig) -> RunFolder:
    """Sample from one policy, or from two on the same prompts, and judge what they say.

    Raises:
        ConfigError: no model, no data or no rewards to judge with, or an option that is for reward models.
    """
    if not config.model:
        raise ConfigError("model is empty; expected a folder or hub id. Type: --model runs/products")
    if not config.data.train:
        raise ConfigError("data.train is empty; it names the evaluation data. Type: --data.train FILE.jsonl")
    if not config.rewards:
        raise ConfigError("rewards is empty; name a judge: --rewards '[{kind: bradley_terry, path: runs/reward}]'")
    if config.baseline:
        raise ConfigError("baseline is for reward models; leave it out, or set --what reward.")
    if config.gold and not config.best_of_n:
        raise ConfigError("gold is looked at by best_of_n only; set that too: --best_of_n 64")
    quiet()
    source = best_of_n.judge(config) if config.best_of_n else build(config.rewards)
    reward = Checked(source)
    with start(config, "eval") as folder:
        names = [config.model, *([config.against] if config.against else [])]
        results = _evaluate(names, config, reward)
        comparison = compare(*results) if config.against else None
        labels = ["policy", "against"][: len(names)]
        for label, result in zip(labels, results, strict=True):
            folder.log(0, result.metrics, phase="eval" if label == "policy" else label)
        Console().print(policy_table(names, results))
        summary: dict[str, Any] = {label: r.metrics for label, r in zip(labels, results, strict=True)}
        if config.best_of_n:
            folder.samples(0, best_of_n.contrast(results[0], config.best_of_n))
            summary[BEST_OF_N] = best_of_n.analyse(folder, results[0], source)
        else:
            _save_samples(folder, names, results, comparison)
        if comparison is not None:
            summary["wins"] = _wins(comparison)
            left_out = f"; {comparison.unscored} unscored" if comparison.unscored else ""
            print(f"{config.model} has the higher reward than {config.against} in {comparison.wins}{left_out}")
        conclude(folder, summary)
    return folder


def _evaluate(names: Sequence[str], config: EvalConfig, reward: Checked) -> list[PolicyEvaluation]:
    """Each policy in turn, on the prompts that fit all of them and from the same random numbers."""
    data = config.data
    table = train_table(data)
    prompts = report_read(to_prompts(table, max_bad_fraction=data.max_dropped_fraction), f"prompts of {data.train}")
    print(f"{len(prompts)} prompts. Loading {' and '.join(names)} ...", flush=True)
    policies = [load_policy(ModelConfig(name=name), config.seed) for name in names]
    for policy in policies:
        prompts = fitting_prompts(prompts, policy, data)
    return [
        evaluate_policy(
            policy, prompts, reward, config.sampling, samples=config.best_of_n or config.samples, seed=config.seed
        )
        for policy in policies
    ]


def policy_table(names: Sequence[str], results: Sequence[PolicyEvaluation]) -> RichTable:
    """Every figure of one policy, or of two side by side."""
    table = RichTable("measure", title="Policies on the same prompts", title_justify="left")
    for name in names:
        table.add_column(escape(name), justify="right")
    for measure in dict.fromkeys(name for result in results for name in result.metrics):
        table.add_row(escape(measure), *(show_number(result.metrics.get(measure, math.nan)) for result in results))
    return table


def _save_samples(
    folder: RunFolder, names: Sequence[str], results: Sequence[PolicyEvaluation], comparison: Comparison | None
) -> None:
    for place, (name, result) in enumerate(zip(names, results, strict=True)):
        rows = sample_rows(result.rollouts, result.scores, name, limit=len(result.rollouts))
        outcomes = comparison.outcomes if comparison is not None else [None] * len(rows)
        best = 0.0 if place else 1.0
        folder.samples(0, [{**row, "won": o == best} for row, o in zip(rows, outcomes, strict=True)])


def _wins(comparison: Comparison) -> dict[str, Any]:
    wins = comparison.wins
    return {
        "rate": wins.rate,
        "interval": [wins.low, wins.high],
        "wins": wins.wins,
        "ties": wins.ties,
        "losses": wins.losses,
        "unscored": comparison.unscored,
    }
