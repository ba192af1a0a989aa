"""Rewards from demonstrations: maximum entropy, guided cost learning, GAIL, AIRL. Names are imported when used."""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Airl": "airl",
    "Buffer": "buffer",
    "Fit": "discriminator",
    "Gail": "gail",
    "Gcl": "gcl",
    "InverseReward": "source",
    "LogPi": "forms",
    "NetReward": "exported",
    "NetSpec": "nets",
    "RewardNet": "nets",
    "SelfPlayReward": "spin",
    "TextInverse": "text",
    "TextNetSpec": "text",
    "TextReward": "text_reward",
    "Transitions": "buffer",
    "learnt": "kinds",
    "identifiability": "tabular.identifiability",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
