"""A reward model, or an ensemble, from judgements: trained, finished for serving, measured, saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from prefrl.config import EnsembleConfig, RewardConfig, RewardModelConfig
from prefrl.data.judgements import to_judgements
from prefrl.data.reading import Read
from prefrl.data.splits import check_disjoint, split_by_prompt
from prefrl.data.tables import Table
from prefrl.evaluate.reward_quality import RewardQuality, evaluate_pairs
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.ensemble import new_ensemble
from prefrl.model.reward_model import new_reward_model
from prefrl.model.reward_scorer import RewardScorer
from prefrl.policy.judgement import LabelModel
from prefrl.recipes.common import (
    conclude,
    final_checkpoint,
    last_metrics,
    read_table,
    report_read,
    train_and_held_out,
)
from prefrl.recipes.resuming import opened
from prefrl.recipes.reward_figures import Sides, ensemble_figures, judge_pairs, tie_figures
from prefrl.recipes.reward_fit import Judgements, fit, fixed_labels
from prefrl.recipes.reward_serving import finish, pairs_among
from prefrl.types import Pair, Ranking

__all__ = ["finish", "fit", "new_model", "pair_quality", "run"]

TEST_SPLIT = 20_250_101  # seed of the test prompts: they stay the same whatever else is drawn anew


def run(config: RewardConfig) -> RunFolder:
    """Train a reward model as configured; everything is left in the run folder.

    The final figures are those on `test`, else those on the held-out part, which chose the pass and the temperature.
    """
    with opened(config, "reward") as (folder, checkpoints):
        train, held_out, test = _read(config)
        tested = f", {len(test)} to test on" if test else ""
        print(f"{len(train)} judgements to train on, {len(held_out)} held out{tested}. Loading {config.model.name} ...")
        model = new_model(config.model, config.seed, config.ensemble)
        labels = fit(folder, model, train, held_out, config, checkpoints=checkpoints)
        figures = {"fitted": finish(model, held_out, config, labels)} | _annotators(labels)
        model.save(final_checkpoint(folder))
        pairs = pairs_among(test or held_out)
        judged = judge_pairs(model, pairs)
        quality = _measured(judged, pairs, train)
        figures |= tie_figures(judged, pairs, fixed_labels(config.labels, labels)) | ensemble_figures(judged, pairs)
        if pairs:
            figures["measured_on"] = "test" if test else "held out"
        if quality is not None:
            Console().print(quality.table())
            figures |= calibration(quality, model.record.temperature)
        conclude(folder, (quality.to_dict() if quality else last_metrics(folder, "train")) | figures, quality)
    return folder


def new_model(config: RewardModelConfig, seed: int, ensemble: EnsembleConfig | None = None) -> RewardScorer:
    """A fresh reward model, or ensemble, as configured."""
    ensemble = ensemble or EnsembleConfig()
    options: dict[str, Any] = {
        "lora": config.lora,
        "top_layers": config.top_layers,
        "layers": config.layers,
        "dtype": config.dtype,
        "device": config.device,
        "seed": seed,
    }
    if ensemble.members > 1 and ensemble.kind == "models":
        return new_ensemble(config.name, ensemble.members, **options)
    return new_reward_model(config.name, heads=ensemble.members, **options)


def pair_quality(model: RewardScorer, held_out: Judgements, train: Judgements) -> RewardQuality:
    """Everything one should know of a reward model on held-out judgements, baselines beside it.

    Scores are those that are served, means over members; completions over the model's `max_tokens` are unscored.
    """
    pairs = pairs_among(held_out)
    return _quality(judge_pairs(model, pairs), pairs, train)


def _quality(judged: Sequence[Sides], pairs: Sequence[Pair], train: Judgements) -> RewardQuality:
    chosen, rejected = ([sides[k].mean if sides[k].scores else math.nan for sides in judged] for k in (0, 1))
    return evaluate_pairs(chosen, rejected, pairs, pairs_among(train))


def _measured(judged: Sequence[Sides], pairs: Sequence[Pair], train: Judgements) -> RewardQuality | None:
    """The quality, or None, with a line that says so, where all pairs are ties."""
    if any(pair.label != 0.5 and pair.tie < 0.5 for pair in pairs):
        return _quality(judged, pairs, train)
    if pairs:
        print(f"Not measured: none of {len(pairs)} pairs prefers one side.")
    return None


def calibration(quality: RewardQuality, temperature: float) -> dict[str, Any]:
    """NLL and ECE of the scores as they are and, `raw`, as they were before they were divided by the temperature."""
    raw = quality.at_temperature(1.0 / temperature)
    found = {"raw": raw, "calibrated": quality}
    return {"probabilities": {name: {"nll": one.nll, "ece": one.ece} for name, one in found.items()}}


def _read(config: RewardConfig) -> tuple[list[Pair | Ranking], list[Pair | Ranking], list[Pair | Ranking]]:
    """Judgements to train on, held out, and to test on; no prompt is in two of them."""

    def convert(table: Table) -> Read[Pair | Ranking]:
        return to_judgements(table, config.labels, max_bad_fraction=config.data.max_dropped_fraction)

    train, held_out = train_and_held_out(config.data, convert, config.seed, "judgements")
    if config.test_fraction:
        train, test = split_by_prompt(train, config.test_fraction, TEST_SPLIT)
        if not config.data.eval:  # split off the same prompts as `train`, so the test prompts leave it too
            held_out, more = split_by_prompt(held_out, config.test_fraction, TEST_SPLIT)
            test += more
        return train, held_out, test
    if not config.test:
        return train, held_out, []
    test = report_read(convert(read_table(config.test)), f"judgements of {config.test}")
    check_disjoint([*train, *held_out], test)
    return train, held_out, test


def _annotators(labels: Sequence[LabelModel]) -> dict[str, Any]:
    """What the first model learnt of each annotator, those to look at printed; nothing where none is named."""
    report = labels[0].report()
    for one in report:
        if one.flagged:
            print(
                f"Annotator {one.name}: reliability {one.alpha:.2f} from {one.labels} judgements, {one.agreement:.0%} "
                "of which the scores agree with. Judgements like these say the opposite of everyone else's, or nothing."
            )
    return {"annotators": [asdict(one) for one in report]} if report else {}
