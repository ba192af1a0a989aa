"""Reward sources say what is good; one policy optimizer makes the policy do more of it.

    import prefrl
    from prefrl import rewards

    policy = prefrl.load("smollm2-135m", lora=16)
    run = prefrl.optimize(policy, "prompts.jsonl", rewards.numeric(column="answer"), steps=50)
    run.report()

Names are imported when first used, so that `import prefrl` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefrl import rewards
    from prefrl.model.load import load
    from prefrl.policy.algorithms import ALGORITHMS
    from prefrl.policy.optimizer import PolicyOptimizer
    from prefrl.recipes.api import optimize
    from prefrl.rewards.base import RewardSource
    from prefrl.types import Pair, Prompt, Rollout, Score

    __version__: str

_MODULE_OF = {
    "ALGORITHMS": "prefrl.policy.algorithms",
    "Pair": "prefrl.types",
    "PolicyOptimizer": "prefrl.policy.optimizer",
    "Prompt": "prefrl.types",
    "RewardSource": "prefrl.rewards.base",
    "Rollout": "prefrl.types",
    "Score": "prefrl.types",
    "load": "prefrl.model.load",
    "optimize": "prefrl.recipes.api",
}

__all__ = [
    "ALGORITHMS",
    "Pair",
    "PolicyOptimizer",
    "Prompt",
    "RewardSource",
    "Rollout",
    "Score",
    "load",
    "optimize",
    "rewards",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name == "rewards":
        return importlib.import_module("prefrl.rewards")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("prefrl")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
