"""Learnt rewards by settings: the kinds `airl`, `gail` and `gcl` of a list of rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.inverse.airl import Airl
from prefrl.rewards.inverse.discriminator import Fit, Method
from prefrl.rewards.inverse.forms import Form, LogPi, Pay
from prefrl.rewards.inverse.gail import Gail
from prefrl.rewards.inverse.gcl import Gcl
from prefrl.rewards.inverse.nets import NetSpec
from prefrl.rewards.inverse.source import InverseReward
from prefrl.types import Rollout

NET = {f.name for f in fields(NetSpec)}
FIT = {f.name for f in fields(Fit)}
OWN = {"normalise_reward", "seed", "name"}

Demonstrations = str | Sequence[Rollout]


def airl(demonstrations: Demonstrations, beta: float = 1.0, pay: Pay = "reward", **settings: Any) -> InverseReward:
    """AIRL with a potential; `settings` are those of `NetSpec` and `Fit`, `normalise_reward`, `seed` and `name`."""
    return learnt(Airl(log_pi=LogPi(beta=beta, pay=pay)), demonstrations, **{"shaped": True, **settings})


def gail(demonstrations: Demonstrations, form: Form = "neg_log_one_minus_d", **settings: Any) -> InverseReward:
    """GAIL; `settings` as for `airl`."""
    return learnt(Gail(form=form), demonstrations, **settings)


def gcl(demonstrations: Demonstrations, beta: float = 1.0, pay: Pay = "reward", **settings: Any) -> InverseReward:
    """Guided cost learning; `settings` as for `airl`."""
    return learnt(Gcl(log_pi=LogPi(beta=beta, pay=pay)), demonstrations, **settings)


def learnt(method: Method, demonstrations: Demonstrations, **settings: Any) -> InverseReward:
    """A reward that learns by a method.

    Args:
        method: how.
        demonstrations: expert episodes, or what `load_demonstrations` reads them from.
        settings: of the network, the fit and `InverseReward`, by name.

    Raises:
        ConfigError: an unknown setting.
    """
    known = sorted(NET | FIT | OWN)
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"reward kind {method.name!r} has no setting {name!r}; valid: {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )
    if settings.get("fragment") and not isinstance(method, Gcl):
        raise ConfigError(f"reward kind {method.name!r} reads no fragments; leave 'fragment' out, or use kind 'gcl'.")
    net: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items() if name in NET}
    sizes: dict[str, Any] = {"state_size": 0, "action_size": 0}
    try:
        spec, fit = NetSpec(**{**sizes, **net}), Fit(**{name: v for name, v in settings.items() if name in FIT})
    except TypeError as error:  # a text where a number belongs
        raise ConfigError(f"reward kind {method.name!r}: {error}. Look at the types of its settings.") from error
    return InverseReward(
        method,
        spec,
        _loaded(demonstrations),
        fit=fit,
        normalise=bool(settings.get("normalise_reward", False)),
        seed=int(settings.get("seed", 0)),
        name=str(settings.get("name", "")),
    )


def _loaded(demonstrations: Demonstrations) -> Sequence[Rollout]:
    if not isinstance(demonstrations, str):
        return demonstrations
    from prefrl.data.demonstrations import load_demonstrations

    return load_demonstrations(demonstrations)
