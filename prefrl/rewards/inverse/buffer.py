"""Rollouts as transitions laid end to end, and the policy's own ones of the last rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.types import Rollout, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """Steps (s, a, s') of several episodes, laid end to end.

    state, next_state  (N, d)
    action             (N, k): one-hot of a discrete action, or the continuous action itself
    terminated         (N,) 1 where the environment ended the episode in s'; 0 at a time limit, where more was to come
    log_ratios         (N,) log pi(a | s) under the policy that sampled, minus that of the reference where there is one
    time, episode      (N,) step within the episode, and which episode
    """

    state: Tensor
    action: Tensor
    next_state: Tensor
    terminated: Tensor
    log_ratios: Tensor
    time: Tensor
    episode: Tensor

    def __len__(self) -> int:
        return len(self.state)

    @property
    def episodes(self) -> int:
        """How many episodes there are; they are numbered from 0."""
        return int(self.episode[-1]) + 1 if len(self) else 0

    def take(self, index: Tensor) -> Transitions:
        """The transitions at some places; episodes keep their numbers."""
        return Transitions(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def with_log_ratios(self, log_ratios: Tensor) -> Transitions:
        """The same transitions under another policy."""
        return replace(self, log_ratios=log_ratios)

    def to(self, dtype: torch.dtype) -> Transitions:
        """The same transitions with numbers of a type."""
        counts = ("time", "episode")
        moved = {f.name: getattr(self, f.name).to(dtype) for f in fields(self) if f.name not in counts}
        return replace(self, **moved)

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def joined(parts: Sequence[Transitions]) -> Transitions:
    """Several sets of transitions as one, their episodes numbered on."""
    offset, shifted = 0, []
    for part in parts:
        shifted.append(replace(part, episode=part.episode + offset))
        offset += part.episodes
    names = [f.name for f in fields(Transitions)]
    return Transitions(**{name: torch.cat([getattr(part, name) for part in shifted]) for name in names})


def transitions_of(
    rollouts: Sequence[Rollout], action_size: int, log_ratios: Sequence[Tensor] | None = None
) -> Transitions:
    """The steps of rollouts that a policy (or an expert) chose.

    Args:
        rollouts: episodes with one observation before every action and one after the last.
        action_size: number of discrete actions, or of numbers in a continuous one.
        log_ratios: (n,) of every rollout; the recorded log-probs by default.

    Raises:
        RewardError: observations are missing, or an action is not among the `action_size` ones.
    """
    parts = [_steps(i, rollout, action_size) for i, rollout in enumerate(rollouts)]
    if not parts:
        raise RewardError("There is no episode to learn from; expected one rollout at least.")
    known = log_ratios or [torch.tensor(rollout.logps, dtype=torch.float32) for rollout in rollouts]
    chosen = [ratios.cpu().float()[_mask(rollout)] for ratios, rollout in zip(known, rollouts, strict=True)]
    names = parts[0].keys()
    return Transitions(log_ratios=torch.cat(chosen), **{name: torch.cat([p[name] for p in parts]) for name in names})


def _steps(number: int, rollout: Rollout, action_size: int) -> dict[str, Tensor]:
    n, seen = len(rollout.completion_ids), rollout.observations
    if seen is None or len(seen) != n + 1:
        raise RewardError(
            f"The rollout of {rollout.prompt.id!r} has {0 if seen is None else len(seen)} observations for {n} "
            "actions; expected one before every action and one after the last. Sample it with a ControlPolicy, or "
            "load it with load_demonstrations."
        )
    seen = seen.float().reshape(n + 1, -1)
    ended = torch.zeros(n)
    if n and rollout.terminated:
        ended[-1] = 1.0
    mask = _mask(rollout)
    steps = {
        "state": seen[:-1],
        "action": _actions(rollout, action_size),
        "next_state": seen[1:],
        "terminated": ended,
        "time": torch.arange(n),
        "episode": torch.full((n,), number),
    }
    return {name: tensor[mask] for name, tensor in steps.items()}


def _actions(rollout: Rollout, action_size: int) -> Tensor:
    if rollout.actions is not None:
        if rollout.actions.shape[-1] != action_size:
            raise RewardError(
                f"The rollout of {rollout.prompt.id!r} has actions of {rollout.actions.shape[-1]} numbers; expected "
                f"{action_size}. Episodes must come from the environment that the reward is of."
            )
        return rollout.actions.float()
    ids = torch.tensor(rollout.completion_ids, dtype=torch.long)
    unknown = ids[(ids < 0) | (ids >= action_size)]
    if len(unknown):
        raise RewardError(
            f"The rollout of {rollout.prompt.id!r} has action {int(unknown[0])}; expected one of 0 to "
            f"{action_size - 1}. Episodes must come from the environment that the reward is of."
        )
    return torch.nn.functional.one_hot(ids, action_size).float()


def _mask(rollout: Rollout) -> Tensor:
    return torch.tensor(rollout.mask, dtype=torch.bool)


def rows_of(rollouts: Sequence[Rollout]) -> list[Row]:
    """Rollouts as rows, to ask an engine for their log-probs."""
    return [
        Row(
            prompt_ids=r.prompt_ids,
            completion_ids=r.completion_ids,
            mask=r.mask,
            observations=r.observations,
            actions=r.actions,
        )
        for r in rollouts
    ]


def episodes_of(transitions: Transitions, chosen: Tensor) -> Transitions:
    """Whole episodes by number, in the order given, numbered anew from 0; one may come several times."""
    edges = torch.searchsorted(transitions.episode, torch.arange(transitions.episodes + 1))
    counts = edges.diff()[chosen]
    shifts = edges[chosen] - counts.cumsum(0) + counts  # from a place in the result to where it comes from
    numbers = torch.arange(len(chosen)).repeat_interleave(counts)
    taken = transitions.take(torch.arange(len(numbers)) + shifts[numbers])
    return replace(taken, episode=numbers)


def fragments_of(transitions: Transitions, length: int) -> Transitions:
    """Episodes cut into pieces of `length` steps, each an episode whose time starts at 0.

    A shorter piece at the end is kept where the environment ended the episode, and left out at a time limit: a piece
    that is cut off cannot be weighed against whole ones.

    Raises:
        RewardError: no piece is left.
    """
    pieces = int(transitions.time.max()) // length + 1
    number = transitions.episode * pieces + transitions.time // length
    steps = torch.bincount(number)
    ended = torch.bincount(number, transitions.terminated.double()) > 0
    kept = transitions.take(((steps == length) | ended)[number].nonzero().squeeze(-1))
    if not len(kept):
        raise RewardError(
            f"discriminator.fragment is {length}, but no episode has so many steps. Set it to "
            f"{int(transitions.time.max()) + 1} or fewer."
        )
    _, episode = (kept.episode * pieces + kept.time // length).unique_consecutive(return_inverse=True)
    return replace(kept, time=kept.time % length, episode=episode)


def occupancy(transitions: Transitions, gamma: float) -> Tensor:
    """Weight gamma^t / episodes of every transition (N,): discounted visits an episode.

    Over episodes of n steps they sum to (1 - gamma^n) / (1 - gamma), not to 1.
    """
    return gamma ** transitions.time.double() / transitions.episodes


def episode_sums(values: Tensor, transitions: Transitions, gamma: float) -> Tensor:
    """sum_t gamma^t value_t of every episode (E,), with gradient."""
    weighted = values * (gamma ** transitions.time.double()).to(values.dtype)
    return values.new_zeros(transitions.episodes).index_add(0, transitions.episode, weighted)


class Buffer:
    """Transitions of the last `rounds` rounds, and draws from them.

    Args:
        rounds: how many are kept; the oldest leaves first.
    """

    def __init__(self, rounds: int = 1) -> None:
        self.limit = rounds
        self.rounds: list[Transitions] = []

    def add(self, transitions: Transitions) -> None:
        """Add a round."""
        self.rounds = [*self.rounds, transitions][-self.limit :]

    def mixed(self, fusion: float, generator: torch.Generator) -> Transitions:
        """The last round with a `fusion` share of its transitions replaced by earlier ones, as far as there are any."""
        latest, earlier = self.rounds[-1], self.rounds[:-1]
        count = int(fusion * len(latest))
        if not earlier or not count:
            return latest
        old = joined(earlier)
        kept = torch.randperm(len(latest), generator=generator)[count:]
        drawn = torch.randint(len(old), (count,), generator=generator)
        return joined([latest.take(kept.sort().values), old.take(drawn.sort().values)])

    def state_dict(self) -> dict[str, Any]:
        """All rounds."""
        return {str(i): transitions.state_dict() for i, transitions in enumerate(self.rounds)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.rounds = [Transitions(**state[str(i)]) for i in range(len(state))]


def minibatches(size: int, batch: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`steps` sets of places, drawn without replacement within passes over all `size`; all of them where batch is 0."""
    batch = min(batch, size) or size
    queue = torch.zeros(0, dtype=torch.long)
    for _ in range(steps):
        while len(queue) < batch:
            queue = torch.cat([queue, torch.randperm(size, generator=generator)])
        yield queue[:batch]
        queue = queue[batch:]
