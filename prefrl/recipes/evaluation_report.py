"""What an evaluation of a reward leaves behind: its samples, one JSON file with all figures, and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefrl.evaluate.alarms import find_alarms
from prefrl.evaluate.blocks import Block, Headline, Report, Section, Warnings, show_number
from prefrl.evaluate.files import to_plain, write_atomic
from prefrl.evaluate.report import sample_sections, setup_sections, write_report
from prefrl.evaluate.reward_quality import RewardQuality
from prefrl.evaluate.rewardbench import Benchmark, Item
from prefrl.evaluate.run_folder import RunData, RunFolder, read
from prefrl.evaluate.shares import percent, percents
from prefrl.types import Pair, Prompt, Score

FIGURES = "evaluation.json"
"""All figures of an evaluation of a reward, in its run folder."""

Card = tuple[str, str, str]

_SHOWN = 6  # prompts in the report


def quality_headline(quality: RewardQuality) -> list[Card]:
    """The figures of a reward on pairs to see first."""
    cards = [("accuracy", percent(quality.accuracy.rate), quality.accuracy.evidence)]
    if quality.baselines:
        best = max(quality.baselines, key=lambda baseline: baseline.accuracy)
        cards.append(("best baseline", percent(best.accuracy), f"{best.name} {percents(best.interval)}"))
    if quality.length is not None and quality.length.covered:
        cards.append(("length-balanced", percent(quality.length.balanced), percents(quality.length.interval)))
    cards.append(("NLL", show_number(quality.nll), "guessing costs 0.693"))
    if quality.agreement is not None and not quality.agreement.undefined:
        cards.append(("people agree", percent(quality.agreement.leave_one_out), "one with the majority of the others"))
    return cards


def benchmark_headline(benchmark: Benchmark) -> list[Card]:
    """The overall score and those of the sections."""
    overall = (benchmark.overall.name, percent(benchmark.overall.score), f"{benchmark.overall.total:,} prompts")
    return [overall, *((part.name, percent(part.score), f"{part.total:,} prompts") for part in benchmark.sections)]


def leave(
    folder: RunFolder,
    title: str,
    cards: Sequence[Card],
    sections: Sequence[Block],
    *,
    summary: Mapping[str, Any],
    figures: Mapping[str, Any],
    rows: Sequence[Sequence[Mapping[str, Any]]],
) -> None:
    """Write all figures, the samples and the report, mark the run finished, and say where everything is.

    Args:
        folder: the run.
        title: what came out, in one line.
        cards: figures for the top of the report.
        sections: the report's sections on the reward.
        summary: the few figures that the status keeps.
        figures: all of them, for the JSON file.
        rows: samples of every prompt, a right answer first; the report shows the most wrong ones.
    """
    path = folder.path / FIGURES
    write_atomic(path, json.dumps(to_plain(figures), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    folder.samples(0, [row for group in rows for row in group])
    folder.finish(summary)
    data = read(folder.path)
    blocks = [Headline(cards), Warnings(find_alarms(data)), *sections, *_worst(data, rows), *setup_sections(data)]
    print(f"Figures: {path}")
    print(f"Report: {write_report(folder, Report(title=title, blocks=blocks))}")


def pair_rows(pair: Pair, index: int, chosen: Score, rejected: Score) -> list[dict[str, Any]]:
    """The two sides of a pair as rows of `samples.jsonl`."""
    name = f"{pair.prompt.id}:{index}"
    return [
        _row(pair.prompt, name, "chosen", pair.chosen.text, chosen, best=chosen.total > rejected.total),
        _row(pair.prompt, name, "rejected", pair.rejected.text, rejected, best=rejected.total > chosen.total),
    ]


def item_rows(item: Item, scores: Sequence[Score]) -> list[dict[str, Any]]:
    """The completions of an item of a benchmark as rows of `samples.jsonl`."""
    names = [f"right {k + 1}" for k in range(item.correct)]
    names += [f"wrong {k + 1}" for k in range(len(item.completions) - item.correct)]
    highest = max((score.total for score in scores if score.ok), default=0.0)
    return [
        _row(item.prompt, item.prompt.id, name, text, score, best=score.total == highest)
        for name, text, score in zip(names, item.completions, scores, strict=True)
    ]


def _worst(data: RunData, rows: Sequence[Sequence[Mapping[str, Any]]]) -> list[Block]:
    scored = [group for group in rows if all(row["reward"] is not None for row in group)]
    worst = sorted(scored, key=_lead)[:_SHOWN]
    shown = replace(data, samples=[{"step": 0, **row} for group in worst for row in group])
    title = "Where it is most wrong"
    lead = f"Those where a wrong answer is furthest ahead, {len(worst)} of {len(rows)}; all are in samples.jsonl."
    return [Section(title, block.blocks, lead) for block in sample_sections(shown) if isinstance(block, Section)]


def _lead(group: Sequence[Mapping[str, Any]]) -> float:
    """How far the first completion, a right one, is ahead of the best of the last."""
    wrong = [row for row in group[1:] if not str(row["policy"]).startswith("right")]
    return float(group[0]["reward"] - max(row["reward"] for row in wrong))


def _row(prompt: Prompt, name: str, policy: str, text: str, score: Score, *, best: bool) -> dict[str, Any]:
    return {
        "policy": policy,
        "prompt_id": name,
        "prompt": prompt.question,
        "completion": text,
        "reward": score.total if score.ok else None,
        "parts": dict(score.parts),
        "error": score.error,
        "won": best,
        "badge": "scored higher" if best else "",
    }
