"""The report's section on what was fitted beside the weights of a reward model, read off the summary of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefrl.evaluate.blocks import Block, Section, Table, Warnings
from prefrl.evaluate.shares import amount, number

Row = tuple[str, str, str]

_TIES = {
    "rao_kupper": "Rao-Kupper's eta: how far apart scores must be",
    "davidson": "Davidson's nu: how likely ties are",
}
_THIRDS = {"surest": "smallest", "middle": "middling", "least sure": "largest"}


def fitted_sections(summary: Mapping[str, Any]) -> list[Section]:
    """Temperature, ties, length, members and annotators, as far as the summary has them; nothing of other runs."""
    if "fitted" not in summary:
        return []
    rows = [*_temperature(summary), *_ties(summary), *_length(summary["fitted"]), *_members(summary)]
    annotators = summary.get("annotators") or []
    blocks: list[Block] = [Warnings([_warning(one) for one in annotators if one["flagged"]])]
    where = summary.get("measured_on", "").replace(" ", "-")
    caption = f"NLL, ECE, ties, spread and accuracy are those of the {where} pairs." if where else ""
    blocks.append(Table(("what", "value", "note"), rows, caption))
    if annotators:
        blocks.append(_annotator_table(annotators))
    return [Section("What was fitted", blocks, "What the run learnt beside the weights of the reward model.")]


def temperature_of(summary: Mapping[str, Any]) -> float:
    """What the scores of the run's reward model were divided by; 1 where they were not calibrated."""
    return float((summary.get("fitted") or {}).get("temperature") or 1.0)


def _temperature(summary: Mapping[str, Any]) -> list[Row]:
    if "temperature" not in summary["fitted"]:
        return [("temperature", "none", "the scores were not calibrated")]
    note = "what the scores were divided by, of lowest NLL on the held-out judgements"
    rows = [("temperature", amount(temperature_of(summary)), note)]
    found = summary.get("probabilities") or {}
    if {"raw", "calibrated"} <= found.keys():
        for name, hint in (("nll", "guessing costs 0.693"), ("ece", "0 is perfectly calibrated")):
            before, after = (_known(found[when].get(name)) for when in ("raw", "calibrated"))
            rows.append((f"  {name.upper()}", f"{before} → {after}", f"before → after, of the decided pairs; {hint}"))
    return rows


def _ties(summary: Mapping[str, Any]) -> list[Row]:
    model = summary["fitted"].get("tie_model")
    if not model:
        return []
    rows = [("tie parameter", amount(summary["fitted"]["tie_parameter"]), _TIES.get(model, model))]
    if shares := summary.get("tie_shares"):
        value = f"{shares['predicted']:.1%}, observed {shares['observed']:.1%}"
        rows.append(("  ties predicted", value, f"mean probability and share of {shares['pairs']} pairs"))
    return rows


def _length(fitted: Mapping[str, Any]) -> list[Row]:
    if (slope := fitted.get("length_slope")) is None:
        return []
    return [("length correction", amount(slope), "score taken off for each character over the mean length")]


def _members(summary: Mapping[str, Any]) -> list[Row]:
    found = summary.get("ensemble")
    if not found:
        return []
    spread = "mean standard deviation over members of a pair's score difference"
    rows = [("members", str(found["members"]), ""), ("  spread", amount(found["spread"]), spread)]
    for (name, spread), (right, total) in zip(_THIRDS.items(), found["accuracy_by_spread"], strict=True):
        if total:
            rows.append((f"  accuracy, {name} third", f"{right / total:.1%}", f"{right} of {total}: {spread} spread"))
    return rows


def _annotator_table(annotators: Sequence[Mapping[str, Any]]) -> Table:
    """One row each; without the reliabilities where all are 1 because none was learnt."""
    learnt = any(one["alpha"] != 1.0 for one in annotators)
    rows = [
        (
            one["name"],
            *([one["alpha"]] if learnt else []),
            one["labels"],
            "none decided" if one["agreement"] is None else f"{one['agreement']:.1%}",
            "yes" if one["flagged"] else "",
        )
        for one in annotators
    ]
    note = "Agreement: decided judgements that the scores agree with, over about the last pass."
    alpha = "Alpha: 1 is average, 0 guesses, below 0 says the opposite. " if learnt else ""
    return Table(("annotator", *(["alpha"] if learnt else []), "labels", "agreement", "flagged"), rows, alpha + note)


def _warning(one: Mapping[str, Any]) -> str:
    return (
        f"Annotator {one['name']} has reliability {amount(one['alpha'])} from {one['labels']} judgements: they say the "
        "opposite of everyone else's, or nothing. Look at them before using more from the same hand."
    )


def _known(value: float | None) -> str:
    return "undefined" if value is None else number(value)
