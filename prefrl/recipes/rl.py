"""Policy optimization: prompts -> rollouts -> any reward source -> any algorithm -> a better policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from prefrl.config import RLConfig
from prefrl.data.splits import episode_key, prompt_key
from prefrl.errors import ConfigError
from prefrl.evaluate.frontier_metrics import audits_of, evaluation_metrics
from prefrl.evaluate.patrol import Alarm, Patrol, replay
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.evaluate.watch import watch_metrics
from prefrl.model.critic import Critic, Reading, make_critic
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import is_adapter
from prefrl.model.load import resolve as model_path
from prefrl.model.yes_values import YesValues
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer, refuse_stale
from prefrl.policy.parts import Algorithm
from prefrl.recipes.common import (
    Checked,
    PolicyEvaluation,
    conclude,
    evaluate_policy,
    final_checkpoint,
    load_policy,
    load_prompts,
    quiet,
    record_reward,
    sample_rows,
    sequence_kls,
)
from prefrl.recipes.feed import Feed, Watched
from prefrl.recipes.golds import gold_figures
from prefrl.recipes.irl import check_paid
from prefrl.recipes.resuming import Checkpoints, opened
from prefrl.recipes.teaching import Teaching, check, teaching_of, with_solutions
from prefrl.rewards.base import RewardSource, attach
from prefrl.rewards.specs import build
from prefrl.rollout.environments import find_environment
from prefrl.rollout.sampler import Sampler
from prefrl.rollout.turns import MultiTurn
from prefrl.types import Prompt, Rollout, Score, StepResult

EVALUATION_SEED = 1_000_003  # evaluations draw the same random numbers every time


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
    algorithm = resolve(config.algorithm)
    check(config, algorithm)  # refuse what cannot work before anything is loaded
    refuse(config, algorithm)
    quiet()
    source = build(config.rewards) if config.rewards else None
    if source is not None:
        check_paid(source, algorithm)
    with opened(config, kind_of(algorithm)) as (folder, checkpoints):
        print(f"Loading {config.policy.name} ...", flush=True)
        policy = load_policy(config.policy, config.seed)
        train, held_out = load_prompts(config.data, policy, config.seed, key=key_of(config))
        if algorithm.distill.shows_solution:
            train, held_out = (with_solutions(prompts, policy, config) for prompts in (train, held_out))
        print(f"{len(train)} training prompts, {len(held_out)} held out; algorithm {algorithm.name}")
        carry_out(folder, policy, train, held_out, source, config, checkpoints=checkpoints)
    return folder


def refuse(config: RLConfig, algorithm: Algorithm, *, adapted: bool | None = None) -> None:
    """Refuse settings that no run could begin with.

    Args:
        adapted: whether the policy has an adapter, for one that is loaded already; else the configuration says.

    Raises:
        ConfigError: an environment that cannot be found, updates without a ratio, a critic that cannot be.
    """
    if config.environment:
        find_environment(config.environment)()  # one is made: a sandbox that cannot be had shows now
    refuse_stale(algorithm, config.updates)
    if "values" not in algorithm.needs:
        return
    if adapted is None:
        adapted = bool(config.policy.lora) or is_adapter(model_path(config.policy.name))
    if algorithm.critic.kind == "lora" and not adapted:
        raise ConfigError(
            "algorithm.critic.kind is 'lora', a second adapter, but the policy has none. Set policy.lora to a rank "
            "such as 16, or algorithm.critic.kind to 'head' or 'separate'."
        )
    if algorithm.critic.warmup >= config.steps:
        raise ConfigError(
            f"algorithm.critic.warmup is {algorithm.critic.warmup} and steps {config.steps}: the policy would never "
            "learn. Set warmup below steps."
        )


def kind_of(algorithm: Algorithm) -> str:
    """What a run is called."""
    return "distill" if algorithm.distill.coef else "rl"


def key_of(config: RLConfig) -> Callable[[Prompt], str]:
    """What training and held-out prompts must not share."""
    return episode_key if config.environment else prompt_key


def carry_out(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Prompt],
    held_out: Sequence[Prompt],
    source: RewardSource | None,
    config: RLConfig,
    *,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Optimize, save the weights, and leave the summary and the report."""
    if source is not None:
        record_reward(source, folder.path)
    outcome = optimize_policy(folder, policy, train, held_out, source, config, checkpoints=checkpoints)
    outcome.engine.save(final_checkpoint(folder))
    if source is not None:
        record_reward(source, final_checkpoint(folder))
    if outcome.critic is not None:
        outcome.critic.save(folder.checkpoints / "critic")
    conclude(folder, _summary(outcome) | (_critic_summary(folder) if outcome.critic is not None else {}))


def optimize_policy(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Prompt],
    held_out: Sequence[Prompt],
    source: RewardSource | None,
    config: RLConfig,
    *,
    phase: str = "train",
    checkpoints: Checkpoints | None = None,
) -> Outcome:
    """The loop: sample, score, update; with evaluations, metrics, samples and checkpoints on the way."""
    checkpoints = checkpoints or Checkpoints()
    algorithm = resolve(config.algorithm)
    teaching = teaching_of(policy, config, algorithm)
    reward = Checked(source or Unrewarded(), config.max_error_fraction)
    audits = audits_of(reward.source)
    engine, critic = _engine(policy, algorithm, config, teaching, audited=bool(audits))
    if critic is not None:
        _refuse_long_histories(critic, policy, [*train, *held_out], config, algorithm)
    attach(reward.source, engine)
    feed = Feed(train, config.prompts_per_step, config.seed, config.curriculum)
    shown = teaching.prompt if teaching else None
    optimizer = PolicyOptimizer(engine, Watched(reward, feed), algorithm, config.updates, critic, shown)
    evaluation = _Evaluation(folder, policy, engine, held_out, reward, audits, config, teaching)
    golds = gold_figures(reward.source, train)
    values = critic.engine if critic else None
    done = checkpoints.restore(engine=engine, critic=values, reward=reward, feed=feed, optimizer=optimizer)
    patrol = Patrol()
    if done:
        replay(read(folder.path), phase, patrol)
    first, last = evaluation.logged() if done else (evaluation.at(0),) * 2
    with Progress(algorithm.name, total=config.steps - done) as progress:
        for step in range(done + 1, config.steps + 1):
            result, clock = _timed_step(optimizer, feed, step, config)
            watched = watch_metrics(result.rollouts, result.scores)
            metrics = _measured({**result.metrics, **watched, **golds, **feed.metrics()}, config)
            folder.log(step, {**metrics, **clock}, phase)
            folder.samples(step, sample_rows(result.rollouts, result.scores, policy="training", limit=2))
            stopped = _warned(patrol.look(step, metrics)) and config.on_alarm == "stop"
            if stopped or step == config.steps or (config.eval_every and step % config.eval_every == 0):
                last = evaluation.at(step)
            checkpoints.after(step, last=stopped or step == config.steps)
            progress.step(_figures(metrics, last))
            if stopped:
                print(f"Stopped after {step} of {config.steps} steps, as on_alarm asks for; the weights are kept.")
                break
    return Outcome(engine, first, last, critic)


def _timed_step(
    optimizer: PolicyOptimizer, feed: Feed, step: int, config: RLConfig
) -> tuple[StepResult, dict[str, float]]:
    """A step of the optimizer, and how long it took."""
    began = time.perf_counter()
    prompts = feed.take(config.prompts_per_step)
    result = optimizer.step(prompts, seed=config.seed * 1_000_000 + step, more=feed.take)
    seconds = time.perf_counter() - began
    tokens = sum(sum(r.mask) for r in result.rollouts) + result.metrics.get("resample/wasted_tokens", 0)
    return result, {"seconds": seconds, "tokens_per_second": tokens / seconds}


def _warned(alarms: Sequence[Alarm]) -> bool:
    """Whether one of the alarms is grave; all are printed."""
    for alarm in alarms:
        print(f"ALARM at step {alarm.step}: {alarm.text}", flush=True)
    return any(alarm.grave for alarm in alarms)


@dataclass(frozen=True)
class _Evaluation:
    """What is sampled and measured on held-out prompts, with the same random numbers every time."""

    folder: RunFolder
    policy: LanguageModel
    engine: Engine
    prompts: Sequence[Prompt]
    reward: Checked
    audits: Sequence[str]
    config: RLConfig
    teaching: Teaching | None

    def logged(self) -> tuple[PolicyEvaluation | None, PolicyEvaluation | None]:
        """The figures of the first and the last evaluation that the run has done."""
        data = read(self.folder.path)
        series = {name: data.series(name, "eval")[1] for name in data.names("eval")}
        first, last = ({name: values[at] for name, values in series.items()} for at in (0, -1))
        return (PolicyEvaluation([], [], first), PolicyEvaluation([], [], last)) if series else (None, None)

    def at(self, step: int) -> PolicyEvaluation | None:
        """Evaluate, log and keep samples; None without held-out prompts."""
        if not self.prompts:
            return None
        sampling = self.config.sampling
        found = evaluate_policy(
            self.engine.sampler or self.policy,
            self.prompts,
            self.reward,
            sampling,
            samples=self.config.eval_samples,
            seed=EVALUATION_SEED,
        )
        kls = sequence_kls(self.engine, found.rollouts) if self.engine.has_reference else []
        audited = evaluation_metrics(found.rollouts, found.scores, kls, self.audits)
        metrics = _measured(found.metrics | audited, self.config)
        if self.teaching is not None:
            budget, temperature = self.config.policy.token_budget, sampling.temperature
            metrics["kl/teacher"] = self.teaching.kl(
                self.policy, found.rollouts, temperature=temperature, token_budget=budget
            )
        self.folder.log(step, metrics, phase="eval")
        self.folder.samples(step, sample_rows(found.rollouts, found.scores, policy=f"step {step}"))
        return replace(found, metrics=metrics)


def _engine(
    policy: LanguageModel, algorithm: Algorithm, config: RLConfig, teaching: Teaching | None, *, audited: bool
) -> tuple[Engine, Critic | None]:
    """The engine of a run and, where the algorithm needs one, its critic.

    What an audit says is read against the distance from the start, so that an audited run keeps its start.
    """
    warmup = algorithm.critic.warmup if "values" in algorithm.needs else 0
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
        total_steps=updates - warmup * config.updates,
        reference=audited or "reference" in algorithm.needs,
        teacher=teaching.teacher if teaching else None,
    )
    if "values" not in algorithm.needs:
        return engine, None
    spec = algorithm.critic
    lr = spec.lr or config.policy.lr * (10.0 if spec.kind == "head" else 1.0)
    reading = Reading(question=spec.question, low=spec.low, high=spec.high, aggregate=spec.aggregate)
    base, seed = spec.base, config.seed
    critic = make_critic(
        spec.kind, policy, lr=lr, base=base, optim=config.policy, total_steps=updates, seed=seed, reading=reading
    )
    return engine, critic


def _refuse_long_histories(
    critic: Critic, policy: LanguageModel, prompts: Sequence[Prompt], config: RLConfig, algorithm: Algorithm
) -> None:
    """Refuse a critic that is asked where its model has no positions left, as far as that is known beforehand."""
    values = critic.engine.actor
    if isinstance(values, YesValues):
        answered = config.sampling.max_new_tokens - 1 if algorithm.credit.level == "token" else 0
        values.refuse_longer(max(len(policy.encode(prompt)) for prompt in prompts) + answered)


def _measured(metrics: Mapping[str, float], config: RLConfig) -> dict[str, float]:
    """All metrics but those of rewards that nobody gave."""
    return {k: v for k, v in metrics.items() if config.rewards or not k.startswith(("reward/", "groups/"))}


def _figures(metrics: Mapping[str, float], last: PolicyEvaluation | None) -> dict[str, float]:
    names = {"reward/mean": "reward", "length/mean": "length", "kl/ref": "kl", "kl/teacher": "teacher_kl"}
    shown = {short: metrics[name] for name, short in names.items() if name in metrics}
    if last is not None and "reward/mean" in last.metrics:
        shown["held_out"] = last.metrics["reward/mean"]
    return shown


def _summary(outcome: Outcome) -> dict[str, float]:
    pairs = (("start", outcome.start), ("end", outcome.end))
    return {f"{when}/{k}": v for when, e in pairs if e is not None for k, v in e.metrics.items()}


def _critic_summary(folder: RunFolder) -> dict[str, float]:
    """How good the critic was as it came and in the end, and how far it has moved since."""
    data = read(folder.path)
    explained, moved = (data.series(f"critic/{name}")[1] for name in ("explained_variance", "drift"))
    if not explained:
        return {}
    ends = {"start": explained[0], "end": explained[-1]}
    return {f"critic/explained_variance/{when}": x for when, x in ends.items()} | {"critic/drift": moved[-1]}
