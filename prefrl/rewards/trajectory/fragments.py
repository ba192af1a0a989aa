"""Pieces of episodes to compare (Christiano et al., arXiv 1706.03741). A fragment is itself a rollout.

All fragments of a comparison have the same number of steps, and none reaches beyond its episode. What the environment
paid is kept in `info["rewards"]`, one number a step, for labels of a program; a reward that is learnt never reads it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.types import Rollout, StopReason


@dataclass(frozen=True, slots=True)
class Cut:
    """Fragments, and how many episodes were too short to have one."""

    fragments: list[Rollout]
    short: int


def cut(episode: Rollout, start: int, length: int) -> Rollout:
    """The `length` steps of an episode from `start` on.

    It ends as the episode does where it reaches its end, and is cut off (`StopReason.LENGTH`) elsewhere. It holds the
    observation after its last step where the episode does, so that `next_state` of that step is known.

    Raises:
        RewardError: the episode has no observations, or not so many steps.
    """
    steps, end = len(episode.completion_ids), start + length
    if episode.observations is None:
        raise RewardError(f"Rollout {episode.group!r} has no observations; expected an episode of a control policy.")
    if start < 0 or length < 1 or end > steps:
        raise RewardError(f"Got steps {start} to {end} of an episode of {steps} steps; expected some of its own.")
    info = {**episode.info, "start": start}
    if "rewards" in info:
        info["rewards"] = info["rewards"][start:end]
    return replace(
        episode,
        completion_ids=episode.completion_ids[start:end],
        mask=episode.mask[start:end],
        logps=episode.logps[start:end],
        text=f"steps {start + 1} to {end} of an episode of {steps}",
        stop=episode.stop if end == steps else StopReason.LENGTH,
        observations=episode.observations[start : end + 1],
        actions=None if episode.actions is None else episode.actions[start:end],
        turns=(),
        info=info,
    )


def fragments(episodes: Sequence[Rollout], length: int, count: int, seed: int) -> Cut:
    """`count` pieces of `length` steps, drawn evenly from all places where one begins.

    No place is drawn twice before all were drawn once.

    Raises:
        RewardError: no episode has so many steps.
    """
    places = [max(0, len(one.completion_ids) - length + 1) for one in episodes]
    total, short = sum(places), sum(not n for n in places)
    if not total:
        longest = max((len(one.completion_ids) for one in episodes), default=0)
        raise RewardError(
            f"Got {len(episodes)} episodes, the longest of {longest} steps; expected one of {length} or more. "
            f"Lower the length of fragments to {max(1, longest)} or less."
        )
    rng, drawn = random.Random(seed), list[int]()
    while len(drawn) < count:
        drawn += rng.sample(range(total), min(total, count - len(drawn)))
    ends = list(accumulate(places))
    owner = torch.searchsorted(torch.tensor(ends), torch.tensor(drawn, dtype=torch.long), right=True).tolist()
    found = [cut(episodes[i], place - (ends[i] - places[i]), length) for i, place in zip(owner, drawn, strict=True)]
    return Cut(found, short)


def couples(pieces: Sequence[Rollout], seed: int) -> list[tuple[Rollout, Rollout]]:
    """Fragments two by two in a random order; of an odd number one is left over."""
    mixed = random.Random(seed).sample(list(pieces), len(pieces))
    return list(zip(mixed[::2], mixed[1::2], strict=False))


def true_rewards(pieces: Sequence[Rollout]) -> Tensor:
    """What the environment paid (F, k) in float64.

    Raises:
        RewardError: an episode does not say, or says NaN or infinity.
    """
    said = [piece.info.get("rewards") for piece in pieces]
    if any(rewards is None for rewards in said):
        raise RewardError(
            "An episode has no rewards of its environment, which labels of a program are made of; expected them in "
            "info['rewards'], one number a step. Let people label, or sample with an environment that pays."
        )
    found = torch.stack([torch.as_tensor(rewards, dtype=torch.float64) for rewards in said])
    if not bool(found.isfinite().all()):
        raise RewardError("The environment paid NaN or infinity; expected finite rewards in info['rewards'].")
    return found
