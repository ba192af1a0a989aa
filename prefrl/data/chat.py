"""Prompts and completions as token ids.

A prompt ends where the policy starts to speak: a generation prompt such as `<|im_start|>assistant` belongs
to the prompt. A completion ends with exactly one end-of-turn token, the one a chat template writes, else EOS.

Text that looks like a special token: in a completion of a conversation it is spelled out in ordinary tokens,
so it cannot end the turn early. In the messages of a prompt it becomes that token, as with every chat
template; it can change what the policy reads, but not where the completion starts. Plain texts are taken
at their word, so that data with a template already applied can be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from prefrl.errors import DataError
from prefrl.types import Completion, Message, Prompt

_NEVER_ENDS = ("bos_token", "unk_token", "mask_token", "cls_token")
_PLACEHOLDER = "ANSWER-OF-THE-ASSISTANT"


def encode_prompt(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Token ids of a prompt, with one BOS where the tokenizer or its template writes one, and no EOS.

    An empty text starts from BOS, or from EOS (what separates documents) where the tokenizer has no BOS.

    Raises:
        DataError: a conversation, but the tokenizer has no chat template, or one that refuses it.
    """
    if prompt.messages is not None:
        return _ids(tokenizer, render_prompt(tokenizer, prompt))
    return _text_ids(tokenizer, prompt.text or "")


def encode_completion(tokenizer: Any, prompt: Prompt, completion: Completion) -> list[int]:
    """Token ids of a completion that follows `encode_prompt`, ending with exactly one end-of-turn token.

    A completion that carries the ids it was sampled with keeps them, truncated or not.

    Raises:
        DataError: there is no chat template for a conversation, or no token that could end the completion.
    """
    if completion.ids is not None:
        return list(completion.ids)
    if prompt.messages is None:
        body, end = _split_end(completion.text, _only(tokenizer.eos_token))
        ids = _following(tokenizer, _text_ids, prompt.text or "", body)
    else:
        before = render_prompt(tokenizer, prompt)
        body, end = _answer(tokenizer, prompt, before, completion.text)
        ends = _only(end) | _only(tokenizer.eos_token)
        body, words = _split_end(body, ends)[0], _split_end(completion.text, ends)[0].strip()
        special = any(token in words for token in _special_tokens(tokenizer))
        ids = _spelled(tokenizer, body, words) if special else _following(tokenizer, _ids, before, body)
    end = end or tokenizer.eos_token
    if end is None:
        raise DataError(
            "The tokenizer has neither an EOS token nor a chat template that ends a turn, so a completion "
            "could never end. Set tokenizer.eos_token."
        )
    return [*ids, int(tokenizer.convert_tokens_to_ids(end))]


def encode_reply(tokenizer: Any, prompt: Prompt, text: str, *, closed: bool, role: str = "user") -> list[int]:
    """Token ids of what the policy is told between two of its turns; they follow the ids of its turn as they are.

    In a conversation they are what the chat template writes between the end of one assistant's answer and the start
    of the next: the end of the turn, unless the policy wrote it, the message, and the generation prompt. They are
    read off a rendering in which a placeholder stands for the answer, so earlier turns are never rendered again.
    In the message, text that looks like a special token is spelled out. A plain text is taken as it is.

    Args:
        tokenizer: the policy's tokenizer.
        prompt: the prompt that the rollout started from.
        text: the reply.
        closed: whether the policy ended its turn itself.
        role: who speaks, in a conversation.

    Raises:
        DataError: the chat template refuses such a conversation, or does not show the assistant's words.
    """
    if prompt.messages is None:
        return _following(tokenizer, _ids, "\n", text) if text else []
    messages = _chat(prompt)
    if messages[-1].get("role") == "assistant":
        messages.pop()  # the answer that the policy continued
    messages.append({"role": "assistant", "content": _PLACEHOLDER})
    reply: Message = {"role": role, "content": text}
    between = _after_placeholder(tokenizer, prompt, [*messages, reply], add_generation_prompt=True)
    ends = _turn_ends(tokenizer)
    written = ""
    if closed and _split_end(_after_placeholder(tokenizer, prompt, messages), ends)[1]:
        written = _leading_end(between, ends)
    body, words = between[len(written) :], text.strip()
    if any(token in words for token in _special_tokens(tokenizer)):
        return _spelled(tokenizer, body, words)
    return _following(tokenizer, _ids, written, body)


def eos_ids(model_or_generation_config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a completion, without repetition.

    They are the generation config's `eos_token_id` (one or several), the tokenizer's EOS, and the token with
    which the chat template ends an assistant's turn: a policy stops where `encode_completion` taught it to.

    Args:
        model_or_generation_config: a model, a generation config, or None.
        tokenizer: the tokenizer of that model.
    """
    config = getattr(model_or_generation_config, "generation_config", model_or_generation_config)
    configured = getattr(config, "eos_token_id", None)
    found = list(configured) if isinstance(configured, list | tuple) else [configured]
    found += [tokenizer.eos_token_id, _end_of_turn_id(tokenizer)]
    return tuple(dict.fromkeys(int(i) for i in found if i is not None))


def render_prompt(tokenizer: Any, prompt: Prompt) -> str:
    """The text of a conversational prompt, up to where the assistant speaks.

    A prompt that ends with an assistant message is continued rather than answered.
    """
    messages = _chat(prompt)
    continued = messages[-1].get("role") == "assistant"
    return _render(tokenizer, prompt, messages, add_generation_prompt=not continued, continue_final_message=continued)


def _answer(tokenizer: Any, prompt: Prompt, before: str, text: str) -> tuple[str, str | None]:
    """What the template makes of an answer after `before`, and the token it ends the turn with, if any."""
    messages = _chat(prompt)
    answer: Message = {"role": "assistant", "content": text}
    if messages[-1].get("role") == "assistant":
        last = messages.pop()
        answer = {**last, "content": f"{last.get('content') or ''}{text}"}
    whole = _render(tokenizer, prompt, [*messages, answer])
    if not whole.startswith(before):
        # The template rewrites an answered prompt: some open a thought in generation prompts only.
        return text, _split_end(whole, _turn_ends(tokenizer))[1]
    rest = whole[len(before) :]
    words = text.strip()
    at = rest.find(words) + len(words) if words in rest else 0
    after, end = _split_end(rest[at:], _turn_ends(tokenizer))
    body = rest[:at] + after
    return (body, end) if end else (body.rstrip(), None)


def _render(tokenizer: Any, prompt: Prompt, messages: list[Message], **how: Any) -> str:
    from jinja2 import TemplateError

    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            f"Prompt {prompt.id!r} is a conversation, but the model's tokenizer has no chat template. Use an "
            "instruction-tuned model, set tokenizer.chat_template, or give the prompts as plain text."
        )
    options = {**_template_options(prompt), **how, "tools": _tools(prompt), "tokenize": False}
    try:
        return str(tokenizer.apply_chat_template(messages, **options))
    except (TemplateError, ValueError) as error:
        raise DataError(f"The chat template refuses the messages of prompt {prompt.id!r}: {error}") from error


def _after_placeholder(tokenizer: Any, prompt: Prompt, messages: list[Message], **how: Any) -> str:
    """What the template writes after the placeholder that stands for the assistant's answer."""
    _, found, after = _render(tokenizer, prompt, messages, **how).partition(_PLACEHOLDER)
    if not found:
        raise DataError(
            f"The chat template does not show the assistant's answer to prompt {prompt.id!r}, so what it writes "
            "between two turns cannot be told. Set another tokenizer.chat_template, or give the prompts as plain text."
        )
    return after


def _chat(prompt: Prompt) -> list[Message]:
    if not prompt.messages:
        raise DataError(f"Prompt {prompt.id!r} has no messages; a conversation needs at least one.")
    return list(prompt.messages)


def _template_options(prompt: Prompt) -> dict[str, Any]:
    """The `chat_template_kwargs` column without the empty keys that tables add to fill their columns."""
    options = prompt.columns.get("chat_template_kwargs")
    return {k: v for k, v in options.items() if v is not None} if isinstance(options, Mapping) else {}


def _tools(prompt: Prompt) -> Any:
    """The `tools` column, a list or its JSON; None for an empty list, which some templates announce."""
    tools = prompt.columns.get("tools")
    if not isinstance(tools, str):
        return tools or None
    try:
        return json.loads(tools or "[]") or None
    except ValueError as error:
        raise DataError(f"The tools column of prompt {prompt.id!r} is not JSON ({error}): {tools[:80]!r}.") from error


def _following(tokenizer: Any, encode: Callable[[Any, str], list[int]], before: str, body: str) -> list[int]:
    """Ids of `body` right after `before`.

    Both are encoded together where that leaves the prompt's ids as they are: tokenizers that put a space
    before every text would otherwise put one into the middle.
    """
    start, whole = encode(tokenizer, before), encode(tokenizer, before + body)
    together = before and whole[: len(start)] == start
    ids = whole[len(start) :] if together else _ids(tokenizer, body)
    return ids[1:] if ids[:1] == start[-1:] == [tokenizer.bos_token_id] else ids


def _spelled(tokenizer: Any, body: str, words: str) -> list[int]:
    """Ids of `body` in which `words`, what the completion itself says, has no special token."""
    if words not in body:  # a template that rewrites answers: better its own marks spelled out than an early end
        return _ids(tokenizer, body, split_special_tokens=True)
    head, _, tail = body.partition(words)
    literal = _ids(tokenizer, words, split_special_tokens=True)
    return [*_ids(tokenizer, head), *literal, *_ids(tokenizer, tail)]


def _text_ids(tokenizer: Any, text: str) -> list[int]:
    """Ids of a plain text with the tokenizer's own BOS, once, and without the EOS some tokenizers add."""
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    ids = _ids(tokenizer, text, add_special_tokens=True)
    if ids and ids[-1] == eos and not text.endswith(str(tokenizer.eos_token)):
        ids = ids[:-1]
    if bos is not None and ids[:2] == [bos, bos]:
        ids = ids[1:]
    start = bos if bos is not None else eos
    return ids if ids or start is None else [start]


def _ids(tokenizer: Any, text: str, **how: Any) -> list[int]:
    encoded = tokenizer(text, **{"add_special_tokens": False, "verbose": False, **how})
    return [int(i) for i in encoded["input_ids"]]


def _split_end(text: str, ends: Collection[str]) -> tuple[str, str | None]:
    """Cut the end tokens (and the white space among them) off the end of a text; the first of them counts."""
    if not any(end in text for end in ends):
        return text, None
    one = "|".join(re.escape(end) for end in sorted(ends, key=len, reverse=True))
    found = re.search(rf"({one})(?:\s*(?:{one}))*\s*\Z", text)
    return (text[: found.start()], found[1]) if found else (text, None)


def _leading_end(text: str, ends: Collection[str]) -> str:
    """The first end token of a text with the white space before it, if the text starts so."""
    one = "|".join(re.escape(end) for end in sorted(ends, key=len, reverse=True))
    found = re.match(rf"\s*(?:{one})", text)
    return found[0] if found else ""


def _end_of_turn_id(tokenizer: Any) -> int | None:
    probe = Prompt(id="probe", messages=({"role": "user", "content": "a"},))
    try:
        _, end = _answer(tokenizer, probe, render_prompt(tokenizer, probe), "b")
    except DataError:  # no template, or one that wants another kind of conversation
        return None
    return None if end is None else int(tokenizer.convert_tokens_to_ids(end))


def _turn_ends(tokenizer: Any) -> set[str]:
    """Special tokens that may end a turn."""
    others = {getattr(tokenizer, name, None) for name in _NEVER_ENDS}
    return (_special_tokens(tokenizer) - others) | _only(tokenizer.eos_token)


def _special_tokens(tokenizer: Any) -> set[str]:
    added = tokenizer.added_tokens_decoder.values()
    return {*tokenizer.all_special_tokens, *(token.content for token in added if token.special)}


def _only(token: str | None) -> set[str]:
    return set() if token is None else {token}
