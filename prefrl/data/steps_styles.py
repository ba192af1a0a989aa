"""Step-labelled solutions as they are written in the wild, one reader a style.

    trl           prompt, completions, labels (true, false, a share, -100 or null), and counts of continuations
    prm800k       question{problem}, label{steps[completions[text, rating -1 | 0 | 1], chosen_completion]}
    math_shepherd input with the mark ки after every step, label with + or - in its place
    rlhflow       conversations: every step a turn of the user, + or - the reply
    qwen          response (or messages) with <extra_0> after every step, labels
    mr_ben        question, options, steps, labels up to the first error
    mr_gsm8k      question, steps, labels up to the first error, first_error_step counted from 1
    prmbench      question, steps, labels of all steps
    process_bench problem, steps, label: the index of the first error or -1

A reader raises `Problem` for a row that cannot be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from prefrl.data.fields import number
from prefrl.data.reading import Problem
from prefrl.types import Message

IGNORED = -100
SHEPHERD_MARK, QWEN_MARK = "ки", "<extra_0>"

Row = Mapping[str, Any]
Rating: TypeAlias = float | Literal["neutral"] | None
Count: TypeAlias = tuple[int, int] | None

_FIRST_STEP = re.compile(r"(?<!\S)Step 1\s*:")
_SIGNS = {"+": 1.0, "-": 0.0}
_RATINGS: dict[Any, Rating] = {1: 1.0, 0: "neutral", -1: 0.0, None: None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One solution as a style has it.

    texts      of the steps, without what stands between them
    ratings    one a step: P(fine), neutral, or None for a step that nobody judged
    separator  what stands between two steps; None where the style does not say
    alternative  whether it is another last step of a solution that was read already
    """

    prompt: str | Sequence[Message]
    texts: tuple[str, ...]
    ratings: tuple[Rating, ...]
    counts: tuple[Count, ...] = ()
    outcome: float | None = None
    separator: str | None = None
    alternative: bool = False


def rating_of(value: Any) -> Rating:
    """A label: true, false, a share, + or -; None and -100 say that the step is ignored, whatever type a table gave it.

    Raises:
        Problem: anything else. NaN is no label, and neither is -1.
    """
    if value is None or value == IGNORED:
        return None
    if isinstance(value, str):
        return _sign(value)
    return number(value, "a label", 0.0, 1.0)


def _sign(text: Any) -> float:
    if not isinstance(text, str) or text.strip() not in _SIGNS:
        raise Problem("a label is neither + nor -")
    return _SIGNS[text.strip()]


def count_of(value: Any) -> Count:
    """How many of N continuations of a step were right: [k, N], or null where nobody tried.

    Raises:
        Problem: they are no whole numbers, or not 0 <= k <= N with N of 1 or more.
    """
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise Problem("counts is not a list of [right, tried] or null")
    k, n = (number(one, "a count") for one in value)
    if k != int(k) or n != int(n) or not (0 <= k <= n and n >= 1):
        raise Problem("counts are not whole numbers of 0 <= right <= tried, with 1 or more tried")
    return int(k), int(n)


def _trl(row: Row) -> Iterator[Solution]:
    texts = _texts(row.get("completions"), "completions")
    given, labels = row.get("counts"), row.get("labels")
    counts = tuple(count_of(one) for one in _listed(given, "counts", len(texts))) if given is not None else ()
    if labels is None and counts:
        ratings: tuple[Rating, ...] = tuple(None if one is None else one[0] / one[1] for one in counts)
    else:
        ratings = tuple(rating_of(one) for one in _listed(labels, "labels", len(texts)))
    outcome = row.get("outcome")
    yield Solution(
        prompt=row.get("prompt") or "",
        texts=texts,
        ratings=ratings,
        counts=counts,
        outcome=None if outcome is None else number(outcome, "outcome", 0.0, 1.0),
        separator=row.get("separator"),
    )


def _prm800k(row: Row) -> Iterator[Solution]:
    """The chosen line of steps; then every other rated completion, with the steps before it left unrated."""
    label, question = row.get("label"), row.get("question")
    if not isinstance(label, Mapping) or not isinstance(question, Mapping):
        raise Problem("question and label are not objects")
    if label.get("finish_reason") == "bad_problem":
        raise Problem("the problem was marked as a bad one")
    if not isinstance(label.get("steps"), list | tuple) or not label["steps"]:
        raise Problem("no steps")
    prompt = str(question.get("problem") or "")
    line: list[tuple[str, Rating]] = []
    others: list[Solution] = []
    for step in label["steps"]:
        offered, taken = _offered(step)
        before = tuple(text for text, _ in line)
        others += [
            Solution(
                prompt=prompt,
                texts=(*before, text),
                ratings=(*(None for _ in before), rating),
                separator="\n",
                alternative=True,
            )
            for place, (text, rating) in enumerate(offered)
            if place != taken and rating is not None
        ]
        line.append(offered[taken])
    texts, ratings = (tuple(part) for part in zip(*line, strict=True))
    finished = 1.0 if label.get("finish_reason") == "solution" else None
    yield Solution(prompt=prompt, texts=texts, ratings=ratings, outcome=finished, separator="\n")
    yield from others


def _offered(step: Mapping[str, Any]) -> tuple[list[tuple[str, Rating]], int]:
    """The completions of a step, that of a person last, and which of them the solution goes on from."""
    written, chosen = step.get("human_completion"), step.get("chosen_completion")
    offered = [*(step.get("completions") or []), *([written] if written else [])]
    if not offered:
        raise Problem("a step has no completion")
    taken = len(offered) - 1 if written and chosen is None else chosen or 0
    if not 0 <= taken < len(offered):
        raise Problem("chosen_completion is out of range")
    return [(_step_text(one), _rating(one)) for one in offered], taken


def _step_text(completion: Any) -> str:
    if not isinstance(completion, Mapping) or not isinstance(completion.get("text"), str):
        raise Problem("a completion has no text")
    return str(completion["text"])


def _rating(completion: Mapping[str, Any]) -> Rating:
    if completion.get("rating") not in _RATINGS:
        raise Problem("a rating is not -1, 0 or 1")
    return _RATINGS[completion.get("rating")]


def _math_shepherd(row: Row) -> Iterator[Solution]:
    marked, judged = row.get("input"), row.get("label")
    if not isinstance(marked, str) or not isinstance(judged, str):
        raise Problem("input and label are not texts")
    pieces: list[str] = []
    ratings: list[Rating] = []
    start = at = shift = 0  # the labelled text is shorter by a character for every mark before
    while (at := marked.find(SHEPHERD_MARK, at)) >= 0:
        sign = judged[at - shift : at - shift + 1]
        if sign in ("+", "-") and marked[start:at] == judged[start - shift : at - shift]:
            pieces.append(marked[start:at])
            ratings.append(_SIGNS[sign])
            start = at + len(SHEPHERD_MARK)
            shift += len(SHEPHERD_MARK) - 1
        at += len(SHEPHERD_MARK)
    if marked[start:].strip() or judged[start - shift :].strip() or not pieces:
        raise Problem("input and label differ beside the marks")
    prompt, pieces[0] = _first_step(pieces[0], row.get("prompt"))
    yield Solution(prompt=prompt, texts=tuple(p.strip() for p in pieces), ratings=tuple(ratings), separator="\n")


def _rlhflow(row: Row) -> Iterator[Solution]:
    turns = row.get("conversations") or row.get("messages")
    if not isinstance(turns, list | tuple) or not turns or len(turns) % 2:
        raise Problem("conversations are not turns of a user, each with a reply")
    if [turn.get("role") for turn in turns] != ["user", "assistant"] * (len(turns) // 2):
        raise Problem("conversations are not turns of a user, each with a reply")
    texts = [str(turn.get("content") or "") for turn in turns[::2]]
    prompt, texts[0] = _first_step(texts[0], row.get("prompt"))
    ratings = tuple(_sign(turn.get("content")) for turn in turns[1::2])
    yield Solution(prompt=prompt, texts=tuple(texts), ratings=ratings)


def _first_step(text: str, prompt: Any) -> tuple[str, str]:
    """The question and the first step, which stand in one text."""
    if isinstance(prompt, str) and prompt and text.startswith(prompt):
        return prompt, text[len(prompt) :].lstrip()
    marks = list(_FIRST_STEP.finditer(text))
    if not marks:
        raise Problem("the question and the first step cannot be told apart: no 'Step 1:' and no column prompt")
    return text[: marks[-1].start()].rstrip(), text[marks[-1].start() :]


def _qwen(row: Row) -> Iterator[Solution]:
    prompt, response = row.get("prompt") or row.get("question") or row.get("query"), row.get("response")
    if (turns := row.get("messages")) is not None:
        prompt, response = list(turns[:-1]), turns[-1].get("content")
    if not isinstance(response, str) or QWEN_MARK not in response:
        raise Problem(f"no response with the mark {QWEN_MARK}")
    texts = response.split(QWEN_MARK)
    if not texts[-1].strip():  # a mark ends the last step too, as a rule
        texts.pop()
    ratings = tuple(rating_of(one) for one in _listed(row.get("labels"), "labels", len(texts)))
    yield Solution(prompt=prompt or "", texts=_texts(texts, "response"), ratings=ratings, separator="\n\n")


def _judged(row: Row) -> Iterator[Solution]:
    """Labels of all steps, or of those up to the first error."""
    question, texts = row.get("question"), _texts(row.get("steps"), "steps")
    labels = row.get("labels")
    if not isinstance(labels, list | tuple):
        raise Problem("labels is not a list")
    ratings = tuple(rating_of(one) for one in labels)
    if len(ratings) > len(texts) or (len(ratings) < len(texts) and (not ratings or ratings[-1] != 0.0)):
        raise Problem("labels and steps differ in number, and the labels do not end at an error")
    first = row.get("first_error_step")
    if first is not None and (0.0 not in ratings or ratings.index(0.0) != number(first, "first_error_step") - 1):
        raise Problem("first_error_step is not the step that labels call wrong")
    unjudged = (None,) * (len(texts) - len(ratings))
    asked = "\n".join(str(part) for part in (question, row.get("options")) if part)
    yield Solution(prompt=asked, texts=texts, ratings=(*ratings, *unjudged))


def _process_bench(row: Row) -> Iterator[Solution]:
    texts, right = _texts(row.get("steps"), "steps"), row.get("final_answer_correct")
    first = number(row.get("label"), "label", -1.0, len(texts) - 1.0)
    if first != int(first):
        raise Problem("label is not the index of a step")
    ratings = tuple(1.0 if first < 0 or at < first else 0.0 if at == first else None for at in range(len(texts)))
    outcome = None if right is None else float(bool(right))
    yield Solution(prompt=str(row.get("problem") or ""), texts=texts, ratings=ratings, outcome=outcome)


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(one, str) for one in value):
        raise Problem(f"{name} is not a list of texts")
    return tuple(value)


def _listed(value: Any, name: str, size: int) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise Problem(f"{name} is not a list")
    if len(value) != size:
        raise Problem(f"{name} and steps differ in number")
    return value


@dataclass(frozen=True, slots=True)
class Style:
    """How a style is told by its columns, and how one row of it is read."""

    columns: tuple[frozenset[str], ...]
    read: Callable[[Row], Iterator[Solution]]

    def fits(self, columns: Sequence[str]) -> bool:
        """Whether a table of these columns may be of this style."""
        return any(needed <= set(columns) for needed in self.columns)


def _style(read: Callable[[Row], Iterator[Solution]], *columns: str) -> Style:
    return Style(tuple(frozenset(one.split()) for one in columns), read)


# In the order in which they are tried: those that others might be taken for come first.
STYLES: dict[str, Style] = {
    "trl": _style(_trl, "prompt completions labels", "prompt completions counts"),
    "prm800k": _style(_prm800k, "question label"),
    "process_bench": _style(_process_bench, "problem steps label"),
    "mr_ben": _style(_judged, "question options steps labels"),
    "mr_gsm8k": _style(_judged, "question steps labels first_error_step"),
    "prmbench": _style(_judged, "question steps labels"),
    "qwen": _style(
        _qwen, "messages labels", "prompt response labels", "question response labels", "query response labels"
    ),
    "rlhflow": _style(_rlhflow, "conversations", "messages"),
    "math_shepherd": _style(_math_shepherd, "input label"),
}
