"""Rewards for text from demonstrations: sample, improve the reward a little, improve the policy a little, and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from prefrl.config import IRLConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.critic import Critic, Reading, make_critic
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.metrics import rollout_metrics
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.policy.parts import Algorithm
from prefrl.recipes.common import Checked, batches, final_checkpoint, load_policy, quiet, sample_rows
from prefrl.recipes.irl import algorithm_of, check_log_pi, pay_of
from prefrl.recipes.irl_files import WARM_START, stands
from prefrl.recipes.irl_text_data import TextData, fine_tune, load_demonstrations
from prefrl.recipes.irl_text_report import TextEvaluation, conclude_text
from prefrl.recipes.resuming import Checkpoints, Stateful, opened
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.text import TextInverse, TextNetSpec, check_pay
from prefrl.rewards.inverse.text_losses import Method
from prefrl.rewards.inverse.text_reward import TextReward
from prefrl.types import Prompt, Rollout, Score

COLLAPSED = 0.95  # accuracy on both sides from which a discriminator teaches little
PATIENCE = 5  # rounds of it before a word is said
FITTED = (
    *("steps", "batch_size", "lr", "weight_decay", "buffer", "fusion"),
    *("gradient_penalty", "label_smoothing", "stop_accuracy"),
)


def run(config: IRLConfig) -> RunFolder:
    """Learn a reward, and a policy, from demonstrated completions; everything is left in the run folder."""
    if config.method == "spin":
        from prefrl.recipes import irl_text_spin

        return irl_text_spin.run(config)
    algorithm = algorithm_of(config)
    check(config, algorithm)
    quiet()
    with opened(config, "irl") as (folder, checkpoints):
        data = load_demonstrations(config)
        print(f"{data.summary()}; {config.method}, algorithm {algorithm.name}. Loading {config.policy.name} ...")
        policy = load_policy(config.policy, config.seed)
        data = data.fitting(policy, config)
        study = prepare(folder, policy, data, algorithm, config)
        improve(study, checkpoints)
        study.engine.save(final_checkpoint(folder))
        if study.source.log_pi is not None:  # gail leaves none behind
            study.reward().save(folder.checkpoints / "reward")
        conclude_text(folder, study.evaluation, study.engine, config)
    return folder


def check(config: IRLConfig, algorithm: Algorithm) -> None:
    """Refuse what cannot work before anything is loaded.

    Raises:
        ConfigError: no data, an algorithm that learns from no rewards, or log pi not paid once.
    """
    if not config.data.train:
        raise ConfigError(
            "data.train is empty; expected prompts with demonstrated completions: --data.train FILE.jsonl"
        )
    if algorithm.pairs is not None or algorithm.select is not None:
        raise ConfigError(
            f"algorithm {algorithm.name!r} compares or selects completions and would not read a learnt reward as a "
            "number. Use rloo, grpo or ppo; for pairs against the policy's own samples, method spin."
        )
    if config.text.warmup >= config.steps:
        raise ConfigError(f"text.warmup is {config.text.warmup} and steps {config.steps}; expected fewer than steps.")
    if config.method != "gail":
        check_pay(pay_of(config))
        check_log_pi(LogPi(beta=config.beta, pay=pay_of(config)), algorithm)


class Interleaved(Checked):
    """A learnt reward that is improved on the samples of a step before it scores them.

    So the reward learns from samples and demonstrations as one and the same policy sees them, and what it has learnt
    is paid at once.
    """

    learnt: Mapping[str, float]

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Learn from the rollouts, then score them."""
        assert isinstance(self.source, TextInverse)
        self.learnt = self.source.update(rollouts)
        return super().score(rollouts)

    def update(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> Mapping[str, float]:
        """What was learnt from them."""
        return self.learnt


@dataclass(frozen=True)
class Study:
    """Everything that learns, and what it is measured by."""

    folder: RunFolder
    config: IRLConfig
    engine: Engine
    critic: Critic | None
    source: TextInverse
    scorer: Interleaved
    optimizer: PolicyOptimizer
    data: TextData
    evaluation: TextEvaluation

    def reward(self) -> TextReward:
        """What was learnt as it is now; of gail, what it tells samples by, which is no reward."""
        if self.source.log_pi is not None:
            return self.source.export()
        return TextReward(self.source.model, beta=1.0, method="gail")

    def parts(self) -> dict[str, Stateful | None]:
        """All that an exact continuation needs, by name."""
        critic = None if self.critic is None else self.critic.engine
        return {"engine": self.engine, "critic": critic, "reward": self.source, "optimizer": self.optimizer}


def prepare(folder: RunFolder, policy: LanguageModel, data: TextData, algorithm: Algorithm, config: IRLConfig) -> Study:
    """Policy, critic and reward, attached to each other; the policy has copied the demonstrations if it is to."""
    evaluation = TextEvaluation.of(folder, policy, data, config)
    if config.warm_start and not config.resume:
        fine_tune(folder, policy, data, config, epochs=config.warm_start, phase=WARM_START)
    total = config.steps * config.updates
    engine = Engine(policy, config.policy, sampler=policy, sampling=config.sampling, total_steps=total, reference=True)
    source = source_of(config, data)
    source.attach(engine)
    critic = None
    if "values" in algorithm.needs:
        spec = algorithm.critic
        lr = spec.lr or config.policy.lr * (10.0 if spec.kind == "head" else 1.0)
        reading = Reading(question=spec.question, low=spec.low, high=spec.high, aggregate=spec.aggregate)
        base, seed, optim = spec.base, config.seed, config.policy
        critic = make_critic(
            spec.kind, policy, lr=lr, base=base, optim=optim, total_steps=total, seed=seed, reading=reading
        )
    scorer = Interleaved(source, config.max_error_fraction)
    optimizer = PolicyOptimizer(engine, scorer, algorithm, config.updates, critic=critic)
    return Study(folder, config, engine, critic, source, scorer, optimizer, data, evaluation)


def source_of(config: IRLConfig, data: TextData) -> TextInverse:
    """The reward that is to be learnt."""
    net = config.net
    return TextInverse(
        data.train,
        method=cast("Method", config.method),
        beta=config.beta,
        pay=pay_of(config),
        form=config.form,
        net=TextNetSpec(
            level=net.level,
            hidden=net.hidden,
            gamma=config.gamma,
            base=config.text.base,
            layers=net.layers,
            lora=net.lora,
            dense=config.text.dense,
            offset=config.text.offset,
        ),
        fit=Fit(**{name: getattr(config.discriminator, name) for name in FITTED}),
        seed=config.seed,
    )


def improve(study: Study, checkpoints: Checkpoints) -> None:
    """The rounds that are left; with evaluations, metrics, samples and checkpoints on the way."""
    config = study.config
    done = checkpoints.restore(stands=stands, **study.parts())
    if not done:
        study.evaluation.at(0, study.engine, study.reward())
    feed = batches(study.data.prompts, config.prompts_per_step, config.seed)
    for _ in range(done):
        next(feed)
    collapsed = 0
    with Progress(config.method, total=config.steps - done) as progress:
        for step in range(done + 1, config.steps + 1):
            metrics = one_round(study, next(feed), step)
            collapsed = collapsed + 1 if _too_good(metrics) else 0
            if collapsed == PATIENCE:
                progress.note(_COLLAPSE)
            due = config.eval_every and step % config.eval_every == 0
            if due or step == config.steps:
                study.evaluation.at(step, study.engine, study.reward())
            checkpoints.after(step, last=step == config.steps)
            progress.step(_shown(metrics, study.evaluation.last))


def one_round(study: Study, prompts: Sequence[Prompt], step: int) -> dict[str, float]:
    """Sample, improve the reward, score, improve the policy; metrics."""
    config, seed = study.config, study.config.seed * 1_000_000 + step
    if step <= config.text.warmup:
        rollouts = study.engine.sample(prompts, study.optimizer.algorithm.group_size, seed=seed)
        scores: Sequence[Score] = study.scorer.score(rollouts)
        metrics = {**rollout_metrics(rollouts, scores), **study.scorer.learnt}
    else:
        result = study.optimizer.step(prompts, seed=seed)
        rollouts, scores, metrics = list(result.rollouts), result.scores, dict(result.metrics)
    study.folder.log(step, metrics)
    study.folder.samples(step, sample_rows(rollouts, scores, policy="training", limit=2))
    return metrics


_COLLAPSE = (
    f"Note: for {PATIENCE} rounds both sides were told apart in more than {COLLAPSED:.0%} of the cases: the reward "
    "says little but no. Set discriminator.stop_accuracy, lower its lr or steps, or give the policy a warm_start."
)


def _too_good(metrics: Mapping[str, float]) -> bool:
    return min(metrics.get("irl/accuracy_expert", 0.0), metrics.get("irl/accuracy_policy", 0.0)) > COLLAPSED


def _shown(metrics: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    names = {
        "irl/accuracy_expert": "D_expert",
        "irl/accuracy_policy": "D_policy",
        "irl/gap": "gap",
        "irl/ess": "ess",
        "kl/ref": "kl",
    }
    shown = {short: metrics[name] for name, short in names.items() if name in metrics}
    return shown | {"independent": last["independent/mean"]} if "independent/mean" in last else shown
