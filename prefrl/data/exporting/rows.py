"""Rows of every format, one function each, made of an item and its labels.

In the place of a row that cannot be stands why; where there is none at all, `Problem` is raised with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from prefrl.data.comparisons import CheckItem, Item, Label, StepItem, Task
from prefrl.data.exporting.choices import Choices, Labelled
from prefrl.data.exporting.votes import Verdict, verdict_of
from prefrl.data.fields import margin_of, strength_key
from prefrl.data.reading import Problem
from prefrl.types import Completion, Prompt

Row = dict[str, Any]
SIDES = ("first", "second")


def preferences(task: Task, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row | str]:
    """TRL's preference rows of a pair: of all votes or of each, and of better answers with what they were made of."""
    item = _pair(task)
    voters = [label for label in labels if label.outcome != "skip"]
    ballots = [[label] for label in voters] if choices.votes == "each" and voters else [labels]
    for ballot in ballots:
        try:
            yield _preference(item, verdict_of(ballot, choices), data, choices)
        except Problem as problem:
            yield str(problem)
    if choices.edits:
        yield from _edits(item, labels, data, choices)


def unpaired(task: Task, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row]:
    """TRL's unpaired rows: the better answer is good and the other one bad; of two bad ones, both are."""
    if isinstance(task, CheckItem):
        yield _checked(task, labels)
        return
    item = _pair(task)
    outcome = verdict_of(labels, _plain(choices)).outcome
    if outcome == "tie":
        raise Problem("called a tie")
    for side, completion in zip(SIDES, (item.first, item.second), strict=True):
        said = completion_of(item.prompt, completion.text)
        yield {**_prompt(item.prompt), "completion": said, "label": side == outcome, "item_id": item.id}


def sft(task: Task, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row]:
    """Better answers that people wrote, each with its prompt."""
    item = _pair(task)
    written = [label for label in labels if _answer(label)]
    if not written:
        raise Problem("without a better answer")
    for label in written:
        said = completion_of(item.prompt, _answer(label))
        about = {"annotator": data.person(label.annotator, choices), "item_id": item.id, "round": item.round}
        yield {**_prompt(item.prompt), "completion": said, **about}


def stepwise(task: Task, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row]:
    """TRL's stepwise rows: steps, and whether each is right, up to the first one about which most say nothing."""
    item = _steps(task)
    rated = [label.details.get("ratings", []) for label in labels if label.outcome == "steps"]
    if not rated:
        raise Problem("skipped by everybody" if labels else "without a label")
    right: list[bool] = []
    for step in range(len(item.steps)):
        said = [rating[step] for rating in rated if step < len(rating) and rating[step] is not None]
        good = sum(rating > 0 or (rating == 0 and choices.neutral) for rating in said)
        if 2 * good == len(said):  # nobody rated it, or as many say right as wrong
            break
        right.append(2 * good > len(said))
    if not right:
        raise Problem("with a first step that most people do not agree on, or nobody rated")
    about = {"n_votes": len(rated), "n_steps": len(item.steps), "item_id": item.id, "round": item.round}
    prompt = item.prompt.question if item.prompt.messages is not None else item.prompt.text
    yield {"prompt": prompt, "completions": list(item.steps[: len(right)]), "labels": right, **about}


def prm800k(task: Task, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row]:
    """Rows of the shape of PRM800K, one a label that counts."""
    item = _steps(task)
    if not labels:
        raise Problem("without a label")
    for label in labels:
        steps = list(_rated_steps(item, label))
        yield {
            "labeler": data.person(label.annotator, choices),
            "timestamp": label.time,
            "generation": item.round,
            "is_quality_control_question": item.id in data.gold,
            "is_initial_screening_question": False,
            "question": {"problem": item.prompt.question, "ground_truth_answer": item.answer},
            "label": {
                "steps": steps,
                "total_time": label.details.get("active_ms", 0),
                "finish_reason": _finish(label, steps, len(item.steps)),
            },
            "item_id": item.id,
        }


def votes(task: Task, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row]:
    """All versions of all labels of an item, as they were given."""
    if not labels:
        raise Problem("without a label")
    last = {label.annotator: label.version for label in sorted(labels, key=lambda label: label.version)}
    body = task.to_dict()
    asked = {name: body.get(name) for name in ("first", "second", "completion")}
    for label in labels:
        yield {
            "item_id": task.id,
            "kind": task.kind,
            "prompt": _text_or_messages(task.prompt),
            **{name: completion and completion["text"] for name, completion in asked.items()},
            "steps": list(getattr(task, "steps", ())),
            "annotator": data.person(label.annotator, choices),
            "version": label.version,
            "live": label.version == last[label.annotator],
            "outcome": label.outcome,
            "strength": label.strength,
            "note": label.note,
            "time": label.time,
            "details": json.dumps(label.details, sort_keys=True, default=str),
            "gold": task.id in data.gold,
            "round": task.round,
            "source": task.why,
            "checkpoints": list(getattr(task, "checkpoints", [getattr(task, "checkpoint", "")])),
        }


Maker: TypeAlias = Callable[[Task, Sequence[Label], Labelled, Choices], Iterable[Row | str]]
MAKERS: dict[str, Maker] = {
    "preference": preferences,
    "unpaired": unpaired,
    "stepwise": stepwise,
    "prm800k": prm800k,
    "sft": sft,
    "votes": votes,
}


def completion_of(prompt: Prompt, text: str) -> Any:
    """A completion as TRL has it: messages where the prompt has messages."""
    return text if prompt.messages is None else [{"role": "assistant", "content": text}]


def _preference(item: Item, verdict: Verdict, data: Labelled, choices: Choices) -> Row:
    sides = (item.second, item.first) if verdict.outcome == "second" else (item.first, item.second)
    checkpoints = item.checkpoints[::-1] if verdict.outcome == "second" else item.checkpoints
    people = [data.person(label.annotator, choices) for label in verdict.voters]
    known = {strength_key(word): margin for word, margin in choices.margins.items()}
    strength, tied = verdict.strength, verdict.outcome not in SIDES
    return {
        **_prompt(item.prompt),
        "chosen": completion_of(item.prompt, sides[0].text),
        "rejected": completion_of(item.prompt, sides[1].text),
        **({"label": verdict.label, "tie": verdict.tie} if choices.soft else {}),
        **({"margin": margin_of(strength, known, tied=tied) if strength else 0.0} if known else {}),
        **({"weight": verdict.weight} if choices.reliability else {}),
        "strength": strength,
        "n_votes": len(verdict.voters),
        "agreement": verdict.agreement,
        **_annotated(people, choices),
        "item_id": item.id,
        "round": item.round,
        "source": item.why,
        "checkpoints": list(checkpoints),
    }


def _edits(item: Item, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row]:
    """Better answers, each chosen over the one that it was made of, once however many people wrote it."""
    written: dict[tuple[str, str], list[Label]] = {}
    for label in labels:
        if _edited(item, label):
            written.setdefault((label.details["answer"]["from"], _answer(label)), []).append(label)
    for (side, text), by in written.items():
        origin = SIDES.index(side)
        made = replace(
            item,
            id=f"{item.id}-{by[0].id[:8]}",
            first=Completion(text=text),
            second=(item.first, item.second)[origin],
            checkpoints=("", item.checkpoints[origin]),
            why="edit",
        )
        voters = tuple(replace(label, outcome="first", strength="") for label in by)
        for ballot in [(voter,) for voter in voters] if choices.votes == "each" else [voters]:
            verdict = Verdict(outcome="first", label=1.0, tie=0.0, weight=1.0, agreement=1.0, voters=ballot)
            yield _preference(made, verdict, data, choices)


def _annotated(people: list[str], choices: Choices) -> Row:
    return {"annotator": people[0]} if choices.votes == "each" else {"annotator_ids": people}


def _answer(label: Label) -> str:
    return str(label.details.get("answer", {}).get("text", ""))


def _edited(item: Item, label: Label) -> bool:
    """Whether somebody made another answer of one of the two."""
    originals = {"first": item.first.text, "second": item.second.text}
    origin = originals.get(label.details.get("answer", {}).get("from", ""))
    return origin is not None and _answer(label).strip() not in ("", origin.strip())


def _checked(item: CheckItem, labels: Sequence[Label]) -> Row:
    said = [label.outcome for label in labels]
    right, wrong = said.count("right"), said.count("wrong")
    if right == wrong:
        raise Problem("as many votes for one as for the other" if right else "without a label that says right or wrong")
    completion = completion_of(item.prompt, item.completion.text)
    return {**_prompt(item.prompt), "completion": completion, "label": right > wrong, "item_id": item.id}


def _rated_steps(item: StepItem, label: Label) -> Iterator[Row]:
    """The steps that were rated, and the better ones that were written in their place."""
    ratings, unsure = label.details.get("ratings", []), label.details.get("unsure", [])
    alternatives = label.details.get("alternatives", {})
    for number, (text, rating) in enumerate(zip(item.steps, ratings, strict=False)):
        written = alternatives.get(str(number))
        if rating is None and written is None and number not in unsure:
            return
        yield {
            "completions": [{"text": text, "rating": rating, "flagged": number in unsure}],
            "human_completion": written and {"text": written, "rating": None, "flagged": False},
            "chosen_completion": 0 if written is None and rating != -1 else None,
        }


def _finish(label: Label, steps: Sequence[Row], total: int) -> str:
    if label.outcome == "skip":
        return "give_up"
    if any(completion["rating"] == -1 for step in steps for completion in step["completions"]):
        return "found_error"
    return "solution" if len(steps) == total else "give_up"


def _pair(task: Task) -> Item:
    if not isinstance(task, Item):
        raise Problem("without a pair of answers")
    if task.clips is not None:
        raise Problem("clips, which have no text")
    return task


def _steps(task: Task) -> StepItem:
    if not isinstance(task, StepItem):
        raise Problem("no solution in steps")
    return task


def _plain(choices: Choices) -> Choices:
    """The votes of a pair as one word, ties and bad ones included."""
    return Choices(reliability=choices.reliability, ties="soft", both_bad="soft")


def _prompt(prompt: Prompt) -> Row:
    return {"prompt": _text_or_messages(prompt), "id": prompt.id}


def _text_or_messages(prompt: Prompt) -> Any:
    return prompt.text if prompt.messages is None else [dict(message) for message in prompt.messages]
