"""What reward nets for text minimise: pure functions on tensors, in log-odds.

An *element* is what is judged: a completion at the level of a sequence, a token at that of a token. With a reward
r = beta u, a discriminator that knows both log-probs says of an element

    log D / (1 - D) = u - (log pi - log ref) - c(x)

which starts at 0 where u does and the policy is its reference, and has the reward itself, up to a constant a prompt, as
its best u: raw log pi of a thousand tokens would drown it (Fu, Luo, Levine 2017, arXiv:1710.11248, with a reference).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from prefrl.rewards.inverse.estimators import effective_sample_size, importance_weights, likelihood_loss, log_partition
from prefrl.rewards.inverse.gcl import fused

Method = Literal["airl", "gcl", "gail"]
ROUNDING = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A batch of completions as the losses see it.

    plain     (E,) u of every element
    shaped    (E,) u with potential or offset
    ratio     (E,) log pi - log ref of every element under the policy that it was drawn from, or looked at with
    row       (E,) completion of each element, non-decreasing
    expert    (R,) whether a completion is a demonstration
    count     (R,) how often it was demonstrated, or drawn
    prompt    (R,) index of its prompt
    """

    plain: Tensor
    shaped: Tensor
    ratio: Tensor
    row: Tensor
    expert: Tensor
    count: Tensor
    prompt: Tensor

    @property
    def weights(self) -> Tensor:
        """(E,) weights under which both sides of every prompt weigh the same; over completions they sum to 1.

        All tokens of a completion have its weight: what is compared are occupancies, which long completions have more
        of. A mean over tokens would shift every logit by the ratio of the lengths.
        """
        pairs = self.prompt * 2 + self.expert.long()
        of_side = torch.bincount(pairs, self.count.to(self.plain.dtype))
        prompts = len(self.prompt.unique())
        return (0.5 / prompts * self.count / of_side[pairs])[self.row]

    def sums(self, values: Tensor) -> Tensor:
        """(R,) sum of element values over every completion."""
        return torch.zeros(len(self.expert), dtype=values.dtype, device=values.device).index_add(0, self.row, values)


def logits(batch: Judged, method: Method, *, estimate: bool = False) -> Tensor:
    """log-odds (E,) that an element is a demonstration's.

    gail  u itself: the policy is not taken off, so that nothing of u outlives the policy it was learnt against
    airl  u + potential - (log pi - log ref); with `estimate`, c(x) = log mean_j exp(u_j - ratio_j) over the prompt's
          samples, detached, in place of a learnt one
    """
    if method == "gail":
        return batch.plain
    if not estimate:
        return batch.shaped - batch.ratio
    return batch.plain - batch.ratio - log_partitions(batch).detach()[batch.prompt[batch.row]]


def log_partitions(batch: Judged) -> Tensor:
    """log Z (P,) of every prompt, estimated on its samples; prompts are numbered from 0."""
    return torch.stack([log_partition(returns[1], ratios[1]) for returns, ratios in _sides(batch)])


def classification_loss(batch: Judged, log_odds: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy with targets 1 - s (demonstrations) and s (samples); both sides of every prompt weigh the same."""
    expert = batch.expert[batch.row].to(log_odds.dtype)
    target = label_smoothing + (1.0 - 2.0 * label_smoothing) * expert
    losses = binary_cross_entropy_with_logits(log_odds, target, reduction="none")
    return (batch.weights * losses).sum()


def partition_loss(batch: Judged, fusion: float = 0.0) -> Tensor:
    """-mean u(demonstrations) + log Z, a mean over prompts (guided cost learning, arXiv:1603.00448).

    A share `fusion` of what Z is estimated on are demonstrations; see `gcl.fused`.
    """
    losses = []
    for returns, ratios in _sides(batch):
        samples, log_ratios = fused(returns, ratios, fusion)
        losses.append(likelihood_loss(returns[0], samples, log_ratios))
    return torch.stack(losses).mean()


def effective_shares(batch: Judged) -> float:
    """Effective samples a sample under the importance weights, the mean over prompts."""
    weights = [importance_weights(returns[1], ratios[1]) for returns, ratios in _sides(batch)]
    return sum(float(effective_sample_size(w)) / len(w) for w in weights) / len(weights)


def _sides(batch: Judged) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """u and log-ratio of whole completions, a prompt at a time: of its demonstrations, then of its samples."""
    returns, ratios = batch.sums(batch.plain), batch.sums(batch.ratio)
    for x in batch.prompt.unique().tolist():
        sides = [(batch.prompt == x) & (batch.expert == side) for side in (True, False)]
        each = [(side, batch.count[side]) for side in sides]
        yield tuple([flat[s].repeat_interleave(n) for s, n in each] for flat in (returns, ratios))  # type: ignore[misc]


def gradient_penalty(reward: Tensor, features: Sequence[Tensor], rows: int) -> Tensor:
    """mean over `rows` completions of |du / d features|^2, at the data (R1; Mescheder et al. 2018, arXiv:1801.04406).

    A linear head has the same gradient everywhere, so that this is then a weight decay on what matters.
    """
    slopes = torch.autograd.grad(reward.sum(), list(features), create_graph=True)
    return torch.stack([s.square().sum() for s in slopes]).sum() / rows


@torch.no_grad()
def discriminator_metrics(batch: Judged, log_odds: Tensor) -> dict[str, float]:
    """Accuracy on either side and entropy of D in nats, log 2 where it cannot tell. A logit of 0 is half right.

    What is 0 but for the rounding of log-probs is 0.
    """
    weights, expert = batch.weights, batch.expert[batch.row]
    right = torch.where(log_odds.abs() < ROUNDING, 0.5, ((log_odds > 0) == expert).to(weights.dtype))
    entropy = softplus(log_odds) - log_odds * log_odds.sigmoid()
    sides = {"accuracy_expert": expert, "accuracy_policy": ~expert}
    found = {name: float((weights * right)[side].sum() / weights[side].sum()) for name, side in sides.items()}
    return found | {"entropy": float((weights * entropy).sum() / weights.sum())}
