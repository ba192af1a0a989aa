"""The configuration of `prefrl yes`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.parts import DataConfig, ModelConfig, Resumable, RunConfig, SamplingConfig, require, require_choices


@dataclass(frozen=True, kw_only=True)
class YesConfig(Resumable, RunConfig):
    """A yes-probability model: a language model that says whether an answer, or a history, will succeed.

    Attributes:
        model: the language model that is asked, and what of it is trained.
        data: rows with prompt, completion and outcome (or reward, label, score); or, with rewards, prompts.
        rewards: in place of outcomes, what scores completions that are sampled of the prompts, as for rl.
        sampler: who writes those completions: a folder or hub id; empty takes the model itself before training.
        sampling: how completions are drawn.
        samples: completions a prompt.
        question: what is asked; empty takes the usual question of an answer, or with positions that of an attempt.
        yes_words: spellings of yes; empty takes the usual ones. Only single tokens count. In YAML they need quotes.
        no_words: spellings of no.
        loss: restricted, cross-entropy over the two answers alone, or full, over the whole vocabulary.
        low: the outcome that P = 0 stands for.
        high: the outcome that P = 1 stands for.
        positions: further places in each completion, evenly spaced, at which it is asked about as well, for a critic.
        epochs: passes over the data; 0 measures and calibrates the model as it is.
        batch_size: completions an update.
        calibrate: fit a temperature and a bias on the held-out part.
        floor: mean mass of yes and no below which a warning is given.
        max_tokens: most tokens of prompt and completion together.
        max_error_fraction: largest share of unscored completions before the run stops.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    rewards: list[dict[str, Any]] = field(default_factory=list)
    sampler: str = ""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    samples: int = 4
    question: str = ""
    yes_words: tuple[str, ...] = ()
    no_words: tuple[str, ...] = ()
    loss: Literal["restricted", "full"] = "restricted"
    low: float = 0.0
    high: float = 1.0
    positions: int = 0
    epochs: int = 2
    batch_size: int = 16
    calibrate: bool = True
    floor: float = 0.5
    max_tokens: int = 1024
    max_error_fraction: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self)
        require(self.low < self.high, f"low is {self.low} and high {self.high}", "low below high")
        require(self.samples >= 1 and self.batch_size >= 1, "samples or batch_size is below 1", "1 or more")
        require(self.epochs >= 0 and self.positions >= 0, "epochs or positions is negative", "0 or more")
        require(0.0 <= self.floor <= 1.0, f"floor is {self.floor}", "a probability")
        require(0.0 <= self.max_error_fraction <= 1.0, f"max_error_fraction is {self.max_error_fraction}", "a share")
        require(
            bool(self.rewards) or not self.sampler, "sampler is set, and no rewards", "rewards that score its answers"
        )
