"""Maximum causal entropy IRL in a maze of which everything is known, as a run folder with a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from prefrl.config import IRLConfig
from prefrl.errors import ConfigError
from prefrl.evaluate import maze_figures
from prefrl.evaluate.blocks import Figure, Section, Text
from prefrl.evaluate.report import standard_sections, write_report
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.recipes.common import final_checkpoint, start
from prefrl.rewards.inverse import tabular
from prefrl.rewards.inverse.tabular.maxent import Inputs, MaxEntFit, net_inputs
from prefrl.rewards.inverse.tabular.mdp import MDP, Array, Trajectory

_INPUTS: dict[frozenset[str], Inputs] = {
    frozenset({"state"}): "state",
    frozenset({"state", "action"}): "state_action",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is to be explained: a world, its demonstrations, and the expert's policy where it is known."""

    world: tabular.World
    demonstrations: Array | list[Trajectory]
    expert: Array | None
    said: str


def run(config: IRLConfig) -> RunFolder:
    """Fit a reward to demonstrations and leave it, its policy and what they are worth in the run folder.

    `demonstrations` is a file of trajectories, `expert` (the exact visits of the soft-optimal policy of the world's own
    reward) or `expert:N` (so many episodes of it). `beta` is the temperature, `steps` the most evaluations of the
    likelihood, `net.hidden` empty a free table, `discriminator.weight_decay` an L2 penalty.

    Raises:
        ConfigError: no such world, no such demonstrations, or inputs that a maze does not have.
    """
    inputs = _inputs(config)
    task = _task(config)
    with start(config, "irl") as folder:
        print(f"{task.world.name}: {task.said}.")
        can = tabular.identifiability(task.world.mdp)
        print(can)
        found = tabular.maxent.fit(
            task.world.mdp,
            task.demonstrations,
            _net(config, task.world.mdp, inputs),
            inputs=inputs,
            temperature=config.beta,
            l2=config.discriminator.weight_decay,
            max_evaluations=config.steps,
        )
        for step, (loss, gradient, gap) in enumerate(found.history):
            folder.log(step, {"irl/nll": loss, "irl/gradient": gradient, "irl/visit_gap": gap})
        _save(folder, config, inputs, found)
        figures = _figures(config, task, found)
        summary = {"converged": found.converged, **figures, "identifiability": can.sentence}
        if not found.converged:
            print(
                f"Not converged after {len(found.history)} evaluations: gradient {found.gradient:.1e}; raise --steps."
            )
        for name, value in figures.items():
            print(f"{name}: {value:.6g}")
        _report(folder, config, task, found, summary)
    return folder


def _inputs(config: IRLConfig) -> Inputs:
    found = _INPUTS.get(frozenset(config.net.inputs))
    if found is None:
        raise ConfigError(
            f"net.inputs is {list(config.net.inputs)}; a maze is explained by state, or by state and action. Type: "
            "--net.inputs '[state]'"
        )
    return found


def _task(config: IRLConfig) -> _Task:
    """The world and its demonstrations, as configured."""
    world = tabular.named(config.environment, horizon=config.horizon or None, discount=config.gamma)
    name, _, count = config.demonstrations.partition(":")
    if name != "expert":
        read_in = tabular.load_trajectories(config.demonstrations, world.mdp)[: config.demonstrations_limit or None]
        return _Task(world=world, demonstrations=read_in, expert=None, said=f"{len(read_in)} demonstrations")
    policy = tabular.solve(world.mdp, world.reward, config.beta).policy
    if not count:
        visits = tabular.occupancy(world.mdp, policy)
        return _Task(world=world, demonstrations=visits, expert=policy, said="the exact visits of the expert")
    if not count.isdecimal() or int(count) < 1 or world.mdp.horizon is None:
        raise ConfigError(
            f"demonstrations is {config.demonstrations!r} and horizon is {config.horizon}; expected expert, or "
            "expert:200 with a horizon. Type: --demonstrations expert:200 --horizon 15"
        )
    drawn = tabular.sample(world.mdp, policy, int(count), seed=config.seed)
    return _Task(world=world, demonstrations=drawn, expert=policy, said=f"{count} episodes of the expert")


def _net(config: IRLConfig, mdp: MDP, inputs: Inputs) -> nn.Module | None:
    """A network of tanh layers in float64; None, a free table, without hidden layers."""
    if not config.net.hidden:
        return None
    torch.manual_seed(config.seed)
    sizes = [net_inputs(mdp, inputs).shape[-1], *config.net.hidden]
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 1)).double()


def _save(folder: RunFolder, config: IRLConfig, inputs: Inputs, found: MaxEntFit) -> None:
    record = {
        "kind": "tabular",
        "method": "maxent",
        "environment": config.environment,
        "inputs": inputs,
        "hidden": list(config.net.hidden),
        "horizon": config.horizon or None,
        "discount": config.gamma,
        "temperature": config.beta,
    }
    final = final_checkpoint(folder)
    tabular.TabularReward(reward=found.reward, policy=found.solution.policy, record=record).save(final)
    weights = {name: tensor.detach().contiguous() for name, tensor in found.net.state_dict().items()}
    save_file(weights, final / "net.safetensors")


def _figures(config: IRLConfig, task: _Task, found: MaxEntFit) -> dict[str, float]:
    """How well the demonstrations are explained, and, where the truth is known, how much of it was found."""
    world, policy = task.world, found.solution.policy
    figures = {"nll": found.loss, "gradient": found.gradient, "visit_gap": found.gap}
    if task.expert is None:
        return figures
    figures["kl_from_expert"] = tabular.policy_divergence(world.mdp, task.expert, policy)
    figures["return"] = tabular.expected_return(world.mdp, policy, world.reward)
    figures["expert_return"] = tabular.expected_return(world.mdp, task.expert, world.reward)
    if found.reward.ndim == 1:
        flat = float(np.ptp(found.reward)) == 0.0
        figures["reward_correlation"] = math.nan if flat else float(np.corrcoef(found.reward, world.reward)[0, 1])
    if world.elsewhere is not None:
        for name, reward in (("return_elsewhere", found.reward), ("best_elsewhere", world.reward)):
            planned = tabular.solve(world.elsewhere, reward, config.beta).policy
            figures[name] = tabular.expected_return(world.elsewhere, planned, world.reward)
    return figures


def _report(folder: RunFolder, config: IRLConfig, task: _Task, found: MaxEntFit, summary: Mapping[str, Any]) -> None:
    """Finish the run and write its report, the worlds drawn."""
    folder.finish(summary)
    world = task.world
    some = [_board(world, world.mdp, found.reward, found.solution.policy, "Learnt")]
    if task.expert is not None:
        some.insert(0, _board(world, world.mdp, world.reward, task.expert, "The expert"))
    if world.elsewhere is not None:
        planned = tabular.solve(world.elsewhere, found.reward, config.beta).policy
        some.append(_board(world, world.elsewhere, found.reward, planned, "Carried elsewhere"))
    caption = "Blue cells pay more than the median cell, orange ones less. Arrows are as long as the action is likely."
    drawn = Figure(maze_figures.boards(some), "Reward and policy", caption)
    headline = [
        ("gradient of the likelihood", f"{found.gradient:.1e}", "converged" if found.converged else "not converged"),
        ("largest difference in visits", f"{found.gap:.1e}", "of the policy and the demonstrations"),
    ]
    section = Section("What was learnt", [drawn, Text(str(summary["identifiability"]))])
    title = f"A reward for {task.said}"
    report = standard_sections(read(folder.path), title=title, headline=headline, extra=[section])
    print(f"Report: {write_report(folder, report)}")


def _board(world: tabular.World, mdp: MDP, reward: Array, policy: Array, title: str) -> maze_figures.Board:
    return maze_figures.Board(mdp=mdp, shape=world.shape, reward=reward, policy=policy, title=title)
