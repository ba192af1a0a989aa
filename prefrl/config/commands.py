"""One dataclass a command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.parts import (
    EMBEDDED_MODEL,
    CurriculumConfig,
    DataConfig,
    EnsembleConfig,
    LabelConfig,
    LengthConfig,
    ModelConfig,
    Resumable,
    RewardModelConfig,
    RunConfig,
    SamplingConfig,
    TeacherConfig,
    require,
    require_choices,
)


@dataclass(frozen=True, kw_only=True)
class SFTConfig(Resumable, RunConfig):
    """Supervised fine-tuning on completions.

    Attributes:
        policy: the model to train.
        data: prompt + completion, messages, or text rows.
        epochs: passes over the data.
        batch_size: completions an update.
        max_tokens: most tokens of prompt and completion together.
    """

    policy: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    epochs: int = 1
    batch_size: int = 16
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.epochs >= 1 and self.batch_size >= 1, "epochs or batch_size is below 1", "1 or more")


@dataclass(frozen=True, kw_only=True)
class RewardConfig(Resumable, RunConfig):
    """A reward model from pairs, ties and ranked lists.

    Attributes:
        model: the reward model.
        data: preference rows: prompt, chosen, rejected, and optionally label, margin, weight, tie, strength, annotator;
            or ranked lists: prompt, completions, ranks. The held-out part decides when to stop.
        test: further pairs, never trained on nor used to decide anything, that the final figures are measured on; empty
            measures on the held-out part.
        test_fraction: in place of test, the share of data.train's prompts set aside for that; the same ones whatever
            the seed.
        labels: how judgements are turned into a loss.
        ensemble: how many members, of what kind.
        length: what is done about a preference for long answers.
        epochs: most passes over the data.
        batch_size: pairs an update.
        patience: stop after so many passes without a lower held-out NLL and keep the best; 0 never stops early.
        center: weight of (chosen + rejected)^2, which keeps scores around 0.
        calibrate: divide the scores by the temperature of lowest held-out NLL, so that they are log-odds.
        max_tokens: most tokens of prompt and completion together.
        long: refuse pairs over max_tokens (within data.max_dropped_fraction), or cut: leave out the oldest messages,
            then the beginning of the prompt; a completion is never cut.
    """

    model: RewardModelConfig = field(default_factory=RewardModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    test: str = ""
    test_fraction: float = 0.0
    labels: LabelConfig = field(default_factory=LabelConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    length: LengthConfig = field(default_factory=LengthConfig)
    epochs: int = 2
    batch_size: int = 16
    patience: int = 1
    center: float = 0.0
    calibrate: bool = True
    max_tokens: int = 1024
    long: Literal["refuse", "cut"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self)
        require(self.epochs >= 1 and self.batch_size >= 1, "epochs or batch_size is below 1", "1 or more")
        require(self.patience >= 0 and self.center >= 0, "patience or center is negative", "0 or more")
        require(0.0 <= self.test_fraction < 1.0, f"test_fraction is {self.test_fraction}", "a number in [0, 1)")
        require(not (self.test and self.test_fraction), "test and test_fraction are both set", "one of them")


@dataclass(frozen=True, kw_only=True)
class DPOConfig(Resumable, RunConfig):
    """Preference optimization on given pairs, or on completions judged one by one.

    Attributes:
        policy: the model to train; its start weights are the reference.
        data: preference rows: prompt, chosen, rejected, and optionally label, weight, tie; or, for an algorithm that
            needs no pairs, prompt, completion, label.
        algorithm: name, or name and parts to change; only rows with a pair loss.
        epochs: passes over the data.
        batch_size: pairs (or judged completions) an update.
        max_tokens: most tokens of prompt and completion together.
        cache_reference: keep the reference's log-probs for later runs from the same weights on the same data.
    """

    policy: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    algorithm: str | dict[str, Any] = "dpo"
    epochs: int = 1
    batch_size: int = 16
    max_tokens: int = 1024
    cache_reference: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.epochs >= 1 and self.batch_size >= 1, "epochs or batch_size is below 1", "1 or more")


@dataclass(frozen=True, kw_only=True)
class RLConfig(Resumable, RunConfig):
    """Policy optimization against any reward source.

    Attributes:
        policy: the model to train; its start weights are the reference.
        data: prompts; every other column reaches the reward functions by name.
        rewards: reward sources, each with a kind, its options, and a weight.
        algorithm: name, or name and parts to change (--algorithm.clip.high 0.28).
        sampling: how completions are drawn; in an environment, each turn.
        environment: what the policy talks to over several turns: a name, or my_game.py:name; empty for one answer.
        max_turns: most turns of an episode in the environment.
        curriculum: which training prompts come when.
        teacher: what is learnt from beside rewards, by algorithms with a teacher.
        steps: optimizer steps.
        prompts_per_step: prompts sampled each step.
        updates: updates made on each batch of rollouts.
        eval_every: steps between evaluations on held-out prompts; 0 evaluates at start and end only.
        eval_samples: completions per held-out prompt at an evaluation.
        max_error_fraction: largest share of unscored rollouts in a step before the run stops.
        on_alarm: what is done when the reward is being gamed by what an audit says: warn, or stop and keep the weights.
    """

    policy: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    rewards: list[dict[str, Any]] = field(default_factory=list)
    algorithm: str | dict[str, Any] = "grpo"
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    environment: str = ""
    max_turns: int = 8
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    steps: int = 50
    prompts_per_step: int = 16
    updates: int = 1
    eval_every: int = 0
    eval_samples: int = 1
    max_error_fraction: float = 0.1
    on_alarm: Literal["warn", "stop"] = "warn"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self)
        require(self.steps >= 1, f"steps is {self.steps}", "1 or more")
        require(self.max_turns >= 1, f"max_turns is {self.max_turns}", "1 or more")
        require(self.prompts_per_step >= 1, f"prompts_per_step is {self.prompts_per_step}", "1 or more")
        require(self.updates >= 1, f"updates is {self.updates}", "1 or more")
        require(self.eval_every >= 0, f"eval_every is {self.eval_every}", "0 or more")
        require(self.eval_samples >= 1, f"eval_samples is {self.eval_samples}", "1 or more")
        require(0 <= self.max_error_fraction <= 1, f"max_error_fraction is {self.max_error_fraction}", "a share")
        require(self.sampling.temperature > 0, "sampling.temperature is 0", "a positive one: training needs variety")


@dataclass(frozen=True, kw_only=True)
class RejectionConfig(Resumable, RunConfig):
    """Rejection-sampling self-training: sample, keep what the rewards accept, fine-tune on it, and again.

    Attributes:
        policy: the model to train.
        data: prompts; every other column reaches the reward functions by name.
        rewards: reward sources, each with a kind, its options, and a weight.
        sampling: how completions are drawn.
        rounds: rounds of sampling and training.
        prompts_per_round: training prompts answered in a round; 0 takes all.
        samples: completions a prompt in every round.
        keep: above, all at or above the threshold; or best, the best of each prompt.
        thresholds: reward asked for in each round; the last one holds for the rounds that follow.
        max_per_prompt: most completions kept of a prompt, the best first; 0 keeps all.
        restart: train every round from the start weights (ReST-EM) instead of on from the last (ReST).
        epochs: passes over what was kept.
        batch_size: completions an update.
        eval_samples: completions per held-out prompt at the evaluation after each round.
        max_error_fraction: largest share of unscored completions in a batch before the run stops.
    """

    policy: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    rewards: list[dict[str, Any]] = field(default_factory=list)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    rounds: int = 3
    prompts_per_round: int = 0
    samples: int = 8
    keep: Literal["above", "best"] = "above"
    thresholds: tuple[float, ...] = (1.0,)
    max_per_prompt: int = 4
    restart: bool = True
    epochs: int = 1
    batch_size: int = 16
    eval_samples: int = 1
    max_error_fraction: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rounds >= 1 and self.epochs >= 1, "rounds or epochs is below 1", "1 or more")
        require(self.samples >= 1 and self.batch_size >= 1, "samples or batch_size is below 1", "1 or more")
        require(self.prompts_per_round >= 0, f"prompts_per_round is {self.prompts_per_round}", "0 (all) or more")
        require(self.max_per_prompt >= 0, f"max_per_prompt is {self.max_per_prompt}", "0 (all) or more")
        require(bool(self.thresholds), "thresholds is empty", "a reward a round, such as '[0.5, 1.0]'")
        require(self.keep == "above" or self.samples > 1, "keep is best of 1 sample", "samples to be 2 or more")
        require(self.sampling.temperature > 0, "sampling.temperature is 0", "a positive one: samples must differ")


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Score completions of a file with any reward source.

    Attributes:
        data: rows with prompt and completion, or preference rows (both sides are scored).
        rewards: reward sources, as for rl.
        output: file to write, .jsonl; empty prints a summary only.
    """

    data: str = ""
    rewards: list[dict[str, Any]] = field(default_factory=list)
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class EvalConfig(RunConfig):
    """Evaluate a reward source on pairs or a benchmark, or a policy on prompts.

    Attributes:
        what: reward or policy; the second word of the command says the same, as in prefrl eval reward.
        model: the reward model or policy: a folder or hub id. A reward source of another kind goes into rewards.
        against: a second policy to compare with on the same prompts; only for policy.
        data: pairs (reward) or prompts (policy); for a benchmark, its rows, empty for those on the hub.
        baseline: pairs to fit the text baselines on; only for reward. Empty shows the length baselines alone.
        subset: column that names the subset of a pair; only for reward. Empty takes subset or source, if there.
        benchmark: score by the rules of rewardbench or rewardbench2; only for reward.
        rewards: reward sources that are evaluated in place of a model (reward), or judge the completions (policy).
        sampling: how completions are drawn.
        samples: completions a prompt.
        best_of_n: take so many completions a prompt instead, and show what the best of 1, 2, 4, ... of them by the
            rewards earn by a measure that the rewards do not contain; only for policy.
        gold: that measure, as rewards; empty takes the rewards of weight 0.
    """

    what: Literal["reward", "policy"] = "reward"
    model: str = ""
    against: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    baseline: str = ""
    subset: str = ""
    benchmark: Literal["none", "rewardbench", "rewardbench2"] = "none"
    rewards: list[dict[str, Any]] = field(default_factory=list)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    samples: int = 1
    best_of_n: int = 0
    gold: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        require_choices(self)
        require(self.samples >= 1, f"samples is {self.samples}", "1 or more")
        require(self.best_of_n != 1 and self.best_of_n >= 0, f"best_of_n is {self.best_of_n}", "0, or 2 or more")


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(RunConfig):
    """Try a reward before anything learns from it, or score old answers with a new one.

    Attributes:
        what: audit or rescore; the second word of the command says the same, as in prefrl verify audit.
        rewards: the reward, as for rl.
        data: prompts with what the reward needs; empty takes those of the run in completions.
        gold: column with an answer known to be right; empty takes solution, canonical_solution or answer.
        full: score of a right answer; what is below it does not pass.
        judge: an independent reward, which is taken for the truth; only for audit.
        completions: answers that were given: the folder of a run, or a file with prompt and completion (and, to
            rescore, score or reward). An audit without them compares reward and judge on its probes.
        share: share of the answers that the judge sees, for one that is slow.
        queue: a preference store that answers on which they differ are put into, for people.
        strict: end with an error where the audit finds a problem, for use in scripts.
    """

    what: Literal["audit", "rescore"] = "audit"
    rewards: list[dict[str, Any]] = field(default_factory=list)
    data: DataConfig = field(default_factory=DataConfig)
    gold: str = ""
    full: float = 1.0
    judge: list[dict[str, Any]] = field(default_factory=list)
    completions: str = ""
    share: float = 1.0
    queue: str = ""
    strict: bool = False

    def __post_init__(self) -> None:
        require_choices(self)
        require(0.0 < self.share <= 1.0, f"share is {self.share}", "a share in (0, 1]")
        require(bool(self.judge) or not self.queue, "queue is set, and no judge", "a judge that may differ")


@dataclass(frozen=True, kw_only=True)
class QuickstartConfig(RunConfig):
    """The whole story in small: pairs, reward model, two optimized policies, evaluation, report.

    Attributes:
        model: the language model to align.
        pairs: your own pairs (a file or hub id) in place of simulated ones.
        prompts: training prompts that are answered to make pairs.
        answers: answers a prompt; every two of them make a pair, ties left out.
        max_new_tokens: most tokens of an answer.
        temperature: of all sampling, in training and in evaluation.
        top_layers: layers of the model that are trained; 0 trains all, more slowly.
        steps: policy-optimization steps.
        eval_prompts: held-out prompts that the policies are compared on.
    """

    output: str = "runs/quickstart"
    model: str = EMBEDDED_MODEL
    pairs: str = ""
    prompts: int = 240
    answers: int = 4
    max_new_tokens: int = 32
    temperature: float = 0.8
    top_layers: int = 10
    steps: int = 18
    eval_prompts: int = 80
