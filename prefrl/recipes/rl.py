"""Policy optimization: prompts -> rollouts -> any reward source -> any algorithm -> a better policy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prefrl.config import RLConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
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
from prefrl.rewards.base import RewardSource
from prefrl.rewards.specs import build
from prefrl.types import Prompt

EVALUATION_SEED = 1_000_003  # evaluations draw the same random numbers every time, and never those of training


@dataclass(frozen=True)
class Outcome:
    """What an optimization left: the engine with live and start weights, and the last evaluation."""

    engine: Engine
    start: PolicyEvaluation | None
    end: PolicyEvaluation | None


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
    source: RewardSource,
    config: RLConfig,
) -> None:
    """Optimize, save the weights, and leave the summary and the report."""
    outcome = optimize_policy(folder, policy, train, held_out, source, config)
    outcome.engine.save(final_checkpoint(folder))
    conclude(folder, _summary(outcome))


def optimize_policy(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Prompt],
    held_out: Sequence[Prompt],
    source: RewardSource,
    config: RLConfig,
    *,
    phase: str = "train",
) -> Outcome:
    """The loop: sample, score, update; with evaluations, metrics and samples on the way."""
    algorithm = resolve(config.algorithm)
    engine = Engine(
        policy,
        config.policy,
        sampler=policy,
        sampling=config.sampling,
        total_steps=config.steps * config.updates,
        reference="reference" in algorithm.needs,
    )
    reward = Checked(source, config.max_error_fraction)
    optimizer = PolicyOptimizer(engine, reward, algorithm, config.updates)

    def evaluate(step: int) -> PolicyEvaluation | None:
        if not held_out:
            return None
        result = evaluate_policy(
            policy, held_out, reward, config.sampling, samples=config.eval_samples, seed=EVALUATION_SEED
        )
        folder.log(step, result.metrics, phase="eval")
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
            folder.log(step, {**result.metrics, "seconds": seconds, "tokens_per_second": tokens / seconds}, phase)
            folder.samples(step, sample_rows(result.rollouts, result.scores, policy="training", limit=2))
            due = config.eval_every and step % config.eval_every == 0
            if due or step == config.steps:
                last = evaluate(step)
            progress.step(_figures(result.metrics, last))
    return Outcome(engine, first, last)


def _figures(metrics: Mapping[str, float], last: PolicyEvaluation | None) -> dict[str, float]:
    shown = {"reward": metrics.get("reward/mean", float("nan")), "length": metrics["length/mean"]}
    if "kl/ref" in metrics:
        shown["kl"] = metrics["kl/ref"]
    if last is not None:
        shown["held_out"] = last.metrics.get("reward/mean", float("nan"))
    return shown


def _summary(outcome: Outcome) -> dict[str, float]:
    pairs = (("start", outcome.start), ("end", outcome.end))
    return {f"{when}/{k}": v for when, e in pairs if e is not None for k, v in e.metrics.items()}
