"""TRL's dataset conventions, read as they are: standard (text) and conversational (lists of messages).

    to_prompts      prompt
    to_pairs        prompt, chosen, rejected            or chosen, rejected with the prompt implied
    to_rankings     prompt, completions, ranks          or prompt, completions, scores
    to_completions  prompt, completion                  or messages, or text
    to_unpaired     prompt, completion, label

A conversational prompt may also go with completions that are plain texts. Columns without a meaning of
their own stay in `Prompt.columns`. Rows that cannot be used are dropped and counted (`Read.dropped`);
above `max_bad_fraction` they are an error.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from prefrl.data.fields import annotator_of, flag, margin_of, number, strength_key, verdict, weight_of
from prefrl.data.implicit import split_conversations, split_texts
from prefrl.data.reading import Problem, Read, collect
from prefrl.data.tables import Table
from prefrl.errors import DataError
from prefrl.types import Completion, Message, Pair, Prompt, Ranking

MAX_BAD_FRACTION = 0.05

_SYNONYMS = {
    "prompt": ("question", "instruction", "query", "input", "problem"),
    "completion": ("response", "output", "answer", "solution"),
    "chosen": ("preferred", "winner", "accepted"),
    "rejected": ("dispreferred", "loser", "refused"),
    "completions": ("responses", "outputs", "answers"),
    "ranks": ("ranking", "rank", "order"),
}
# What `Pair` says itself. The votes stay beside the prompt, to measure how far people agree.
_JUDGED = {"label", "tie", "margin", "weight", "annotator"}


def to_prompts(table: Table, *, max_bad_fraction: float = MAX_BAD_FRACTION) -> Read[Prompt]:
    """Prompts, with every other column kept for the rewards.

    Raises:
        DataError: `prompt` is missing, or too many rows are bad.
    """
    _layout(table, "A prompt dataset", [("prompt",)])

    def convert(row: dict[str, Any]) -> Prompt:
        return read_prompt(row, row.get("prompt"), _others(table, {"prompt"}))

    return collect(table, convert, max_bad_fraction)


def to_pairs(
    table: Table, *, strengths: Mapping[str, float] | None = None, max_bad_fraction: float = MAX_BAD_FRACTION
) -> Read[Pair]:
    """Preference pairs, with what the optional columns say of them. Those must be filled where they exist.

    label      probability that `chosen` is the better one, or the word tie
    tie        true, false, or the probability that neither is
    votes      instead of the two: what each annotator said, 1 or 2 for the answer shown first or second and 0 for a
               tie; `chosen` has more of them than `rejected`; also kept in `Prompt.columns`
    margin     by how much `chosen` is better; or `strength`, a word or number that `strengths` gives a margin
    weight     how much the pair counts
    annotator  who judged; may be empty

    Args:
        table: the rows.
        strengths: margin at each value of the column strength, which is not read without it.
        max_bad_fraction: largest share of rows that may be dropped.

    Raises:
        DataError: `chosen` or `rejected` is missing, two columns say the same thing, a strength is unknown, or too
            many rows are bad.
    """
    _layout(table, "A preference dataset", [("prompt", "chosen", "rejected"), ("chosen", "rejected")])
    return collect(table, pair_reader(table, strengths), max_bad_fraction)


def pair_reader(table: Table, strengths: Mapping[str, float] | None = None) -> Callable[[dict[str, Any]], Pair]:
    """What makes a pair of one row of the table; see `to_pairs`."""
    for one, other in (("votes", "label"), ("votes", "tie"), *([("strength", "margin")] if strengths else ())):
        if {one, other} <= set(table.columns):
            raise DataError(
                f"{table.origin} has the columns {one!r} and {other!r}, which say the same thing. Remove one of them."
            )
    if strengths and "strength" not in table.columns:
        raise DataError(
            f"{table.origin} has no column 'strength', but margins are given for {', '.join(map(str, strengths))}; its "
            f"columns: {', '.join(table.columns)}. Rename the column that holds strengths to 'strength'."
        )
    read = {*_JUDGED, "strength"} if strengths else _JUDGED
    others = _others(table, {"prompt", "chosen", "rejected", *read})
    margins = {strength_key(strength): margin for strength, margin in (strengths or {}).items()}
    return partial(_pair, columns=table.columns, others=others, margins=margins)


def to_rankings(table: Table, *, max_bad_fraction: float = MAX_BAD_FRACTION) -> Read[Ranking]:
    """Ranked lists: `completions` of one prompt with their `ranks`, 1 the best, or `scores`, higher is better.

    Equal ranks or scores are ties. Optional columns: weight, and annotator, which may be empty.

    Raises:
        DataError: a column is missing, or too many rows are bad.
    """
    return collect(table, ranking_reader(table), max_bad_fraction)


def ranking_reader(table: Table) -> Callable[[dict[str, Any]], Ranking]:
    """What makes a ranked list of one row of the table; see `to_rankings`."""
    layouts = [("prompt", "completions", "ranks"), ("prompt", "completions", "scores")]
    used = _layout(table, "A dataset of ranked lists", layouts)
    return partial(_ranking, columns=table.columns, others=_others(table, {*used, "weight", "annotator"}))


def to_completions(table: Table, *, max_bad_fraction: float = MAX_BAD_FRACTION) -> Read[tuple[Prompt, Completion]]:
    """Demonstrations: a prompt and the completion to imitate.

    Of `messages` the last one, from the assistant, is the completion; a `text` completes the empty text.

    Raises:
        DataError: no layout fits the columns, or too many rows are bad.
    """
    layouts = [("prompt", "completion"), ("messages",), ("text",)]
    used = _layout(table, "A demonstration dataset", layouts)
    convert = {"prompt": _demonstration, "messages": _from_messages, "text": _from_text}[used[0]]
    return collect(table, partial(convert, others=_others(table, set(used))), max_bad_fraction)


def to_unpaired(table: Table, *, max_bad_fraction: float = MAX_BAD_FRACTION) -> Read[tuple[Prompt, Completion, bool]]:
    """Completions judged good (True) or bad (False) one by one.

    Raises:
        DataError: a column is missing, or too many rows are bad.
    """
    used = _layout(table, "An unpaired preference dataset", [("prompt", "completion", "label")])
    others = _others(table, set(used))

    def convert(row: dict[str, Any]) -> tuple[Prompt, Completion, bool]:
        return *_demonstration(row, others), flag(row.get("label"))

    return collect(table, convert, max_bad_fraction)


def content_hash(content: str | Sequence[Message]) -> str:
    """12 hexadecimal digits of SHA-256 that depend on the content of a prompt and on nothing else."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _pair(row: dict[str, Any], columns: Collection[str], others: Sequence[str], margins: Mapping[str, float]) -> Pair:
    chosen, rejected, source = row.get("chosen"), row.get("rejected"), row.get("prompt")
    if chosen is not None and chosen == rejected:
        raise Problem("chosen equals rejected")
    if _implies_prompt(source, chosen, rejected, explicit="prompt" in columns):
        source, chosen, rejected = _split(chosen, rejected)
        prompt = read_prompt(row, source, others, may_be_empty=True)
    else:
        prompt = read_prompt(row, source, others)
    sides = read_completion(prompt, chosen), read_completion(prompt, rejected)
    if sides[0].text == sides[1].text:
        raise Problem("chosen equals rejected")
    label, tie = verdict(row, columns)
    if margins:
        margin = margin_of(row.get("strength"), margins, tied=tie == 1.0)
    else:
        margin = number(row.get("margin"), "margin") if "margin" in columns else 0.0
    return Pair(
        prompt=prompt,
        chosen=sides[0],
        rejected=sides[1],
        label=label,
        margin=margin,
        weight=weight_of(row, columns),
        tie=tie,
        annotator=annotator_of(row),
    )


def _ranking(row: dict[str, Any], columns: Collection[str], others: Sequence[str]) -> Ranking:
    prompt = read_prompt(row, row.get("prompt"), others)
    given = row.get("completions")
    if not isinstance(given, list | tuple) or len(given) < 2:
        raise Problem("completions is not a list of two or more")
    completions = tuple(read_completion(prompt, completion) for completion in given)
    if len({completion.text for completion in completions}) < len(completions):
        raise Problem("two completions are equal")
    name = "ranks" if "ranks" in columns and row.get("ranks") is not None else "scores"
    places = row.get(name)
    if not isinstance(places, list | tuple) or len(places) != len(completions):
        raise Problem(f"{name} is not a list with one number a completion")
    numbers = [number(place, name.removesuffix("s")) for place in places]
    if name == "scores":
        numbers = [-score for score in numbers]
    # 1 for the best whatever numbers were used; competition ranking (1, 1, 3) becomes 1, 1, 2.
    order = sorted(set(numbers))
    return Ranking(
        prompt=prompt,
        completions=completions,
        ranks=tuple(order.index(place) + 1 for place in numbers),
        weight=weight_of(row, columns),
        annotator=annotator_of(row),
    )


def _implies_prompt(prompt: Any, chosen: Any, rejected: Any, *, explicit: bool) -> bool:
    """True without a prompt column, and where the prompt is a text but both sides are whole conversations."""
    whole = all(isinstance(side, list | tuple) and len(side) > 1 for side in (chosen, rejected))
    return not explicit or (isinstance(prompt, str) and whole)


def _split(chosen: Any, rejected: Any) -> tuple[Any, Any, Any]:
    if not chosen or not rejected:
        raise Problem("empty completion")
    if isinstance(chosen, str) and isinstance(rejected, str):
        return split_texts(chosen, rejected)
    left, right = _messages(chosen, "completion"), _messages(rejected, "completion")
    return split_conversations(left, right), left[-1:], right[-1:]


def _demonstration(row: dict[str, Any], others: Sequence[str]) -> tuple[Prompt, Completion]:
    prompt = read_prompt(row, row.get("prompt"), others)
    return prompt, read_completion(prompt, row.get("completion"))


def _from_messages(row: dict[str, Any], others: Sequence[str]) -> tuple[Prompt, Completion]:
    messages = _messages(row.get("messages"), "conversation")
    if messages[-1]["role"] != "assistant":
        raise Problem("messages do not end with an assistant message")
    prompt = read_prompt(row, messages[:-1], others)
    return prompt, read_completion(prompt, messages[-1:])


def _from_text(row: dict[str, Any], others: Sequence[str]) -> tuple[Prompt, Completion]:
    prompt = read_prompt(row, "", others, may_be_empty=True)
    return prompt, read_completion(prompt, row.get("text"))


def read_prompt(row: Mapping[str, Any], value: Any, others: Sequence[str], *, may_be_empty: bool = False) -> Prompt:
    """The prompt that a value of a row is, with its `id` if it has one and the columns named in `others`."""
    content: str | tuple[Message, ...]
    if isinstance(value, str):
        if not value.strip() and not may_be_empty:
            raise Problem("empty prompt")
        content = value
    else:
        content = _messages(value, "prompt")
        if content[-1]["role"] == "system":
            raise Problem("prompt ends with a system message")
    given = row.get("id")
    return Prompt(
        id=content_hash(content) if given in (None, "") else str(given),
        text=content if isinstance(content, str) else None,
        messages=None if isinstance(content, str) else content,
        columns={name: row.get(name) for name in others},
    )


def _messages(value: Any, what: str) -> tuple[Message, ...]:
    """Checked messages. Keys without a value, which tables add to fill their columns, are left out."""
    if value is None or (isinstance(value, list | tuple) and not value):
        raise Problem(f"empty {what}")
    if not isinstance(value, list | tuple):
        raise Problem(f"{what} is neither text nor messages")
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise Problem(f"{what} has a message without role and content")
        if not isinstance(message.get("content"), str) and not message.get("tool_calls"):
            raise Problem(f"{what} has a message whose content is not text")
    return tuple({k: v for k, v in message.items() if v is not None or k == "content"} for message in value)


def read_completion(prompt: Prompt, value: Any) -> Completion:
    """The completion that a value is: a text, or one message of the assistant where the prompt has messages."""
    if not isinstance(value, str):
        value = _last_words(_messages(value, "completion"))
        if prompt.messages is None:
            raise Problem("prompt is text but the completion is messages")
    if not value.strip():
        raise Problem("empty completion")
    return Completion(text=value)


def _last_words(messages: Sequence[Message]) -> str:
    if len(messages) > 1:
        raise Problem("completion is more than one message")
    if messages[0]["role"] != "assistant":
        raise Problem("completion is not from the assistant")
    if messages[0].get("tool_calls"):
        raise Problem("completion calls a tool")
    return str(messages[0]["content"])


def _others(table: Table, used: set[str]) -> tuple[str, ...]:
    return tuple(name for name in table.columns if name not in used)


def _layout(table: Table, kind: str, layouts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The first layout whose columns are all there."""
    for layout in layouts:
        if set(layout) <= set(table.columns):
            return layout
    nearest = min(layouts, key=lambda layout: len(set(layout) - set(table.columns)) / len(layout))
    missing = [name for name in nearest if name not in table.columns]
    verb = "is" if len(missing) == 1 else "are"
    hints = "".join(_renaming(name, table.columns) for name in missing)
    raise DataError(
        f"{table.origin} has the columns {', '.join(table.columns)}. {kind} has "
        f"{'; or '.join(', '.join(layout) for layout in layouts)}. "
        f"{' and '.join(map(repr, missing))} {verb} missing.{hints}"
    )


def _renaming(missing: str, columns: Sequence[str]) -> str:
    """Which present column probably means the missing one."""
    for word in (missing, *_SYNONYMS.get(missing, ())):
        close = difflib.get_close_matches(word, columns, n=1, cutoff=0.75)
        if close:
            return f" Rename {close[0]!r} to {missing!r}?"
    return ""
