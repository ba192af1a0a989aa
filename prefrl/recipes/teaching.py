"""A teacher as a recipe has it: what computes, what it is shown, and how far the policy is from it.

It is another model, the base below the policy's adapter, or the policy as it starts; a privileged one also sees a
verified solution in its prompt (self-distillation).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from prefrl.config import RLConfig, TeacherConfig
from prefrl.data.reading import keep_within
from prefrl.errors import ConfigError, DataError, did_you_mean
from prefrl.model.batching import row_outputs
from prefrl.model.language import LanguageModel
from prefrl.model.load import is_adapter, load
from prefrl.model.load import resolve as model_path
from prefrl.model.teacher import Teacher
from prefrl.policy.optimizer import TeacherPrompt
from prefrl.policy.parts import Algorithm
from prefrl.recipes.common import report_read
from prefrl.types import Extra, Message, Prompt, Rollout, Row

BASE = "base"  # the teacher's name for the base below the policy's adapter
TEACHER_KL: tuple[Extra, ...] = ("teacher_kl",)


@dataclass(frozen=True)
class Teaching:
    """A teacher, and the prompt of a rollout as it sees it where that is another one than the policy's."""

    teacher: Teacher
    prompt: TeacherPrompt | None = None

    def kl(self, policy: LanguageModel, rollouts: Sequence[Rollout], *, temperature: float, token_budget: int) -> float:
        """Mean over sampled tokens of KL(policy || teacher), in nats over the whole vocabulary; NaN without tokens."""
        rows = [
            Row(
                prompt_ids=r.prompt_ids,
                completion_ids=r.completion_ids,
                mask=r.mask,
                teacher_prompt_ids=self.prompt(r) if self.prompt else None,
            )
            for r in rollouts
        ]

        def compute(distinct: Sequence[Row]) -> Tensor:
            return policy.token_statistics(distinct, temperature, TEACHER_KL, self.teacher)["teacher_kl"]

        kls = row_outputs(rows, compute, token_budget, shared=policy.shares_prompts)
        tokens = sum(sum(row.mask) for row in rows)
        return sum(float(kl.sum()) for kl in kls) / tokens if tokens else float("nan")


def check(config: RLConfig, algorithm: Algorithm, *, adapted: bool | None = None) -> None:
    """Refuse a configuration that has nothing to learn from: no reward and no teacher, or one that knows no more."""
    teacher, privileged = config.teacher, algorithm.distill.privileged
    if not algorithm.distill.coef:
        if teacher.name or teacher.solution:
            raise ConfigError(
                f"algorithm {algorithm.name!r} has no teacher: its distill.coef is 0. Use --algorithm opd, or add "
                "--algorithm.distill.coef 0.1; without a teacher leave teacher.name and teacher.solution empty."
            )
        if not config.rewards:
            raise ConfigError("rewards is empty; name at least one: --rewards '[{kind: numeric, column: answer}]'")
        return
    if privileged and not teacher.solution:
        raise ConfigError(
            f"algorithm {algorithm.name!r} shows its teacher a verified solution, and teacher.solution is empty; "
            "expected a column of the data. Type: --teacher.solution COLUMN"
        )
    if teacher.solution and not privileged:
        raise ConfigError(
            f"teacher.solution is {teacher.solution!r}, but the teacher of algorithm {algorithm.name!r} sees no "
            "solution. Use --algorithm opsd or --algorithm.distill.privileged true, or leave teacher.solution empty."
        )
    if adapted is None:
        adapted = bool(config.policy.lora) or is_adapter(model_path(config.policy.name))
    if teacher.name == BASE and not adapted:
        raise ConfigError(
            f"teacher.name is {BASE!r}, but {config.policy.name} has no adapter to take off. Set policy.lora to a "
            "rank such as 16, or leave teacher.name empty: then the policy as it starts is the teacher."
        )
    if not privileged and _is_the_start(config):
        raise ConfigError(
            f"teacher.name is {teacher.name!r}: that is the policy as it starts, and it has nothing to teach (KL 0). "
            "Name a better model, --teacher.name FOLDER, or let it see solutions: --algorithm opsd --teacher.solution "
            "COLUMN. To hold a policy near its start: prefrl rl --algorithm.kl.coef 0.04"
        )


def _is_the_start(config: RLConfig) -> bool:
    name, policy = config.teacher.name, model_path(config.policy.name)
    if name == BASE:
        return not is_adapter(policy)  # a new adapter is 0 at the start
    return not name or Path(model_path(name)).resolve() == Path(policy).resolve()


def teaching_of(policy: LanguageModel, config: RLConfig, algorithm: Algorithm) -> Teaching | None:
    """The teacher that the algorithm needs, if any, and what it sees in place of a rollout's prompt."""
    if not algorithm.distill.coef:
        return None
    teacher = _teacher(policy, config)
    if not algorithm.distill.privileged:
        return Teaching(teacher)
    return Teaching(teacher, lambda rollout: policy.encode(privileged(rollout.prompt, config.teacher)))


def _teacher(policy: LanguageModel, config: RLConfig) -> Teacher:
    name = config.teacher.name
    if name == BASE:
        return Teacher.base(policy)
    if _is_the_start(config):
        return Teacher.frozen_copy(policy)
    print(f"Loading the teacher {name} ...", flush=True)
    return Teacher.other(load(name, dtype=config.policy.dtype, device=config.policy.device), policy)


def with_solutions(prompts: Sequence[Prompt], policy: LanguageModel, config: RLConfig) -> list[Prompt]:
    """The prompts whose solution a teacher can be shown within `data.max_prompt_tokens`; others are counted, never cut.

    Raises:
        DataError: the column is missing, or more than `data.max_dropped_fraction` of the prompts cannot be used.
    """
    column, allowed = config.teacher.solution, config.data.max_dropped_fraction
    known = dict.fromkeys(name for prompt in prompts for name in prompt.columns)
    if prompts and column not in known:
        raise DataError(
            f"teacher.solution is {column!r}, but the prompts have no such column; they have: "
            f"{', '.join(known) or 'none beside prompt'}.{did_you_mean(column, known)}"
        )
    kept = [prompt for prompt in prompts if solution_of(prompt, column)]
    empty = len(prompts) - len(kept)
    if empty and (not kept or empty > allowed * len(prompts)):
        raise DataError(
            f"{empty} of {len(prompts)} prompts have an empty {column!r}, at most {allowed:.0%} may be left out. Fill "
            "or remove those rows, or raise data.max_dropped_fraction."
        )
    if empty:
        print(f"prompts: kept {len(kept)} of {len(prompts)}: {empty} with an empty {column}")
    lengths = [len(policy.encode(privileged(prompt, config.teacher))) for prompt in kept]
    limit = config.data.max_prompt_tokens
    read = keep_within(kept, lengths, limit, "prompt with solution", max_dropped_fraction=allowed)
    return report_read(read, "prompts")


def solution_of(prompt: Prompt, column: str) -> str:
    """The solution in a column, a text or a number; empty where there is none.

    Raises:
        DataError: something else stands there.
    """
    value = prompt.columns.get(column)
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise DataError(
            f"The {column!r} of prompt {prompt.id!r} is a {type(value).__name__}; expected a text or a number."
        )
    return "" if value is None else str(value).strip()


def privileged(prompt: Prompt, teacher: TeacherConfig) -> Prompt:
    """The prompt as a teacher sees it: the template in place of the text, or of the last user message.

    Raises:
        DataError: a conversation without a user message of text.
    """
    words = {"solution": solution_of(prompt, teacher.solution)}
    if prompt.text is not None:
        return replace(prompt, text=_filled(teacher.template, words | {"prompt": prompt.text}))
    messages: list[Message] = list(prompt.messages or ())
    last = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=None)
    if last is None or not isinstance(messages[last].get("content"), str):
        raise DataError(f"Prompt {prompt.id!r} has no user message of text into which a solution could be written.")
    content = _filled(teacher.template, words | {"prompt": messages[last]["content"]})
    messages[last] = {**messages[last], "content": content}
    return replace(prompt, messages=tuple(messages))


def _filled(template: str, words: dict[str, str]) -> str:
    """Each placeholder replaced once: braces in a prompt or a solution are left as they are."""
    return re.sub(r"\{(prompt|solution)\}", lambda found: words[found[1]], template)
