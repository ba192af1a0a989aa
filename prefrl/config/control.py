"""What `prefrl control` is told: small policies for environments, learnt from a reward or from demonstrations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.irl import ActorConfig
from prefrl.config.parts import ModelConfig, Resumable, RunConfig, require, require_choices


@dataclass(frozen=True, kw_only=True)
class MinibatchConfig:
    """The parts that a pass over a batch of episodes goes through.

    Attributes:
        count: parts, an update on each; 1 takes the batch as it is.
        over: steps mixes single actions of all episodes; rows takes whole episodes, as a memory and a ratio of more
            than one action need; auto takes steps where it can.
    """

    count: int = 4
    over: Literal["auto", "steps", "rows"] = "auto"

    def __post_init__(self) -> None:
        require_choices(self)
        require(self.count >= 1, f"minibatches.count is {self.count}", "1 or more")


@dataclass(frozen=True, kw_only=True)
class CloneConfig:
    """Behaviour cloning: the most likely actions of demonstrations, before anything else is learnt.

    Attributes:
        demonstrations: expert episodes, .npz or .jsonl or minari:NAME; empty clones nobody.
        limit: use only the first so many episodes; 0 uses all.
        epochs: passes over them.
        minibatches: parts of a pass, an update on each.
        lr: learning rate; 0 takes that of the policy.
    """

    demonstrations: str = ""
    limit: int = 0
    epochs: int = 20
    minibatches: int = 8
    lr: float = 0.0

    def __post_init__(self) -> None:
        require(self.epochs >= 1 and self.minibatches >= 1, "cloning.epochs or minibatches is below 1", "1 or more")
        require(self.limit >= 0 and self.lr >= 0, "cloning.limit or lr is negative", "0 or more")


@dataclass(frozen=True, kw_only=True)
class ControlConfig(Resumable, RunConfig):
    """A policy for an environment of gymnasium.

    Attributes:
        environment: its name, such as CartPole-v1.
        horizon: steps of every episode, whatever happens; 0 takes the environment's own ends and limit.
        visible: which numbers of an observation the policy sees; empty for all.
        control: the network of the policy.
        policy: how it is trained (lr, schedule, ...), and where: device, of which auto is the CPU.
        cloning: demonstrations to learn by heart first.
        rewards: sources whose sum is learnt from; by default what the environment pays for every step.
        algorithm: name, or name and parts to change.
        steps: rounds of episodes and updates; 0 clones only.
        episodes: episodes a round.
        train_horizon: steps after which an episode of training is cut off and its rest estimated by the critic; 0 plays
            them to their end.
        updates: passes over the episodes of a round.
        minibatches: the parts of a pass.
        target: mean return of a round from which on an evaluation may end the run early, if it reaches it too.
        eval_every: rounds between evaluations; 0 evaluates at start and end only.
        eval_episodes: episodes of an evaluation, of the same starts every time.
        eval_temperature: of the actions at an evaluation; 0 takes the most likely.
        record: episodes of the finished policy that are kept as demonstrations.npz.
        max_error_fraction: largest share of unscored episodes in a round before the run stops.
    """

    environment: str = "CartPole-v1"
    horizon: int = 0
    visible: tuple[int, ...] = ()
    control: ActorConfig = field(default_factory=ActorConfig)
    policy: ModelConfig = field(default_factory=lambda: ModelConfig(lr=3e-3, schedule="linear", max_grad_norm=0.5))
    cloning: CloneConfig = field(default_factory=CloneConfig)
    rewards: list[dict[str, Any]] = field(default_factory=lambda: [{"kind": "environment", "key": "rewards"}])
    algorithm: str | dict[str, Any] = "ppo"
    steps: int = 40
    episodes: int = 16
    train_horizon: int = 0
    updates: int = 5
    minibatches: MinibatchConfig = field(default_factory=MinibatchConfig)
    target: float = math.inf
    eval_every: int = 0
    eval_episodes: int = 20
    eval_temperature: float = 0.0
    record: int = 0
    max_error_fraction: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.environment), "environment is empty", "a name of gymnasium, such as CartPole-v1")
        for name in ("episodes", "updates", "eval_episodes"):
            require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}", "1 or more")
        for name in ("horizon", "train_horizon", "steps", "eval_every", "record", "eval_temperature"):
            require(getattr(self, name) >= 0, f"{name} is {getattr(self, name)}", "0 or more")
        require(
            bool(self.steps or self.cloning.demonstrations),
            "steps is 0 and cloning.demonstrations empty",
            "one of both",
        )
        require(0.0 <= self.max_error_fraction <= 1.0, f"max_error_fraction is {self.max_error_fraction}", "a share")
