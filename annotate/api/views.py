"""What an annotator sees of an item: never who wrote it, what programs think of it, or whether its answer is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar, cast

from annotate.render import render
from prefrl.data.comparisons import CheckItem, Clip, Item, Label, StepItem, Task
from prefrl.data.store.texts import storable
from prefrl.types import Completion, Message, Prompt

if TYPE_CHECKING:
    from prefrl.data.store import Assignment, Progress

T = TypeVar("T")
TITLE = 80


def view(assignment: Assignment, task: Task, label: Label | None = None) -> dict[str, Any]:
    """An item as JSON for the label page; `label` is what this person said of it."""
    kind = "clips" if isinstance(task, Item) and task.clips is not None else task.kind
    shown = {
        "assignment": assignment.id,
        "kind": kind,
        "version": 0 if label is None else label.version,
        "lease_until": assignment.lease_until,
        "prompt": messages(task.prompt),
        **_shown(task, assignment),
    }
    return cast(dict[str, Any], _sendable(shown))


def messages(prompt: Prompt) -> list[dict[str, str]]:
    """The turns of a prompt, rendered; a plain text is one turn of the user."""
    turns = prompt.messages if prompt.messages is not None else ({"role": "user", "content": prompt.text},)
    return [{"role": str(turn.get("role", "")), **text(_content(turn))} for turn in turns]


def title(task: Task) -> str:
    """The first characters of the question on one line."""
    line = storable(" ".join(task.prompt.question.split()))
    return line if len(line) <= TITLE else f"{line[: TITLE - 1]}\N{HORIZONTAL ELLIPSIS}"


def progress(found: Progress) -> dict[str, Any]:
    """How far a person is."""
    return asdict(found)


def text(raw: str) -> dict[str, str]:
    """A text, rendered and as it is."""
    return {"html": render(raw), "raw": raw}


def _sendable(value: Any) -> Any:
    """The same with half pairs of UTF-16 as their escapes: no answer of a server can carry one."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {key: _sendable(part) for key, part in value.items()}
    return [_sendable(part) for part in value] if isinstance(value, list | tuple) else value


def _shown(task: Task, assignment: Assignment) -> dict[str, Any]:
    if isinstance(task, StepItem):
        answer = None if task.answer is None else text(task.answer)
        return {"steps": [text(step) for step in task.steps], "answer": answer}
    if isinstance(task, CheckItem):
        said = {"question": task.question, "answer": task.answer}
        return {"completion": _completion(task.completion), **said}
    if task.clips is not None:
        a, b = _sides(task.clips, assignment.exchanged)
        return {"a": _clip(a, assignment.id), "b": _clip(b, assignment.id)}
    one, other = _sides((task.first, task.second), assignment.exchanged)
    return {"a": _completion(one), "b": _completion(other)}


def _sides(both: tuple[T, T], exchanged: bool) -> tuple[T, T]:
    return (both[1], both[0]) if exchanged else both


def _completion(completion: Completion) -> dict[str, Any]:
    return {**text(completion.text), "cut_off": not completion.finished}


def _clip(clip: Clip, assignment: str) -> dict[str, Any]:
    urls = [f"/api/media/{frame}?assignment={assignment}" for frame in clip.frames]
    return {"frames": urls, "states": clip.states, "names": clip.names, "seconds": clip.seconds}


def _content(turn: Message) -> str:
    """All that a turn says: its parts one after the other, and what is no text as the JSON it is."""
    content = turn.get("content")
    parts = content if isinstance(content, list) else [content]
    rest = {name: value for name, value in turn.items() if name not in ("role", "content")}
    said = [_part(part) for part in parts if part is not None]
    return "\n\n".join([*said, *([_json(rest)] if rest else [])])


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and set(part) == {"type", "text"} and part["type"] == "text":
        return str(part["text"])
    return _json(part)


def _json(value: Any) -> str:
    return f"```json\n{json.dumps(value, ensure_ascii=False, indent=2, default=str)}\n```"
