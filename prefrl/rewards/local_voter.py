"""A language model of this process as what a judge thinks with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from prefrl.errors import ConfigError, PrefrlError
from prefrl.model.batching import row_outputs
from prefrl.model.language import LanguageModel
from prefrl.rewards.questions import VERDICT, Question, Vote
from prefrl.types import Prompt, Row


class LocalVoter:
    """Votes by how probable each verdict is as the model's reply: `softmax_v log P("Verdict: v" | question)`.

    Nothing is sampled, so it is fast and says how sure it is, but the model cannot reason before it answers.

    Args:
        model: a causal language model; chat models get the question as a user message.
        max_tokens: longer questions are errors, never cut.
        token_budget: most token positions computed at a time.
    """

    def __init__(self, model: LanguageModel, *, max_tokens: int = 8192, token_budget: int = 4096) -> None:
        self.model, self.max_tokens, self.token_budget = model, max_tokens, token_budget
        self.name = model.name

    @torch.no_grad()
    def vote(self, questions: Sequence[Question]) -> list[Vote]:
        """One vote per question.

        Raises:
            ConfigError: one option begins with another in this model's tokens, so that their probabilities overlap.
        """
        prompts = [self._prompt_ids(question.text) for question in questions]
        short = [i for i, ids in enumerate(prompts) if isinstance(ids, tuple)]
        replies = {options: self._replies(options) for options in {q.options for q in questions}}
        rows = [_row(prompts[i], reply) for i in short for reply in replies[questions[i].options]]
        shared = self.model.shares_prompts
        outputs = iter(row_outputs(rows, self.model.token_outputs, self.token_budget, shared=shared))
        votes = {i: self._vote([next(outputs) for _ in questions[i].options]) for i in short}
        return [votes.get(i, Vote(error=str(prompts[i]))) for i in range(len(questions))]

    def _vote(self, logps: Sequence[torch.Tensor]) -> Vote:
        sums = torch.stack([row.double().sum() for row in logps])
        return Vote(probabilities=tuple(torch.softmax(sums, 0).tolist()))

    def _prompt_ids(self, text: str) -> tuple[int, ...] | str:
        """Token ids of a question, or why it cannot be asked."""
        if self.model.tokenizer.chat_template:
            prompt = Prompt(id="judge", messages=({"role": "user", "content": text},))
        else:
            prompt = Prompt(id="judge", text=f"{text}\n\n")
        try:
            ids = self.model.encode(prompt)
        except PrefrlError as error:
            return str(error)
        return ids if len(ids) <= self.max_tokens else f"the question has {len(ids)} tokens; at most {self.max_tokens}"

    def _replies(self, options: Sequence[str]) -> list[tuple[int, ...]]:
        tokenize = self.model.tokenizer
        found = [tuple(tokenize(VERDICT + option, add_special_tokens=False)["input_ids"]) for option in options]
        for (first, one), (second, other) in pairwise(sorted(zip(found, options, strict=True))):
            if second[: len(first)] == first:
                raise ConfigError(
                    f"judge: the verdict {other!r} begins with {one!r} in the tokens of {self.name}, so their "
                    "probabilities overlap; choose a narrower scale, such as [1, 5]"
                )
        return found


def _row(prompt: tuple[int, ...] | str, reply: tuple[int, ...]) -> Row:
    assert isinstance(prompt, tuple), "only questions that can be asked become rows"
    return Row(prompt_ids=prompt, completion_ids=reply, mask=(True,) * len(reply))
