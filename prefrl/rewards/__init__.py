"""Reward sources: what says that a completion is good.

    reward = 0.7 * rewards.BradleyTerry.load("runs/rm") + 0.3 * rewards.numeric(column="answer")

Names are imported when first used, so that `import prefrl.rewards` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefrl.rewards.base import Reward, RewardSource, as_source, checked_scores, error_counts
    from prefrl.rewards.bradley_terry import BradleyTerry
    from prefrl.rewards.compose import Clip, Gate, Normalise, WeightedSum
    from prefrl.rewards.environment_reward import environment
    from prefrl.rewards.functions import FunctionReward, function
    from prefrl.rewards.specs import build
    from prefrl.rewards.verifiers import (
        Verifier,
        choice,
        exact,
        graded,
        json_object,
        length_band,
        numeric,
        regex,
    )

_NAMES = {
    "base": ("Reward", "RewardSource", "as_source", "checked_scores", "error_counts"),
    "bradley_terry": ("BradleyTerry",),
    "compose": ("Clip", "Gate", "Normalise", "WeightedSum"),
    "environment_reward": ("environment",),
    "functions": ("FunctionReward", "function"),
    "specs": ("build",),
    "verifiers": ("Verifier", "choice", "exact", "graded", "json_object", "length_band", "numeric", "regex"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BradleyTerry",
    "Clip",
    "FunctionReward",
    "Gate",
    "Normalise",
    "Reward",
    "RewardSource",
    "Verifier",
    "WeightedSum",
    "as_source",
    "build",
    "checked_scores",
    "choice",
    "environment",
    "error_counts",
    "exact",
    "function",
    "graded",
    "json_object",
    "length_band",
    "numeric",
    "regex",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
