"""Every knob there is. YAML keys == dataclass fields == dotted command-line flags, one to one.

Nothing here imports more than the standard library, so that help and errors come at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.errors import ConfigError

EMBEDDED_MODEL = "smollm2-135m"
Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model, which of its weights are trained, and how.

    Attributes:
        name: a hub id, a local folder, or smollm2-135m (embedded, needs no network).
        lora: rank of a LoRA adapter on all linear layers; 0 trains the weights themselves.
        top_layers: train only this many of the last layers; 0 trains all.
        dtype: auto, float32 or bfloat16; auto looks at the hardware.
        device: auto, cpu, cuda or mps.
        lr: peak learning rate of AdamW.
        schedule: constant, linear or cosine decay to 0 over the run.
        warmup: updates over which the learning rate rises from 0.
        weight_decay: decoupled weight decay.
        max_grad_norm: gradients are scaled down to this norm; 0 leaves them.
        token_budget: most token positions computed at a time; lower it when memory runs out.
    """

    name: str = EMBEDDED_MODEL
    lora: int = 0
    top_layers: int = 0
    dtype: str = "auto"
    device: str = "auto"
    lr: float = 1e-5
    schedule: Schedule = "constant"
    warmup: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    token_budget: int = 2048

    def __post_init__(self) -> None:
        _require(self.lr > 0, f"lr is {self.lr}", "a positive number such as 1e-5")
        _require(self.lora >= 0 and self.top_layers >= 0, "lora or top_layers is negative", "0 or more")
        _require(not (self.lora and self.top_layers), "lora and top_layers are both set", "one of them to be 0")
        _require(self.token_budget > 0, f"token_budget is {self.token_budget}", "1 or more")


@dataclass(frozen=True, kw_only=True)
class RewardModelConfig(ModelConfig):
    """A reward model: as ModelConfig, and how much of the base it keeps.

    Attributes:
        layers: keep only the first layers of the base, for a smaller and faster model; 0 keeps all.
    """

    layers: int = 0


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How completions are drawn.

    Attributes:
        max_new_tokens: most tokens of a completion.
        temperature: 0 takes the most probable token; its recorded log-probs are those at temperature 1.
        stop: texts that end a completion.
    """

    max_new_tokens: int = 32
    temperature: float = 1.0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(self.max_new_tokens >= 1, f"max_new_tokens is {self.max_new_tokens}", "1 or more")
        _require(self.temperature >= 0, f"temperature is {self.temperature}", "0 or more")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where examples come from.

    Attributes:
        train: a .jsonl, .json, .parquet or .csv file, a hub id, or a built-in task such as task:products.
        eval: as train, never trained on; empty holds out eval_fraction of train, split by prompt.
        eval_fraction: share of train held out when eval is empty.
        limit: use only the first so many rows; 0 uses all.
        max_prompt_tokens: longer prompts are refused, or left out and counted within max_dropped_fraction.
        max_dropped_fraction: largest share of rows that may be left out (each is counted) before the run refuses.
    """

    train: str = ""
    eval: str = ""
    eval_fraction: float = 0.2
    limit: int = 0
    max_prompt_tokens: int = 1024
    max_dropped_fraction: float = 0.05

    def __post_init__(self) -> None:
        _require(0.0 <= self.eval_fraction < 1.0, f"eval_fraction is {self.eval_fraction}", "a number in [0, 1)")
        _require(
            0.0 <= self.max_dropped_fraction <= 1.0, f"max_dropped_fraction is {self.max_dropped_fraction}", "a share"
        )


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """Which training prompts come next.

    Attributes:
        kind: uniform, retire (solved prompts make room) or staged (easy ones first, harder ones are added).
        success: reward from which a completion counts as a success.
        window: last visits of a prompt over which its success rate is measured.
        retire_at: success rate from which a prompt is retired.
        revisit: share of prompts drawn from the retired, which come back when they fail.
        stages: equal parts in which prompts are added, easiest first; each stage lasts a pass at least.
        advance_at: mean success rate on the prompts of all stages so far that adds the next.
        difficulty: column with a number, low is easy; empty measures success rates in a first pass over all.
    """

    kind: Literal["uniform", "retire", "staged"] = "uniform"
    success: float = 1.0
    window: int = 2
    retire_at: float = 1.0
    revisit: float = 0.05
    stages: int = 4
    advance_at: float = 0.7
    difficulty: str = ""

    def __post_init__(self) -> None:
        _require(self.window >= 1 and self.stages >= 1, "window or stages is below 1", "1 or more")
        _require(0.0 < self.retire_at <= 1.0, f"retire_at is {self.retire_at}", "a success rate in (0, 1]")
        _require(0.0 <= self.advance_at <= 1.0, f"advance_at is {self.advance_at}", "a success rate in [0, 1]")
        _require(0.0 <= self.revisit < 1.0, f"revisit is {self.revisit}", "a share in [0, 1), such as 0.05")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What every command that writes a run folder shares.

    Attributes:
        output: the run folder; it must not hold another run.
        overwrite: delete what stands in the run folder first.
        seed: of sampling, initialisation and order; the same seed gives the same numbers.
        threads: CPU threads; 0 takes all cores.
    """

    output: str = ""
    overwrite: bool = False
    seed: int = 0
    threads: int = 0


@dataclass(frozen=True, kw_only=True)
class SFTConfig(RunConfig):
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


@dataclass(frozen=True, kw_only=True)
class RewardConfig(RunConfig):
    """A Bradley-Terry reward model from pairs.

    Attributes:
        model: the reward model.
        data: preference rows: prompt, chosen, rejected, and optionally label, margin, weight.
        epochs: most passes over the data.
        batch_size: pairs an update.
        patience: stop after so many passes without a lower held-out NLL and keep the best; 0 never stops early.
        center: weight of (chosen + rejected)^2, which keeps scores around 0.
        label_smoothing: probability that a label is wrong.
        max_tokens: most tokens of prompt and completion together.
    """

    model: RewardModelConfig = field(default_factory=RewardModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    epochs: int = 2
    batch_size: int = 16
    patience: int = 1
    center: float = 0.0
    label_smoothing: float = 0.0
    max_tokens: int = 1024


@dataclass(frozen=True, kw_only=True)
class DPOConfig(RunConfig):
    """Direct preference optimization on given pairs.

    Attributes:
        policy: the model to train; its start weights are the reference.
        data: preference rows: prompt, chosen, rejected, and optionally label, weight.
        algorithm: name, or name and parts to change; only rows with a pair loss.
        epochs: passes over the data.
        batch_size: pairs an update.
        max_tokens: most tokens of prompt and completion together.
    """

    policy: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    algorithm: str | dict[str, Any] = "dpo"
    epochs: int = 1
    batch_size: int = 16
    max_tokens: int = 1024


@dataclass(frozen=True, kw_only=True)
class RLConfig(RunConfig):
    """Policy optimization against any reward source.

    Attributes:
        policy: the model to train; its start weights are the reference.
        data: prompts; every other column reaches the reward functions by name.
        rewards: reward sources, each with a kind, its options, and a weight.
        algorithm: name, or name and parts to change (--algorithm.clip.high 0.28).
        sampling: how completions are drawn; in an environment, each turn.
        environment: what the policy talks to over several turns: a name, or package.module:name; empty for one answer.
        max_turns: most turns of an episode in the environment.
        steps: optimizer steps.
        prompts_per_step: prompts sampled each step.
        updates: updates made on each batch of rollouts.
        eval_every: steps between evaluations on held-out prompts; 0 evaluates at start and end only.
        eval_samples: completions per held-out prompt at an evaluation.
        max_error_fraction: largest share of unscored rollouts in a step before the run stops.
    """

    policy: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    rewards: list[dict[str, Any]] = field(default_factory=list)
    algorithm: str | dict[str, Any] = "grpo"
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    environment: str = ""
    max_turns: int = 8
    steps: int = 50
    prompts_per_step: int = 16
    updates: int = 1
    eval_every: int = 0
    eval_samples: int = 1
    max_error_fraction: float = 0.1

    def __post_init__(self) -> None:
        _require(self.steps >= 1, f"steps is {self.steps}", "1 or more")
        _require(self.max_turns >= 1, f"max_turns is {self.max_turns}", "1 or more")
        _require(self.prompts_per_step >= 1, f"prompts_per_step is {self.prompts_per_step}", "1 or more")
        _require(self.sampling.temperature > 0, "sampling.temperature is 0", "a positive one: training needs variety")


@dataclass(frozen=True, kw_only=True)
class TeacherConfig:
    """Who a policy is distilled from.

    Attributes:
        name: a model or folder; base for the base below the policy's adapter; empty for the policy as it starts.
        solution: column with a verified solution, which a privileged teacher is shown.
        template: the user message (or plain prompt) that it sees, with {prompt} and {solution}.
    """

    name: str = ""
    solution: str = ""
    template: str = (
        "{prompt}\n\nHere is a verified solution:\n{solution}\n\nHaving understood it, answer in your own words."
    )

    def __post_init__(self) -> None:
        both = "{prompt}" in self.template and "{solution}" in self.template
        _require(both, f"teacher.template is {self.template!r}", "a text with {prompt} and {solution} in it")


@dataclass(frozen=True, kw_only=True)
class DistillConfig(RLConfig):
    """On-policy distillation: a policy learns from a teacher on its own samples, with or without rewards.

    Attributes:
        teacher: who is imitated, and what it sees.
        rewards: reward sources that count beside the teacher; may be empty.
        algorithm: name, or name and parts to change; only with a distill.coef above 0.
    """

    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    algorithm: str | dict[str, Any] = "opd"


@dataclass(frozen=True, kw_only=True)
class RejectionConfig(RunConfig):
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
        _require(self.rounds >= 1 and self.epochs >= 1, "rounds or epochs is below 1", "1 or more")
        _require(self.samples >= 1 and self.batch_size >= 1, "samples or batch_size is below 1", "1 or more")
        _require(self.prompts_per_round >= 0, f"prompts_per_round is {self.prompts_per_round}", "0 (all) or more")
        _require(self.max_per_prompt >= 0, f"max_per_prompt is {self.max_per_prompt}", "0 (all) or more")
        _require(bool(self.thresholds), "thresholds is empty", "a reward a round, such as '[0.5, 1.0]'")
        _require(self.keep == "above" or self.samples > 1, "keep is best of 1 sample", "samples to be 2 or more")
        _require(self.sampling.temperature > 0, "sampling.temperature is 0", "a positive one: samples must differ")


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
    """Evaluate a reward model on pairs, or a policy on prompts.

    Attributes:
        what: reward or policy.
        model: the reward model or policy: a folder or hub id.
        against: a second policy to compare with on the same prompts; only for policy.
        data: pairs (reward) or prompts (policy).
        baseline: pairs to fit the text baselines on; only for reward. Empty shows the length baselines alone.
        rewards: reward sources that judge the policy's completions.
        sampling: how completions are drawn.
        samples: completions a prompt.
    """

    what: Literal["reward", "policy"] = "reward"
    model: str = ""
    against: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    baseline: str = ""
    rewards: list[dict[str, Any]] = field(default_factory=list)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    samples: int = 1


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


def _require(holds: bool, got: str, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{got}; expected {expected}.")
