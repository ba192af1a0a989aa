"""The table of algorithms: the only place with their names.

A row is complete: the optimizer reads the parts and what they need, never the name. To make an algorithm of
your own, change parts of a row: `resolve({"name": "grpo", "clip": {"high": 0.28}})`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from prefrl.errors import ConfigError, did_you_mean
from prefrl.policy.parts import (
    Algorithm,
    ClipSpec,
    CreditSpec,
    DistillSpec,
    KLSpec,
    OverlongSpec,
    PairSpec,
    SelectSpec,
)

_GROUP_NORMALISED = CreditSpec(baseline="group_mean", scale="group_std")
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
        name="reinforce_pp",
        paper="arXiv 2501.03262",
        credit=CreditSpec(baseline="none", scale="whiten"),
        clip=ClipSpec(kind="min"),
        reduction="token_mean",
        kl=KLSpec(coef=0.01, estimator="k1", place="reward"),
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
        name="ppo",
        paper="arXiv 1707.06347",
        credit=CreditSpec(baseline="critic", scale="whiten"),
        clip=ClipSpec(kind="min"),
        reduction="token_mean",
        kl=KLSpec(coef=0.05, estimator="k1", place="reward"),
        group_size=1,
    ),
    Algorithm(
        name="grpo",
        paper="arXiv 2402.03300",
        credit=_GROUP_NORMALISED,
        clip=ClipSpec(kind="min"),
        kl=KLSpec(coef=0.04),
    ),
    Algorithm(
        name="dr_grpo",
        paper="arXiv 2503.20783",
        credit=CreditSpec(baseline="group_mean"),
        clip=ClipSpec(kind="min"),
        reduction="constant",
    ),
    Algorithm(
        name="dapo",
        paper="arXiv 2503.14476",
        credit=_GROUP_NORMALISED,
        clip=ClipSpec(kind="min", low=0.2, high=0.28),
        reduction="token_mean",
        overlong=OverlongSpec(rule="soft"),
        resample=3,
    ),
    Algorithm(
        name="cispo",
        paper="arXiv 2506.13585",
        credit=_GROUP_NORMALISED,
        clip=ClipSpec(kind="weight", low=1.0, high=4.0),
        reduction="token_mean",
    ),
    Algorithm(
        name="gspo",
        paper="arXiv 2507.18071",
        credit=_GROUP_NORMALISED,
        ratio="sequence_mean",
        clip=ClipSpec(kind="min", low=3e-4, high=4e-4),
    ),
    Algorithm(
        name="ctpo",
        paper="arXiv 2605.07331",
        credit=_GROUP_NORMALISED,
        ratio="cumulative",
        clip=ClipSpec(kind="min", low=0.025, high=0.05, space="sqrt_log", dual=0.05),
        reduction="token_mean",
    ),
    Algorithm(
        name="full_ratio",
        paper="Precup et al. 2000",
        credit=CreditSpec(baseline="leave_one_out"),
        ratio="sequence",
        reduction="sequence_sum",
    ),
    Algorithm(
        name="rejection",
        paper="arXiv 2312.06585",
        credit=CreditSpec(baseline="none"),
        ratio="none",
        reduction="token_mean",
        select=SelectSpec(),
    ),
    Algorithm(
        name="opd",
        paper="arXiv 2306.13649",
        credit=CreditSpec(baseline="batch_mean"),
        ratio="none",
        reduction="token_mean",
        distill=DistillSpec(coef=1.0),
        group_size=1,
    ),
    Algorithm(
        name="opsd",
        paper="arXiv 2601.18734",
        credit=CreditSpec(baseline="batch_mean"),
        ratio="none",
        reduction="token_mean",
        distill=DistillSpec(coef=1.0, privileged=True),
        group_size=1,
    ),
    Algorithm(name="dpo", paper="arXiv 2305.18290", pairs=PairSpec(), ratio="none"),
    Algorithm(name="ipo", paper="arXiv 2310.12036", pairs=PairSpec(loss="squared"), ratio="none"),
    Algorithm(
        name="slic",
        paper="arXiv 2305.10425",
        pairs=PairSpec(loss="hinge", score="log_prob", beta=1.0, sft=1.0),
        ratio="none",
    ),
    Algorithm(name="kto", paper="arXiv 2402.01306", pairs=PairSpec(loss="prospect"), ratio="none"),
    Algorithm(
        name="orpo",
        paper="arXiv 2403.07691",
        pairs=PairSpec(score="log_odds", average=True, beta=1.0, coef=0.1, sft=1.0),
        ratio="none",
    ),
    Algorithm(
        name="simpo",
        paper="arXiv 2405.14734",
        pairs=PairSpec(score="log_prob", average=True, beta=2.0, gamma=1.0),
        ratio="none",
    ),
    Algorithm(name="cpo", paper="arXiv 2401.08417", pairs=PairSpec(score="log_prob", sft=1.0), ratio="none"),
    Algorithm(name="ld_dpo", paper="arXiv 2409.06411", pairs=PairSpec(ld_alpha=0.5), ratio="none"),
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
    if "name" not in changes:
        raise ConfigError(f"An algorithm has no name: {changes}. Add one of: name: {', '.join(ALGORITHMS)}.")
    name = str(changes.pop("name"))
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
    if hint in (bool, str):
        if not isinstance(value, hint):
            raise ConfigError(f"{where} is {value!r}; expected {'true or false' if hint is bool else 'a text'}.")
        return value
    if choices and all(isinstance(choice, str) for choice in choices):
        value = "yes" if value is True and "yes" in choices else value  # YAML reads the bare word as a boolean
        if value not in choices:
            raise ConfigError(f"{where} is {value!r}; valid: {', '.join(choices)}.{did_you_mean(str(value), choices)}")
        return value
    if hint in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or (hint is int and value != int(value)):
            raise ConfigError(f"{where} is {value!r}; expected {'an integer' if hint is int else 'a number'}.")
        return hint(value)
    raise ConfigError(f"{where} is {value!r}; it cannot be changed in a configuration.")
