"""How judgements become a loss: ties, ranked lists, and how far each annotator can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from prefrl.config import LabelConfig
from prefrl.errors import DataError
from prefrl.policy.comparison import beside, bradley_terry, davidson, plackett_luce, rao_kupper, soft_outcome
from prefrl.policy.preference import split_sides
from prefrl.types import Batch

# Reliabilities are 1 give or take so much before anything was judged. That weighs about as much as twenty judgements at
# gaps of 1, where each adds 0.2 to the precision of 4: a handful of them cannot make anyone adversarial.
PRIOR_DEVIATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorFigures:
    """What training found out about one annotator.

    alpha      reliability: P(prefers the first) = sigmoid(alpha * gap); 1 is average, 0 guesses, below 0 opposes
    labels     how many judgements are theirs
    agreement  share of their decided judgements that the scores agree with, over about the last pass; NaN without any
    flagged    alpha <= 0: their judgements say nothing, or the opposite of everyone else's
    """

    name: str
    alpha: float
    labels: int
    agreement: float
    flagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """Every two rows of a batch that were compared, each column (P,); of a ranked list of n, all n (n - 1) / 2.

    first, second  indices of the two rows; of a ranked list, the first is the better one
    listed         whether they stand in a ranked list, whose weight its comparisons share equally
    """

    first: Tensor
    second: Tensor
    label: Tensor
    margin: Tensor
    tie: Tensor
    weight: Tensor
    annotator: Tensor
    listed: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """The L ranked lists of a batch, padded to n items.

    row    (L, n) index of each item's row; any where padded
    ranks  (L, n), 0 where padded
    """

    row: Tensor
    ranks: Tensor
    weight: Tensor
    annotator: Tensor


class LabelModel(nn.Module):
    """The likelihood of judgements given scores, with its few learnt parameters and their optimizer.

    A judgement of annotator j sees the gap alpha_j * z. Only the products can be learnt, so the alpha of the average
    judgement is held at 1: the annotators are taken to be right on the whole. Each alpha_j has a Gaussian prior around
    1, worth a few judgements. The parameter of a tie model is softplus of a free number.

    Args:
        config: how judgements are turned into a loss.
        annotators: who made how many of the training judgements; "" counts those of nobody in particular.
        lr: of Adagrad, whose rate falls for each parameter with what it has seen: it settles within a few passes, and
            the reliabilities of people who judged rarely still move.

    Raises:
        DataError: reliabilities are to be learnt, but fewer than two annotators are named.
    """

    agreed: Tensor
    seen: Tensor

    def __init__(self, config: LabelConfig, annotators: Mapping[str, int] | None = None, *, lr: float = 0.15) -> None:
        super().__init__()
        annotators = annotators or {}
        self.config = config
        self.index = {name: i for i, name in enumerate(sorted(filter(None, annotators)))}
        self.labels = torch.tensor([annotators[name] for name in self.index], dtype=torch.float64)
        self.judgements = sum(annotators.values())
        if config.reliability == "learn" and len(self.index) < 2:
            raise DataError(
                f"labels.reliability is learn and the data names {len(self.index)} annotators; expected at least 2 in "
                "the column annotator. Name them, or set labels.reliability to none."
            )
        size = len(self.index)
        self.raw_tie = nn.Parameter(torch.zeros((), dtype=torch.float64), self.models_ties and not config.tie_parameter)
        self.raw_alpha = nn.Parameter(torch.zeros(size, dtype=torch.float64), config.reliability == "learn")
        self.register_buffer("agreed", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(size, dtype=torch.float64))
        self._fresh = torch.zeros(2, size, dtype=torch.float64)  # agreed and decided since the last step
        learnt = [p for p in self.parameters() if p.requires_grad]
        # The start value keeps the first scores, which are hardly more than noise, from moving anything far.
        self._optimizer = torch.optim.Adagrad(learnt, lr=lr, initial_accumulator_value=1e-4) if learnt else None

    @property
    def models_ties(self) -> bool:
        """Whether a tie has a probability of its own."""
        return self.config.ties in ("rao_kupper", "davidson")

    @property
    def _tie(self) -> Tensor:
        fixed = self.config.tie_parameter
        return self.raw_tie.new_tensor(fixed) if fixed else softplus(self.raw_tie)

    @property
    def tie_parameter(self) -> float:
        """`eta` of Rao-Kupper (theta = exp(eta)) or `nu` of Davidson, as it is now; 0 where ties are not modelled."""
        return float(self._tie.detach()) if self.models_ties else 0.0

    @property
    def alphas(self) -> Tensor:
        """Reliability of every annotator (J,), in the order of `index`; the mean over their judgements is 1."""
        mean = (self.labels * self.raw_alpha).sum() / self.labels.sum().clamp_min(1.0)
        return 1.0 + self.raw_alpha - mean

    def losses(
        self, gap: Tensor, label: Tensor, margin: Tensor, tie: Tensor, annotator: Tensor, *, plain: bool = False
    ) -> Tensor:
        """Negative log-likelihood of comparisons, shaped as `gap`: (P,), or (P, K) for K reward models.

        Where ties are dropped it is that of a decided comparison, and `total` leaves the share of ties out.

        Args:
            gap: score of the first minus that of the second.
            label, margin, tie, annotator: (P,), as `Row` has them.
            plain: without smoothing and margins, for figures rather than for learning.
        """
        gap = beside(self._trust(annotator, gap), gap) * gap
        if plain:
            margin = torch.zeros_like(margin)
        else:
            label = label + self.config.smoothing * (1.0 - 2.0 * label)
        if self.models_ties:
            model, parameter = self._tie_model, _like(self._tie, gap)
            shift = beside(margin, gap)
            win, loss = model(gap - shift, parameter)[0], model(gap + shift, parameter)[1]
            return soft_outcome((win, loss, model(gap, parameter)[2]), label, tie)
        if self.config.ties == "half":
            label = label + tie * (0.5 - label)
        return bradley_terry(gap, torch.zeros_like(gap), label, margin)

    def list_losses(self, scores: Tensor, ranks: Tensor, annotator: Tensor, *, plain: bool = False) -> Tensor:
        """Negative Plackett-Luce log-likelihood of ranked lists, (L,) or (L, K); smoothing is the chance of reversal.

        Args:
            scores: (L, n) or (L, n, K).
            ranks: (L, n), 0 where padded.
            annotator: (L,).
            plain: without smoothing.
        """
        scores = beside(self._trust(annotator, scores), scores) * scores
        wrong = 0.0 if plain else self.config.smoothing
        found = (1.0 - wrong) * plackett_luce(scores, ranks)
        if wrong:
            reverse = torch.where(ranks > 0, ranks.amax(1, keepdim=True) + 1 - ranks, 0)
            found = found + wrong * plackett_luce(scores, reverse)
        return -found

    def total(
        self, scores: Tensor, copies: Tensor, pairs: Comparisons, lists: Lists, *, plain: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Weighted sum of the losses of all judgements of a batch, averaged over heads, and the sum of weights.

        Args:
            scores: (R, K).
            copies: (R, K), how often each head has each row's judgement.
            pairs, lists: what was compared; of a list either its comparisons count, or the list as a whole.
            plain: without smoothing and margins.
        """
        as_lists = self.config.ranking == "plackett_luce"
        weight = pairs.weight * ~pairs.listed if as_lists else pairs.weight
        if self.config.ties == "drop":
            weight = weight * (1.0 - pairs.tie)
        gap = scores[pairs.first] - scores[pairs.second]
        losses = self.losses(gap, pairs.label, pairs.margin, pairs.tie, pairs.annotator, plain=plain)
        found, whole = (weight[:, None] * copies[pairs.first] * losses).mean(1).sum(), weight.sum()
        if as_lists and len(lists.row):
            losses = self.list_losses(scores[lists.row], lists.ranks, lists.annotator, plain=plain)
            found = found + (lists.weight[:, None] * copies[lists.row[:, 0]] * losses).mean(1).sum()
            whole = whole + lists.weight.sum()
        return found, whole

    @torch.no_grad()
    def tie_probability(self, gap: Tensor) -> Tensor:
        """How likely a tie of the average annotator is at these gaps; 0 where ties are not modelled."""
        return self._tie_model(gap, _like(self._tie, gap))[2].exp() if self.models_ties else torch.zeros_like(gap)

    @property
    def _tie_model(self) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        return rao_kupper if self.config.ties == "rao_kupper" else davidson

    def _trust(self, annotator: Tensor, like: Tensor) -> Tensor:
        """Reliability of who made each judgement; 1 for nobody in particular, at index -1."""
        return _like(torch.cat([self.alphas, self.alphas.new_ones(1)]), like)[annotator]

    @torch.no_grad()
    def observe(self, toward: Tensor, annotator: Tensor) -> None:
        """Count decided judgements (P,) whose gap `toward` the preferred side is positive; half of one at 0."""
        if not self.index:
            return
        who = annotator[annotator >= 0].cpu()
        agreed = (0.5 + 0.5 * torch.sign(toward[annotator >= 0])).cpu().double()
        self._fresh.index_add_(1, who, torch.stack([agreed, torch.ones_like(agreed)]))

    def step(self, total_of: Callable[[Tensor], Tensor] = lambda local: local) -> None:
        """Move the parameters by the gradients of the last update of the scores, which left them here.

        Args:
            total_of: sum of a tensor over all processes; see `Engine.total`.
        """
        fresh = total_of(self._fresh)
        self._fresh = torch.zeros_like(self._fresh)
        self.seen += fresh[1]
        # A running mean over the first pass, then one that forgets at that pace.
        rate = fresh[1] / torch.minimum(self.seen, self.labels).clamp_min(1.0)
        share = fresh[0] / fresh[1].clamp_min(1.0)
        self.agreed += rate.clamp_max(1.0) * (share - self.agreed)
        if self._optimizer is None:
            return
        for parameter in (p for p in self.parameters() if p.requires_grad):
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = total_of(grad)
        if self.raw_alpha.requires_grad:
            # An update's loss is a mean over judgements, so the prior is divided by how many there are.
            prior = ((self.alphas - 1.0) ** 2).sum() / (2.0 * PRIOR_DEVIATION**2) / max(1, self.judgements)
            prior.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def learning_state(self) -> dict[str, Any]:
        """Parameters and optimizer, for an exact continuation; what `state_dict` has is enough to judge with."""
        optimizer = None if self._optimizer is None else self._optimizer.state_dict()
        return {"model": self.state_dict(), "optimizer": optimizer}

    def load_learning_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `learning_state` returned."""
        self.load_state_dict(state["model"])
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state["optimizer"])

    def report(self) -> list[AnnotatorFigures]:
        """Figures of every annotator, the least reliable first."""
        alphas, agreed = self.alphas.tolist(), torch.where(self.seen > 0, self.agreed, torch.nan).tolist()
        figures = [
            AnnotatorFigures(
                name=name, alpha=alphas[i], labels=int(self.labels[i]), agreement=agreed[i], flagged=alphas[i] <= 0
            )
            for name, i in self.index.items()
        ]
        return sorted(figures, key=lambda f: f.alpha)


def _like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Of a tensor's type, then on its device: some devices know no double precision."""
    return parameter.to(tensor.dtype).to(tensor.device)


def comparisons_of(batch: Batch) -> Comparisons:
    """Pairs by atom, whatever the order of rows, and all comparisons of ranked lists."""
    chosen, rejected = split_sides(torch.arange(batch.rows, device=batch.side.device), batch.side, batch.atom)
    ranked = (batch.rank > 0).nonzero().squeeze(-1)
    same = batch.atom[ranked][:, None] == batch.atom[ranked]
    one, other = (ranked[index] for index in same.triu(1).nonzero(as_tuple=True))
    swap = batch.rank[one] > batch.rank[other]
    better, worse = torch.where(swap, other, one), torch.where(swap, one, other)
    tied = (batch.rank[better] == batch.rank[worse]).to(batch.label.dtype)
    size = torch.zeros_like(batch.weight).index_copy(0, ranked, same.sum(1).to(batch.weight.dtype))[better]
    no_margin = torch.zeros_like(tied)

    def both(name: str, listed: Tensor) -> Tensor:
        return torch.cat([getattr(batch, name)[chosen], listed])

    return Comparisons(
        first=torch.cat([chosen, better]),
        second=torch.cat([rejected, worse]),
        label=both("label", 1.0 - 0.5 * tied),
        margin=both("margin", no_margin),
        tie=both("tie", tied),
        weight=both("weight", batch.weight[better] * 2.0 / (size * (size - 1.0))),
        annotator=both("annotator", batch.annotator[better]),
        listed=torch.arange(len(chosen) + len(better), device=ranked.device) >= len(chosen),
    )


def lists_of(batch: Batch) -> Lists:
    """The ranked lists of a batch, whatever the order of rows."""
    ranked = (batch.rank > 0).nonzero().squeeze(-1)
    atoms, place = batch.atom[ranked].unique(return_inverse=True)
    same = place[:, None] == place
    position = same.tril(-1).sum(1)
    width = int(same.sum(1).max()) if len(ranked) else 0
    row = ranked.new_zeros(len(atoms), width).index_put((place, position), ranked)
    ranks = ranked.new_zeros(len(atoms), width).index_put((place, position), batch.rank[ranked])
    first = row[:, 0] if width else ranked
    return Lists(row=row, ranks=ranks, weight=batch.weight[first], annotator=batch.annotator[first])
