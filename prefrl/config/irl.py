"""What `prefrl irl` is told: rewards learnt from demonstrations, for control and for text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from prefrl.config.irl_text import TextConfig
from prefrl.config.parts import DataConfig, ModelConfig, Resumable, RunConfig, SamplingConfig, require, require_choices

Method = Literal["maxent", "gcl", "gail", "airl", "spin"]
Input = Literal["state", "action", "next_state", "done"]

# Discount where none is given: of an environment's steps, and of a text's tokens.
CONTROL_DISCOUNT, TEXT_DISCOUNT = 0.99, 1.0
FORM: Literal["neg_log_one_minus_d"] = "neg_log_one_minus_d"


@dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """The network of a control policy.

    Attributes:
        hidden: units of its hidden layers.
        recurrent: units of a GRU after them, which remembers what was seen; 0 sees the last observation only.
        distribution: auto takes the one of the environment's actions; categorical, gaussian or squashed (a Gaussian
            bent into the bounds of the actions).
        normalise: take running mean and deviation off the observations.
    """

    hidden: tuple[int, ...] = (64, 64)
    recurrent: int = 0
    distribution: Literal["auto", "categorical", "gaussian", "squashed"] = "auto"
    normalise: bool = True

    def __post_init__(self) -> None:
        require_choices(self)
        require(all(units >= 1 for units in self.hidden), f"control.hidden is {self.hidden}", "units of 1 or more")
        require(self.recurrent >= 0, f"control.recurrent is {self.recurrent}", "0 or more")


@dataclass(frozen=True, kw_only=True)
class RewardNetConfig:
    """The network that is learnt as a reward.

    Attributes:
        hidden: units of its hidden layers; for text, of a head on the hidden states (none is a linear map).
        inputs: what it sees of a transition: state, action, next_state, done. A reward that sees states only is the
            one that can be used elsewhere.
        potential: units of the shaping potential h in f = g + discount * h(s') - h(s); none is a linear h.
        shaped: learn h at all; only AIRL has one.
        normalise_inputs: take mean and deviation of the demonstrations off states and continuous actions.
        normalise_reward: divide what is paid by its running root mean square; never centred, as a constant pays for
            living.
        members: networks in the ensemble, whose mean is the reward.
        bootstrap: every member sees its own resampling of the demonstrations.
        level: of text: one reward a completion, or one a token.
        lora: of text: rank of an adapter on the reward's own copy of the body; 0 leaves the body frozen.
        layers: of text: hidden layers of the body below the head; 0 takes all.
    """

    hidden: tuple[int, ...] = (32, 32)
    inputs: tuple[Input, ...] = ("state", "action")
    potential: tuple[int, ...] = (32, 32)
    shaped: bool = True
    normalise_inputs: bool = True
    normalise_reward: bool = False
    members: int = 1
    bootstrap: bool = True
    level: Literal["sequence", "token"] = "sequence"
    lora: int = 0
    layers: int = 0

    def __post_init__(self) -> None:
        require_choices(self)
        known = ("state", "action", "next_state", "done")
        good = bool(self.inputs) and set(self.inputs) <= set(known) and len(set(self.inputs)) == len(self.inputs)
        require(good, f"net.inputs is {list(self.inputs)}", f"some of {', '.join(known)}, each once")
        units = (*self.hidden, *self.potential)
        require(all(n >= 1 for n in units), f"net.hidden or net.potential is {units}", "units of 1 or more")
        require(self.members >= 1, f"net.members is {self.members}", "1 or more")
        require(self.lora >= 0 and self.layers >= 0, "net.lora or net.layers is negative", "0 or more")


@dataclass(frozen=True, kw_only=True)
class DiscriminatorConfig:
    """How the reward is improved between two updates of the policy: a little.

    Attributes:
        steps: updates a round.
        batch_size: transitions (or completions) of either side an update; 0 takes all there are.
        lr: learning rate of Adam.
        weight_decay: decoupled weight decay.
        buffer: rounds of the policy's own samples that are kept; 1 keeps the last only.
        fusion: share of the policy's side of a batch drawn from earlier rounds; gcl draws from all kept rounds alike in
            an environment, and for it this is the share of demonstrations among the samples that the partition
            function is estimated on.
        fragment: of gcl in an environment: steps of the pieces that are weighed in place of whole episodes, an
            approximation for episodes of which one would have all the weight; 0 weighs whole episodes.
        gradient_penalty: weight of (|gradient| - 1)^2 between demonstrations and samples.
        label_smoothing: how far the targets 1 and 0 are drawn together: 1 - x and x.
        stop_accuracy: accuracy on both sides from which a round's updates stop: one that is always right teaches the
            policy nothing; 1 never stops.
    """

    steps: int = 4
    batch_size: int = 512
    lr: float = 1e-3
    weight_decay: float = 0.0
    buffer: int = 1
    fusion: float = 0.0
    fragment: int = 0
    gradient_penalty: float = 0.0
    label_smoothing: float = 0.0
    stop_accuracy: float = 1.0

    def __post_init__(self) -> None:
        require(self.steps >= 1, f"discriminator.steps is {self.steps}", "1 or more")
        require(self.batch_size >= 0, f"discriminator.batch_size is {self.batch_size}", "0 (all) or more")
        require(0 < self.lr < math.inf, f"discriminator.lr is {self.lr}", "a positive number such as 1e-3")
        require(self.weight_decay >= 0, f"discriminator.weight_decay is {self.weight_decay}", "0 or more")
        require(self.buffer >= 1, f"discriminator.buffer is {self.buffer}", "1 or more")
        require(0.0 <= self.fusion < 1.0, f"discriminator.fusion is {self.fusion}", "a share in [0, 1)")
        require(self.fragment >= 0, f"discriminator.fragment is {self.fragment}", "0 (whole episodes) or more")
        penalty, smoothing = self.gradient_penalty, self.label_smoothing
        require(0.0 <= penalty < math.inf, f"discriminator.gradient_penalty is {penalty}", "0 or more")
        require(0.0 <= smoothing < 0.5, f"discriminator.label_smoothing is {smoothing}", "a number in [0, 0.5)")
        got = f"discriminator.stop_accuracy is {self.stop_accuracy}"
        require(0.5 < self.stop_accuracy <= 1.0, got, "a share in (0.5, 1]")


@dataclass(frozen=True, kw_only=True)
class IRLConfig(Resumable, RunConfig):
    """A reward, and a policy, from demonstrations.

    Attributes:
        method: airl (a reward that can be used elsewhere), gail (imitation alone), gcl (maximum entropy by weighted
            samples), maxent (exact, in a maze) or spin (self-play on texts).
        environment: of control: a name of gymnasium, or my_env.py:make; a maze for maxent; empty for text.
        horizon: steps of every episode, whatever happens, so that a long life says nothing; 0 takes the environment's
            own ends and limit.
        train_horizon: steps after which an episode of training is cut off and its rest estimated by the critic, so that
            more episodes fit into a round; 0 plays them as long as at an evaluation.
        demonstrations: expert episodes, .npz or .jsonl or minari:NAME; empty where data.train holds texts.
        demonstrations_limit: use only the first so many episodes; 0 uses all.
        policy: of text: the model; of control: only how it is trained (lr, schedule, ...) and where (device, of which
            auto is the CPU).
        control: the network of a control policy.
        data: of text: prompts with the demonstrated completions.
        sampling: of text: how completions are drawn.
        text: what is asked of texts alone.
        net: the reward network.
        discriminator: how it is improved.
        algorithm: what improves the policy: name, or name and parts to change.
        beta: temperature of the policy that the demonstrations are explained by: the weight of log pi.
        pay: how log pi is paid, once: reward takes beta * log pi off the reward, kl and entropy leave it to the
            algorithm's coefficient, which is set to beta; auto is reward for control and kl for text.
        form: of gail, what is paid: neg_log_one_minus_d (always positive: pays for living on), log_d (always negative:
            pays for stopping) or logit (neither).
        discount: of rewards to come; 0 takes 0.99 in an environment and 1 for text.
        warm_start: epochs of behaviour cloning before the first round.
        steps: rounds of sampling, policy update and reward update.
        prompts_per_step: episodes (or prompts) a round, each answered as often as the algorithm's group_size says.
        updates: passes of the policy over a round's rollouts.
        minibatches: of control: parts of a pass, an update on each.
        eval_every: rounds between evaluations; 0 evaluates at start and end only.
        eval_samples: episodes (or completions per held-out prompt) at an evaluation.
        max_error_fraction: largest share of unscored rollouts in a round before the run stops.
    """

    method: Method = "airl"
    environment: str = ""
    horizon: int = 0
    train_horizon: int = 0
    demonstrations: str = ""
    demonstrations_limit: int = 0
    policy: ModelConfig = field(default_factory=ModelConfig)
    control: ActorConfig = field(default_factory=ActorConfig)
    data: DataConfig = field(default_factory=DataConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    text: TextConfig = field(default_factory=TextConfig)
    net: RewardNetConfig = field(default_factory=RewardNetConfig)
    discriminator: DiscriminatorConfig = field(default_factory=DiscriminatorConfig)
    algorithm: str | dict[str, Any] = "ppo"
    beta: float = 1.0
    pay: Literal["auto", "reward", "kl", "entropy"] = "auto"
    form: Literal["neg_log_one_minus_d", "log_d", "logit"] = FORM
    discount: float = 0.0
    warm_start: int = 0
    steps: int = 50
    prompts_per_step: int = 16
    updates: int = 1
    minibatches: int = 1
    eval_every: int = 0
    eval_samples: int = 1
    max_error_fraction: float = 0.1

    @property
    def gamma(self) -> float:
        """The discount in use."""
        return self.discount or (CONTROL_DISCOUNT if self.environment else TEXT_DISCOUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self)
        require(0.0 < self.beta < math.inf, f"beta is {self.beta}", "a positive number")
        require(0.0 <= self.discount <= 1.0, f"discount is {self.discount}", "a number in [0, 1], 0 for the default")
        require(self.train_horizon >= 0, f"train_horizon is {self.train_horizon}", "0 or more")
        require(self.horizon >= 0 and self.warm_start >= 0, "horizon or warm_start is negative", "0 or more")
        require(self.steps >= 1 and self.updates >= 1, "steps or updates is below 1", "1 or more")
        require(self.minibatches >= 1, f"minibatches is {self.minibatches}", "1 or more")
        require(self.prompts_per_step >= 1, f"prompts_per_step is {self.prompts_per_step}", "1 or more")
        require(self.eval_every >= 0, f"eval_every is {self.eval_every}", "0 or more")
        require(self.eval_samples >= 1, f"eval_samples is {self.eval_samples}", "1 or more")
        require(self.demonstrations_limit >= 0, f"demonstrations_limit is {self.demonstrations_limit}", "0 or more")
        require(0 <= self.max_error_fraction <= 1, f"max_error_fraction is {self.max_error_fraction}", "a share")
        self._check_method()

    def _check_method(self) -> None:
        """Refuse what the method would not look at."""
        fits = {"maxent": bool(self.environment), "spin": not self.environment}
        cut = self.method == "gcl" and self.train_horizon and not self.discriminator.fragment
        got = f"method is gcl and train_horizon {self.train_horizon}"
        require(not cut, got, "0, as it weighs whole episodes, or a discriminator.fragment")
        fragment, most = self.discriminator.fragment, self.train_horizon or self.horizon
        whole = not fragment or (self.method == "gcl" and bool(self.environment))
        got = f"discriminator.fragment is {fragment}, method {self.method} and environment {self.environment!r}"
        require(whole, got, "0, or gcl in an environment")
        got = f"discriminator.fragment is {fragment} and episodes have {most} steps"
        require(not most or fragment <= most, got, "no more than these")
        goes_on = self.resume or self.checkpoint_every
        got = "method is maxent, and resume or checkpoint_every is set"
        require(self.method != "maxent" or not goes_on, got, "neither: it is done in one go")
        got = f"method is {self.method} and environment {self.environment!r}"
        require(fits.get(self.method, True), got, "an environment for maxent, and none for spin")
        known = self.method == "gail" or self.form == FORM
        require(known, f"form is {self.form} and method {self.method}", f"{FORM} (the default): only gail has forms")
