"""Reward sources: what says that a completion is good.

    reward = 0.7 * rewards.BradleyTerry.load("runs/rm") + 0.3 * rewards.numeric(column="answer")

Names are imported when first used, so that `import prefrl.rewards` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefrl.rewards.audit import source_metrics
    from prefrl.rewards.base import Reward, RewardSource, as_source, checked_scores, error_counts
    from prefrl.rewards.bradley_terry import BradleyTerry
    from prefrl.rewards.compose import Audit, Clip, Gate, WeightedSum, minimum, product
    from prefrl.rewards.constraint import Constraint
    from prefrl.rewards.ensemble_reward import Ensemble, ensemble
    from prefrl.rewards.environment_reward import environment
    from prefrl.rewards.functions import FunctionReward, function
    from prefrl.rewards.identity import fingerprint
    from prefrl.rewards.judge import Judge
    from prefrl.rewards.normalise import GroupNormalise, GroupRank, Normalise, Sigmoid, Standardise
    from prefrl.rewards.specs import build
    from prefrl.rewards.tournament import Comparer, Match, Outcome, Tournament
    from prefrl.rewards.verifiers import (
        Status,
        Verdict,
        Verifier,
        choice,
        constraints,
        exact,
        graded,
        http,
        json_object,
        json_schema,
        language,
        length_band,
        numeric,
        regex,
        repetition,
        rubric,
        shell,
        think_format,
        units,
        xml_format,
    )
    from prefrl.rewards.verifiers.code import code, stdio
    from prefrl.rewards.verifiers.math import math

_NAMES = {
    "audit": ("source_metrics",),
    "base": ("Reward", "RewardSource", "as_source", "checked_scores", "error_counts"),
    "bradley_terry": ("BradleyTerry",),
    "compose": ("Audit", "Clip", "Gate", "WeightedSum", "minimum", "product"),
    "constraint": ("Constraint",),
    "ensemble_reward": ("Ensemble", "ensemble"),
    "environment_reward": ("environment",),
    "functions": ("FunctionReward", "function"),
    "identity": ("fingerprint",),
    "judge": ("Judge",),
    "normalise": ("GroupNormalise", "GroupRank", "Normalise", "Sigmoid", "Standardise"),
    "specs": ("build",),
    "tournament": ("Comparer", "Match", "Outcome", "Tournament"),
    "verifiers": (
        "Status",
        "Verdict",
        "Verifier",
        "choice",
        "constraints",
        "exact",
        "graded",
        "http",
        "json_object",
        "json_schema",
        "language",
        "length_band",
        "numeric",
        "regex",
        "repetition",
        "rubric",
        "shell",
        "think_format",
        "units",
        "xml_format",
    ),
    "verifiers.code": ("code", "stdio"),
    "verifiers.math": ("math",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Audit",
    "BradleyTerry",
    "Clip",
    "Comparer",
    "Constraint",
    "Ensemble",
    "FunctionReward",
    "Gate",
    "GroupNormalise",
    "GroupRank",
    "Judge",
    "Match",
    "Normalise",
    "Outcome",
    "Reward",
    "RewardSource",
    "Sigmoid",
    "Standardise",
    "Status",
    "Tournament",
    "Verdict",
    "Verifier",
    "WeightedSum",
    "as_source",
    "build",
    "checked_scores",
    "choice",
    "code",
    "constraints",
    "ensemble",
    "environment",
    "error_counts",
    "exact",
    "fingerprint",
    "function",
    "graded",
    "http",
    "json_object",
    "json_schema",
    "language",
    "length_band",
    "math",
    "minimum",
    "numeric",
    "product",
    "regex",
    "repetition",
    "rubric",
    "shell",
    "source_metrics",
    "stdio",
    "think_format",
    "units",
    "xml_format",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
