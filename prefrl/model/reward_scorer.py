"""What a reward model and an ensemble of them share: texts in, one score per member out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from prefrl.data.chat import eos_ids
from prefrl.model.reward_record import RewardRecord
from prefrl.model.reward_rows import encode_row, without_end
from prefrl.types import Completion, Prompt, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Scores of one completion by every member; none where the row has more tokens than there is room for."""

    scores: tuple[float, ...]
    tokens: int
    cut: bool

    @property
    def mean(self) -> float:
        """Mean score of the members."""
        return sum(self.scores) / len(self.scores)


class RewardScorer(ABC):
    """Scores completions by their text, with what `record` says of long rows and of length.

    Attributes:
        tokenizer: of the model, or of every member.
        name: where it came from.
        record: how its scores are made and read; saved with it.
        ends: ids of the tokens that end a completion.
        cut_rows: rows so far whose prompts were cut.
        unread: id of the token that a model of others never reads at the end of a row; see `load_reward_model`.
    """

    def __init__(self, tokenizer: Any, name: str, record: RewardRecord | None = None) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.record = record or RewardRecord()
        self.cut_rows = 0
        self.unread: int | None = None
        if tokenizer.eos_token is None and tokenizer.sep_token is not None:
            tokenizer.eos_token = tokenizer.sep_token  # encoders end a text with their separator
        self.ends = eos_ids(None, tokenizer)

    @property
    @abstractmethod
    def members(self) -> int:
        """How many scores a completion gets."""

    @property
    @abstractmethod
    def most_tokens(self) -> int:
        """Tokens that the architecture has positions for; 0 where it is not bound to a number."""

    @abstractmethod
    def member_scores(self, rows: Sequence[Row], token_budget: int = 4096) -> Tensor:
        """Raw scores (N, members) of rows without gradient, in the order given, computed in micro-batches."""

    @abstractmethod
    def divide(self, temperature: float) -> None:
        """Divide all raw scores by `temperature`, in the weights of the heads."""

    @abstractmethod
    def fingerprint(self) -> str:
        """What tells its heads from others."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the weights, the tokenizer and the record, all or nothing."""

    def encode(self, prompt: Prompt, completion: Completion) -> Row:
        """The row that scores `completion` as an answer to `prompt`, by text, whatever tokenizer wrote it.

        A cut-off completion gets no end-of-turn token, so that the model can tell it from a finished one. A row over
        `record.max_tokens` loses the oldest of its prompt where `record.long` is cut, and is counted in `cut_rows`.
        """
        limit = self.record.max_tokens if self.record.long == "cut" else 0
        row, cut = encode_row(self.tokenizer, prompt, completion, ends=self.ends, limit=limit)
        self.cut_rows += cut
        return row if self.unread is None else without_end(row, self.unread)

    def scores(self, rows: Sequence[Row], token_budget: int = 4096) -> list[float]:
        """Mean raw score of the members for every row, in the order given."""
        return [float(score) for score in self.member_scores(rows, token_budget).mean(-1)]

    def judge(
        self, prompts: Sequence[Prompt], completions: Sequence[Completion], *, max_tokens: int = 0
    ) -> list[Judged]:
        """Scores of texts, without what the record says of length and of each member's offset.

        Rows over `max_tokens` get none; 0 scores all.
        """
        rows, cut = [], []
        for prompt, completion in zip(prompts, completions, strict=True):
            before = self.cut_rows
            rows.append(self.encode(prompt, completion))
            cut.append(self.cut_rows > before)
        tokens = [len(row.prompt_ids) + len(row.completion_ids) for row in rows]
        fits = [not max_tokens or n <= max_tokens for n in tokens]
        offsets = self.record.offsets or (0.0,) * self.members
        scored = iter(self.member_scores([row for row, fit in zip(rows, fits, strict=True) if fit]).tolist())
        result = []
        for completion, n, was_cut, fit in zip(completions, tokens, cut, fits, strict=True):
            longer = self.record.length_slope * (len(completion.text) - self.record.length_centre)
            scores = (
                tuple(score - longer - own for score, own in zip(next(scored), offsets, strict=True)) if fit else ()
            )
            result.append(Judged(scores=scores, tokens=n, cut=was_cut))
        return result
