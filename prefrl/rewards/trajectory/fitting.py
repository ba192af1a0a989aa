"""Fitting reward nets to comparisons of fragments: all pairs of a batch, and all members, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.rewards.inverse.buffer import Transitions, minibatches, transitions_of
from prefrl.rewards.inverse.nets import RewardNet
from prefrl.rewards.trajectory.preferences import Preference, agreement, preference_loss
from prefrl.rewards.trajectory.reward import fragment_returns


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """How reward nets are fitted.

    epochs        passes over the comparisons
    batch_size    comparisons an update; 0 takes all
    lr            learning rate of Adam
    weight_decay  decoupled weight decay
    noise         share of labels that are taken to be given at random
    discount      of the returns that are compared
    bootstrap     every member of an ensemble sees a resampling of its own
    """

    epochs: int = 20
    batch_size: int = 32
    lr: float = 1e-3
    weight_decay: float = 0.0
    noise: float = 0.0
    discount: float = 1.0
    bootstrap: bool = True


def bootstrap_weights(count: int, members: int, seed: int) -> Tensor:
    """How often each member draws each of `count` comparisons, with replacement (M, P); each row sums to `count`.

    The draws of a member do not depend on how many others there are.
    """
    drawn = []
    for member in range(members):
        generator = torch.Generator().manual_seed(seed + member)
        places = torch.randint(count, (count,), generator=generator)
        drawn.append(torch.bincount(places, minlength=count).float())
    return torch.stack(drawn)


def fit(net: RewardNet, preferences: Sequence[Preference], how: Fitting, seed: int) -> dict[str, float]:
    """Minimise the mean loss of every member over its comparisons; figures of the whole set afterwards.

    Args:
        net: is trained in place, its normalisers too: they take in the fragments' steps.
        preferences: comparisons; all fragments of one length.
        how: passes, batches, learning rate.
        seed: of batches and of the bootstrap.

    Returns:
        `loss` and `accuracy` of the mean over members of the returns, over all comparisons without resampling;
        `ties`, how many have the label 1/2; `disagreement`, the mean deviation of P(first) between members.

    Raises:
        RewardError: there is nothing to learn from, or fragments differ in length.
    """
    count, members = len(preferences), net.spec.members
    steps = _checked(preferences)
    label = torch.tensor([p.label for p in preferences])
    everything = transitions_of([p.first for p in preferences] + [p.second for p in preferences], net.spec.action_size)
    net.observe(everything)
    seen = net.normalised(everything)
    resampled = how.bootstrap and members > 1
    weights = bootstrap_weights(count, members, seed) if resampled else torch.ones(members, count)
    optimizer = torch.optim.AdamW(net.parameters(), lr=how.lr, weight_decay=how.weight_decay)
    generator = torch.Generator().manual_seed(seed)
    batch = min(how.batch_size, count) or count
    updates = how.epochs * -(-count // batch)
    net.requires_grad_(True).train()
    for places in minibatches(count, batch, updates, generator):
        gap = _gaps(net, seen, places, (count, steps), how.discount)
        loss = (weights[:, places] * preference_loss(gap, label[places], how.noise)).mean(1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.requires_grad_(False).eval()
    gap = _gaps(net, seen, torch.arange(count), (count, steps), how.discount)
    mean = gap.mean(0)
    return {
        "loss": float(preference_loss(mean, label, how.noise).mean()),
        "accuracy": float(agreement(mean, label)),
        "ties": float((label == 0.5).sum()),
        "disagreement": float(torch.sigmoid(gap).std(0, correction=0).mean()),
        "updates": float(updates),
    }


def _gaps(net: RewardNet, seen: Transitions, places: Tensor, shape: tuple[int, int], discount: float) -> Tensor:
    """Return of the first less that of the second (M, B) at some places of all comparisons.

    Args:
        seen: normalised steps of all first fragments, then of all second ones.
        shape: number of comparisons, and steps of a fragment.
    """
    count, steps = shape
    rows = (torch.cat([places, places + count])[:, None] * steps + torch.arange(steps)).flatten()
    batch = seen.take(rows)
    rewards = torch.stack([net.member(k, batch) for k in range(net.spec.members)])
    first, second = fragment_returns(rewards, 2 * len(places), discount).chunk(2, dim=-1)
    return first - second


def _checked(preferences: Sequence[Preference]) -> int:
    """The number of steps of all fragments."""
    lengths = {len(side.completion_ids) for p in preferences for side in (p.first, p.second)}
    if len(lengths) != 1 or 0 in lengths:
        raise RewardError(
            f"Got {len(preferences)} comparisons of fragments of {sorted(lengths) or 'no'} steps; expected one or "
            "more, all of one length: the return of a longer fragment is larger for its length alone."
        )
    bad = [p.label for p in preferences if not 0.0 <= p.label <= 1.0]
    if bad:
        raise RewardError(f"Got the label {bad[0]}; expected the probability that the first is better, in [0, 1].")
    return lengths.pop()
