"""Labels of steps that nobody rates by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.parts import DataConfig, ModelConfig, Resumable, RunConfig, SamplingConfig, require, require_choices


@dataclass(frozen=True, kw_only=True)
class StepLabelsConfig(Resumable, RunConfig):
    """Label the steps of solutions by how often a model that goes on from them ends at a right answer.

    Attributes:
        model: who goes on, and who solves prompts that have no solution; it is not trained.
        data: rows of data.train with prompt and completion; or solutions in steps of any layout, whose labels are then
            compared with; or prompts alone, which the model solves first. With what the rewards need.
        rewards: what judges an answer, as for rl.
        success: score from which an answer counts as right.
        samples: solutions of every prompt where the data has none.
        separator: what stands between two steps of a text; none inside code or displayed mathematics counts.
        sampling: of solutions and continuations; max_new_tokens is of each of them.
        continuations: how often the model goes on from a step.
        method: all tries every step; search looks for the first error of wrong solutions by halving, with fewer tries.
        labels: soft is the share of right continuations, hard is 1 where any is right; search gives hard ones.
        keep_unsolved: keep solutions of prompts that the model never solves from their beginning, where right steps
            look wrong.
        max_tokens: most tokens of prompt and solution together; longer ones are counted, never cut.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    rewards: list[dict[str, Any]] = field(default_factory=list)
    success: float = 1.0
    samples: int = 1
    separator: str = "\n\n"
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(max_new_tokens=256))
    continuations: int = 8
    method: Literal["all", "search"] = "all"
    labels: Literal["soft", "hard"] = "soft"
    keep_unsolved: bool = False
    max_tokens: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self)
        for name in ("samples", "continuations", "max_tokens"):
            require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}", "1 or more")
        require(bool(self.separator), "separator is empty", 'what stands between two steps, such as "\\n\\n"')
        alike = self.continuations > 1 and self.sampling.temperature == 0
        require(not alike, "sampling.temperature is 0, so that all continuations are alike", "a positive one")
