"""Policy optimization: prompts -> rollouts -> any reward source -> any algorithm -> a better policy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prefrl.config import RLConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.critic import Critic, make_critic
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.policy.parts import Algorithm
from prefrl.recipes.common import (
    Checked,
    PolicyEvaluation,
    batches,
    conclude,
    evaluate_policy,
    final_checkpoint,
    load_policy,
    load_prompts,
    quiet,
    sample_rows,
    start,
)
from prefrl.recipes.teaching import Teaching
from prefrl.rewards.base import RewardSource
from prefrl.rewards.specs import build
from prefrl.rollout.sampler import Sampler
from prefrl.rollout.turns import MultiTurn
from prefrl.types import Prompt, Rollout, Score

EVALUATION_SEED = 1_000_003  # evaluations draw the same random numbers every time, and never those of training


@dataclass(frozen=True)
class Outcome:
    """What an optimization left: the engine with live and start weights, and the last evaluation."""

    engine: Engine
    start: PolicyEvaluation | None
    end: PolicyEvaluation | None
    critic: Critic | None = None


class Unrewarded:
    """A reward source that pays nothing: all there is to learn comes from a teacher."""

    name = "none"

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """0 for every rollout."""
        return [Score(value=0.0) for _ in rollouts]


def run(config: RLConfig) -> RunFolder:
    """Optimize a policy as configured; everything is left in the run folder."""
    if not config.rewards:
        raise ConfigError("rewards is empty; name at least one: --rewards '[{kind: numeric, column: answer}]'")
    algorithm = resolve(config.algorithm)  # refuse an illegal algorithm before anything is loaded
    quiet()
    reward = build(config.rewards)
    with start(config, "rl") as folder:
        print(f"Loading {config.policy.name} ...", flush=True)
        policy = load_policy(config.policy, config.seed)
        train, held_out = load_prompts(config.data, policy, config.seed)
        print(f"{len(train)} training prompts, {len(held_out)} held out; algorithm {algorithm.name}")
        carry_out(folder, policy, train, held_out, reward, config)
    return folder


def carry_out(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Prompt],
    held_out: Sequence[Prompt],
    source: RewardSource | None,
    config: RLConfig,
    *,
    teaching: Teaching | None = None,
) -> None:
    """Optimize, save the weights, and leave the summary and the report."""
    outcome = optimize_policy(folder, policy, train, held_out, source, config, teaching=teaching)
    outcome.engine.save(final_checkpoint(folder))
    if outcome.critic is not None:
        outcome.critic.save(folder.checkpoints / "critic")
    conclude(folder, _summary(outcome))


def optimize_policy(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Prompt],
    held_out: Sequence[Prompt],
    source: RewardSource | None,
    config: RLConfig,
    *,
    phase: str = "train",
    teaching: Teaching | None = None,
) -> Outcome:
    """The loop: sample, score, update; with evaluations, metrics and samples on the way."""
    algorithm = resolve(config.algorithm)
    reward = Checked(source or Unrewarded(), config.max_error_fraction)
    engine, critic = _engine(policy, algorithm, config, teaching)
    optimizer = PolicyOptimizer(
        engine, reward, algorithm, config.updates, critic=critic, teacher_prompt=teaching.prompt if teaching else None
    )

    def evaluate(step: int) -> PolicyEvaluation | None:
        if not held_out:
            return None
        assert engine.sampler is not None
        result = evaluate_policy(
            engine.sampler, held_out, reward, config.sampling, samples=config.eval_samples, seed=EVALUATION_SEED
        )
        metrics = _measured(result.metrics, source)
        if teaching is not None:
            budget, temperature = config.policy.token_budget, config.sampling.temperature
            kl = teaching.kl(policy, result.rollouts, temperature=temperature, token_budget=budget)
            metrics["kl/teacher"] = kl
        result = replace(result, metrics=metrics)
        folder.log(step, metrics, phase="eval")
        folder.samples(step, sample_rows(result.rollouts, result.scores, policy=f"step {step}"))
        return result

    first = last = evaluate(0)
    feed = batches(train, config.prompts_per_step, config.seed)
    with Progress(algorithm.name, total=config.steps) as progress:
        for step in range(1, config.steps + 1):
            began = time.perf_counter()
            result = optimizer.step(next(feed), seed=config.seed * 1_000_000 + step)
            seconds = time.perf_counter() - began
            tokens = sum(sum(r.mask) for r in result.rollouts)
            metrics = _measured(result.metrics, source)
            folder.log(step, {**metrics, "seconds": seconds, "tokens_per_second": tokens / seconds}, phase)
            folder.samples(step, sample_rows(result.rollouts, result.scores, policy="training", limit=2))
            due = config.eval_every and step % config.eval_every == 0
            if due or step == config.steps:
                last = evaluate(step)
            progress.step(_figures(metrics, last))
    return Outcome(engine, first, last, critic)


def _engine(
    policy: LanguageModel, algorithm: Algorithm, config: RLConfig, teaching: Teaching | None
) -> tuple[Engine, Critic | None]:
    """The engine of a run and, where the algorithm needs one, its critic."""
    updates = config.steps * config.updates
    sampler: Sampler = policy
    budget = config.sampling.max_new_tokens
    if config.environment:
        sampler = MultiTurn(policy, config.environment, max_turns=config.max_turns)
        budget *= config.max_turns
    engine = Engine(
        policy,
        config.policy,
        sampler=sampler,
        sampling=config.sampling,
        budget=budget,
        total_steps=updates,
        reference="reference" in algorithm.needs,
        teacher=teaching.teacher if teaching else None,
    )
    if "values" not in algorithm.needs:
        return engine, None
    spec = algorithm.critic
    lr = spec.lr or config.policy.lr * (10.0 if spec.kind == "head" else 1.0)
    return engine, make_critic(spec.kind, policy, lr=lr, optim=config.policy, total_steps=updates, seed=config.seed)


def _measured(metrics: Mapping[str, float], source: RewardSource | None) -> dict[str, float]:
    """All metrics but those of rewards that nobody gave."""
    return {k: v for k, v in metrics.items() if source is not None or not k.startswith(("reward/", "groups/"))}


def _figures(metrics: Mapping[str, float], last: PolicyEvaluation | None) -> dict[str, float]:
    names = {"reward/mean": "reward", "length/mean": "length", "kl/ref": "kl", "kl/teacher": "teacher_kl"}
    shown = {short: metrics[name] for name, short in names.items() if name in metrics}
    if last is not None and "reward/mean" in last.metrics:
        shown["held_out"] = last.metrics["reward/mean"]
    return shown


def _summary(outcome: Outcome) -> dict[str, float]:
    pairs = (("start", outcome.start), ("end", outcome.end))
    return {f"{when}/{k}": v for when, e in pairs if e is not None for k, v in e.metrics.items()}
