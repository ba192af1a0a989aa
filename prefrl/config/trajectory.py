"""What `prefrl fragments` is told: rewards learnt from comparisons of pieces of episodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.control import MinibatchConfig
from prefrl.config.irl import ActorConfig, RewardNetConfig
from prefrl.config.parts import ModelConfig, RunConfig, require, require_choices


@dataclass(frozen=True, kw_only=True)
class FragmentLabelsConfig:
    """Who says which of two fragments is better.

    Attributes:
        kind: returns, a program that knows what the environment paid; or people, through the labelling app.
        temperature: of a program: the first is preferred with probability sigmoid(difference of returns / temperature);
            0 never errs.
        tie_width: a program calls returns at most so far apart a tie.
        flip: share of a program's labels that are turned around.
        store: the preference store that people label in, a .db file; empty keeps it in the run folder.
        overlap: how many people label a pair.
        question: what people are asked.
        frames: draw pictures of the clips; without, and where nobody knows how to draw one, people see curves.
    """

    kind: Literal["returns", "people"] = "returns"
    temperature: float = 1.0
    tie_width: float = 0.0
    flip: float = 0.0
    store: str = ""
    overlap: int = 1
    question: str = "Which of the two clips is better?"
    frames: bool = True

    def __post_init__(self) -> None:
        require_choices(self)
        got = f"labels.temperature is {self.temperature}"
        require(0.0 <= self.temperature < math.inf, got, "0 (never errs) or more")
        require(self.tie_width >= 0, f"labels.tie_width is {self.tie_width}", "0 or more")
        require(0.0 <= self.flip < 0.5, f"labels.flip is {self.flip}", "a share in [0, 0.5)")
        require(self.overlap >= 1, f"labels.overlap is {self.overlap}", "1 or more")
        require(bool(self.question.strip()), "labels.question is empty", "what people are asked")


@dataclass(frozen=True, kw_only=True)
class FragmentFitConfig:
    """How the reward is fitted to all labels so far, in every round.

    Attributes:
        epochs: passes over the comparisons.
        first_epochs: the same in the first round, which starts from nothing; 0 takes epochs.
        batch_size: comparisons an update; 0 takes all.
        lr: learning rate of Adam.
        weight_decay: decoupled weight decay.
        noise: share of labels that are taken to be given at random.
        discount: of the returns that are compared.
        anew: start from fresh weights in every round, rather than from those of the round before.
        scale: what is paid to the policy: standardise (mean 0, deviation 1 over the steps of all compared fragments),
            scale (deviation 1 only, where episodes end early and a constant would pay for living or ending) or none.
    """

    epochs: int = 20
    first_epochs: int = 0
    batch_size: int = 32
    lr: float = 1e-3
    weight_decay: float = 0.0
    noise: float = 0.0
    discount: float = 1.0
    anew: bool = False
    scale: Literal["standardise", "scale", "none"] = "standardise"

    def __post_init__(self) -> None:
        require_choices(self)
        require(self.epochs >= 1 and self.first_epochs >= 0, "fit.epochs or fit.first_epochs is too low", "1 or more")
        require(self.batch_size >= 0, f"fit.batch_size is {self.batch_size}", "0 (all) or more")
        require(0 < self.lr < math.inf, f"fit.lr is {self.lr}", "a positive number such as 1e-3")
        require(self.weight_decay >= 0, f"fit.weight_decay is {self.weight_decay}", "0 or more")
        require(0.0 <= self.noise < 1.0, f"fit.noise is {self.noise}", "a share in [0, 1)")
        require(0.0 <= self.discount <= 1.0, f"fit.discount is {self.discount}", "a number in [0, 1]")


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig(RunConfig):
    """Rounds of: sample episodes, cut fragments, have pairs of them labelled, fit a reward, improve the policy.

    Attributes:
        environment: a name of gymnasium, such as Pendulum-v1.
        horizon: steps of every episode, whatever happens; 0 takes the environment's own ends and limit.
        train_horizon: steps after which an episode to learn from, or to cut fragments of, is cut off; 0 plays it to its
            end. The policy is measured on whole ones.
        policy: how the policy is trained (lr, schedule, ...), and where: device, of which auto is the CPU; its network
            is in control.
        control: the network of the policy.
        net: the reward network; disagreement needs several members.
        labels: who labels.
        fit: how the reward is fitted.
        rounds: rounds of the loop.
        comparisons: labels in all rounds together.
        first_share: share of them in the first round.
        schedule: how the others are shared out: constant, or fewer and fewer (hyperbolic, inverse_quadratic).
        length: steps of a fragment.
        episodes: episodes sampled in a round, of which fragments are cut.
        select: disagreement takes the pairs of which members say different things; or random. The first round, whose
            members know nothing, is random.
        candidates: pairs that are looked at for each that is asked.
        random_share: share of pairs taken at random all the same.
        algorithm: what improves the policy: name, or name and parts to change.
        steps: policy updates (each on fresh episodes) in a round.
        final_steps: further ones with the last reward.
        episodes_per_step: episodes an update learns from.
        updates: passes over them.
        minibatches: the parts of a pass.
        eval_samples: episodes that the policy is measured on after every round.
        eval_pairs: pairs of fresh fragments that the reward is measured on, where the environment pays.
        max_error_fraction: largest share of unscored rollouts in a step before the run stops.
    """

    environment: str = "Pendulum-v1"
    horizon: int = 0
    train_horizon: int = 0
    policy: ModelConfig = field(default_factory=lambda: ModelConfig(lr=1e-3))
    control: ActorConfig = field(default_factory=ActorConfig)
    net: RewardNetConfig = field(default_factory=lambda: RewardNetConfig(members=3, shaped=False))
    labels: FragmentLabelsConfig = field(default_factory=FragmentLabelsConfig)
    fit: FragmentFitConfig = field(default_factory=FragmentFitConfig)
    rounds: int = 5
    comparisons: int = 200
    first_share: float = 0.1
    schedule: Literal["constant", "hyperbolic", "inverse_quadratic"] = "hyperbolic"
    length: int = 50
    episodes: int = 20
    select: Literal["disagreement", "random"] = "disagreement"
    candidates: int = 4
    random_share: float = 0.25
    algorithm: str | dict[str, Any] = "ppo"
    steps: int = 10
    final_steps: int = 0
    episodes_per_step: int = 10
    updates: int = 4
    minibatches: MinibatchConfig = field(default_factory=MinibatchConfig)
    eval_samples: int = 20
    eval_pairs: int = 200
    max_error_fraction: float = 0.1

    def __post_init__(self) -> None:
        require_choices(self)
        names = ("rounds", "comparisons", "length", "episodes", "candidates", "steps", "episodes_per_step", "updates")
        for name in (*names, "eval_samples", "eval_pairs"):
            require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}", "1 or more")
        for name in ("horizon", "train_horizon", "final_steps"):
            require(getattr(self, name) >= 0, f"{name} is {getattr(self, name)}", "0 or more")
        for name in ("first_share", "random_share", "max_error_fraction"):
            require(0.0 <= getattr(self, name) <= 1.0, f"{name} is {getattr(self, name)}", "a share")
        got = f"comparisons is {self.comparisons} and rounds {self.rounds}"
        require(self.comparisons >= self.rounds, got, "one comparison a round, at least")
        require(bool(self.environment), "environment is empty", "a name of gymnasium, such as Pendulum-v1")
        require(not self.net.shaped, "net.shaped is true", "false: a potential is for airl")
        got = f"select is disagreement and net.members {self.net.members}"
        require(self.select == "random" or self.net.members > 1, got, "2 or more, or select: random")
        for name in ("horizon", "train_horizon"):
            most = getattr(self, name)
            require(not most or self.length <= most, f"{name} is {most} and length {self.length}", "shorter fragments")
