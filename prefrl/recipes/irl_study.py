"""A control policy and a reward that learn from each other, without a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prefrl.config import IRLConfig
from prefrl.data.demonstrations import load_demonstrations
from prefrl.errors import ConfigError
from prefrl.model.control import ControlPolicy, control_policy
from prefrl.policy.parts import Algorithm
from prefrl.recipes.common import Checked
from prefrl.recipes.control_learner import (
    ControlLearner,
    check_demonstrations,
    clone,
    control_learner,
    episodes,
    evaluate_control,
    limit_of,
    minibatches_for,
    returns_of,
)
from prefrl.recipes.irl import algorithm_of, check_paid, pay_of
from prefrl.recipes.resuming import Stateful
from prefrl.rewards.inverse.airl import Airl
from prefrl.rewards.inverse.discriminator import Method
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.gail import Gail
from prefrl.rewards.inverse.gcl import Gcl
from prefrl.rewards.inverse.kinds import learnt
from prefrl.rewards.inverse.source import InverseReward
from prefrl.types import Rollout, Score, StopReason

CLONED = 8  # parts of a pass of behaviour cloning, an update on each
FITTED = (
    *("steps", "batch_size", "lr", "weight_decay", "buffer", "fusion", "fragment"),
    *("gradient_penalty", "label_smoothing", "stop_accuracy"),
)


class Scorer(Checked):
    """The learnt reward behind its checks, and the running normaliser of the policy that it is learnt against.

    The normaliser moves first: from then on the log-probs that the reward reads are those of the policy that samples.
    """

    policy: ControlPolicy

    def update(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> Mapping[str, float]:
        """Let the normaliser, then the reward learn from the rollouts; metrics."""
        self.policy.observe(rollouts)
        return super().update(rollouts, scores)


@dataclass(frozen=True)
class Study:
    """A policy and a reward that learn from each other: call `round`, and look with `evaluation`."""

    config: IRLConfig
    reward: InverseReward
    learner: ControlLearner

    @property
    def policy(self) -> ControlPolicy:
        """What acts."""
        return self.learner.policy

    def round(self, step: int) -> dict[str, float]:
        """Sample, score, improve the policy, improve the reward; metrics."""
        prompts = episodes(self.learner.episodes)
        result = self.learner.optimizer.step(prompts, seed=self.config.seed * 1_000_000 + step)
        known = returns_of(result.rollouts)
        return {**result.metrics, **({"episode/return": sum(known) / len(known)} if known else {})}

    def evaluation(self) -> tuple[dict[str, float], list[Rollout]]:
        """Figures of episodes of the most probable actions, from the same starts every time, and the episodes."""
        return evaluate_control(self.policy, self.config.eval_samples, horizon=self.config.horizon)

    def expert_return(self) -> float | None:
        """Mean true return of the demonstrations, where it is known."""
        known = returns_of(self.reward.demonstrations)
        return sum(known) / len(known) if known else None

    def parts(self) -> dict[str, Stateful | None]:
        """All that an exact continuation needs, by name."""
        return {**self.learner.parts(), "reward": self.reward}


@dataclass(frozen=True)
class Imitation:
    """What was learnt, without a run folder.

    seconds   CPU seconds of it all, the last evaluation left out
    returns   true return of every round's episodes, by the policy as it samples
    final     true returns of evaluation episodes of the last policy, which takes its most probable actions
    """

    policy: ControlPolicy
    reward: InverseReward
    seconds: float
    returns: tuple[float, ...]
    final: tuple[float, ...]


def imitate(config: IRLConfig, demonstrations: Sequence[Rollout] | None = None) -> Imitation:
    """Learn as configured and leave nothing on disk: for benchmarks and notebooks.

    Args:
        config: an environment and a method; where the run folder would go is not looked at.
        demonstrations: expert episodes, in place of those that `config.demonstrations` names.
    """
    began = time.process_time()
    study = prepare(config, algorithm_of(config), demonstrations)
    warm_up(study)
    rounds = [study.round(step) for step in range(1, config.steps + 1)]
    seconds = time.process_time() - began
    final = tuple(returns_of(study.evaluation()[1]))
    returns = tuple(metrics["episode/return"] for metrics in rounds if "episode/return" in metrics)
    return Imitation(study.policy, study.reward, seconds, returns, final)


def warm_up(study: Study) -> None:
    """Behaviour cloning before the first round, for as many epochs as configured."""
    config = study.config
    if config.warm_start:
        clone(
            study.policy,
            study.reward.demonstrations,
            config.policy,
            epochs=config.warm_start,
            minibatches=CLONED,
            seed=config.seed,
        )
        study.reward.attach(study.learner.engine)  # it is another policy now


def prepare(config: IRLConfig, algorithm: Algorithm, demonstrations: Sequence[Rollout] | None = None) -> Study:
    """Policy, critic and reward as configured, known to each other.

    Raises:
        ConfigError: the environment has no limit, there are no demonstrations, or log pi is not paid once.
        DataError: they are of another environment.
    """
    network = config.control
    policy = control_policy(
        config.environment,
        hidden=network.hidden,
        recurrent=network.recurrent,
        distribution=network.distribution,
        normalise=network.normalise,
        horizon=config.horizon,
        seed=config.seed,
        device=config.policy.device,
    )
    known = demonstrations if demonstrations is not None else _demonstrations(config, limit_of(policy))
    check_demonstrations(policy, known)
    reward = reward_of(config, [_unended(r) for r in known] if config.horizon else known)
    check_paid(reward, algorithm)
    scorer = Scorer(reward, config.max_error_fraction)
    scorer.policy = policy
    learner = control_learner(
        policy,
        scorer,
        algorithm,
        config.policy,
        episodes=config.prompts_per_step * algorithm.group_size,
        steps=config.steps,
        updates=config.updates,
        minibatches=minibatches_for(policy, algorithm, config.minibatches),
        horizon=config.train_horizon,
        seed=config.seed,
    )
    reward.attach(learner.engine)
    return Study(config, reward, learner)


def reward_of(config: IRLConfig, demonstrations: Sequence[Rollout]) -> InverseReward:
    """The reward that is to be learnt."""
    net, fit = config.net, config.discriminator
    return learnt(
        method_of(config),
        demonstrations,
        inputs=net.inputs,
        hidden=net.hidden,
        potential=net.potential,
        shaped=net.shaped and config.method == "airl",
        gamma=config.gamma,
        members=net.members,
        normalise=net.normalise_inputs,
        normalise_reward=net.normalise_reward,
        bootstrap=net.bootstrap,
        **{name: getattr(fit, name) for name in FITTED},
        seed=config.seed,
    )


def method_of(config: IRLConfig) -> Method:
    """What the reward is learnt by."""
    if config.method == "gail":
        return Gail(form=config.form)
    log_pi = LogPi(beta=config.beta, pay=pay_of(config))
    return Gcl(log_pi=log_pi) if config.method == "gcl" else Airl(log_pi=log_pi)


def _unended(rollout: Rollout) -> Rollout:
    """A demonstration where nothing ends before the horizon: its end would give it away."""
    return replace(rollout, stop=StopReason.LENGTH)


def _demonstrations(config: IRLConfig, limit: int) -> list[Rollout]:
    if not config.demonstrations:
        raise ConfigError("demonstrations is empty; expected a file of expert episodes: --demonstrations EXPERT.npz")
    found = load_demonstrations(config.demonstrations, limit=limit)
    return found[: config.demonstrations_limit or None]
