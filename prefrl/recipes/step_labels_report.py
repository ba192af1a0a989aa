"""What automatic step labels look like, and how far they agree with labels that the data has: the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefrl.data.steps import Stepped
from prefrl.evaluate.blocks import Block, Figure, Section, Table, Warnings
from prefrl.evaluate.figures import histogram
from prefrl.evaluate.shares import Share, percent, percents
from prefrl.evaluate.step_metrics import process_bench
from prefrl.evaluate.step_quality import known_first_error

_TOO_OFTEN = 0.05  # share of continuations cut off by the token budget from which labels are too low
_PLACES = 20  # places of steps in the table

Card = tuple[str, str, str]


def title(made: Sequence[Stepped], counts: Mapping[str, int]) -> str:
    """What came out, in one line."""
    steps = sum(len(one.steps) for one in made)
    return f"{steps:,} steps of {len(made):,} solutions labelled from {counts['continuations']:,} continuations"


def agreement(pairs: Sequence[tuple[Stepped, Stepped]]) -> dict[str, Any]:
    """First errors of automatic labels by the labels that the data has; empty without those."""
    known = [(known_first_error(given), found.first_error) for given, found in pairs]
    both = [(true, said) for true, said in known if true is not None]
    if not both:
        return {}
    figures = process_bench([said for _, said in both], [true for true, _ in both])
    wrong = [true for true, _ in both if true >= 0]
    return {**figures, "solutions": len(both), "wrong": len(wrong), "early": sum(0 <= s < t for t, s in both)}


def cards(made: Sequence[Stepped], counts: Mapping[str, int], known: Mapping[str, Any]) -> list[Card]:
    """The figures to see first."""
    outcomes = Share.of([one.outcome == 1.0 for one in made], [one.prompt.id for one in made])
    erring = sum(one.first_error >= 0 for one in made)
    found = [
        ("solutions with a right answer", percent(outcomes.rate), f"of {len(made)} {percents(outcomes.interval)}"),
        ("with a wrong step", percent(erring / len(made)), "by these labels"),
        ("tokens sampled", f"{counts['tokens']:,}", f"{counts['continuations']:,} continuations"),
    ]
    if known:
        found.append(
            ("first-error F1", f"{known['f1']:.3f}", f"against the data's labels, {known['solutions']} solutions")
        )
    return found


def sections(made: Sequence[Stepped], counts: Mapping[str, int], known: Mapping[str, Any]) -> list[Block]:
    """The labels by place, their spread, and what was left out."""
    blocks: list[Block] = [
        Warnings(_warnings(counts)),
        Table(
            ("step", "solutions", "label, mean", "called wrong"),
            _by_place(made),
            "Labels below 1/2 are called wrong. Steps without a label do not count.",
        ),
    ]
    shares = [k / n for one in made for k, n in filter(None, one.counts)]
    if shares:
        figure = histogram({"steps": shares}, bins=20, xlabel="share of right continuations")
        blocks.append(
            Figure(figure, "Right continuations", "Shares between 0 and 1 are where a hard label is too high.")
        )
    blocks.append(Table(("", "number"), sorted(counts.items()), "All that was counted, what was left out too."))
    found: list[Block] = [Section("Labels", blocks)]
    if known:
        rows = [(name.replace("_", " "), value) for name, value in known.items()]
        lead = (
            "The first step that is called wrong, beside the one that is; early is the number of those named too soon."
        )
        found.append(Section("Against the labels of the data", [Table(("measure", "value"), rows)], lead))
    return found


def _warnings(counts: Mapping[str, int]) -> list[str]:
    cut = counts["cut off"] / max(1, counts["continuations"])
    if cut <= _TOO_OFTEN:
        return []
    return [f"{percent(cut)} of the continuations were cut off by sampling.max_new_tokens, which makes labels too low."]


def _by_place(made: Sequence[Stepped]) -> list[tuple[int, int, float, float]]:
    rows = []
    for at in range(min(_PLACES, max(len(one.steps) for one in made))):
        labels = [label for one in made if at < len(one.steps) and (label := one.labels[at]) is not None]
        if labels:
            wrong = sum(label < 0.5 for label in labels) / len(labels)
            rows.append((at + 1, len(labels), sum(labels) / len(labels), wrong))
    return rows
