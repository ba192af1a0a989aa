"""Inverse RL: demonstrations -> a reward, and a policy that earns it. Every method shares this entrance."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prefrl.config import IRLConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.run_folder import RunFolder
from prefrl.policy.algorithms import resolve
from prefrl.policy.parts import Algorithm
from prefrl.rewards.base import RewardSource, parts_of
from prefrl.rewards.compose import Clip, WeightedSum
from prefrl.rewards.inverse.forms import LogPi, Pay
from prefrl.rewards.normalise import GroupNormalise, GroupRank, Normalise, Sigmoid, Standardise
from prefrl.types import Rollout

if TYPE_CHECKING:
    from prefrl.recipes.irl_study import Imitation

SCALES = (Standardise, Normalise, GroupNormalise, GroupRank, Sigmoid, Clip)  # what puts a reward on another scale


def run(config: IRLConfig) -> RunFolder:
    """Learn a reward as configured; everything is left in the run folder."""
    recipe: Any = importlib.import_module(recipe_of(config))
    folder: RunFolder = recipe.run(config)
    return folder


def imitate(config: IRLConfig, demonstrations: Sequence[Rollout] | None = None) -> Imitation:
    """Learn in an environment and leave nothing on disk; see `irl_study.imitate`."""
    from prefrl.recipes import irl_study

    return irl_study.imitate(config, demonstrations)


def recipe_of(config: IRLConfig) -> str:
    """The module whose `run(config)` carries a configuration out."""
    if config.method == "maxent":
        return "prefrl.recipes.irl_maxent"
    return "prefrl.recipes.irl_control" if config.environment else "prefrl.recipes.irl_text"


def pay_of(config: IRLConfig) -> Pay:
    """How log pi is paid, by a method in which it enters."""
    if config.pay != "auto":
        return config.pay
    return "reward" if config.environment else "kl"


def algorithm_of(config: IRLConfig) -> Algorithm:
    """The algorithm, with discount and coefficients as the method needs them.

    What `algorithm` leaves open is filled in; what it says otherwise is refused, for then the policy would be
    improved towards another fixed point than the one that the reward is learnt for.

    Raises:
        ConfigError: the algorithm says another discount, coefficient or place of the KL.
    """
    given: dict[str, Any] = {"name": config.algorithm} if isinstance(config.algorithm, str) else dict(config.algorithm)
    needed, why = _needed(config)
    said = dict(_leaves(given))
    for name, value in _leaves(needed):
        if name in said and said[name] != value:
            raise ConfigError(
                f"algorithm.{name} is {said[name]!r}, but {why.get(name, why[''])} Leave algorithm.{name} out, or set "
                f"it to {value!r}."
            )
    if config.method in ("gail", "spin") and "kl.coef" not in said:
        needed["kl"] = {"coef": 0.0}  # nothing holds an imitator near its start unless it is asked for
    if config.environment:  # returns of hundreds of steps: a head would be too small, a clipped value too slow
        critic = {"kind": "separate", "clip": 0.0}
        needed["critic"] = {name: value for name, value in critic.items() if f"critic.{name}" not in said}
    return resolve(_merged(given, needed))


def check_paid(source: RewardSource, algorithm: Algorithm, *, moving: bool = False) -> None:
    """Refuse an algorithm with which a learnt reward's log pi would not be paid once, or of another discount.

    Args:
        source: any reward; what it is made of is looked at too.
        algorithm: what improves the policy.
        moving: whether the policy changes after the reward has learnt, beside its update: what it sees is normalised
            by what it has seen.

    Raises:
        ConfigError: says what to set.
    """
    from prefrl.rewards.inverse.source import InverseReward
    from prefrl.rewards.inverse.text import TextInverse

    for reward in parts_of(source):
        if isinstance(reward, WeightedSum):
            _check_weights(reward)
        log_pi = log_pi_of(reward)
        _check_scale(reward)
        if isinstance(reward, InverseReward):
            _check_discount(reward.name, reward.spec.gamma, algorithm, read=reward.spec.shaped or reward.method.whole)
        if log_pi is not None and moving and not isinstance(reward, TextInverse):
            raise ConfigError(
                f"the reward {reward.name!r} reads log pi of the policy that sampled, and control.normalise would "
                "change it in between. Set control.normalise to false, or learn with prefrl irl."
            )
        if log_pi is not None:
            check_log_pi(log_pi, algorithm)


def log_pi_of(reward: RewardSource) -> LogPi | None:
    """How a learnt reward has log pi paid; None for those in which it does not enter."""
    from prefrl.rewards.inverse.source import InverseReward
    from prefrl.rewards.inverse.text import TextInverse

    if isinstance(reward, InverseReward):
        return reward.method.log_pi
    return reward.log_pi if isinstance(reward, TextInverse) else None


def check_log_pi(log_pi: LogPi, algorithm: Algorithm) -> None:
    """Refuse an algorithm with which log pi would not be paid exactly once.

    Raises:
        ConfigError: says what to set.
    """
    if algorithm.kl.target:
        raise ConfigError(
            f"algorithm.kl.target is {algorithm.kl.target}, which moves the KL coefficient away from beta "
            f"{log_pi.beta} that the reward is learnt for. Set it to 0."
        )
    log_pi.check(
        kl=algorithm.kl.coef,
        entropy=algorithm.entropy,
        in_reward=algorithm.kl.place == "reward",
        scaled=algorithm.credit.scale != "none",
    )


def _check_weights(total: WeightedSum) -> None:
    for reward, weight in total.terms:
        if weight not in (0.0, 1.0) and log_pi_of(reward) is not None:
            raise ConfigError(
                f"the reward {reward.name!r} has weight {weight:g}, with which log pi would not be paid once. Set its "
                "weight to 1, and weigh the others."
            )


def _check_scale(reward: RewardSource) -> None:
    """Refuse a learnt reward on another scale than the optimizer's charge for log pi, which stays as it is."""
    from prefrl.rewards.inverse.source import InverseReward

    if isinstance(reward, SCALES):
        inside, setting = [part for child in reward.children for part in parts_of(child)], "normalise or clip"
    elif isinstance(reward, InverseReward) and reward.scaled:
        inside, setting = [reward], "normalise_reward"
    else:
        return
    for part in inside:
        log_pi = log_pi_of(part)
        if log_pi is not None and log_pi.pay != "reward":
            raise ConfigError(
                f"the reward {part.name!r} is paid on another scale ({setting}), but log pi as {log_pi.pay!r}, at beta "
                f"{log_pi.beta} of the reward as it is learnt: it would be paid in another measure. Leave {setting} "
                "out, or set pay to 'reward', so that both are scaled together."
            )


def _check_discount(name: str, gamma: float, algorithm: Algorithm, *, read: bool) -> None:
    if read and algorithm.credit.gamma != gamma:
        raise ConfigError(
            f"algorithm.credit.gamma is {algorithm.credit.gamma}, but the reward {name!r} is learnt with "
            f"discount {gamma}; expected the same. Set both to one of them."
        )


def _needed(config: IRLConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """Parts that the method fixes, and why: by dotted name, the empty one for all others."""
    beta = config.beta
    pay = None if config.method in ("gail", "spin") else pay_of(config)
    needed: dict[str, Any] = {"credit": {"gamma": config.gamma}}
    why = {
        "credit.gamma": f"the reward is learnt with discount {config.gamma}.",
        "": f"log pi is paid as {pay} with beta {beta}: once, not twice and not never.",
    }
    if pay == "reward":
        needed |= {"kl": {"coef": 0.0}, "entropy": 0.0}
    if pay == "kl":
        needed |= {"kl": {"coef": beta, "place": "reward", "estimator": "k1", "target": 0.0}, "entropy": 0.0}
    if pay == "entropy":
        needed |= {"kl": {"coef": 0.0}, "entropy": beta}
        needed["credit"]["scale"] = "none"
        why["credit.scale"] = "an entropy bonus in the loss is in units of the reward only where advantages are."
    return needed, why


def _leaves(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {k: _merged(below[k], v) for k, v in above.items() if isinstance(v, Mapping) and k in below}
    return {**below, **above, **both}
