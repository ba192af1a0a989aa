"""The prompt that a preference row without a `prompt` column leaves implied.

For texts it is the shared beginning, cut where a tokenizer can cut: a character-wise common prefix would
split words ("Paris " and "Palermo" share "Pa").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prefrl.data.reading import Problem
from prefrl.types import Message

ASSISTANT_MARK = "\n\nAssistant:"
HUMAN_MARK = "\n\nHuman:"


class TextPair(NamedTuple):
    """A prompt and its two continuations; `prompt + chosen` and `prompt + rejected` are the texts read."""

    prompt: str
    chosen: str
    rejected: str


def split_texts(chosen: str, rejected: str) -> TextPair:
    """The shared prompt of two texts and what each of them continues it with.

    Dialogues written with `Human:` and `Assistant:` marks are cut after the last shared `Assistant:`; other
    texts before the last shared space (or after the last shared line break); without one, the prompt is "".

    Raises:
        Problem: the dialogues part before their last turn.
    """
    shared = _shared_beginning(chosen, rejected)
    if ASSISTANT_MARK in chosen and ASSISTANT_MARK in rejected:
        cut = shared.rfind(ASSISTANT_MARK) + len(ASSISTANT_MARK)
        if shared.rfind(ASSISTANT_MARK) < 0 or HUMAN_MARK in chosen[cut:] or HUMAN_MARK in rejected[cut:]:
            raise Problem("chosen and rejected part before the last turn")
    else:
        cut = _word_boundary(shared, chosen, rejected)
    return TextPair(chosen[:cut], chosen[cut:], rejected[cut:])


def _shared_beginning(one: str, other: str) -> str:
    differs = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(differs, min(len(one), len(other)))]


def _word_boundary(shared: str, chosen: str, rejected: str) -> int:
    """The last cut that leaves a prompt and two continuations with something in them, else 0."""
    for at in range(len(shared) - 1, 0, -1):
        if not shared[at].isspace():
            continue
        cut = at if shared[at] == " " else at + 1  # tokenizers join one space, nothing else, to the next word
        if not shared[:cut].strip():
            return 0
        if chosen[cut:].strip() and rejected[cut:].strip():
            return cut
    return 0


def split_conversations(chosen: Sequence[Message], rejected: Sequence[Message]) -> Sequence[Message]:
    """The messages before the last one, which must be the same on both sides.

    Raises:
        Problem: a side does not end with the assistant, or the two part earlier.
    """
    if not chosen or not rejected:
        raise Problem("empty completion")
    if chosen[-1]["role"] != "assistant" or rejected[-1]["role"] != "assistant":
        raise Problem("chosen or rejected does not end with an assistant message")
    if list(chosen[:-1]) != list(rejected[:-1]):
        raise Problem("chosen and rejected part before the last turn")
    return chosen[:-1]
