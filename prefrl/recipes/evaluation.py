"""Evaluate a reward source on preference pairs or on a benchmark; policies are evaluated by `policy_evaluation`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from rich.console import Console

from prefrl.config import DataConfig, EvalConfig
from prefrl.data.formats import to_pairs
from prefrl.data.splits import check_disjoint, prompt_key
from prefrl.errors import ConfigError
from prefrl.evaluate import benchmark_report
from prefrl.evaluate.blocks import show_number
from prefrl.evaluate.quality_sections import quality_section
from prefrl.evaluate.reward_quality import RewardQuality, evaluate_pairs
from prefrl.evaluate.rewardbench import RULES, SOURCES, Item, read_items
from prefrl.evaluate.run_folder import RunFolder
from prefrl.recipes import policy_evaluation
from prefrl.recipes.common import Checked, quiet, read_table, report_read, start, train_table
from prefrl.recipes.evaluation_report import benchmark_headline, item_rows, leave, pair_rows, quality_headline
from prefrl.recipes.score import refuse_token_rewards, text_rollout
from prefrl.rewards.base import RewardSource, error_counts
from prefrl.rewards.bradley_terry import BradleyTerry
from prefrl.rewards.specs import build
from prefrl.types import Completion, Pair, Prompt, Score


def run(config: EvalConfig) -> RunFolder:
    """Evaluate as configured on all rows of `data.train`, which stands for the evaluation data here.

    Raises:
        ConfigError: nothing to evaluate, no data, or an option that goes with something else.
    """
    if config.what == "policy":
        return policy_evaluation.run(config)
    _check(config)
    quiet()
    return _pairs(config) if config.benchmark == "none" else _benchmark(config)


def _check(config: EvalConfig) -> None:
    if config.against:
        raise ConfigError("against compares policies; leave it out, or evaluate a policy: prefrl eval policy.")
    if bool(config.model) == bool(config.rewards):
        got = "both model and rewards are given" if config.model else "neither model nor rewards is given"
        raise ConfigError(f"{got}; expected the one to evaluate. Type: --model runs/reward")
    if not config.data.train and config.benchmark == "none":
        raise ConfigError("data.train is empty; it names the evaluation data. Type: --data.train FILE.jsonl")
    if config.benchmark != "none" and (config.baseline or config.subset):
        wrong = "baseline" if config.baseline else "subset"
        raise ConfigError(f"{wrong} goes with pairs; {config.benchmark} has rules of its own. Leave it out.")


def _pairs(config: EvalConfig) -> RunFolder:
    with start(config, "eval") as folder:
        pairs = _read(config.data)
        baseline = _read(DataConfig(train=config.baseline)) if config.baseline else []
        check_disjoint(baseline, pairs)
        source = _source(config, f"{len(pairs)} pairs")
        sides = [Candidates.of_pair(pair) for pair in pairs]
        scores = score_candidates(Checked(source, max_error_fraction=1.0), sides, config.seed)
        chosen, rejected = ([side[k].total for side in scores] for k in (0, 1))
        quality = evaluate_pairs(chosen, rejected, pairs, baseline, subset=config.subset)
        about = _about(source, scores)
        folder.log(0, {"accuracy": quality.accuracy.rate, "nll": quality.nll, "ece": quality.ece}, phase="eval")
        for table in quality.tables(f"Reward quality: {source.name}"):
            Console().print(table)
        leave(
            folder,
            f"{source.name} orders {quality.accuracy.rate:.1%} of {quality.accuracy.total:,} pairs as people did",
            quality_headline(quality),
            [quality_section(quality, before=_uncalibrated(source, quality))],
            summary=quality.to_dict(),
            figures={**about, "data": config.data.train, **quality.to_dict(nested=True)},
            rows=[pair_rows(p, i, *found) for i, (p, found) in enumerate(zip(pairs, scores, strict=True))],
        )
    return folder


def _benchmark(config: EvalConfig) -> RunFolder:
    with start(config, "eval") as folder:
        data = config.data.train or SOURCES[config.benchmark]
        items = read_items(read_table(data, config.data.limit), config.benchmark)
        source = _source(config, f"{len(items)} prompts of {config.benchmark}")
        candidates = [Candidates.of_item(item) for item in items]
        scores = score_candidates(Checked(source, max_error_fraction=1.0), candidates, config.seed)
        found = RULES[config.benchmark](items, [[score.total for score in group] for group in scores])
        about = _about(source, scores)
        folder.log(0, {"score": found.overall.score}, phase="eval")
        Console().print(benchmark_report.table(found))
        leave(
            folder,
            f"{source.name} scores {found.overall.score:.1%} on {found.overall.name}",
            benchmark_headline(found),
            [benchmark_report.benchmark_section(found)],
            summary={part.name: part.score for part in (found.overall, *found.sections)},
            figures={**about, "data": data, **benchmark_report.to_dict(found)},
            rows=[item_rows(item, group) for item, group in zip(items, scores, strict=True)],
        )
    return folder


def _read(data: DataConfig) -> list[Pair]:
    table = train_table(data)
    return report_read(to_pairs(table, max_bad_fraction=data.max_dropped_fraction), f"pairs of {data.train}")


def _source(config: EvalConfig, what: str) -> RewardSource:
    """What is evaluated: a reward model, or reward sources as for every other command."""
    if config.model:
        print(f"{what}. Loading {config.model} ...", flush=True)
        return BradleyTerry.load(config.model)
    source = build(config.rewards)
    refuse_token_rewards(config.rewards, source)
    print(f"{what}. Scoring with {source.name} ...", flush=True)
    return source


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Answers to one prompt that are scored together; `key` names them wherever they stand in the data."""

    key: str
    prompt: Prompt
    completions: tuple[Completion, ...]

    @classmethod
    def of_pair(cls, pair: Pair) -> Candidates:
        """The two sides, chosen first."""
        return cls(key=prompt_key(pair), prompt=pair.prompt, completions=(pair.chosen, pair.rejected))

    @classmethod
    def of_item(cls, item: Item) -> Candidates:
        """The completions of an item of a benchmark, the right ones first."""
        texts = tuple(Completion(text=text) for text in item.completions)
        return cls(key=f"{item.subset}:{item.id}", prompt=item.prompt, completions=texts)

    def order(self, seed: int) -> list[int]:
        """Places of the completions in an order that follows from `key`, their texts and the seed, not from the data.

        A source that sees all of them at once must not learn that the right ones come first.
        """
        digests = [hashlib.sha256(f"{seed}:{self.key}:{c.text}".encode()).digest() for c in self.completions]
        return sorted(range(len(digests)), key=digests.__getitem__)


def score_candidates(reward: Checked, candidates: Sequence[Candidates], seed: int) -> list[list[Score]]:
    """Scores of all completions, in the order given; the source gets each group's own in a seeded order."""
    orders = [group.order(seed) for group in candidates]
    rollouts = [
        replace(text_rollout(group.prompt, group.completions[place]), group=str(index))
        for index, (group, order) in enumerate(zip(candidates, orders, strict=True))
        for place in order
    ]
    scores = iter(reward.score(rollouts))
    found = []
    for order in orders:
        by_place = {place: next(scores) for place in order}
        found.append([by_place[place] for place in range(len(order))])
    return found


def _about(source: RewardSource, scores: Sequence[Sequence[Score]]) -> dict[str, Any]:
    """The source, the means of the parts of its scores (of a judge, `order_bias`) and its errors, also printed."""
    flat = [score for group in scores for score in group]
    errors = error_counts(flat)
    for why, count in errors.items():
        print(f"{count} completions could not be scored: {why}")
    good = [score.parts for score in flat if score.ok]
    names = dict.fromkeys(name for parts in good for name in parts)
    means = {name: fmean(parts[name] for parts in good if name in parts) for name in names}
    if means:
        print("Means of its parts: " + ", ".join(f"{name} {show_number(value)}" for name, value in means.items()))
    return {"source": source.name, "parts": means, "errors": errors}


def _uncalibrated(source: RewardSource, quality: RewardQuality) -> RewardQuality | None:
    """The figures of a reward model as it was before it was calibrated, where it was."""
    temperature = source.model.record.temperature if isinstance(source, BradleyTerry) else 1.0
    return quality.at_temperature(1 / temperature) if temperature != 1 else None
