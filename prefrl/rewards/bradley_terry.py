"""A trained Bradley-Terry reward model, or an ensemble of them, as a reward source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefrl.errors import ConfigError, ModelError
from prefrl.model.ensemble import load_reward_scorer
from prefrl.model.reward_scorer import Judged, RewardScorer
from prefrl.rewards.base import Reward
from prefrl.rewards.ensemble_reward import Combine, check_combine, combined, disagreement
from prefrl.types import Completion, Pair, Prompt, Rollout, Score

MAX_TOKENS = 2048  # of models whose record names no limit


class BradleyTerry(Reward):
    """Scores of a reward model trained on preferences (Bradley and Terry, 1952).

    Only differences between answers to the same prompt are identified: scores of different prompts are not
    comparable. Completions are scored by their text, so any policy's tokenizer will do; one that was cut off
    is scored without an end-of-turn token. Where there are several members, the parts `mean`, `std` and `min` say how
    far they agree; where prompts may be cut, the part `cut` is 1 if this one was.

    Args:
        model: the reward model, or ensemble.
        max_tokens: longer rows are errors; 0 takes what the model was trained with, else 2048. A model trained with
            `long: cut` cuts prompts as it did then.
        combine: what an ensemble says: mean, min, or lcb (mean - k * std).
        k: standard deviations that lcb takes off.
        standardise: take off the mean and divide by the spread of the scores of held-out completions, as saved with
            the model.
        name: shown in metrics.

    Raises:
        ConfigError: an unknown way to combine, or more `max_tokens` than the model has positions for.
        ModelError: `standardise`, but no mean and spread were saved.
    """

    def __init__(
        self,
        model: RewardScorer,
        *,
        max_tokens: int = 0,
        combine: Combine = "mean",
        k: float = 1.0,
        standardise: bool = False,
        name: str = "bradley_terry",
    ) -> None:
        check_combine(combine, k)
        self.model = model
        if 0 < model.most_tokens < max_tokens:
            raise ConfigError(f"max_tokens is {max_tokens}; {model.name} has positions for {model.most_tokens} tokens.")
        self.max_tokens = max_tokens or model.record.max_tokens or min(MAX_TOKENS, model.most_tokens or MAX_TOKENS)
        self.combine, self.k = combine, k
        self.shift, self.scale = _saved_scale(model) if standardise else (0.0, 1.0)
        self.name = name

    @classmethod
    def load(
        cls,
        path: str,
        max_tokens: int = 0,
        device: str = "auto",
        combine: Combine = "mean",
        k: float = 1.0,
        standardise: bool = False,
    ) -> BradleyTerry:
        """A reward model or ensemble from a run folder, a model folder, an adapter folder or a hub id.

        Raises:
            ModelError: not a reward model, damaged, or without what `standardise` needs.
        """
        check_combine(combine, k)
        final = Path(path) / "checkpoints" / "final"
        model = load_reward_scorer(str(final if final.is_dir() else path), device=device)
        return cls(model, max_tokens=max_tokens, combine=combine, k=k, standardise=standardise)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout; those over `max_tokens` are errors."""
        completions = [Completion(text=r.text, finished=r.terminated) for r in rollouts]
        return self.score_texts([r.prompt for r in rollouts], completions)

    def score_texts(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Score]:
        """Scores of texts that were not sampled here."""
        return [self._score(found) for found in self.model.judge(prompts, completions, max_tokens=self.max_tokens)]

    def score_pairs(self, pairs: Sequence[Pair]) -> tuple[list[Score], list[Score]]:
        """Scores of the chosen and of the rejected side of every pair."""
        prompts = [pair.prompt for pair in pairs]
        return (
            self.score_texts(prompts, [pair.chosen for pair in pairs]),
            self.score_texts(prompts, [pair.rejected for pair in pairs]),
        )

    def _score(self, found: Judged) -> Score:
        if not found.scores:
            return Score.failed(f"{found.tokens} tokens, but the reward model takes {self.max_tokens}")
        value = (combined(found.scores, self.combine, self.k) - self.shift) / self.scale
        parts = disagreement(found.scores) if len(found.scores) > 1 else {}
        if self.model.record.long == "cut":
            parts["cut"] = float(found.cut)
        return Score(value=value, parts=parts)


def _saved_scale(model: RewardScorer) -> tuple[float, float]:
    mean, std = model.record.mean, model.record.std
    if mean is None or not std:
        raise ModelError(
            f"{model.name} was saved without the mean and spread of held-out scores, which standardise needs. Train it "
            "with held-out pairs, or use normalise: true, which measures them as it goes."
        )
    return mean, std
