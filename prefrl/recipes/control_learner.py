"""What learns a control policy: engine, critic and optimizer, made for each other. Shared by all recipes of control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.statistics import bootstrap_mean
from prefrl.model.control import ControlPolicy
from prefrl.model.critic import Critic, make_critic
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.gather import Scorer
from prefrl.policy.minibatches import Minibatches
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions
from prefrl.policy.parts import Algorithm
from prefrl.recipes.resuming import Stateful
from prefrl.types import Prompt, Rollout, Row, StepResult

# What small networks need of an algorithm, whose defaults are those of language models.
DEFAULTS: dict[str, Any] = {"kl": {"coef": 0.0}, "critic": {"kind": "separate", "clip": 0.0}}
POSITIONS = 100_000  # actions computed at a time, at least: small networks gain nothing from smaller batches


@dataclass
class ControlLearner:
    """A policy that learns: call `step` until it is good.

    policy     what acts
    engine     what trains it
    critic     its values, where the algorithm needs them
    optimizer  what makes updates of episodes
    episodes   an update's
    seed       of all random numbers
    """

    policy: ControlPolicy
    engine: Engine
    critic: Critic | None
    optimizer: PolicyOptimizer
    episodes: int
    seed: int
    rounds: int = 0

    def parts(self) -> dict[str, Stateful | None]:
        """All that an exact continuation needs but the reward, by name. Modules have normalisers that engines lack."""
        critic = None if self.critic is None else self.critic.engine
        return {
            "policy": self.policy.module,
            "engine": self.engine,
            "critic": None if critic is None else critic.actor.module,
            "critic_engine": critic,
            "optimizer": self.optimizer,
        }

    def step(self) -> StepResult:
        """Sample episodes, score them, update the policy, and let its normaliser see what was seen."""
        self.rounds += 1
        prompts = episodes(self.episodes)
        found = self.optimizer.step(prompts, seed=self.seed * 1_000_000 + self.rounds)
        self.policy.observe(found.rollouts)
        return found


def control_learner(
    policy: ControlPolicy,
    reward: Scorer,
    algorithm: Algorithm,
    optim: ModelConfig,
    *,
    episodes: int,
    steps: int,
    updates: int = 1,
    minibatches: Minibatches | None = None,
    horizon: int = 0,
    seed: int = 0,
) -> ControlLearner:
    """Engine, critic and optimizer of a control policy.

    Args:
        policy: what learns.
        reward: a checked reward source.
        algorithm: of which `resolve_control` has filled in what small networks need.
        optim: how policy and critic are trained.
        episodes: episodes a step; with groups, that many for each of `episodes / group_size` starts.
        steps: of the whole run, for the learning-rate schedule.
        updates: passes over the episodes of a step.
        minibatches: the parts of a pass; None takes the batch as it is.
        horizon: most actions of an episode; 0 takes the environment's limit.
        seed: of sampling, and of the critic's initial weights.

    Raises:
        ConfigError: nothing says how long an episode may be, or the parts cannot be combined.
    """
    minibatches = minibatches or Minibatches()
    if minibatches.over == "steps" and policy.recurrent:
        raise ConfigError("minibatches.over is 'steps', but the policy has a memory. Set it to 'rows'.")
    optim = replace(optim, token_budget=max(optim.token_budget, POSITIONS))
    total = steps * updates * minibatches.count
    engine = Engine(
        policy,
        optim,
        sampler=policy,
        sampling=SamplingConfig(max_new_tokens=limit_of(policy, horizon)),
        total_steps=max(1, total),
        reference="reference" in algorithm.needs,
    )
    critic, spec = None, algorithm.critic
    if "values" in algorithm.needs:
        if spec.base:
            raise ConfigError(
                f"algorithm.critic.base is {spec.base!r}; expected none: a control policy's critic starts anew."
            )
        critic = make_critic(spec.kind, policy, lr=spec.lr or optim.lr, optim=optim, total_steps=total, seed=seed)
    optimizer = PolicyOptimizer(engine, reward, algorithm, updates, critic=critic, minibatches=minibatches)
    return ControlLearner(policy, engine, critic, optimizer, max(1, episodes // algorithm.group_size), seed)


def resolve_control(algorithm: str | Mapping[str, Any]) -> Algorithm:
    """An algorithm by name or parts, with no KL to the start and a critic of its own where nothing else is said."""
    given: dict[str, Any] = {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    known = resolve(given)
    if known.pairs is not None or known.select is not None:  # which have neither
        return known
    names = ("kl", "critic") if "values" in known.needs else ("kl",)
    return resolve(given | {name: {**DEFAULTS[name], **given.get(name, {})} for name in names})


def minibatches_for(policy: ControlPolicy, algorithm: Algorithm, count: int, over: str = "auto") -> Minibatches:
    """`auto` takes steps for policies without a memory and ratios of one action, else rows."""
    if algorithm.pairs is not None or algorithm.select is not None:
        return Minibatches()
    alone = not policy.recurrent and algorithm.ratio in ("none", "token")
    if over == "auto":
        over = "steps" if alone else "rows"
    return Minibatches(count=count, over="steps" if over == "steps" else "rows")


def limit_of(policy: ControlPolicy, horizon: int = 0) -> int:
    """Most actions of an episode: `horizon`, or the environment's limit, or the smaller one of both.

    Raises:
        ConfigError: there is neither.
    """
    limit = int(getattr(policy.environments, "limit", 0))
    if not (horizon or limit):
        raise ConfigError("Nothing says how long an episode may be. Set the horizon to a number of steps.")
    return min(horizon or limit, limit or horizon)


def episodes(count: int) -> list[Prompt]:
    """So many starts, each with a seed of its own."""
    return [Prompt(id=f"episode {i}", text="") for i in range(count)]


def evaluate_control(
    policy: ControlPolicy, count: int, *, temperature: float = 0.0, horizon: int = 0, seed: int = 1_000_003
) -> tuple[dict[str, float], list[Rollout]]:
    """What the environment pays for episodes of the same starts every time: figures, and the episodes.

    Returns:
        `return/mean` with its 95 % interval (bootstrap over episodes) `return/low` and `return/high`, `return/min`,
        and `length/mean`.
    """
    params = SamplingConfig(max_new_tokens=limit_of(policy, horizon), temperature=temperature)
    played = policy.sample(episodes(count), 1, params, seed=seed)
    lengths = [float(len(r.completion_ids)) for r in played]
    figures = {"length/mean": sum(lengths) / len(lengths)}
    returns = returns_of(played)
    if returns:
        interval = bootstrap_mean(returns)
        figures |= {"return/mean": sum(returns) / len(returns), "return/min": min(returns)}
        figures |= {"return/low": interval[0], "return/high": interval[1]}
    return figures, played


def returns_of(rollouts: Sequence[Rollout]) -> list[float]:
    """What the environment paid for each episode, of those of which it says so."""
    return [float(r.info["return"]) for r in rollouts if "return" in r.info]


def clone(
    policy: ControlPolicy,
    demonstrations: Sequence[Rollout],
    optim: ModelConfig,
    *,
    epochs: int,
    minibatches: int = 1,
    seed: int = 0,
) -> list[float]:
    """Behaviour cloning: cross-entropy on the demonstrated actions, through the same engine; mean NLL of every pass.

    The policy's normaliser, if there is one, sees the demonstrations first.

    Raises:
        DataError: observations or actions of another size than the policy's.
    """
    check_demonstrations(policy, demonstrations)
    policy.observe(demonstrations)
    optim = replace(optim, token_budget=max(optim.token_budget, POSITIONS))
    engine = Engine(policy, optim, total_steps=epochs * minibatches)
    rows = [row_of_episode(r) for r in demonstrations]
    parts = Minibatches(count=minibatches, over="rows" if policy.recurrent else "steps")
    losses = []
    for epoch in range(epochs):
        found = [learn_completions(engine, part) for part in parts.of(rows, seed * 1_000 + epoch) if part]
        losses.append(sum(one["nll"] for one in found) / len(found))
    return losses


def row_of_episode(rollout: Rollout) -> Row:
    """An episode as a row without weights."""
    return Row(
        prompt_ids=(),
        completion_ids=rollout.completion_ids,
        mask=rollout.mask,
        observations=rollout.observations,
        actions=rollout.actions,
    )


def check_demonstrations(policy: ControlPolicy, demonstrations: Sequence[Rollout]) -> None:
    """Refuse demonstrations of another environment.

    Raises:
        DataError: what does not fit, and what was expected.
    """
    discrete = policy.distribution_of.name == "categorical"
    for rollout in demonstrations:
        size = 0 if rollout.observations is None else rollout.observations.shape[-1]
        kind = "whole numbers" if rollout.actions is None else f"{rollout.actions.shape[-1]} numbers"
        wanted = "whole numbers" if discrete else f"{policy.actions} numbers"
        lowest, highest = min(rollout.completion_ids), max(rollout.completion_ids)
        fits = not discrete or 0 <= lowest <= highest < policy.actions
        if size != policy.observation_size or kind != wanted or not fits:
            span = f" ({lowest} to {highest})" if rollout.actions is None else ""
            raise DataError(
                f"Demonstration {rollout.prompt.id!r} has {size} numbers in an observation and actions of {kind}{span}"
                f"; the policy sees {policy.observation_size} and plays {wanted}"
                f"{f' from 0 to {policy.actions - 1}' if discrete else ''}. Name some of the same environment."
            )
