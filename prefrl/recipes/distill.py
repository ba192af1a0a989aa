"""On-policy distillation: a policy learns from a teacher on what it samples itself, with or without rewards.

The teacher is another model, the base below the policy's adapter, or the policy as it starts; a privileged one also
sees a verified solution in its prompt (self-distillation).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from prefrl.config import DistillConfig, TeacherConfig
from prefrl.data.reading import keep_within
from prefrl.errors import ConfigError, DataError, did_you_mean
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.language import LanguageModel
from prefrl.model.load import is_adapter, load
from prefrl.model.load import resolve as model_path
from prefrl.model.teacher import Teacher
from prefrl.policy.algorithms import resolve
from prefrl.policy.parts import Algorithm
from prefrl.recipes.common import load_policy, load_prompts, quiet, report_read, start
from prefrl.recipes.rl import carry_out
from prefrl.recipes.teaching import Teaching
from prefrl.rewards.specs import build
from prefrl.types import Message, Prompt

BASE = "base"  # the teacher's name for the base below the policy's adapter


def run(config: DistillConfig) -> RunFolder:
    """Distil a teacher into a policy as configured; everything is left in the run folder.

    Raises:
        ConfigError: no teacher to learn from, or one that says what the policy says already.
        DataError: a privileged teacher without solutions.
        ModelError: a teacher that cannot be loaded, or has another vocabulary.
    """
    algorithm = resolve(config.algorithm)
    check(config, algorithm)  # refuse what cannot work before anything is loaded
    quiet()
    source = build(config.rewards) if config.rewards else None
    with start(config, "distill") as folder:
        print(f"Loading {config.policy.name} ...", flush=True)
        policy = load_policy(config.policy, config.seed)
        train, held_out = load_prompts(config.data, policy, config.seed)
        if algorithm.distill.privileged:
            train, held_out = (with_solutions(prompts, policy, config) for prompts in (train, held_out))
        teaching = teaching_of(policy, config, algorithm)
        print(f"{len(train)} training prompts, {len(held_out)} held out; algorithm {algorithm.name}")
        carry_out(folder, policy, train, held_out, source, config, teaching=teaching)
    return folder


def check(config: DistillConfig, algorithm: Algorithm) -> None:
    """Refuse a configuration in which there is nothing to learn from a teacher."""
    teacher, privileged = config.teacher, algorithm.distill.privileged
    if not algorithm.distill.coef:
        raise ConfigError(
            f"algorithm {algorithm.name!r} has no teacher: its distill.coef is 0. Use --algorithm opd, or add "
            "--algorithm.distill.coef 0.1; without a teacher: prefrl rl"
        )
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


def _is_the_start(config: DistillConfig) -> bool:
    name, policy = config.teacher.name, model_path(config.policy.name)
    if name == BASE:
        return not is_adapter(policy)  # a new adapter is 0 at the start
    return not name or model_path(name) == policy


def teaching_of(policy: LanguageModel, config: DistillConfig, algorithm: Algorithm) -> Teaching:
    """The teacher of a run and, where it sees more than the policy, what it sees in place of a rollout's prompt."""
    teacher = _teacher(policy, config)
    if not algorithm.distill.privileged:
        return Teaching(teacher)
    return Teaching(teacher, lambda rollout: policy.encode(privileged(rollout.prompt, config.teacher)))


def _teacher(policy: LanguageModel, config: DistillConfig) -> Teacher:
    name = config.teacher.name
    if name == BASE:
        return Teacher.base(policy)
    if _is_the_start(config):
        return Teacher.frozen_copy(policy)
    print(f"Loading the teacher {name} ...", flush=True)
    return Teacher.other(load(name, dtype=config.policy.dtype, device=config.policy.device), policy)


def with_solutions(prompts: Sequence[Prompt], policy: LanguageModel, config: DistillConfig) -> list[Prompt]:
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
