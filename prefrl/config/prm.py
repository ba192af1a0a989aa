"""What `prefrl prm` is told: a process reward model from labelled steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from prefrl.config.parts import DataConfig, Resumable, RewardModelConfig, RunConfig, require, require_choices


@dataclass(frozen=True, kw_only=True)
class StepsConfig:
    """How labelled steps are read, and how they stand before the model.

    Attributes:
        style: of the files: auto, trl, prm800k, math_shepherd, rlhflow, qwen, mr_ben, mr_gsm8k, prmbench or
            process_bench.
        neutral: what a step rated neither good nor bad is: positive, negative, or ignore.
        after_error: labels after the first wrong step: ignore, negative, or keep them as they are.
        separator: what ends a step of a text, where a text has to be cut into steps and between steps of a file that
            does not say.
        marker: text put after every step, in place of the white space it ends with, to read its score at; empty reads
            it at the last token of the step.
        good: of head tokens: the vocabulary entry that says that a step is fine.
        bad: of head tokens: the one that says it is not.
    """

    style: str = "auto"
    neutral: Literal["positive", "negative", "ignore"] = "positive"
    after_error: Literal["ignore", "negative", "keep"] = "ignore"
    separator: str = "\n"
    marker: str = ""
    good: str = ""
    bad: str = ""

    def __post_init__(self) -> None:
        require_choices(self)
        require(bool(self.separator), "steps.separator is empty", 'what ends a step, such as "\\n\\n"')


@dataclass(frozen=True, kw_only=True)
class PRMConfig(Resumable, RunConfig):
    """A process reward model: how likely each step of a solution is to be fine.

    Attributes:
        model: the model, a causal one.
        data: solutions with labelled steps. The held-out part, split by problem, decides when to stop, the temperature
            and the threshold.
        test: further solutions, never used to decide anything, that the final figures are measured on; empty measures
            on the held-out part.
        test_fraction: in place of test, the share of data.train's problems set aside for that; the same ones whatever
            the seed.
        steps: how steps are read.
        head: scalar, one logit; classes, two logits; tokens, the words steps.good and steps.bad of the language model.
        loss: bce to hard or soft labels; binomial, by counts of right continuations (k of N, which weighs N); mse.
        epochs: most passes over the data.
        batch_size: solutions an update.
        patience: stop after so many passes without a lower held-out NLL and keep the best; 0 never stops early.
        calibrate: divide log-odds by the temperature of lowest held-out NLL.
        max_tokens: most tokens of prompt and steps together.
        long: cut: whole steps over max_tokens, each counted; or refuse such solutions (within
            data.max_dropped_fraction).
        threshold: a step below it is called wrong; 0 takes the one of highest first-error F1 on the held-out part.
    """

    model: RewardModelConfig = field(default_factory=RewardModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    test: str = ""
    test_fraction: float = 0.0
    steps: StepsConfig = field(default_factory=StepsConfig)
    head: Literal["scalar", "classes", "tokens"] = "scalar"
    loss: Literal["bce", "binomial", "mse"] = "bce"
    epochs: int = 2
    batch_size: int = 16
    patience: int = 1
    calibrate: bool = True
    max_tokens: int = 1024
    long: Literal["cut", "refuse"] = "cut"
    threshold: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self)
        require(self.epochs >= 1 and self.batch_size >= 1, "epochs or batch_size is below 1", "1 or more")
        require(self.patience >= 0, f"patience is {self.patience}", "0 or more")
        require(self.max_tokens >= 1, f"max_tokens is {self.max_tokens}", "1 or more")
        require(0.0 <= self.test_fraction < 1.0, f"test_fraction is {self.test_fraction}", "a number in [0, 1)")
        require(not (self.test and self.test_fraction), "test and test_fraction are both set", "one of them")
        require(0.0 <= self.threshold < 1.0 and math.isfinite(self.threshold), "threshold is outside [0, 1)", "a share")
        spoken = bool(self.steps.good and self.steps.bad)
        require(spoken == (self.head == "tokens"), f"head is {self.head}", "steps.good and steps.bad with head tokens")
