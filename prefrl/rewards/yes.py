"""A generative verifier: the probability that a language model says yes when asked whether an answer is correct."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from prefrl.errors import ConfigError
from prefrl.model.reward_rows import encode_row
from prefrl.model.yes_probability import FLOOR, Answer, YesModel, load_yes_model, query_row
from prefrl.model.yes_record import CORRECT, YesRecord
from prefrl.model.yes_tokens import words_of
from prefrl.rewards.base import Reward
from prefrl.types import Completion, Prompt, Rollout, Row, Score

log = logging.getLogger("prefrl.rewards")


class YesReward(Reward):
    """`low + (high - low) P(yes)` of every answer, calibrated where that was fitted (verifiers of arXiv 2408.15240).

    Answers are read as text, so any policy's tokenizer will do. Parts: `yes` is P itself, and `yesno_mass` what yes and
    no have of the vocabulary together: where its mean is under `floor` a warning says so once, as a question that is
    not answered is no reward.

    Args:
        model: what is asked.
        max_tokens: longer answers, with their prompts, are errors, never cut; so are those without positions left for
            the question.
        floor: mean mass below which a warning is given.
        token_budget: most token positions computed at a time.
        name: shown in metrics.
    """

    def __init__(
        self,
        model: YesModel,
        *,
        max_tokens: int = 2048,
        floor: float = FLOOR,
        token_budget: int = 4096,
        name: str = "yes",
    ) -> None:
        if not 0.0 <= floor <= 1.0:
            raise ConfigError(f"yes: floor={floor}; expected a probability, such as 0.5")
        self.model, self.max_tokens, self.floor, self.token_budget = model, max_tokens, floor, token_budget
        self.name = name
        self._warned = False

    @classmethod
    def load(
        cls,
        model: str,
        *,
        question: str = "",
        yes_words: Sequence[str] = (),
        no_words: Sequence[str] = (),
        low: float = 0.0,
        high: float = 1.0,
        max_tokens: int = 2048,
        floor: float = FLOOR,
        device: str = "auto",
    ) -> YesReward:
        """A verifier of any causal language model, or of one that `prefrl yes` trained, which knows its question.

        Args:
            model: a run folder, a model folder, a hub id, or smollm2-135m.
            question: what is asked after an answer; empty takes what it was trained with, else the usual question.
            yes_words, no_words: lists of spellings; empty takes the usual ones. In YAML yes and no need quotes.
            low, high: rewards that P = 0 and P = 1 stand for.

        Raises:
            ConfigError: no list of words, no spelling is a single token, one is on both sides, or the model was trained
                on another question.
            ModelError: the model cannot be loaded.
        """
        yes, no = words_of("yes_words", yes_words), words_of("no_words", no_words)
        asks = bool(question or yes or no)
        record = YesRecord(question=question or CORRECT, yes=yes, no=no, low=low, high=high)
        loaded = load_yes_model(model, record, asks=asks, device=device)
        return cls(loaded, max_tokens=max_tokens, floor=floor)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout; those over `max_tokens` are errors."""
        completions = [Completion(text=r.text, finished=r.terminated) for r in rollouts]
        return self.score_texts([r.prompt for r in rollouts], completions)

    def score_texts(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Score]:
        """Scores of texts that were not sampled here."""
        rows = [end_row(self.model, p, c) for p, c in zip(prompts, completions, strict=True)]
        tokens = [len(row.prompt_ids) + len(row.completion_ids) - 1 for row in rows]
        limit = self.model.most_tokens(self.max_tokens)
        fits = [row for row, n in zip(rows, tokens, strict=True) if n <= limit]
        answers = iter(self.model.ask(fits, self.token_budget))
        scores = [
            _score(next(answers)[0]) if n <= limit else Score.failed(f"{n} tokens, but the verifier takes {limit}")
            for n in tokens
        ]
        self._watch([score.parts["yesno_mass"] for score in scores if score.ok])
        return scores

    def _watch(self, masses: Sequence[float]) -> None:
        mass = sum(masses) / len(masses) if masses else 1.0
        if mass < self.floor and not self._warned:
            self._warned = True
            log.warning(
                "Reward %r: %s answers yes or no with probability %.2f only, below %.2f, so what it says means little. "
                "Ask another question, name other spellings, or train it: prefrl yes",
                self.name,
                self.model.name,
                mass,
                self.floor,
            )


def end_row(model: YesModel, prompt: Prompt, completion: Completion) -> Row:
    """The row that asks about a whole answer, by text; one that was cut off has no end-of-turn token."""
    row, _ = encode_row(model.model.tokenizer, prompt, completion, ends=model.model.eos)
    return query_row(row.prompt_ids, row.completion_ids, [len(row.completion_ids)])


def _score(answer: Answer) -> Score:
    return Score(value=answer.value, parts={"yes": answer.probability, "yesno_mass": answer.mass})
