"""What a report of learning from demonstrations shows beside the standard sections."""

from __future__ import annotations

from collections.abc import Mapping

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Figure, Section
from prefrl.evaluate.run_folder import RunData

# title -> names in metrics.jsonl and what they are called, whether it is a share, and how to read it
CHARTS: Mapping[str, tuple[Mapping[tuple[str, str], str], bool, str]] = {
    "True return": (
        {("train", "episode/return"): "as it samples", ("eval", "return/mean"): "most probable actions"},
        False,
        "What the environment itself pays, which nothing here learns from.",
    ),
    "Who can be told apart": (
        {("train", "irl/accuracy_expert"): "demonstrations", ("train", "irl/accuracy_policy"): "the policy's own"},
        True,
        "Right answers of the discriminator. 50 % on both is the end; 95 % and more teaches the policy nothing.",
    ),
    "How sure the discriminator is": (
        {("train", "irl/entropy"): "entropy of D"},
        False,
        "In nats: 0.69 where it cannot tell, 0 where it has no doubt.",
    ),
    "Effective samples": (
        {("train", "irl/ess"): "share of the policy's episodes"},
        True,
        "Under 10 % a few episodes carry the whole gradient of the reward.",
    ),
    "How far the demonstrations are ahead": (
        {("train", "irl/gap"): "expert minus policy"},
        False,
        "Discounted return under the learnt reward; 0 at the end.",
    ),
}


def irl_section(data: RunData, expert: float | None) -> Section:
    """The curves of policy and reward that learn from each other.

    Args:
        data: the run.
        expert: mean true return of the demonstrations, where it is known.
    """
    blocks = []
    for title, (metrics, percent, caption) in CHARTS.items():
        lines = {label: data.series(name, phase) for (phase, name), label in metrics.items()}
        lines = {label: curve for label, curve in lines.items() if curve[0]}
        if not lines:
            continue
        if title == "True return" and expert is not None:
            steps = sorted({step for curve in lines.values() for step in curve[0]})
            lines["demonstrations"] = (steps, [expert] * len(steps))
        blocks.append(Figure(figures.curves(lines, percent=percent), title, caption))
    return Section("Imitation", blocks)


def irl_title(data: RunData, expert: float | None) -> str:
    """What happened, in one line; empty where no return is known."""
    _, returns = data.series("return/mean", "eval")
    if not returns or returns[-1] is None:
        return ""
    against = f"; the demonstrations have {expert:.4g}" if expert is not None else ""
    return f"The policy's return ended at {returns[-1]:.4g}{against}"
