"""What serving a reward model needs beside its weights, fitted on held-out judgements and saved in its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from prefrl.config import RewardConfig
from prefrl.data.judgements import pairs_of
from prefrl.errors import ConfigError
from prefrl.model.reward_scorer import RewardScorer
from prefrl.policy.judgement import LabelModel
from prefrl.policy.length import length_slope
from prefrl.recipes.early_stopping import FEWEST
from prefrl.recipes.pairs import reward_rows
from prefrl.recipes.reward_fit import Judgements, best_temperature, completions_of, fixed_labels, resolved
from prefrl.types import Pair, Ranking, Row


def finish(
    model: RewardScorer, held_out: Judgements, config: RewardConfig, learnt: Sequence[LabelModel] = ()
) -> dict[str, Any]:
    """Fit length correction, temperature, mean and spread, in this order, and put them into the record and the heads.

    residual     the slope of score differences on length differences, in characters, is taken off when serving
    calibrate    scores are divided by the temperature T of lowest held-out NLL, in the weights of the heads: whoever
                 loads the model gets log-odds. The NLL is convex in 1 / T
    offsets      of each member's scores of held-out completions from the mean of all, where there are several
    mean, std    of the scores of held-out completions after that

    Args:
        model: trained, not yet finished.
        held_out: judgements that were not trained on.
        config: what is wanted.
        learnt: what `fit` returned.

    Returns:
        What was fitted, and the tie model where there is one, for the summary of a run.

    Raises:
        ConfigError: a length correction is wanted, but nothing is held out.
    """
    labels = fixed_labels(config.labels, learnt)
    figures = _describe(model, labels, learnt)
    scored = _scored(model, resolved(held_out, config.labels, config.labels.annotator_weights).items, config)
    if scored is None:
        if config.length.kind == "residual":
            raise ConfigError("length.kind is residual, but nothing is held out to fit it on. Set data.eval_fraction.")
        print("Not calibrated: no judgement is held out.")
        return figures
    members, lengths, rows = scored
    scores = members.mean(1)
    if config.length.kind == "residual":
        slope, centre = length_slope(scores, lengths, _atoms(rows)), float(lengths.mean())
        scores = scores - slope * (lengths - centre)
        model.record = replace(model.record, length_slope=slope, length_centre=centre)
    if config.calibrate and len(set(_atoms(rows).tolist())) >= FEWEST:
        temperature = best_temperature(scores, rows, labels)
        scores, members = scores / temperature, members / temperature
        model.divide(temperature)
        slope = model.record.length_slope / temperature
        model.record = replace(model.record, temperature=model.record.temperature * temperature, length_slope=slope)
        figures["temperature"] = temperature
    elif config.calibrate:
        print(f"Not calibrated: fewer than {FEWEST} judgements are held out.")
    if model.members > 1:
        model.record = replace(model.record, offsets=tuple((members.mean(0) - members.mean()).tolist()))
    model.record = replace(model.record, mean=fmean(scores.tolist()), std=pstdev(scores.tolist()))
    if config.length.kind == "residual":
        figures["length_slope"] = model.record.length_slope  # of the scores that are served
    return figures


def _describe(model: RewardScorer, labels: LabelModel, learnt: Sequence[LabelModel]) -> dict[str, Any]:
    """Put what was learnt of ties and annotators into the record; the tie model, where there is one."""
    alphas = [{figures.name: figures.alpha for figures in one.report()} for one in learnt if one.alphas.requires_grad]
    trust = {name: fmean(own[name] for own in alphas) for name in alphas[0]} if alphas else {}
    ties = labels.config.ties if labels.models_ties else ""
    model.record = replace(model.record, tie_model=ties, tie_parameter=labels.tie_parameter, reliability=trust)
    return {"tie_model": ties, "tie_parameter": labels.tie_parameter} if ties else {}


def _scored(
    model: RewardScorer, judgements: Judgements, config: RewardConfig
) -> tuple[Tensor, Tensor, list[Row]] | None:
    """Scores (R, K) of all completions, their lengths in characters (R,), and rows; those too long are left out."""
    lengths: list[int] = []
    rows: list[Row] = []
    for judged, own in zip(judgements, reward_rows(judgements, model), strict=True):
        if max(len(row.prompt_ids) + len(row.completion_ids) for row in own) <= config.max_tokens:
            rows += own
            lengths += [len(completion.text) for completion in completions_of(judged)]
    if not rows:
        return None
    return model.member_scores(rows).double(), torch.tensor(lengths, dtype=torch.float64), rows


def _atoms(rows: Sequence[Row]) -> Tensor:
    return torch.tensor([row.atom for row in rows])


def pairs_among(judgements: Judgements) -> list[Pair]:
    """The pairs, and all pairs of every ranked list."""
    return [pair for judged in judgements for pair in (pairs_of(judged) if isinstance(judged, Ranking) else [judged])]
