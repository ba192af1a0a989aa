"""Phases of a run of inverse RL that count steps of their own, and which of their lines stand when it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WARM_START, SFT, ROUND = "warm_start", "sft", "round_"


def stands(line: Mapping[str, Any], step: int) -> bool:
    """Whether a line of metrics or samples was written by the end of a step."""
    phase = str(line.get("phase", ""))
    if phase.startswith(ROUND):
        return int(phase.removeprefix(ROUND)) <= step
    if phase.startswith(SFT):  # it comes after the last step
        return False
    return phase == WARM_START or bool(line["step"] <= step)
