"""The scores that reasoning-gym gives; runs in a worker, which alone imports the package."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from prefrl.sandbox.inside.values import decode

_PACKAGE: Any = importlib.import_module("reasoning_gym")


def score(job: dict[str, Any]) -> dict[str, Any]:
    """`{"score": number}`, or `{"unreadable": why}` where the dataset raises on this answer but not on the gold one."""
    ask, entry = _scorer(job["dataset"]), decode(job["entry"])
    try:
        return {"score": float(ask(job["said"], entry))}
    except Exception as error:
        if entry["answer"] is None:
            raise
        ask(entry["answer"], entry)
        return {"unreadable": f"{type(error).__name__}: {error}"[:300]}


@functools.cache
def _scorer(dataset: str) -> Callable[[str, dict[str, Any]], float]:
    scorer: Callable[[str, dict[str, Any]], float] = _PACKAGE.get_score_answer_fn(dataset)
    return scorer
