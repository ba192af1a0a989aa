"""What a finished job found, in a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annotate.loop.runs import Run
from prefrl.data.comparisons import WINS
from prefrl.data.preferences import PreferenceStore
from prefrl.data.waiting import unanswered
from prefrl.evaluate.shares import percents
from prefrl.evaluate.statistics import WinRate, win_rate


def result(run: Run, store: PreferenceStore) -> str:
    """What a job found; what is wrong, of one that failed; nothing while it runs."""
    if run.job.state == "failed":
        return run.job.error
    summary = run.status.get("summary") or {}
    if run.job.state != "done" or not summary:
        return ""
    if run.job.kind == "reward":
        return _accuracy(summary)
    if run.job.kind == "generate":
        return _pairs(run, store, summary)
    return _wins(summary)


def compared(store: PreferenceStore, ids: set[str], identical: int = 0) -> WinRate | None:
    """The win rate of the first policy over what people said; None before anybody said anything.

    Args:
        store: with the labels.
        ids: of the pairs.
        identical: prompts that both policies answered alike, which nobody is asked about: ties.
    """
    said = [j for j in store.judgements() if j.item.id in ids and j.label.outcome in WINS]
    if not said:
        return None
    outcomes = [WINS[j.label.outcome] for j in said] + [0.5] * identical
    groups = [j.item.prompt.id for j in said] + [f"identical {n}" for n in range(identical)]
    return win_rate(outcomes, groups=groups)


def _accuracy(summary: Mapping[str, Any]) -> str:
    rate, interval = summary.get("accuracy"), summary.get("accuracy_interval")
    if rate is None or interval is None:
        return "trained; not measured, as nothing decided was held out"
    _, total = summary["accuracy_counts"]
    return f"{rate:.0%} of {total} held-out pairs ranked right {percents(interval)}"


def _wins(summary: Mapping[str, Any]) -> str:
    last = list(summary.values())[-1]
    if "win_rate" not in last:
        return "no comparison with the start could be judged"
    return f"wins {last['win_rate']:.0%} {percents((last['win_low'], last['win_high']))} against the start"


def _pairs(run: Run, store: PreferenceStore, summary: Mapping[str, Any]) -> str:
    ids = _ids(run.folder / "items.jsonl")
    missing = len(unanswered(store, ids))
    said = f"{summary['added']} pairs added, {len(ids) - missing} of {len(ids)} labelled"
    config = run.config()
    if not config.get("compare"):
        return said
    wins = compared(store, set(ids), int(summary.get("identical", 0)))
    names = f"{config['model']} against {config['against']}"
    return f"{names}: {f'wins {wins}' if wins else 'nothing said yet'}; {said}"


def _ids(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [str(json.loads(line)["id"]) for line in lines]
