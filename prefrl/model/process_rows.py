"""A prompt and the steps of a solution as the row that a process reward model reads.

The ids of the steps are spliced: each step is encoded by itself, and the score of a step is read at an index that is
known when its ids are put there. Encoding the joined text and looking for separators in it afterwards finds others,
since tokenizers fuse what ends a step with what stands before it: ".\\n\\n" is one token of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefrl.data.chat import encode_prompt, encode_reply
from prefrl.errors import DataError, ModelError
from prefrl.model.process_record import StepLayout
from prefrl.types import Prompt, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A row, its mask True where the score of a step is read, of the first `kept` steps.

    row     no mask entry is True where not even the first step fits
    kept    steps that fit; the others are cut from the end, and the labels of those that stay are their own
    steps   steps there are
    tokens  tokens of the prompt and all steps
    """

    row: Row
    kept: int
    steps: int
    tokens: int

    @property
    def cut(self) -> int:
        """Steps that did not fit."""
        return self.steps - self.kept


def step_row(tokenizer: Any, prompt: Prompt, steps: Sequence[str], layout: StepLayout, *, limit: int = 0) -> StepRow:
    """The row of a solution, its steps spliced by their ids.

    Text of a step that looks like a special token is spelled out in ordinary ones: no step can put a marker.

    Args:
        tokenizer: the process reward model's.
        prompt: what was asked.
        steps: texts which joined are the solution.
        layout: what stands after a step.
        limit: most tokens of the row; later steps are cut whole. 0 cuts nothing.

    Raises:
        DataError: no step, or one without a token to read its score at.
    """
    if not steps:
        raise DataError(f"The solution to prompt {prompt.id!r} has no steps; expected at least one text.")
    if layout.turns:
        prompt_ids, ids, read = _turn_ids(tokenizer, prompt, steps, layout)
    else:
        asked = _conversation(prompt) if layout.chat else prompt
        prompt_ids, (ids, read) = encode_prompt(tokenizer, asked), _spliced(tokenizer, prompt, steps, layout)
    total = len(prompt_ids) + len(ids)
    kept = [at for at in read if not limit or len(prompt_ids) + at < limit]
    mask = [False] * (kept[-1] + 1 if kept else 0)
    for at in kept:
        mask[at] = True
    row = Row(prompt_ids=tuple(prompt_ids), completion_ids=tuple(ids[: len(mask)]), mask=tuple(mask))
    return StepRow(row=row, kept=len(kept), steps=len(steps), tokens=total)


def token_id(tokenizer: Any, entry: str) -> int:
    """Id of a vocabulary entry, spelled as it stands there (`+`, or `\u2581+` with the space before it).

    Raises:
        ModelError: the vocabulary has no such entry: a near one would be the probability of something else.
    """
    found = tokenizer.get_vocab().get(entry)
    if found is None:
        raise ModelError(
            f"The tokenizer has no token {entry!r}, at which scores would be read. Name an entry of its vocabulary as "
            "it is spelled there, with the mark of a leading space if it has one."
        )
    return int(found)


def _conversation(prompt: Prompt) -> Prompt:
    """The prompt as a conversation; a plain one as a user's only message."""
    if prompt.messages is not None:
        return prompt
    return replace(prompt, text=None, messages=({"role": "user", "content": prompt.text},))


def _spliced(tokenizer: Any, prompt: Prompt, steps: Sequence[str], layout: StepLayout) -> tuple[list[int], list[int]]:
    """Ids of the steps, and where each is read."""
    marker = _ids(tokenizer, layout.marker) if layout.marker else []
    after = _continued(tokenizer, layout.after) if layout.after else []
    ids = _continued(tokenizer, layout.before) if layout.before else []
    read = []
    for number, step in enumerate(steps):
        ids += after if number else []
        own = [*_continued(tokenizer, step.rstrip() if marker else step), *marker]
        if not own:
            raise DataError(f"Step {number + 1} of the solution to prompt {prompt.id!r} has no tokens: {step!r}.")
        ids += own
        read.append(len(ids) - 1)
    return ids, read


def _turn_ids(
    tokenizer: Any, prompt: Prompt, steps: Sequence[str], layout: StepLayout
) -> tuple[list[int], list[int], list[int]]:
    """Ids of a conversation in which the assistant finds every step good, and where it is about to say so.

    The question and the first step are the first turn. The place is the last token before the answer, whatever the
    template writes around it. The last token of the prompt is read like that too, so it stands with the completion.
    """
    *earlier, asked = _conversation(prompt).messages or ()
    first = {**asked, "content": f"{asked['content']} {steps[0].strip()}"}
    talk = replace(prompt, text=None, messages=(*earlier, first))
    *prompt_ids, last = encode_prompt(tokenizer, talk)
    good = token_id(tokenizer, layout.good)
    ids, read = [last], [0]
    for step in steps[1:]:
        ids += [good, *encode_reply(tokenizer, talk, step.strip(), closed=False)]
        read.append(len(ids) - 1)
    return prompt_ids, ids, read


def _continued(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text amid others: without BOS, and without the space that some tokenizers put before every text."""
    anchor, whole = (_ids(tokenizer, before, split_special_tokens=True) for before in ("\n", "\n" + text))
    if whole[: len(anchor)] == anchor:
        return whole[len(anchor) :]
    return _ids(tokenizer, text, split_special_tokens=True)


def _ids(tokenizer: Any, text: str, **how: Any) -> list[int]:
    return [int(i) for i in tokenizer(text, add_special_tokens=False, verbose=False, **how)["input_ids"]]
