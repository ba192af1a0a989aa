"""The words of a report: a language model gives answers of tokens, a control policy plays episodes of actions."""

from __future__ import annotations

from prefrl.evaluate.run_folder import RunData

EPISODES = (
    (
        "By the policy (eos), a stop text, the environment, or the token budget (length).",
        "By itself, or cut off (length).",
    ),
    ("over the whole vocabulary", "over all actions"),
    ("completions", "episodes"),
    ("Answer", "Episode"),
    ("answer", "episode"),
    ("Token", "Action"),
    ("token", "action"),
)


def plays_episodes(data: RunData, phase: str = "train") -> bool:
    """Whether what is sampled are episodes of control: their length says how they went, not how much was written."""
    return any(data.series(name, phase)[1] for name in ("return/mean", "episode/return"))


def worded(text: str, data: RunData, phase: str = "train") -> str:
    """A sentence about answers, in the words of what the run samples."""
    for ours, theirs in EPISODES if plays_episodes(data, phase) else ():
        text = text.replace(ours, theirs)
    return text
