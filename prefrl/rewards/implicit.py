"""An implicit process reward: dense rewards from a model that is trained on outcomes, also while the policy learns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from prefrl.errors import ConfigError, did_you_mean
from prefrl.model.process_implicit import ImplicitModel, load_implicit_model
from prefrl.rewards.base import Reward, RewardSource, as_source, verified_scores
from prefrl.rewards.process_steps import decoder_of, pieces_of
from prefrl.types import Completion, Rollout, Row, Score

if TYPE_CHECKING:
    from prefrl.model.engine import Engine

Granularity = Literal["token", "step", "sequence"]


class ImplicitProcess(Reward):
    """`r_t = beta (log phi - log ref)` of every sampled token, of every step, or of the whole completion.

    Its vocabulary is the policy's, whose ids it reads as they are. A text without tokens gets the sum. With an
    `outcome`, phi takes one update after every step of the policy, on what that source says of the rollouts; errors
    of the source leave rollouts out. Parts: `sum` and `probability`, the sigmoid of the sum.

    Args:
        model: phi and its reference.
        granularity: token, step (the sum over its tokens, at its last one) or sequence.
        outcome: what says whether a rollout is right; None never learns.
        threshold: a total of `outcome` from which a rollout is right.
        name: shown in metrics.
    """

    def __init__(
        self,
        model: ImplicitModel,
        *,
        granularity: Granularity = "token",
        outcome: Any = None,
        threshold: float = 0.5,
        name: str = "implicit_process",
    ) -> None:
        valid = get_args(Granularity)
        if granularity not in valid:
            near = did_you_mean(granularity, valid)
            raise ConfigError(f"granularity is {granularity!r}; valid: {', '.join(valid)}.{near}")
        self.model, self.granularity, self.threshold = model, granularity, threshold
        self.outcome: RewardSource | None = None if outcome is None else as_source(outcome)
        self.children = () if self.outcome is None else (self.outcome,)
        self.name = name

    @classmethod
    def load(
        cls,
        path: str,
        *,
        reference: str = "",
        beta: float = 0.05,
        granularity: Granularity = "token",
        outcome: Any = None,
        threshold: float = 0.5,
        lr: float = 1e-6,
        lora: int = 0,
        top_layers: int = 0,
        separator: str = "\n\n",
        device: str = "auto",
    ) -> ImplicitProcess:
        """phi from a folder or hub id, as a rule the policy's own start.

        Args:
            reference: what phi was trained from, where it was trained before; empty: phi as it is now.
            lr, lora, top_layers: of the updates; only with `outcome`.

        Raises:
            ConfigError: beta or lr is not positive.
            ModelError: a model cannot be loaded.
        """
        if not (beta > 0 and lr > 0):
            raise ConfigError(f"beta={beta}, lr={lr}; expected positive numbers, such as 0.05 and 1e-6.")
        model = load_implicit_model(
            path,
            reference=reference,
            beta=beta,
            separator=separator,
            lr=lr,
            lora=lora,
            top_layers=top_layers,
            device=device,
        )
        return cls(model, granularity=granularity, outcome=outcome, threshold=threshold)

    def attach(self, engine: Engine) -> None:
        """Make sure that the policy writes in the vocabulary that phi reads.

        Raises:
            ConfigError: it does not.
        """
        super().attach(engine)
        tokenizer = getattr(engine.actor, "tokenizer", None)
        if tokenizer is None or tokenizer.get_vocab() != self.model.tokenizer.get_vocab():
            raise ConfigError(
                f"The reward {self.name!r} reads the policy's own tokens, but {self.model.model.name} has another "
                "vocabulary. Start it from the policy's model, or use the kind process, which reads texts."
            )

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout; those without a token, or whose steps are not found, are errors."""
        rows = [self._row(rollout) for rollout in rollouts]
        counted = [i for i, row in enumerate(rows) if any(row.mask)]
        rewards = dict(zip(counted, self.model.token_rewards([rows[i] for i in counted]), strict=True))
        return [
            self._score(rollout, rewards[i].tolist()) if i in rewards else Score.failed("no sampled token to score")
            for i, rollout in enumerate(rollouts)
        ]

    def update(
        self, rollouts: Sequence[Rollout], scores: Sequence[Score] | None = None, demonstrations: Any = None
    ) -> dict[str, float]:
        """One update of phi on the outcomes of the rollouts; the metrics of a source that learns too come along."""
        metrics = super().update(rollouts, scores, demonstrations)
        if self.outcome is None:
            return metrics
        judged = [
            (rollout, float(said.total >= self.threshold))
            for rollout, said in zip(rollouts, verified_scores(self.outcome, rollouts), strict=True)
            if said.ok and any(rollout.mask)
        ]
        metrics[f"{self.name}/unjudged"] = float(len(rollouts) - len(judged))
        if judged:
            learnt = self.fit([rollout for rollout, _ in judged], [outcome for _, outcome in judged])
            metrics |= {f"{self.name}/{name}": value for name, value in learnt.items()}
        return metrics

    def fit(self, rollouts: Sequence[Rollout], outcomes: Sequence[float]) -> dict[str, float]:
        """One update of phi on rollouts, or texts, and whether they are right (0 to 1)."""
        return self.model.fit([self._row(rollout) for rollout in rollouts], outcomes)

    def save(self, path: str) -> None:
        """Write phi."""
        self.model.save(path)

    def state_dict(self) -> dict[str, Any]:
        """phi's trained weights."""
        return {**super().state_dict(), "phi": self.model.engine.snapshot()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put phi's trained weights back."""
        rest = dict(state)
        self.model.engine.restore(rest.pop("phi"))
        super().load_state_dict(rest)

    def _row(self, rollout: Rollout) -> Row:
        if not rollout.completion_ids and rollout.text:
            return self.model.encode(rollout.prompt, Completion(text=rollout.text, finished=rollout.terminated))
        return Row(prompt_ids=rollout.prompt_ids, completion_ids=rollout.completion_ids, mask=rollout.mask)

    def _score(self, rollout: Rollout, rewards: Sequence[float]) -> Score:
        total = sum(rewards)
        parts = {"sum": total, "probability": float(torch.tensor(total).sigmoid())}
        if self.granularity == "sequence" or not rollout.completion_ids:
            return Score(value=total, parts=parts)
        if self.granularity == "token":
            events = [(i, r) for i, (r, sampled) in enumerate(zip(rewards, rollout.mask, strict=True)) if sampled]
            return Score(steps=tuple(events), parts=parts)
        try:
            return Score(steps=self._by_step(rollout, rewards), parts=parts)
        except ValueError as error:
            return Score.failed(str(error))

    def _by_step(self, rollout: Rollout, rewards: Sequence[float]) -> tuple[tuple[int, float], ...]:
        """Sums between the ends of steps; those of an unfinished last step are paid at the last sampled token."""
        pieces = pieces_of(rollout, self.model.split, decoder_of(self.model.tokenizer))
        ends = sorted({*(piece.token for piece in pieces if piece.step), rollout.last_sampled})
        begins = [0, *(end + 1 for end in ends[:-1])]
        return tuple((end, math.fsum(rewards[begin : end + 1])) for begin, end in zip(begins, ends, strict=True))
