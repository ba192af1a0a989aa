"""What `prefrl irl` is told of texts alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.parts import require, require_choices


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How a reward is learnt from demonstrated completions, and what they are judged by.

    Attributes:
        independent: rewards that measure held-out completions and are never learnt from, as for rl.
        base: the model below the reward's heads; empty takes the one below the policy's adapter, or the policy's.
        offset: a prompt's constant, for airl: learned by a head on the prompt's state, or estimated on its samples.
        dense: at net.level token, pay every token its own share instead of their sum at the end.
        warmup: first rounds in which the reward learns and the policy does not.
        sft_epochs: passes over the same demonstrations of a plain fine-tuning from the same start, for comparison;
            0 compares with none.
        max_tokens: most tokens of prompt and demonstration together; longer ones are left out and counted.
        epochs: of spin: passes over a round's pairs.
        batch_size: of spin and of fine-tuning: pairs or completions an update.
    """

    independent: list[dict[str, Any]] = field(default_factory=list)
    base: str = ""
    offset: Literal["learned", "estimated"] = "learned"
    dense: bool = False
    warmup: int = 0
    sft_epochs: int = 0
    max_tokens: int = 1024
    epochs: int = 1
    batch_size: int = 16

    def __post_init__(self) -> None:
        require_choices(self)
        low = self.warmup < 0 or self.sft_epochs < 0
        require(not low, "text.warmup or text.sft_epochs is negative", "0 or more")
        require(self.epochs >= 1, f"text.epochs is {self.epochs}", "1 or more")
        require(self.batch_size >= 1, f"text.batch_size is {self.batch_size}", "1 or more")
