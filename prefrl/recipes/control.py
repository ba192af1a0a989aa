"""Control: a small policy for an environment, cloned from demonstrations, improved on any reward, recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from prefrl.config import ControlConfig
from prefrl.data.demonstrations import load_demonstrations, save_demonstrations
from prefrl.evaluate.blocks import Figure, Section
from prefrl.evaluate.figures import curves
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.report import standard_sections, write_report
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.control import ControlPolicy, control_policy
from prefrl.recipes.common import Checked, final_checkpoint, record_reward
from prefrl.recipes.control_learner import (
    ControlLearner,
    clone,
    control_learner,
    evaluate_control,
    minibatches_for,
    resolve_control,
    returns_of,
)
from prefrl.recipes.irl import check_paid
from prefrl.recipes.resuming import Checkpoints, opened, up_to
from prefrl.rewards.base import attach
from prefrl.rewards.specs import build
from prefrl.types import Rollout

DEMONSTRATIONS = "demonstrations.npz"
RETURNS = {"train": "as it samples", "eval": "at evaluations"}  # phases with a mean return, as a report calls them


def run(config: ControlConfig) -> RunFolder:
    """Learn a policy as configured; everything is left in the run folder."""
    algorithm = resolve_control(config.algorithm)
    source = build(config.rewards)
    check_paid(source, algorithm, moving=config.control.normalise)
    with opened(config, "control") as (folder, checkpoints):
        policy = policy_of(config)
        what = f"{policy.actions} actions" if not policy.record["low"] else f"actions of {policy.actions} numbers"
        print(f"{config.environment}: {policy.observation_size} numbers seen, {what}; algorithm {algorithm.name}")
        learner = control_learner(
            policy,
            Checked(source, config.max_error_fraction),
            algorithm,
            config.policy,
            episodes=config.episodes,
            steps=config.steps,
            updates=config.updates,
            minibatches=minibatches_for(policy, algorithm, config.minibatches.count, config.minibatches.over),
            horizon=config.train_horizon,
            seed=config.seed,
        )
        attach(source, learner.engine)
        record_reward(source, folder.path)
        summary = learn(folder, learner, config, checkpoints)
        learner.engine.save(final_checkpoint(folder))
        if learner.critic is not None:
            learner.critic.save(folder.checkpoints / "critic")
        if config.record:
            _, played = evaluate_control(policy, config.record, temperature=config.eval_temperature, seed=config.seed)
            summary["recorded"] = len(played)
            print(f"Demonstrations: {save_demonstrations(folder.path / DEMONSTRATIONS, played)}")
        _conclude(folder, summary)
    return folder


def _conclude(folder: RunFolder, summary: Mapping[str, Any]) -> None:
    """Mark the run finished, and write its report with what the environment paid."""
    folder.finish(summary)
    data = read(folder.path)
    returns = {name: data.series("return/mean", phase) for phase, name in RETURNS.items()}
    lines = {name: curve for name, curve in returns.items() if curve[0]}
    extra, title = [], ""
    if lines:
        caption = "What the environment pays an episode, on average. Evaluations have the same starts every time."
        extra = [Section("Returns", [Figure(curves(lines), "Mean return", caption)])]
    if evaluated := returns[RETURNS["eval"]][1]:
        title = f"Mean return went from {evaluated[0]:.4g} to {evaluated[-1]:.4g} at evaluations"
    print(f"Report: {write_report(folder, standard_sections(data, title=title, extra=extra))}")


def policy_of(config: ControlConfig) -> ControlPolicy:
    """A fresh policy as configured."""
    network = config.control
    return control_policy(
        config.environment,
        hidden=network.hidden,
        recurrent=network.recurrent,
        distribution=network.distribution,
        normalise=network.normalise,
        horizon=config.horizon,
        visible=config.visible,
        seed=config.seed,
        device=config.policy.device,
    )


def learn(
    folder: RunFolder, learner: ControlLearner, config: ControlConfig, checkpoints: Checkpoints | None = None
) -> dict[str, Any]:
    """The loop, with evaluations and checkpoints on the way; the figures that sum it up."""
    checkpoints = checkpoints or Checkpoints()
    reward = cast("Checked", learner.optimizer.reward)
    done = learner.rounds = checkpoints.restore(stands=_stands, **learner.parts(), reward=reward)
    if not done:
        _evaluate(folder, learner.policy, config, 0)
        if config.cloning.demonstrations:
            _clone(folder, learner.policy, config)
    figures: dict[str, float] = {}
    with Progress(learner.optimizer.algorithm.name, total=config.steps - done) as progress:
        for step in range(done + 1, config.steps + 1):
            found = learner.step()
            metrics = {**found.metrics, **_returns(found.rollouts)}
            folder.log(step, metrics)
            progress.step(_shown(metrics, figures))
            reached = metrics.get("return/mean", -float("inf")) >= config.target
            if reached or (config.eval_every and step % config.eval_every == 0) or step == config.steps:
                figures = _evaluate(folder, learner.policy, config, step)
            good = reached and figures["return/mean"] >= config.target
            checkpoints.after(step, last=good or step == config.steps)
            if good:
                progress.note(
                    f"Round {step}: mean return {figures['return/mean']:.1f}, the target; the run ends early."
                )
                break
    data = read(folder.path)
    ends = ((name, data.series(name, "eval")[1]) for name in data.names("eval"))
    cloned = {name: data.series(name, "clone")[1][-1] for name in data.names("clone")}
    summary = {f"{when}/{name}": values[at] for name, values in ends for when, at in (("start", 0), ("end", -1))}
    return summary | ({"cloned": cloned} if cloned else {}) | {"rounds": learner.rounds}


def _stands(line: Mapping[str, Any], step: int) -> bool:
    """Whether a line was written by the end of a step; passes of cloning come before the first."""
    return line.get("phase") == "clone" or up_to(line, step)


def _clone(folder: RunFolder, policy: ControlPolicy, config: ControlConfig) -> None:
    spec = config.cloning
    demonstrations = load_demonstrations(spec.demonstrations)
    demonstrations = demonstrations[: spec.limit or None]
    optim = replace(config.policy, lr=spec.lr or config.policy.lr)
    losses = clone(policy, demonstrations, optim, epochs=spec.epochs, minibatches=spec.minibatches, seed=config.seed)
    for epoch, nll in enumerate(losses, 1):
        folder.log(epoch, {"nll": nll}, phase="clone")
    figures = evaluate_control(policy, config.eval_episodes, temperature=config.eval_temperature)[0]
    folder.log(len(losses), figures, phase="clone")
    shown = f", mean return {figures['return/mean']:.1f}" if "return/mean" in figures else ""
    print(f"Cloned {len(demonstrations)} demonstrations: {losses[-1]:.3f} nats an action{shown}")


def _evaluate(folder: RunFolder, policy: ControlPolicy, config: ControlConfig, step: int) -> dict[str, float]:
    figures, played = evaluate_control(policy, config.eval_episodes, temperature=config.eval_temperature)
    folder.log(step, figures, phase="eval")
    folder.samples(step, [_sample(r, step) for r in played[:4]])
    return figures


def _sample(rollout: Rollout, step: int) -> dict[str, Any]:
    return {
        "policy": f"step {step}",
        "prompt_id": rollout.prompt.id,
        "prompt": rollout.prompt.id,
        "completion": f"{len(rollout.completion_ids)} actions",
        "reward": rollout.info.get("return"),
        "stop": rollout.stop.value,
    }


def _returns(rollouts: Sequence[Rollout]) -> dict[str, float]:
    returns = returns_of(rollouts)
    return {"return/mean": sum(returns) / len(returns), "return/min": min(returns)} if returns else {}


def _shown(metrics: Mapping[str, float], evaluated: Mapping[str, float]) -> dict[str, float]:
    names = {"return/mean": "return", "length/mean": "length", "entropy": "entropy"}
    shown = {short: metrics[name] for name, short in names.items() if name in metrics}
    return shown | ({"evaluated": evaluated["return/mean"]} if "return/mean" in evaluated else {})
