"""What a sampler is, and how its random numbers are made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from prefrl.config import SamplingConfig
from prefrl.types import Prompt, Rollout


class Sampler(Protocol):
    """Anything that turns prompts into rollouts: token ids in, token ids and behaviour log-probs out."""

    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int = 0
    ) -> list[Rollout]:
        """Draw `n` completions of every prompt; the rollouts of a prompt come together and share a group."""
        ...


def row_uniforms(seed: int, prompt: Prompt, occurrence: int, sample: int, count: int) -> Tensor:
    """`count` uniform numbers in [0, 1) that belong to one row, whatever batch it is computed in."""
    key = f"{seed}|{prompt.id}|{occurrence}|{sample}".encode()
    digest = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1
    generator = torch.Generator().manual_seed(digest)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def occurrences(prompts: Sequence[Prompt]) -> list[int]:
    """How often each prompt's id came before, so that a repeated prompt makes a group and rows of its own."""
    seen: dict[str, int] = {}
    counts = []
    for prompt in prompts:
        counts.append(seen.get(prompt.id, 0))
        seen[prompt.id] = counts[-1] + 1
    return counts
