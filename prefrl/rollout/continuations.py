"""How a solution goes on from the end of each of its steps: what automatic step labels are counted from.

A solution is token ids, step by step, and every continuation starts from a beginning of those very ids. The solution is
computed once: its keys and values serve all of its beginnings, now and in later calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from prefrl.config import SamplingConfig
from prefrl.rollout.local import Request, Trunk, draw
from prefrl.rollout.sampler import row_uniforms
from prefrl.types import Prompt, Rollout

Ids = tuple[int, ...]

_CUTS_APART = 1 << 32  # more than the continuations from one cut, so that every one has random numbers of its own


class Decoder(Protocol):
    """A language model, as far as going on needs it."""

    eos: tuple[int, ...]

    @property
    def decoder(self) -> Any:
        """The transformer without its output head."""
        ...

    @property
    def head(self) -> nn.Module | Callable[[Tensor], Tensor]:
        """The output head."""
        ...

    @property
    def shares_prompts(self) -> bool:
        """Whether keys and values can be used for several rows."""
        ...

    def encode(self, prompt: Prompt) -> Ids:
        """Token ids of a prompt."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of token ids."""
        ...


class Continuations:
    """Continuations of one solution from the ends of its steps.

    Args:
        model: who goes on.
        prompt: what was asked.
        steps: token ids of every step; joined they are the solution, without a token that ends it.
        params: how continuations are drawn; `max_new_tokens` is of each of them.
        seed: of their random numbers.
        number: tells solutions of the same prompt apart, so that each has random numbers of its own.
    """

    def __init__(
        self,
        model: Decoder,
        prompt: Prompt,
        steps: Sequence[Ids],
        params: SamplingConfig,
        *,
        seed: int,
        number: int = 0,
    ) -> None:
        self.model, self.prompt, self.steps, self.params = model, prompt, tuple(steps), params
        self.prompt_ids = model.encode(prompt)
        self._seed, self._number = seed, number
        self._trunk: Trunk | None = None

    def draw(self, cuts: Sequence[int], n: int) -> list[list[Rollout]]:
        """Draw `n` continuations after the first `cut` steps, for every cut; 0 starts from the prompt alone.

        In a rollout the steps that were given are masked out, and its text is that of the whole solution.
        """
        given = [tuple(i for step in self.steps[:cut] for i in step) for cut in cuts]
        requests = [
            Request(self.prompt_ids + ids, self._uniforms(cut, place))
            for cut, ids in zip(cuts, given, strict=True)
            for place in range(n)
        ]
        model = self.model
        drawn = iter(
            draw(
                model.decoder,
                model.head,
                requests,
                self.params,
                eos=model.eos,
                decode=model.decode,
                trunk=self._shared(),
            )
        )
        return [[self._rollout(cut, ids, next(drawn)) for _ in range(n)] for cut, ids in zip(cuts, given, strict=True)]

    def _uniforms(self, cut: int, place: int) -> Tensor:
        sample = cut * _CUTS_APART + place
        return row_uniforms(self._seed, self.prompt, self._number, sample, self.params.max_new_tokens)

    def _shared(self) -> Trunk | None:
        if self._trunk is None and self.model.shares_prompts:
            self._trunk = Trunk.of(self.model.decoder, (*self.prompt_ids, *(i for step in self.steps for i in step)))
        return self._trunk

    def _rollout(self, cut: int, given: Ids, drawn: Any) -> Rollout:
        ids = given + drawn.ids
        return Rollout(
            prompt=self.prompt,
            prompt_ids=self.prompt_ids,
            completion_ids=ids,
            mask=(False,) * len(given) + (True,) * len(drawn.ids),
            logps=(0.0,) * len(given) + drawn.logps,
            text=self.model.decode(list(ids)),
            stop=drawn.stop,
            group=f"{self.prompt.id}#{self._number}@{cut}",
        )


def cut_ids(ids: Sequence[int], ends: Sequence[int], decode: Callable[[list[int]], str]) -> tuple[list[Ids], list[str]]:
    """Cut sampled ids after the tokens in which the steps end; ids and texts of the steps, none of them encoded again.

    A token in which one step ends and the next begins, such as a line break fused with an indent, stays with the first.

    Args:
        ids: of the whole solution.
        ends: where each step ends in its text, in characters; the last one is the length of the text.
        decode: text of ids.
    """
    text = decode(list(ids))
    lengths = [min(len(decode(list(ids[:at]))), len(text)) for at in range(1, len(ids))] + [len(text)]
    steps: list[Ids] = []
    texts: list[str] = []
    at = character = 0
    for end in [*ends[:-1], len(text)]:
        stop = len(ids) if end == len(text) else next(k for k, length in enumerate(lengths, start=1) if length >= end)
        if stop > at:
            steps.append(tuple(ids[at:stop]))
            texts.append(text[character : lengths[stop - 1]])
            at, character = stop, lengths[stop - 1]
    return steps, texts
