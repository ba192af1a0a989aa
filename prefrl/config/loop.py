"""The loop of labels, reward model and policy, and the command that labels in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.commands import RewardConfig
from prefrl.config.parts import DataConfig, ModelConfig, RunConfig, SamplingConfig, require, require_choices


@dataclass(frozen=True, kw_only=True)
class LabellerConfig:
    """Who says which of two completions is better.

    Attributes:
        kind: simulator, whose taste is declared; or people, through the preference store (prefrl label).
        utility: reward sources, as for rl, whose sum is what a simulator likes.
        noise: temperature of a simulator's choice, sigmoid(difference / noise) for the first; 0 never errs.
        tie_width: a simulator calls utilities at most so far apart a tie.
        flip: share of a simulator's choices that are turned around.
        store: the preference store that people label in, a .db file; empty keeps it in the run folder.
        overlap: how many people label a pair.
        name: put before the names of checkpoints in a store that several loops share.
    """

    kind: Literal["simulator", "people"] = "simulator"
    utility: list[dict[str, Any]] = field(default_factory=list)
    noise: float = 0.0
    tie_width: float = 0.0
    flip: float = 0.0
    store: str = ""
    overlap: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        require_choices(self)
        require(self.noise >= 0, f"labeller.noise is {self.noise}", "0 or more")
        require(self.tie_width >= 0, f"labeller.tie_width is {self.tie_width}", "0 or more")
        require(0.0 <= self.flip < 0.5, f"labeller.flip is {self.flip}", "a share in [0, 0.5)")
        require(self.overlap >= 1, f"labeller.overlap is {self.overlap}", "1 or more")


@dataclass(frozen=True, kw_only=True)
class LoopConfig(RunConfig):
    """Rounds of: sample, select pairs, have them labelled, train a reward model, optimize the policy, evaluate.

    Attributes:
        policy: the model to train; its start weights are what it is compared with.
        data: prompts; every other column reaches the reward functions by name. The held-out part is never trained on.
        sampling: how completions are drawn.
        labeller: who says which of two completions is better.
        judge: reward sources that decide win rates; empty asks the labeller, a simulator without its noise.
        rounds: rounds of the loop.
        prompts_per_round: training prompts answered in a round; 0 takes all.
        samples: completions a prompt by the policy as it is.
        previous_samples: further completions a prompt by the policy of the round before.
        pairs_per_round: pairs of completions to training prompts that are labelled in a round.
        held_out_pairs: pairs of completions to held-out prompts labelled in a round, which measure the reward model.
        comparisons: held-out prompts on which people compare the policy with its start after every round.
        select: uncertainty takes the pairs that the reward model of the round before is least sure of; or random.
        random_share: share of pairs taken at random all the same.
        max_per_prompt: most pairs of a prompt in a round.
        diversity: how much it counts that an uncertain pair is unlike those chosen before it; 0 does not look.
        reward: the reward model, trained on all labels so far; reward.data.eval_fraction of them stop it early.
        combine: what the score of an ensemble is: mean, min, or lcb (a standard deviation below the mean).
        warm_start: train the reward model of the round before further, rather than a fresh one.
        learn: from the reward model (any algorithm; one with a pair loss ranks the policy's own samples), or from the
            labelled pairs directly (algorithms with a pair loss).
        algorithm: name, or name and parts to change.
        restart: optimize from the start weights in every round, rather than from the last ones.
        steps: optimizer steps a round, where the reward model is learnt from.
        prompts_per_step: prompts sampled each step.
        updates: updates made on each batch of rollouts.
        epochs: passes over the pairs, where pairs are learnt from.
        batch_size: pairs an update, where pairs are learnt from.
        eval_samples: completions per held-out prompt.
        max_error_fraction: largest share of completions that a source may leave unscored before the loop stops.
    """

    policy: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    labeller: LabellerConfig = field(default_factory=LabellerConfig)
    judge: list[dict[str, Any]] = field(default_factory=list)
    rounds: int = 3
    prompts_per_round: int = 0
    samples: int = 4
    previous_samples: int = 0
    pairs_per_round: int = 64
    held_out_pairs: int = 32
    comparisons: int = 16
    select: Literal["uncertainty", "random"] = "uncertainty"
    random_share: float = 0.25
    max_per_prompt: int = 2
    diversity: float = 1.0
    reward: RewardConfig = field(default_factory=RewardConfig)
    combine: Literal["mean", "min", "lcb"] = "mean"
    warm_start: bool = False
    learn: Literal["reward", "pairs"] = "reward"
    algorithm: str | dict[str, Any] = "grpo"
    restart: bool = False
    steps: int = 20
    prompts_per_step: int = 8
    updates: int = 1
    epochs: int = 1
    batch_size: int = 16
    eval_samples: int = 1
    max_error_fraction: float = 0.1

    def __post_init__(self) -> None:
        require_choices(self)
        positive = ("rounds", "pairs_per_round", "max_per_prompt", "steps", "prompts_per_step", "updates", "epochs")
        for name in (*positive, "batch_size", "eval_samples"):
            require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}", "1 or more")
        for name in ("prompts_per_round", "previous_samples", "held_out_pairs", "comparisons"):
            require(getattr(self, name) >= 0, f"{name} is {getattr(self, name)}", "0 or more")
        require(self.samples >= 2, f"samples is {self.samples}", "2 or more: a pair is two completions")
        require(0.0 <= self.random_share <= 1.0, f"random_share is {self.random_share}", "a share")
        require(0.0 <= self.max_error_fraction <= 1.0, f"max_error_fraction is {self.max_error_fraction}", "a share")
        require(0.0 <= self.diversity < math.inf, f"diversity is {self.diversity}", "0 or more")
        require(self.sampling.temperature > 0, "sampling.temperature is 0", "a positive one: samples must differ")
        own, given = RewardConfig(), self.reward
        fields = ("output", "overwrite", "seed", "threads", "test")
        set_here = [f"reward.{name}" for name in fields if getattr(given, name) != getattr(own, name)]
        set_here += [f"reward.data.{name}" for name in ("train", "eval", "limit") if getattr(given.data, name)]
        require(not set_here, f"{', '.join(set_here)} set", "none of them: the loop has its own labels and folder")


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(RunConfig):
    """Answer prompts with one policy or two, and put pairs of the answers into a preference store.

    Attributes:
        model: the policy: a folder or a hub id.
        against: a second policy, whose answers are paired with those of the first as well.
        compare: pair answers of the two policies only, at random: what people say of them is a win rate.
        data: prompts, all rows of data.train.
        store: the preference store that the pairs are put into.
        reward: the reward model that must be uncertain of a pair; empty takes all pairs at random.
        sampling: how completions are drawn.
        samples: completions a prompt by each policy.
        pairs: most pairs that are put into the store.
        random_share: share of pairs taken at random all the same.
        max_per_prompt: most pairs of a prompt.
        diversity: how much it counts that an uncertain pair is unlike those chosen before it; 0 does not look.
        overlap: people who should label a pair.
    """

    model: str = ""
    against: str = ""
    compare: bool = False
    data: DataConfig = field(default_factory=DataConfig)
    store: str = ""
    reward: str = ""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    samples: int = 4
    pairs: int = 64
    random_share: float = 0.25
    max_per_prompt: int = 2
    diversity: float = 1.0
    overlap: int = 1

    def __post_init__(self) -> None:
        for name in ("samples", "pairs", "max_per_prompt", "overlap"):
            require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}", "1 or more")
        require(0.0 <= self.random_share <= 1.0, f"random_share is {self.random_share}", "a share")
        require(0.0 <= self.diversity < math.inf, f"diversity is {self.diversity}", "0 or more")
        require(not self.compare or bool(self.against), "compare is set, but against is empty", "a second policy")
        require(not (self.compare and self.reward), "compare and reward are both set", "one of them")
        alone = self.samples == 1 and not self.against
        require(not alone, "samples is 1", "2 or more, or a policy in against: a pair is two completions")


@dataclass(frozen=True, kw_only=True)
class LabelCommandConfig:
    """Label the open pairs of a preference store in the terminal.

    Attributes:
        store: the store, a .db file, or the folder of a loop that has one; may also come first without this flag.
        annotator: who labels; empty takes the name you are logged in with.
    """

    store: str = ""
    annotator: str = ""
