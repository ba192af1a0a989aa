"""What a run that learns from fragments tells: a table of its rounds, the true return, the reward against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefrl.evaluate import figures
from prefrl.evaluate.alarms import find_alarms
from prefrl.evaluate.blocks import Block, Details, Figure, Headline, Report, Section, Table, Text, Warnings
from prefrl.evaluate.report import curve_sections, setup_sections, write_report
from prefrl.evaluate.run_folder import RunData, RunFolder, read
from prefrl.recipes.loop_journal import Journal

Round = dict[str, Any]
COLUMNS = {
    "labels": "labels",
    "skipped": "skipped",
    "ties": "ties",
    "truthful": "labels that are true",
    "disagreement/asked": "disagreement of what was asked",
    "disagreement/candidates": "of all candidates",
    "fit/accuracy": "accuracy on all labels",
    "accuracy": "accuracy on fresh pairs",
    "correlation": "correlation with the true reward",
    "return/mean": "true return",
    "return/std": "deviation",
}


def write(folder: RunFolder, journal: Journal, about: str) -> Path:
    """Write the report of a run, finished or waiting."""
    return write_report(folder, report(read(folder.path), rounds(journal), about))


def rounds(journal: Journal) -> list[Round]:
    """The figures of every round so far; those of a round that is under way are not complete."""
    found = []
    for number in range(1, int(journal.config["rounds"]) + 1):
        phases = [f"{number}/{name}" for name in ("ask", "label", "fit", "improve")]
        done = [journal.figures(name) for name in phases if journal.done(name)]
        if done:
            found.append({"round": number} | {key: value for part in done for key, value in part.items()})
    return found


def report(data: RunData, found: list[Round], about: str) -> Report:
    """Headline, warnings, the rounds, curves, setup."""
    blocks: list[Block] = [_headline(found), Warnings([*find_alarms(data), *_warnings(found)])]
    blocks.append(Section("Rounds", [_table(found), *_curves(data), Text(about)]))
    inner = curve_sections(data, title="Policy", eval_phase="")
    blocks += [Details("The policy, step by step", inner)] if inner else []
    waiting = str(data.status.get("why", "")).partition("\n")[0]
    lead = waiting if data.state == "waiting" else "The true return is what the environment pays; no policy learnt it."
    return Report(title=_title(data, found), lead=lead, blocks=[*blocks, *setup_sections(data)])


def _title(data: RunData, found: list[Round]) -> str:
    _, returns = data.series("return/mean", "eval")
    labels = sum(int(one.get("labels", 0)) for one in found)
    if len(returns) < 2:
        return f"{labels} comparisons so far"
    verb = "rose" if returns[-1] > returns[0] else "fell"
    return f"True return {verb} from {returns[0]:.0f} to {returns[-1]:.0f} with {labels} comparisons"


def _headline(found: list[Round]) -> Headline:
    last: Round = {key: value for one in found for key, value in one.items()}
    shown = [("comparisons", str(sum(int(one.get("labels", 0)) for one in found)), f"in {len(found)} rounds")]
    if last.get("return/mean") is not None:
        shown.append(("true return", f"{last['return/mean']:.1f}", "of the most likely actions"))
    if last.get("accuracy") is not None:
        shown.append(("reward", f"{last['accuracy']:.0%}", "of fresh pairs of fragments ranked right"))
    if last.get("correlation") is not None:
        shown.append(("correlation", f"{last['correlation']:.2f}", "of learnt and true reward, by step"))
    return Headline(shown)


def _table(found: list[Round]) -> Table:
    known = [key for key in COLUMNS if any(one.get(key) is not None for one in found)]
    rows = [(one["round"], *(one.get(key, "-") for key in known)) for one in found]
    caption = "Accuracy on fresh pairs is against what the environment pays, on fragments that nobody labelled."
    return Table(("round", *(COLUMNS[key] for key in known)), rows, caption)


def _curves(data: RunData) -> list[Block]:
    drawn: list[Block] = []
    steps, returns = data.series("return/mean", "eval")
    if returns:
        drawn.append(Figure(figures.curves({"true return": (steps, returns)}, xlabel="policy update"), "True return"))
    names = {"accuracy": "accuracy on fresh pairs", "correlation": "correlation with the true reward"}
    lines = {label: data.series(name, "reward") for name, label in names.items()}
    lines = {label: line for label, line in lines.items() if line[0]}
    if lines:
        drawn.append(Figure(figures.curves(lines, xlabel="round"), "The reward against the truth"))
    return drawn


def _warnings(found: list[Round]) -> list[str]:
    said = []
    for one in found:
        if one.get("accuracy") is not None and one["accuracy"] < 0.55:
            said.append(f"Round {one['round']}: the reward ranks fresh pairs no better than chance.")
        if one.get("too_short"):
            said.append(f"Round {one['round']}: {one['too_short']} of {one['episodes']} episodes had no fragment.")
    return said
