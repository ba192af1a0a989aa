"""Evaluate a reward model on preference pairs, or a policy on prompts, alone or against another one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from prefrl.config import DataConfig, EvalConfig, ModelConfig
from prefrl.data.formats import to_pairs, to_prompts
from prefrl.data.splits import check_disjoint
from prefrl.errors import ConfigError
from prefrl.evaluate.blocks import show_number
from prefrl.evaluate.reward_quality import evaluate_pairs
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.statistics import WinRate, win_rate
from prefrl.recipes.common import (
    Checked,
    PolicyEvaluation,
    conclude,
    evaluate_policy,
    fitting_prompts,
    load_policy,
    quiet,
    read_table,
    report_read,
    sample_rows,
    start,
)
from prefrl.rewards.bradley_terry import BradleyTerry
from prefrl.rewards.specs import build
from prefrl.types import Pair, Score


def run(config: EvalConfig) -> RunFolder:
    """Evaluate as configured on all rows of `data.train`, which stands for the evaluation data here.

    Raises:
        ConfigError: no model, no data, or no rewards to judge a policy with.
    """
    if not config.model:
        raise ConfigError("model is empty; expected a folder or hub id. Type: --model runs/reward")
    if not config.data.train:
        raise ConfigError("data.train is empty; it names the evaluation data. Type: --data.train FILE.jsonl")
    return _reward(config) if config.what == "reward" else _policy(config)


def _reward(config: EvalConfig) -> RunFolder:
    if config.against:
        raise ConfigError("against compares policies; leave it out, or set --what policy.")
    with start(config, "eval") as folder:
        pairs = _pairs(config.data)
        baseline = _pairs(DataConfig(train=config.baseline)) if config.baseline else []
        check_disjoint(baseline, pairs)
        print(f"{len(pairs)} pairs. Loading {config.model} ...", flush=True)
        chosen, rejected = BradleyTerry.load(config.model).score_pairs(pairs)
        totals = [score.total for score in chosen], [score.total for score in rejected]
        quality = evaluate_pairs(*totals, pairs, baseline)
        folder.log(0, {"accuracy": quality.accuracy.rate, "nll": quality.nll, "ece": quality.ece}, phase="eval")
        folder.samples(0, [row for item in zip(pairs, chosen, rejected, strict=True) for row in _pair_rows(*item)])
        Console().print(quality.table())
        conclude(folder, quality.to_dict(), quality)
    return folder


def _pairs(data: DataConfig) -> list[Pair]:
    table = read_table(data.train, data.limit)
    return report_read(to_pairs(table, max_bad_fraction=data.max_dropped_fraction), f"pairs of {data.train}")


def _pair_rows(pair: Pair, chosen: Score, rejected: Score) -> list[dict[str, Any]]:
    won = chosen.total > rejected.total
    return [
        {
            "policy": name,
            "prompt_id": pair.prompt.id,
            "prompt": pair.prompt.question,
            "completion": completion.text,
            "reward": score.total if score.ok else None,
            "error": score.error,
            "won": best,
            "badge": "scored higher" if best else "",
        }
        for name, completion, score, best in (
            ("chosen", pair.chosen, chosen, won),
            ("rejected", pair.rejected, rejected, rejected.total > chosen.total),
        )
    ]


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


def _policy(config: EvalConfig) -> RunFolder:
    if not config.rewards:
        raise ConfigError("rewards is empty; name a judge: --rewards '[{kind: bradley_terry, path: runs/reward}]'")
    if config.baseline:
        raise ConfigError("baseline is for reward models; leave it out, or set --what reward.")
    quiet()
    reward = Checked(build(config.rewards))
    with start(config, "eval") as folder:
        names = [config.model, *([config.against] if config.against else [])]
        results = _evaluate(names, config, reward)
        comparison = compare(*results) if config.against else None
        labels = ["policy", "against"][: len(names)]
        for label, result in zip(labels, results, strict=True):
            folder.log(0, result.metrics, phase="eval" if label == "policy" else label)
        _save_samples(folder, names, results, comparison)
        Console().print(policy_table(names, results))
        summary: dict[str, Any] = {label: r.metrics for label, r in zip(labels, results, strict=True)}
        if comparison is not None:
            summary["wins"] = _wins(comparison)
            left_out = f"; {comparison.unscored} unscored" if comparison.unscored else ""
            print(f"{config.model} has the higher reward than {config.against} in {comparison.wins}{left_out}")
        conclude(folder, summary)
    return folder


def _evaluate(names: Sequence[str], config: EvalConfig, reward: Checked) -> list[PolicyEvaluation]:
    """Each policy in turn, on the prompts that fit all of them and from the same random numbers."""
    data = config.data
    table = read_table(data.train, data.limit)
    prompts = report_read(to_prompts(table, max_bad_fraction=data.max_dropped_fraction), f"prompts of {data.train}")
    print(f"{len(prompts)} prompts. Loading {' and '.join(names)} ...", flush=True)
    policies = [load_policy(ModelConfig(name=name), config.seed) for name in names]
    for policy in policies:
        prompts = fitting_prompts(prompts, policy, data)
    return [
        evaluate_policy(policy, prompts, reward, config.sampling, samples=config.samples, seed=config.seed)
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
