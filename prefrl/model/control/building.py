"""Control policies for an environment, made or loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from prefrl.errors import ConfigError, did_you_mean
from prefrl.model.control.policy import ControlPolicy
from prefrl.model.control.record import read_record, read_weights
from prefrl.model.distributions import Categorical, Distribution, Gaussian, Squashed
from prefrl.model.networks import Normaliser, Spread, mlp, orthogonal
from prefrl.model.recurrent import Recurrent
from prefrl.rollout.episodes import Environments, Singles
from prefrl.rollout.gym import GymEnvironments

Kind = Literal["auto", "categorical", "gaussian", "squashed"]
KINDS = ("auto", "categorical", "gaussian", "squashed")


def control_policy(
    env: str | Callable[[], Any],
    *,
    hidden: Sequence[int] = (64, 64),
    recurrent: int = 0,
    distribution: Kind = "auto",
    normalise: bool = True,
    log_std: float = 0.0,
    horizon: int = 0,
    visible: Sequence[int] = (),
    seed: int = 0,
    device: str = "auto",
) -> ControlPolicy:
    """A fresh policy for an environment, nearly uniform (or centred) at first.

    Args:
        env: the id of a gymnasium environment, a function that makes one, or a class of episodes (`Environment`) with
            the attributes `observation_size` and `actions`.
        hidden: units of the hidden layers.
        recurrent: size of a GRU's memory, after the hidden layers; 0 looks at the last observation only.
        distribution: auto takes categorical for a number of actions and gaussian for continuous ones.
        normalise: keep running moments of the observations; see `ControlPolicy.observe`.
        log_std: of a Gaussian at first, in units of half the range of an action.
        horizon, visible: see `GymEnvironments`.
        seed: of the initial weights.
        device: of the network; auto is the CPU, on which small networks are fastest.

    Raises:
        ConfigError: the environment cannot be made, has no such distribution, or there is no such device.
    """
    environments, size, actions, low, high = _surroundings(env, horizon, visible)
    record = {
        "environment": env if isinstance(env, str) else None,
        "horizon": horizon,
        "visible": list(visible),
        "observation_size": size,
        "actions": actions,
        "low": list(low),
        "high": list(high),
        "hidden": list(hidden),
        "recurrent": recurrent,
        "distribution": distribution,
        "normalise": normalise,
        "log_std": log_std,
    }
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        policy = _build(record, environments)
    return _placed(policy, device)


def _placed(policy: ControlPolicy, device: str) -> ControlPolicy:
    """The policy with its network on a device; auto is the CPU."""
    try:
        policy.net.to("cpu" if device == "auto" else device)
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        raise ConfigError(f"The device {device!r} cannot be used: {error}. Set policy.device to cpu.") from error
    return policy


def load_control_policy(
    folder: str | Path, env: Callable[[], Any] | None = None, *, device: str = "auto"
) -> ControlPolicy:
    """A saved policy, to be sampled or trained further.

    Args:
        folder: where `ControlPolicy.save` wrote it.
        env: what makes its environment, where that has no id of gymnasium.
        device: of the network; auto is the CPU.

    Raises:
        ModelError: there is no policy, or its files do not fit together.
        ConfigError: its environment cannot be made, or there is no such device.
    """
    record = read_record(folder)
    source = env or record["environment"]
    environments = _surroundings(source, record["horizon"], record["visible"])[0] if source else None
    policy = _build(record, environments)
    read_weights(folder, policy.net)
    return _placed(policy, device)


def distribution_for(kind: str, actions: int, low: Sequence[float], high: Sequence[float]) -> Distribution:
    """The distribution by its name, over a number of actions or between bounds.

    Raises:
        ConfigError: there is none of that name for such actions.
    """
    valid = ("auto", "categorical") if actions else ("auto", "gaussian", "squashed")
    if kind not in valid:
        what = f"{actions} actions" if actions else "continuous actions"
        raise ConfigError(f"distribution is {kind!r}; valid for {what}: {', '.join(valid)}.{did_you_mean(kind, valid)}")
    if actions:
        return Categorical(actions)
    return Squashed(low, high) if kind == "squashed" else Gaussian(low, high)


def _build(record: dict[str, Any], environments: Environments | None) -> ControlPolicy:
    size, hidden, memory = record["observation_size"], record["hidden"], record["recurrent"]
    over = distribution_for(record["distribution"], record["actions"], record["low"], record["high"])
    first = [Normaliser(size)] if record["normalise"] else []
    discrete = isinstance(over, Categorical)

    def network(outputs: int, last: float) -> nn.Sequential | Recurrent:
        if not memory:
            return nn.Sequential(*first, *orthogonal(mlp(size, outputs, hidden), last))
        units = hidden or [size]
        layers = [*orthogonal(mlp(size, units[-1], hidden[:-1]), 2.0**0.5), nn.Tanh()] if hidden else []
        head = orthogonal(nn.Sequential(nn.Linear(memory, outputs)), last)
        return Recurrent(nn.Sequential(*first, *layers), units[-1], over.width, memory, head)

    net = network(over.size if discrete else over.width, 0.01)
    if not discrete:
        spread = Spread(over.width, record["log_std"])
        if isinstance(net, Recurrent):
            net.head = nn.Sequential(net.head, spread)
        else:
            net.append(spread)
    return ControlPolicy(
        size, over, net=net, environments=environments, value_net=lambda: network(1, 1.0), record=record
    )


def _surroundings(
    env: str | Callable[[], Any], horizon: int, visible: Sequence[int]
) -> tuple[Environments, int, int, Sequence[float], Sequence[float]]:
    """The environments, numbers in an observation, number of actions, and bounds of continuous ones."""
    if isinstance(env, str) or not hasattr(env, "observation_size"):
        made = GymEnvironments(env, horizon=horizon, visible=visible)
        return made, made.observation_size, made.actions, made.low, made.high
    if horizon or visible:
        raise ConfigError("horizon and visible are for environments of gymnasium. Leave them out.")
    bounds = getattr(env, "low", ()), getattr(env, "high", ())
    return Singles(env), env.observation_size, getattr(env, "actions", 0), *bounds
