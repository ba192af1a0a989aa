"""What an audit and a rescoring say: tables for the terminal, sections for the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rich import box
from rich.table import Table as RichTable

from prefrl.evaluate.blocks import Block, Section, Table, Text, Warnings
from prefrl.evaluate.shares import percent, percents
from prefrl.evaluate.verifier_audit import Disagreement, ProbeCount
from prefrl.recipes.verify_answers import Given
from prefrl.types import Score

COLUMNS = ("probe", "must", "passed", "failed", "errors", "wrong", "95 %")
_MUST = {True: "pass", False: "fail", None: "-"}
_LONGEST = 160  # characters of a text in a table
_CHANGES = 20  # largest changes in the report
_SAME = 1e-9


def probe_table(counts: Sequence[ProbeCount]) -> RichTable:
    """The probes in the terminal."""
    table = RichTable(
        title="Answers that are known to be right or wrong",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("probe", "must") else "right", no_wrap=True)
    for row in _rows(counts, digits=0):
        table.add_row(*map(str, row))
    return table


def audit_sections(
    counts: Sequence[ProbeCount], found: Sequence[str], lint: Sequence[str], judged: Disagreement | None
) -> list[Block]:
    """The audit in the report."""
    blocks: list[Block] = [
        Warnings(found),
        Table(
            COLUMNS,
            _rows(counts),
            "Right answers, the same in other words, and answers that are surely wrong; rows for which none is surely "
            "wrong have no such probe. Forms without a demand, such as an answer in a box, are shown for you to decide "
            "whether the reward should take them.",
        ),
        *_examples(counts),
    ]
    sections: list[Block] = [Section("Probes", blocks, "What the reward says of answers that nobody has to judge.")]
    if judged is not None:
        sections.append(_judge_section(judged))
    if lint:
        said = "\n\n".join(lint)
        lead = "A phrase says nothing about whether an answer is right. The probes above say whether it matters."
        sections.append(Section("Fixed words in reward functions", [Text(said)], lead))
    return sections


def _examples(counts: Sequence[ProbeCount]) -> list[Block]:
    rows = [
        (count.name, _cut(probe.prompt.question), _cut(probe.gold), _cut(probe.text), _said(count))
        for count in counts
        if count.good is not None
        for probe in count.examples[:3]
    ]
    columns = ("probe", "question", "right answer", "answer that was tried", "the reward")
    return [Table(columns, rows, "Where it went wrong: up to three of each kind.")] if rows else []


def _said(count: ProbeCount) -> str:
    if not count.wrong:
        return "could not score it"
    return "refused it" if count.good else "gave full marks"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def change_sections(answers: Sequence[Given], scores: Sequence[Score]) -> tuple[list[Block], dict[str, Any]]:
    """Old scores beside new ones: sections, and the figures."""
    both = [(a, a.before, s.total) for a, s in zip(answers, scores, strict=True) if s.ok and a.before is not None]
    changes = [(given, before, now) for given, before, now in both if abs(now - before) > _SAME]
    changes.sort(key=lambda change: -abs(change[2] - change[1]))
    rows = [
        (g.prompt.id, _cut(g.prompt.question), _cut(g.text), before, now, now - before)
        for g, before, now in changes[:_CHANGES]
    ]
    figures = {
        "scored": len(both),
        "unscored": len(answers) - len(both),
        "changed": len(changes),
        "up": sum(now > before for _, before, now in changes),
        "down": sum(now < before for _, before, now in changes),
        "mean_before": fmean(before for _, before, _ in both) if both else 0.0,
        "mean_now": fmean(now for *_, now in both) if both else 0.0,
        "largest": [{"prompt": g.prompt.id, "before": before, "now": now} for g, before, now in changes[:_CHANGES]],
    }
    caption = f"The largest of {len(changes)} changes: {figures['up']} went up, {figures['down']} down."
    table = Table(("id", "question", "answer", "before", "now", "change"), rows, caption)
    lead = "Only answers that had a score before and have one now are compared."
    return [Section("What changed", [table], lead)], figures


def _judge_section(judged: Disagreement) -> Section:
    positive, negative = judged.false_positive_rate, judged.false_negative_rate
    rows = [
        ("reward passes, judge passes", judged.both_pass, "", ""),
        ("reward passes, judge fails", judged.false_positives, percent(positive[0]), percents(positive[1])),
        ("reward fails, judge passes", judged.false_negatives, percent(negative[0]), percents(negative[1])),
        ("reward fails, judge fails", judged.both_fail, "", ""),
        ("one of them could not judge", judged.unscored, "", ""),
    ]
    caption = (
        "The judge is taken for the truth. Rates are those of the answers that the reward passes (false positives) and "
        "fails (false negatives), with 95 % Wilson intervals."
    )
    return Section("Beside an independent judge", [Table(("", "answers", "rate", "95 %"), rows, caption)])


def _rows(counts: Sequence[ProbeCount], digits: int = 1) -> list[tuple[Any, ...]]:
    def shown(count: ProbeCount) -> tuple[str, str]:
        if count.good is None or not math.isfinite(count.rate):
            return "-", "-"
        low, high = count.interval
        return f"{count.rate:.{digits}%}", f"[{low:.{digits}%}, {high:.{digits}%}]"

    return [
        (count.name, _MUST[count.good], count.passed, count.failed, count.unscored, *shown(count)) for count in counts
    ]
