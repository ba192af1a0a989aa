"""What a yes-probability model asks, and what is saved beside its weights: spellings, calibration, range of returns."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prefrl.data.chat import encode_reply
from prefrl.errors import ConfigError, ModelError
from prefrl.model.reward_record import tokenizer_fingerprint
from prefrl.rollout.prefix import Ids
from prefrl.types import Prompt

FILE = "yes_model.json"
FORMAT = 1
CORRECT = "Is the answer above correct? Reply with one word, Yes or No."
SUCCEED = "Will this attempt succeed in the end? Reply with one word, Yes or No."
PLAIN_END = "\nAnswer:"  # where there is no turn of its own to answer in


@dataclass(frozen=True, slots=True, kw_only=True)
class YesRecord:
    """How P(yes) is asked for and read.

    question           put after the history
    yes, no            spellings; empty takes the usual ones
    temperature, bias  P = sigmoid(logit / temperature + bias), fitted on held-out outcomes (Platt 1999)
    low, high          the returns that P = 0 and P = 1 stand for: V = low + (high - low) P
    """

    question: str = CORRECT
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    temperature: float = 1.0
    bias: float = 0.0
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        finite = all(map(math.isfinite, (self.low, self.high, self.temperature, self.bias)))
        if not finite or not self.low < self.high or self.temperature <= 0:
            raise ConfigError(
                f"low is {self.low}, high {self.high}, temperature {self.temperature} and bias {self.bias}; expected "
                "finite numbers, low below high, and a positive temperature."
            )
        if not self.question.strip():
            raise ConfigError("The question is empty; expected a text that can be answered with yes or no.")

    def write(self, folder: Path, tokenizer: Any) -> None:
        """Write it into a model folder, with the fingerprint of the tokenizer it belongs to."""
        content = {"format": FORMAT, **asdict(self), "tokenizer": tokenizer_fingerprint(tokenizer)}
        (folder / FILE).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_yes_record(folder: str | Path, tokenizer: Any) -> YesRecord | None:
    """The record of a model folder; None where there is none, as with a model that was not trained for this.

    Raises:
        ModelError: damaged, of a later format, or of another tokenizer.
    """
    path = Path(folder) / FILE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, print_ = content.pop("format"), content.pop("tokenizer")
        if version != FORMAT:
            raise ModelError(f"{path} has format {version}; this version of prefrl reads {FORMAT}. Update prefrl.")
        record = YesRecord(**content | {side: tuple(content[side]) for side in ("yes", "no")})
    except (OSError, ValueError, KeyError, AttributeError, TypeError, ConfigError) as error:
        raise ModelError(f"{path} is damaged ({error}). Copy the whole folder that was saved again.") from error
    if print_ != tokenizer_fingerprint(tokenizer):
        raise ModelError(
            f"{path} belongs to another tokenizer than the one in {folder}. Copy the whole folder that was saved; if "
            "the tokenizer was changed on purpose, train again: answers are read at token ids."
        )
    return record


@dataclass(frozen=True, slots=True)
class Question:
    """Token ids of a question after a history, in a conversation and in a plain text.

    ends    ids that end a turn
    opened  in a conversation, after a turn that its speaker has not ended; `closed`, after one that has
    marks   ids that only a conversation has; where a template writes words alone, none
    """

    plain: tuple[int, ...]
    opened: tuple[int, ...]
    closed: tuple[int, ...]
    ends: frozenset[int]
    marks: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Any, text: str, ends: Collection[int]) -> Question:
        """The question for a tokenizer, as a user's message where it has a chat template."""
        standing = Prompt(id="question", text="a")
        plain = tuple(encode_reply(tokenizer, standing, f"\n{text}{PLAIN_END}", closed=True))
        opened = closed = plain
        if tokenizer.chat_template:
            talk = Prompt(id="question", messages=({"role": "user", "content": "a"},))
            opened, closed = (tuple(encode_reply(tokenizer, talk, text, closed=c)) for c in (False, True))
        special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
        marks = (set(opened) - set(plain)) & special - set(ends)
        return cls(plain, opened, closed, frozenset(ends), frozenset(marks))

    def after(self, history: Ids) -> tuple[int, ...]:
        """The ids that ask about a history: a new turn in a conversation, else a new line."""
        if self.marks and self.marks.isdisjoint(history):
            return self.plain
        return self.closed if history[-1] in self.ends else self.opened
