"""A trained Bradley-Terry reward model as a reward source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefrl.model.reward_model import RewardModel, load_reward_model
from prefrl.rewards.base import Reward
from prefrl.types import Completion, Pair, Prompt, Rollout, Score


class BradleyTerry(Reward):
    """Scores of a reward model trained on preferences (Bradley and Terry, 1952).

    Only differences between answers to the same prompt are identified: scores of different prompts are not
    comparable. Completions are scored by their text, so any policy's tokenizer will do; one that was cut off
    is scored without an end-of-turn token.

    Args:
        model: the reward model.
        max_tokens: longer rollouts are errors, never cut.
        name: shown in metrics.
    """

    def __init__(self, model: RewardModel, *, max_tokens: int = 2048, name: str = "bradley_terry") -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.name = name

    @classmethod
    def load(cls, path: str, max_tokens: int = 2048, device: str = "auto") -> BradleyTerry:
        """A reward model from a run folder, a model folder, an adapter folder or a hub id.

        Raises:
            ModelError: not a reward model, or damaged.
        """
        final = Path(path) / "checkpoints" / "final"
        return cls(load_reward_model(str(final if final.is_dir() else path), device=device), max_tokens=max_tokens)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout; those over `max_tokens` are errors."""
        completions = [Completion(text=r.text, finished=r.terminated) for r in rollouts]
        return self.score_texts([r.prompt for r in rollouts], completions)

    def score_texts(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Score]:
        """Scores of texts that were not sampled here."""
        rows = [self.model.encode(p, c) for p, c in zip(prompts, completions, strict=True)]
        lengths = [len(row.prompt_ids) + len(row.completion_ids) for row in rows]
        values = iter(self.model.scores([r for r, n in zip(rows, lengths, strict=True) if n <= self.max_tokens]))
        return [
            Score(value=next(values))
            if n <= self.max_tokens
            else Score.failed(f"{n} tokens, but the reward model takes {self.max_tokens}")
            for n in lengths
        ]

    def score_pairs(self, pairs: Sequence[Pair]) -> tuple[list[Score], list[Score]]:
        """Scores of the chosen and of the rejected side of every pair."""
        prompts = [pair.prompt for pair in pairs]
        return (
            self.score_texts(prompts, [pair.chosen for pair in pairs]),
            self.score_texts(prompts, [pair.rejected for pair in pairs]),
        )
