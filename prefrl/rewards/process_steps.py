"""The steps of a rollout, and the token of the policy at which each is paid."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.types import Rollout

Split = Callable[[str], Sequence[str]]
Decode = Callable[[Sequence[int]], str]

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a solution as a process reward model reads it.

    text   joined with the others it is the solution
    step   False for what an environment said: it is read, and not scored
    token  index of the token that the step is paid at; `NO_TOKEN` where the rollout is a text without tokens
    """

    text: str
    step: bool
    token: int = NO_TOKEN


def decoder_of(tokenizer: Any) -> Decode:
    """Text of token ids as rollouts have it: without special tokens."""
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True))


def pieces_of(rollout: Rollout, split: Split, decode: Decode | None) -> list[Piece]:
    """The steps of a rollout: its turns where it has turns, what `split` makes of its text otherwise.

    A step counts once it is finished. What the token budget cut off, in a text, is no step: it has not been said.
    A rollout that ended by itself finished its last step, which is paid at its last sampled token, end of turn
    included. Turns are finished by whoever answered them.

    Raises:
        ValueError: the tokenizer does not give the rollout's text back from its tokens.
    """
    if rollout.turns and decode is not None:
        return _turns(rollout, decode)
    texts = split(f"{rollout.text}.")[:-1] if rollout.truncated else split(rollout.text)
    if decode is None or not rollout.completion_ids:
        return [Piece(text, step=True) for text in texts]
    ends: list[str] = []
    for text in texts:
        ends.append((ends[-1] if ends else "") + text)
    tokens = [_token_after(rollout, end, decode) for end in ends]
    if tokens and rollout.terminated:
        tokens[-1] = rollout.last_sampled
    return [Piece(text, step=True, token=token) for text, token in zip(texts, tokens, strict=True)]


def _token_after(rollout: Rollout, text: str, decode: Decode) -> int:
    """Index of the last sampled token once `text` is complete: tokens are counted by what they decode to together.

    A token that holds the end of a step and the start of the next one ends the step. Part of a character decodes to
    a mark that is not that character, so that a step never ends before its last character does.
    """
    ids = rollout.completion_ids
    found = bisect_left(range(len(ids)), True, key=lambda at: decode(ids[: at + 1]).startswith(text))
    if found == len(ids):
        raise ValueError("the policy's tokenizer does not give the text of the rollout back from its tokens")
    return max((at for at in range(found + 1) if rollout.mask[at]), default=rollout.mask.index(True))


def _turns(rollout: Rollout, decode: Decode) -> list[Piece]:
    """Every turn of the policy as a step, and what was said to it between."""
    pieces = []
    heard = 0
    for start, end in rollout.turns:
        if said := decode(rollout.completion_ids[heard:start]):
            pieces.append(Piece(said, step=False))
        heard = end
        sampled = [at for at in range(start, end) if rollout.mask[at]]
        if sampled:
            text = decode(rollout.completion_ids[start:end])
            pieces.append(Piece(text or "\n", step=True, token=sampled[-1]))  # a turn of nothing but its end
    return pieces
