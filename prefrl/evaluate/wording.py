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
    ("prompts never trained on", "starts never trained on"),
    ("held-out prompts", "held-out starts"),
    ("its prompts", "its starts"),
    ("the same prompt", "the same start"),
)
CONTROL = ("control", "fragments")  # kinds of runs that have no texts


def plays_episodes(data: RunData, phase: str = "train") -> bool:
    """Whether what is sampled are episodes of control: their length says how they went, not how much was written."""
    if data.kind in CONTROL or (data.kind == "irl" and data.config.get("environment")):
        return True
    return any(data.series(name, phase)[1] for name in ("return/mean", "episode/return"))


def worded(text: str, data: RunData, phase: str = "train") -> str:
    """A sentence about answers, in the words of what the run samples."""
    for ours, theirs in EPISODES if plays_episodes(data, phase) else ():
        text = text.replace(ours, theirs)
    return text
