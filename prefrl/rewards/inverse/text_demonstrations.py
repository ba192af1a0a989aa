"""Demonstrated completions by prompt, and how they look to a policy that changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.model.engine import Engine
from prefrl.rewards.inverse.text_learner import Example, counted
from prefrl.rewards.inverse.text_nets import TextModel
from prefrl.types import Row

Ids = tuple[int, ...]


class Demonstrations:
    """Demonstrations as examples.

    What does not change is computed once: features of a frozen body, and log-probs under the reference.

    Args:
        engine: of the policy.
        model: the reward's heads and body.
        completions: rows of prompt and completion, and whether the completion ended.
        compared: whether log-ratios are asked for; they are 0 otherwise.
    """

    def __init__(
        self, engine: Engine, model: TextModel, completions: Sequence[tuple[Row, bool]], *, compared: bool
    ) -> None:
        self._engine, self._model, self._compared = engine, model, compared
        self._examples: dict[Ids, list[Example]] = {}
        self._reference: dict[Ids, list[Tensor]] = {}
        self._seen: dict[Ids, int] = {}  # version of the policy that a prompt's demonstrations were looked at with
        for row, ended in completions:
            example = Example(row=row, expert=True, terminated=ended, log_ratio=torch.zeros(len(row.mask)))
            self._examples.setdefault(row.prompt_ids, []).append(example)
        self._examples = {ids: counted(examples) for ids, examples in self._examples.items()}

    def __contains__(self, prompt_ids: Ids) -> bool:
        """Whether there is a demonstration of a prompt."""
        return prompt_ids in self._examples

    def of(self, prompt_ids: Ids) -> list[Example]:
        """The demonstrations of a prompt, as they were last looked at."""
        return self._examples[prompt_ids]

    def some(self, count: int) -> list[Row]:
        """At most so many demonstrations, evenly spread over all."""
        rows = [example.row for examples in self._examples.values() for example in examples]
        return rows[:: max(1, math.ceil(len(rows) / count))]

    def look(self, prompts: Collection[Ids], version: int) -> None:
        """Take log pi - log ref of the demonstrations of these prompts under the policy of a version.

        Where they were looked at with that one they stay as they are; all others are looked at with the present one.
        """
        stale = [ids for ids in sorted(prompts) if ids in self and self._seen.get(ids) != version]
        if not stale:
            return
        self._prepare([ids for ids in stale if ids not in self._reference])
        live = self._logps(stale, "policy")
        for ids in stale:
            pairs = zip(self._examples[ids], self._reference[ids], strict=True)
            self._examples[ids] = [replace(example, log_ratio=next(live) - ref) for example, ref in pairs]
            self._seen[ids] = self._engine.version

    def state_dict(self) -> list[dict[str, Any]]:
        """What was computed once for all: another batch of prompts would round it otherwise."""
        return [
            {
                "prompt": list(ids),
                "reference": reference,
                "features": [example.features for example in self._examples[ids]],
            }
            for ids, reference in self._reference.items()
        ]

    def load_state_dict(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Take over what `state_dict` returned for the same demonstrations."""
        for found in state:
            ids = tuple(found["prompt"])
            if ids not in self or len(found["reference"]) != len(self._examples[ids]):
                raise RewardError(
                    "The saved state belongs to other demonstrations; resume with those the run was started with."
                )
            self._reference[ids] = found["reference"]
            pairs = zip(self._examples[ids], found["features"], strict=True)
            self._examples[ids] = [replace(example, features=features) for example, features in pairs]

    def _prepare(self, prompts: Sequence[Ids]) -> None:
        """What never changes of the demonstrations of prompts."""
        reference = self._logps(prompts, "reference")
        rows = [example.row for ids in prompts for example in self._examples[ids]]
        frozen = not self._model.body.trained
        features: Sequence[Tensor | None] = self._model.features(rows) if frozen and rows else [None] * len(rows)
        seen = iter(features)
        for ids in prompts:
            self._reference[ids] = [next(reference) for _ in self._examples[ids]]
            self._examples[ids] = [replace(example, features=next(seen)) for example in self._examples[ids]]

    def _logps(self, prompts: Sequence[Ids], who: Literal["policy", "reference"]) -> Iterator[Tensor]:
        """Log-probs (n,) of all demonstrations of prompts; 0 where none are asked for."""
        rows = [example.row for ids in prompts for example in self._examples[ids]]
        return iter(self._engine.logps(rows, who) if self._compared else [torch.zeros(len(row.mask)) for row in rows])
