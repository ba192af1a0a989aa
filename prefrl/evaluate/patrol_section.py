"""The patrol in the report: three curves side by side, and what to look at, in words."""

from __future__ import annotations

import math

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Block, Figure, Section, Table, Text
from prefrl.evaluate.patrol import LABELS, replay
from prefrl.evaluate.run_folder import RunData
from prefrl.evaluate.statistics import wilson

_LEAD = (
    "Three curves belong together: what is optimized, what is wanted, and how answers fail. Where the first rises and "
    "the second does not, the reward is being gamed."
)
_INDEPENDENT = ("audit/mean",)
_HELD_OUT = ("audit/mean", "win_rate", "success", "accuracy")
_FAILURES = {
    "stop/length": "cut off by the token budget",
    "errors": "not scored",
    "watch/repetition": LABELS["repetition"],
    "watch/echo": LABELS["echo"],
    "watch/near_duplicates": LABELS["near_duplicates"],
    "watch/injection": LABELS["injection"],
}


def patrol_sections(data: RunData, *, phase: str = "train", eval_phase: str = "eval") -> list[Block]:
    """The section; nothing for a run that sampled no answers."""
    steps, rewards = data.series("reward/mean", phase)
    if not any(name.startswith("watch/") for name in data.names(phase)) or len(steps) < 2:
        return []
    alarms = replay(data, phase)
    said = [f"Step {alarm.step}: {alarm.text}" for alarm in alarms]
    words = "\n\n".join(said) or _quiet(data, phase, eval_phase)
    wanted = {"training reward": (steps, rewards), **_independent(data, phase, eval_phase)}
    blocks: list[Block] = [Text(words)]
    caption = "Training reward, and what no step has optimized."
    blocks.append(Figure(figures.curves(wanted), "What is optimized and what is wanted", caption))
    failures = _failures(data, phase)
    if failures:
        blocks.append(Figure(figures.curves(failures, percent=True), "How answers fail"))
    blocks += _rates(data, phase)
    return [Section("Patrol", blocks, _LEAD)]


def _quiet(data: RunData, phase: str, eval_phase: str) -> str:
    if _independent(data, phase, eval_phase):
        return "Nothing was found: the independent measure did not part from the training reward."
    return (
        "Nothing was found in the answers, but nothing independent was measured either: a reward that is gamed would "
        "look the same. Add a second verifier to the rewards with audit: 0.1, or held-out prompts with data.eval."
    )


def _independent(data: RunData, phase: str, eval_phase: str) -> dict[str, figures.Curve]:
    found: dict[str, figures.Curve] = {}
    for name in _INDEPENDENT:
        if data.series(name, phase)[0]:
            found["audit of the same answers"] = data.series(name, phase)
    for name in _HELD_OUT:
        if len(data.series(name, eval_phase)[0]) > 1:
            found[f"{'audit' if name == 'audit/mean' else name.replace('_', ' ')} on held-out prompts"] = data.series(
                name, eval_phase
            )
    return found


def _failures(data: RunData, phase: str) -> dict[str, figures.Curve]:
    curves = {label: data.series(name, phase) for name, label in _FAILURES.items()}
    return {label: curve for label, curve in curves.items() if any(value > 0 for value in curve[1])}


def _rates(data: RunData, phase: str) -> list[Block]:
    """False positives and negatives of the reward by the audit, over the whole run."""

    def total(name: str) -> int:
        return int(sum(v for v in data.series(f"audit/{name}", phase)[1] if math.isfinite(v)))

    rows = []
    for what, of, wrong in (
        ("false positives", "passed", "false_positives"),
        ("false negatives", "failed", "false_negatives"),
    ):
        if total(of):
            low, high = wilson(total(wrong), total(of))
            rate = f"{total(wrong) / total(of):.1%} [{low:.1%}, {high:.1%}]"
            rows.append((what, f"{total(wrong)} of {total(of)} that the reward {of}", rate))
    caption = "The audit is taken for the truth; 95 % Wilson intervals, of all audited answers of the run."
    return [Table(("", "answers", "rate"), rows, caption)] if rows else []
