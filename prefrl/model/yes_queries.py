"""The hidden state after a short question, put after many prefixes of the same text.

    naive   every prefix with its question is a row of its own
    shared  the text is computed once; all its questions follow in one stream, and an attention mask lets each see its
            own prefix and itself. Positions go on from the prefix, so both give the same numbers

For a text of L tokens with Q questions of S tokens, naive computes about Q (L / 2 + S) positions and shared L + Q S.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prefrl.model.kernel import suffix_hidden
from prefrl.rollout.prefix import Ids, cache_is_shareable, prefill, right_pad


@dataclass(frozen=True, slots=True)
class Asked:
    """One text, and the questions put to it: (tokens of the text that are seen, ids of the question)."""

    text: tuple[int, ...]
    questions: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def needed(self) -> int:
        """Tokens of the text that any question sees."""
        return max(seen for seen, _ in self.questions)

    @property
    def stream(self) -> int:
        """Tokens of all questions together."""
        return sum(len(ids) for _, ids in self.questions)


def last_hidden(decoder: nn.Module, asked: Sequence[Asked], token_budget: int, *, share: bool = True) -> Tensor:
    """Final hidden state (Q, H) at the last token of every question, those of a text together, with gradient.

    Args:
        decoder: a causal transformer returning `last_hidden_state`.
        asked: texts with their questions; each question sees a non-empty prefix.
        token_budget: most positions computed at a time, padding included.
        share: whether a text is computed once for all its questions. Where an architecture's cache cannot be shared,
            or its attention takes no mask of its own (flash attention), every prefix is computed on its own.
    """
    sound = all(0 < seen <= len(a.text) and ids for a in asked for seen, ids in a.questions)
    assert sound, "every question has tokens and sees a part of its text"
    if share and _takes_masks(decoder):
        found = {i: states for part in _packed(asked, token_budget) for i, states in _shared(decoder, asked, part)}
        return torch.cat([found[i] for i in range(len(asked)) if i in found])
    rows = [(a.text[:seen], ids) for a in asked for seen, ids in a.questions]
    return torch.cat([_naive(decoder, part) for part in _batches(rows, token_budget)])


def _takes_masks(decoder: nn.Module) -> bool:
    attention = getattr(decoder.config, "_attn_implementation", "eager")
    return attention in ("sdpa", "eager") and cache_is_shareable(decoder)


def _naive(decoder: nn.Module, rows: Sequence[tuple[Ids, Ids]]) -> Tensor:
    """Last states of whole rows, padded on the right."""
    hidden = suffix_hidden(decoder, [prefix for prefix, _ in rows], [ids for _, ids in rows], share=False)
    ends = torch.tensor([len(ids) for _, ids in rows]).cumsum(0) - 1
    return hidden[ends.to(hidden.device)]


def _batches(rows: Sequence[tuple[Ids, Ids]], budget: int) -> Iterator[list[tuple[Ids, Ids]]]:
    """Neighbouring rows, which are alike in length, within a budget of padded positions."""
    current: list[tuple[Ids, Ids]] = []
    for row in rows:
        longest = max(len(prefix) + len(ids) for prefix, ids in [*current, row])
        if current and longest * (len(current) + 1) > budget:
            yield current
            current = []
        current.append(row)
    if current:
        yield current


def _packed(asked: Sequence[Asked], budget: int) -> Iterator[list[int]]:
    """Indices of texts with a question, alike in length, within a budget of padded positions."""
    current: list[int] = []
    for index in sorted(
        (i for i, a in enumerate(asked) if a.questions), key=lambda i: (asked[i].needed, asked[i].stream)
    ):
        among = [asked[i] for i in (*current, index)]
        if current and len(among) * (max(a.needed for a in among) + max(a.stream for a in among)) > budget:
            yield current
            current = []
        current.append(index)
    if current:
        yield current


def _shared(decoder: nn.Module, asked: Sequence[Asked], part: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
    """(index, states (Q, H)) of texts that are computed together."""
    texts = [asked[i] for i in part]
    cache, _ = prefill(decoder, [a.text[: a.needed] for a in texts])
    parameter = next(decoder.parameters())
    ids, _ = right_pad([[t for _, one in a.questions for t in one] for a in texts], parameter.device)
    width = max(a.needed for a in texts)
    seen, question, place = (torch.zeros_like(ids) for _ in range(3))
    for row, a in enumerate(texts):
        sizes = torch.tensor([len(one) for _, one in a.questions])
        n = int(sizes.sum())
        seen[row, :n] = torch.tensor([t for t, _ in a.questions]).repeat_interleave(sizes).to(ids.device)
        question[row, :n] = torch.arange(1, len(sizes) + 1).repeat_interleave(sizes).to(ids.device)
        place[row, :n] = torch.cat([torch.arange(int(k)) for k in sizes]).to(ids.device)
    sees = torch.arange(width, device=ids.device) < seen[:, :, None]
    sees[:, :, 0] |= question == 0  # padding sees something, so that its softmax is a number
    own = (question[:, :, None] == question[:, None, :]) & (place[:, :, None] >= place[:, None, :])
    blocked = ~torch.cat([sees, own], dim=2)[:, None]
    mask = torch.zeros(blocked.shape, dtype=parameter.dtype, device=ids.device)
    hidden = decoder(
        input_ids=ids,
        attention_mask=mask.masked_fill_(blocked, torch.finfo(parameter.dtype).min),
        position_ids=seen + place,
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    for row, (index, a) in enumerate(zip(part, texts, strict=True)):
        ends = torch.tensor([len(one) for _, one in a.questions]).cumsum(0) - 1
        yield index, hidden[row, ends.to(hidden.device)]
