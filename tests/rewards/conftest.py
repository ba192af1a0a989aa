"""Rollouts for the tests of rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from prefrl.types import Prompt, Rollout, StopReason

MakeRollout = Callable[..., Rollout]


@pytest.fixture
def rollout() -> MakeRollout:
    """Make one rollout: `rollout("a text", answer=42)`; keyword arguments are dataset columns."""

    def make(
        text: str = "",
        *,
        id: str = "p0",
        question: str | None = "q",
        messages: Sequence[dict[str, Any]] | None = None,
        mask: Sequence[bool] = (True, True, True),
        version: int = 0,
        **columns: Any,
    ) -> Rollout:
        chat = None if messages is None else tuple(messages)
        prompt = Prompt(id=id, text=None if chat else question, messages=chat, columns=columns)
        return Rollout(
            prompt=prompt,
            prompt_ids=(7, 8),
            completion_ids=tuple(range(len(mask))),
            mask=tuple(mask),
            logps=(-1.0,) * len(mask),
            text=text,
            stop=StopReason.EOS,
            group=id,
            version=version,
        )

    return make
