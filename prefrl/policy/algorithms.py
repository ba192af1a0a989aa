"""Algorithm = credit x surrogate x reduction (x KL) or a pair loss. This table is the only place with their names.

A row is complete: the optimizer reads the parts and what they need, never the name. To make an algorithm of
your own, change parts of a row: `resolve({"name": "grpo", "clip": {"high": 0.28}})`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_type_hints

from prefrl.errors import ConfigError, did_you_mean
from prefrl.policy.advantages import Baseline, Reduction, Scale
from prefrl.policy.losses import Clip, Estimator, Ratio
from prefrl.policy.preference import PairLoss

Need = Literal["groups", "reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSpec:
    """What a rollout's reward is compared with, and what it is divided by."""

    baseline: Baseline = "group_mean"
    scale: Scale = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSpec:
    """How the importance ratio is bounded: to [1 - low, 1 + high]."""

    kind: Clip = "none"
    low: float = 0.2
    high: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class KLSpec:
    """KL to the reference (the live start weights): coefficient, estimator and place."""

    coef: float = 0.0
    estimator: Estimator = "k3"
    place: Literal["loss", "reward"] = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec:
    """Pairs: the best against the worst rollout of each group online, or given pairs offline."""

    loss: PairLoss = "sigmoid"
    beta: float = 0.1
    label_smoothing: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One complete algorithm.

    overlong  what a truncated rollout is: `keep` it as scored, or `mask` it out of baseline and loss
    """

    name: str
    paper: str
    credit: CreditSpec = CreditSpec()
    ratio: Ratio = "token"
    clip: ClipSpec = ClipSpec()
    reduction: Reduction = "sequence_mean"
    kl: KLSpec = KLSpec()
    pairs: PairSpec | None = None
    group_size: int = 8
    overlong: Literal["keep", "mask"] = "keep"

    @property
    def needs(self) -> frozenset[Need]:
        """What the optimizer must compute for it."""
        needs: set[Need] = set()
        if self.pairs is not None or self.credit.baseline in ("group_mean", "leave_one_out"):
            needs.add("groups")
        if self.pairs is not None or self.kl.coef != 0.0:
            needs.add("reference")
        return frozenset(needs)

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ConfigError(f"algorithm {self.name!r}: {problem}")


def _problems(algorithm: Algorithm) -> list[str]:
    """Illegal combinations, each with its reason and the fix."""
    clip, kl, pairs = algorithm.clip, algorithm.kl, algorithm.pairs
    found = []
    if "groups" in algorithm.needs and algorithm.group_size < 2:
        found.append(
            f"group_size is {algorithm.group_size}, but its credit compares the completions of a prompt with each "
            "other. Set group_size to 2 or more, or credit.baseline to 'batch_mean' or 'none'."
        )
    if clip.kind != "none" and algorithm.ratio == "none":
        found.append(
            "clip bounds the importance ratio, but ratio is 'none'. Set ratio to 'token', or clip.kind to 'none'."
        )
    if not (0.0 <= clip.low <= 1.0 and clip.high >= 0.0):
        found.append(
            f"clip bounds [1 - {clip.low}, 1 + {clip.high}] are not an interval around 1. Use low in [0, 1], high >= 0."
        )
    if algorithm.ratio == "sequence" and algorithm.reduction != "sequence_mean":
        found.append(
            f"ratio 'sequence' carries the whole row's gradient at each of its tokens, so reduction "
            f"{algorithm.reduction!r} would weigh a row by its length. Set reduction to 'sequence_mean'."
        )
    if kl.coef < 0:
        found.append(f"kl.coef is {kl.coef}; a negative coefficient rewards drifting away. Use 0 or more.")
    if kl.place == "reward" and kl.coef and kl.estimator != "k1":
        found.append(
            f"kl.place 'reward' takes the log-ratio itself, but kl.estimator is {kl.estimator!r}. Set it to 'k1'."
        )
    if pairs is not None and kl.coef:
        found.append("a pair loss already holds the policy near the reference through pairs.beta. Set kl.coef to 0.")
    if pairs is not None and pairs.beta <= 0:
        found.append(f"pairs.beta is {pairs.beta}. Use a positive number, such as 0.1.")
    if pairs is not None and not 0.0 <= pairs.label_smoothing < 0.5:
        found.append(f"pairs.label_smoothing is {pairs.label_smoothing}. Use a number in [0, 0.5).")
    return found


_TABLE = (
    Algorithm(
        name="reinforce",
        paper="Williams 1992",
        credit=CreditSpec(baseline="batch_mean"),
        ratio="none",
        reduction="sequence_sum",
        group_size=1,
    ),
    Algorithm(
        name="rloo",
        paper="arXiv 2402.14740",
        credit=CreditSpec(baseline="leave_one_out"),
        ratio="none",
        reduction="sequence_sum",
        kl=KLSpec(coef=0.05, estimator="k1", place="reward"),
    ),
    Algorithm(
        name="grpo",
        paper="arXiv 2402.03300",
        credit=CreditSpec(baseline="group_mean", scale="group_std"),
        clip=ClipSpec(kind="ppo"),
        kl=KLSpec(coef=0.04),
    ),
    Algorithm(
        name="dr_grpo",
        paper="arXiv 2503.20783",
        credit=CreditSpec(baseline="group_mean"),
        clip=ClipSpec(kind="ppo"),
        reduction="constant",
    ),
    Algorithm(name="dpo", paper="arXiv 2305.18290", pairs=PairSpec(), ratio="none"),
)
ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in _TABLE}


def resolve(spec: str | Mapping[str, Any] | Algorithm) -> Algorithm:
    """An algorithm from its name, or from a mapping with `name` and the parts to change.

    Raises:
        ConfigError: an unknown name, part or value, or an illegal combination.
    """
    if isinstance(spec, Algorithm):
        return spec
    changes = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = str(changes.pop("name", ""))
    if name not in ALGORITHMS:
        raise ConfigError(
            f"Unknown algorithm {name!r}; valid: {', '.join(ALGORITHMS)}.{did_you_mean(name, ALGORITHMS)}"
        )
    return _changed(ALGORITHMS[name], changes, f"algorithm {name!r}")


def _changed(part: Any, changes: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(type(part))
    valid = [f.name for f in fields(part) if f.name not in ("name", "paper")]
    new: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in valid:
            raise ConfigError(f"{where} has no part {key!r}; valid: {', '.join(valid)}.{did_you_mean(key, valid)}")
        current = getattr(part, key)
        if is_dataclass(current) and isinstance(value, Mapping):
            new[key] = _changed(current, value, f"{where}: {key}")
        else:
            new[key] = _checked(value, hints[key], f"{where}: {key}")
    return replace(part, **new)


def _checked(value: Any, hint: Any, where: str) -> Any:
    choices = get_args(hint)
    if choices and all(isinstance(choice, str) for choice in choices):
        if value not in choices:
            raise ConfigError(f"{where} is {value!r}; valid: {', '.join(choices)}.{did_you_mean(str(value), choices)}")
        return value
    if hint in (int, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or (hint is int and value != int(value)):
            raise ConfigError(f"{where} is {value!r}; expected {'an integer' if hint is int else 'a number'}.")
        return hint(value)
    raise ConfigError(f"{where} is {value!r}; it cannot be changed in a configuration.")
