"""What several commands share: models, sampling, data, curricula, teachers, run folders."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args, get_origin, get_type_hints

from prefrl.errors import ConfigError, did_you_mean

EMBEDDED_MODEL = "smollm2-135m"
Schedule = Literal["constant", "linear", "cosine"]


def require(holds: bool, got: str, expected: str) -> None:
    """Refuse a value: what was got, and what was expected."""
    if not holds:
        raise ConfigError(f"{got}; expected {expected}.")


def require_choices(config: object) -> None:
    """Refuse a value that is none of its field's choices; from Python nothing else looks."""
    for name, hint in get_type_hints(type(config)).items():
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        value = getattr(config, name)
        if choices and value not in choices:
            raise ConfigError(f"{name} is {value!r}; valid: {', '.join(choices)}.{did_you_mean(str(value), choices)}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model, which of its weights are trained, and how.

    Attributes:
        name: a hub id, a local folder, or smollm2-135m (embedded, needs no network).
        lora: rank of a LoRA adapter on all linear layers; 0 trains the weights themselves.
        top_layers: train only this many of the last layers; 0 trains all.
        dtype: auto, float32 or bfloat16; auto is bfloat16 on a GPU for the frozen base of an adapter, else float32.
        device: auto, cpu, cuda or mps; auto takes a CUDA GPU if there is one.
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
        require_choices(self)
        require(self.lr > 0, f"lr is {self.lr}", "a positive number such as 1e-5")
        require(self.lora >= 0 and self.top_layers >= 0, "lora or top_layers is negative", "0 or more")
        require(not (self.lora and self.top_layers), "lora and top_layers are both set", "one of them to be 0")
        require(self.token_budget > 0, f"token_budget is {self.token_budget}", "1 or more")


@dataclass(frozen=True, kw_only=True)
class RewardModelConfig(ModelConfig):
    """A reward model: as ModelConfig, and how much of the base it keeps.

    Attributes:
        layers: keep only the first layers of the base, for a smaller and faster model; 0 keeps all.
        head_lr: learning rate of the head, which starts from nothing; 0 takes lr over the typical size of the numbers
            that the head reads, where they are below 1, else lr.
    """

    layers: int = 0
    head_lr: float = 0.0

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        require(self.layers >= 0 and self.head_lr >= 0, "layers or head_lr is negative", "0 or more")


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
        require(self.max_new_tokens >= 1, f"max_new_tokens is {self.max_new_tokens}", "1 or more")
        require(self.temperature >= 0, f"temperature is {self.temperature}", "0 or more")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where examples come from.

    Attributes:
        train: a .jsonl, .json, .parquet or .csv file, a hub id, or a built-in task such as task:products.
        eval: as train, never trained on; empty holds out eval_fraction of train, split by prompt.
        eval_fraction: share of train held out when eval is empty.
        columns: columns of train and eval to rename, where they are there: {question: prompt}.
        limit: use only the first so many rows; 0 uses all.
        max_prompt_tokens: longer prompts are refused, or left out and counted within max_dropped_fraction.
        max_dropped_fraction: largest share of rows that may be left out (each is counted) before the run refuses.
    """

    train: str = ""
    eval: str = ""
    eval_fraction: float = 0.2
    columns: dict[str, str] = field(default_factory=dict)
    limit: int = 0
    max_prompt_tokens: int = 1024
    max_dropped_fraction: float = 0.05

    def __post_init__(self) -> None:
        require(0.0 <= self.eval_fraction < 1.0, f"eval_fraction is {self.eval_fraction}", "a number in [0, 1)")
        require(
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
        require_choices(self)
        require(self.window >= 1 and self.stages >= 1, "window or stages is below 1", "1 or more")
        require(0.0 < self.retire_at <= 1.0, f"retire_at is {self.retire_at}", "a success rate in (0, 1]")
        require(0.0 <= self.advance_at <= 1.0, f"advance_at is {self.advance_at}", "a success rate in [0, 1]")
        require(0.0 <= self.revisit < 1.0, f"revisit is {self.revisit}", "a share in [0, 1), such as 0.05")


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
        require(both, f"teacher.template is {self.template!r}", "a text with {prompt} and {solution} in it")


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """How judgements become a loss.

    Attributes:
        smoothing: probability that a label is wrong.
        ties: drop tied pairs (counted), take them half for each side, or model them: rao_kupper or davidson.
        tie_parameter: of the tie model: how far apart scores must be (rao_kupper), or how likely ties are (davidson);
            0 learns it.
        ranking: how ranked lists are learnt: all pairs of a list, or plackett_luce.
        strengths: margin asked for at each value of the column strength; empty leaves strengths out.
        reliability: none trusts all annotators alike; learn fits how far each one can be trusted.
        annotator_weights: weight of each annotator's judgements; those not named weigh 1.
    """

    smoothing: float = 0.0
    ties: Literal["drop", "half", "rao_kupper", "davidson"] = "drop"
    tie_parameter: float = 0.0
    ranking: Literal["pairs", "plackett_luce"] = "pairs"
    strengths: dict[str, float] = field(default_factory=dict)
    reliability: Literal["none", "learn"] = "none"
    annotator_weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_choices(self)
        require(0.0 <= self.smoothing < 0.5, f"labels.smoothing is {self.smoothing}", "a number in [0, 0.5)")
        got = f"labels.tie_parameter is {self.tie_parameter}"
        require(0.0 <= self.tie_parameter < math.inf, got, "0 (learn it) or more")
        unread = self.tie_parameter and self.ties in ("drop", "half")
        require(not unread, f"{got}, but labels.ties is {self.ties}", "labels.ties to be rao_kupper or davidson")
        wrong = {name: weight for name, weight in self.annotator_weights.items() if not 0.0 <= weight < math.inf}
        require(not wrong, f"labels.annotator_weights has {wrong}", "finite weights of 0 or more")
        endless = {word: margin for word, margin in self.strengths.items() if not math.isfinite(margin)}
        require(not endless, f"labels.strengths has {endless}", "finite margins")


@dataclass(frozen=True, kw_only=True)
class EnsembleConfig:
    """Several reward models in one, which know what they do not know.

    Attributes:
        members: how many; 1 is a single model.
        kind: heads on one body (cheapest), or models of their own (adapters of one base where model.lora is set).
        bootstrap: every member sees its own resampling of the pairs; false: all pairs, in its own order.
    """

    members: int = 1
    kind: Literal["heads", "models"] = "heads"
    bootstrap: bool = True

    def __post_init__(self) -> None:
        require_choices(self)
        require(self.members >= 1, f"ensemble.members is {self.members}", "1 or more")
        alone = self.kind == "models" and self.members == 1
        require(not alone, "ensemble.kind is models, but ensemble.members is 1", "2 or more members")


@dataclass(frozen=True, kw_only=True)
class LengthConfig:
    """What is done about a preference for long answers.

    Attributes:
        kind: none; penalty on the squared correlation of score and length in training; match: learn from pairs whose
            longer side wins as often as it loses; residual: take off the scores what length alone explains.
        coef: weight of the penalty.
    """

    kind: Literal["none", "penalty", "match", "residual"] = "none"
    coef: float = 1.0

    def __post_init__(self) -> None:
        require_choices(self)
        require(0.0 < self.coef < math.inf, f"length.coef is {self.coef}", "a positive number")
        penalised = self.kind == "penalty" or self.coef == 1.0
        require(penalised, f"length.coef is {self.coef}, but length.kind is {self.kind}", "length.kind to be penalty")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What every command that writes a run folder shares.

    Attributes:
        output: the run folder; it must not hold another run.
        overwrite: delete the run that stands in the run folder, once this one has begun to measure.
        seed: of sampling, initialisation and order; the same seed gives the same numbers.
        threads: CPU threads; 0 takes all cores.
    """

    output: str = ""
    overwrite: bool = False
    seed: int = 0
    threads: int = 0


@dataclass(frozen=True, kw_only=True)
class Resumable:
    """What every command has that can go on with a run it did not finish.

    Attributes:
        checkpoint_every: steps between checkpoints to resume from, of which the last stays; 0 makes one every ten
            minutes, and deletes it when the run is done.
        resume: go on with the run in the output folder from its last checkpoint, bit for bit as if it had not stopped.
            How far it goes may be raised.
    """

    checkpoint_every: int = 0
    resume: bool = False

    def __post_init__(self) -> None:
        require(self.checkpoint_every >= 0, f"checkpoint_every is {self.checkpoint_every}", "0 or more")
        both = self.resume and getattr(self, "overwrite", False)  # of the run that it is a part of
        require(not both, "resume and overwrite are both set", "one of them")
