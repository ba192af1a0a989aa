"""A prompt and a completion as the row that a reward model scores, cut where it is too long and that was asked for."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from prefrl.data.chat import encode_completion, encode_prompt
from prefrl.types import Completion, Prompt, Row

_PLAIN = (
    "{%- for message in messages -%}"
    "{%- if message['content'] is not string -%}"
    "{{- raise_exception('the plain template shows texts only, no tool calls') -}}"
    "{%- endif -%}"
    "{{- message['role'] | capitalize + ': ' + message['content'] | trim -}}"
    "{%- if not loop.last or add_generation_prompt -%}{{- '\\n\\n' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}"
)


def add_plain_template(tokenizer: Any) -> None:
    """Give a tokenizer without a chat template one: `User: ...`, an empty line, `Assistant: ...`.

    It starts with the token, BOS or CLS, that the tokenizer itself writes before a text, if any.
    """
    if tokenizer.chat_template:
        return
    start = tokenizer("a")["input_ids"][0]
    name = next((n for n in ("cls_token", "bos_token") if getattr(tokenizer, f"{n}_id") == start), "")
    tokenizer.chat_template = (f"{{{{- {name} -}}}}" if name else "") + _PLAIN


def encode_row(
    tokenizer: Any, prompt: Prompt, completion: Completion, *, ends: Collection[int], limit: int = 0
) -> tuple[Row, bool]:
    """The row that scores `completion` as an answer to `prompt`, and whether its prompt was cut.

    With a `limit`, a longer row loses the oldest messages of its conversation (a system message stays, and the rest
    starts with a user's), then, where the last of them is still too long, the beginning of the prompt behind BOS or
    CLS. What is cut depends on this row alone. A completion that leaves no room for a prompt comes back whole, with
    its prompt whole: it is for the caller to refuse.

    Args:
        tokenizer: the reward model's.
        prompt: what was asked.
        completion: the answer, by text, whatever tokenizer wrote it; one that was cut off has no end-of-turn token.
        ends: ids of end-of-turn tokens.
        limit: most tokens of the row; 0 cuts nothing.
    """
    whole = prompt_ids, ids = _ids(tokenizer, prompt, completion, ends)
    if not limit or len(prompt_ids) + len(ids) <= limit:
        return _row(*whole), False
    for shorter in _shorter(prompt):
        prompt_ids, ids = _ids(tokenizer, shorter, completion, ends)
        if len(prompt_ids) + len(ids) <= limit:
            return _row(prompt_ids, ids), True
    if len(ids) >= limit:
        return _row(*whole), False
    start = prompt_ids[:1] if prompt_ids[0] in (tokenizer.bos_token_id, tokenizer.cls_token_id) else ()
    room = limit - len(ids) - len(start)
    return _row((*start, *prompt_ids[len(prompt_ids) - room :]), ids), True


def without_end(row: Row, unread: int) -> Row:
    """The row without the tokens `unread` at its end: it is scored before them."""
    ids = (*row.prompt_ids, *row.completion_ids)
    kept = next((n for n in range(len(ids), 0, -1) if ids[n - 1] != unread), len(ids))
    return _row(ids[: len(row.prompt_ids)][:kept], ids[len(row.prompt_ids) : kept])


def _ids(
    tokenizer: Any, prompt: Prompt, completion: Completion, ends: Collection[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ids = tuple(encode_completion(tokenizer, prompt, Completion(text=completion.text)))
    if not completion.finished and ids and ids[-1] in ends:
        ids = ids[:-1]
    return tuple(encode_prompt(tokenizer, prompt)), ids


def _row(prompt_ids: tuple[int, ...], ids: tuple[int, ...]) -> Row:
    """Scored at the last token, which is the prompt's where an answer was cut off before it began."""
    if not ids:
        prompt_ids, ids = prompt_ids[:-1], prompt_ids[-1:]
    return Row(prompt_ids=prompt_ids, completion_ids=ids, mask=(*(False,) * (len(ids) - 1), True))


def _shorter(prompt: Prompt) -> Iterator[Prompt]:
    """A conversation without its oldest messages, one exchange less each time."""
    messages = prompt.messages or ()
    system = len(list(itertools.takewhile(lambda m: m.get("role") in ("system", "developer"), messages)))
    for place in range(system + 1, len(messages)):
        if messages[place].get("role") == "user":
            yield replace(prompt, messages=(*messages[:system], *messages[place:]))
