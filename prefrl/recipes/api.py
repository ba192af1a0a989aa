"""The same recipes from Python: `run = prefrl.optimize(policy, prompts, reward)`."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from prefrl.config import CurriculumConfig, DataConfig, ModelConfig, RLConfig, SamplingConfig, TeacherConfig
from prefrl.data.formats import to_prompts
from prefrl.data.splits import check_disjoint, split_by_prompt
from prefrl.data.tables import load_table
from prefrl.errors import ConfigError, did_you_mean
from prefrl.evaluate.run_folder import REPORT, read
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.parsing import check_keys
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.parts import Algorithm
from prefrl.recipes.common import fitting_prompts, report_read
from prefrl.recipes.resuming import opened
from prefrl.recipes.rl import carry_out, key_of, kind_of, refuse
from prefrl.recipes.teaching import check, with_solutions
from prefrl.rewards.base import as_source
from prefrl.types import Prompt

# Which options of `optimize` go to which part of the configuration; no name occurs in two parts. A policy comes
# loaded, so how to load it is not asked again, and what has an argument of its own is no option.
_PARTS: dict[str, type] = {"policy": ModelConfig, "sampling": SamplingConfig, "data": DataConfig, "run": RLConfig}
_ELSEWHERE = {"policy", "data", "rewards", "sampling", "algorithm", "steps", "output", "name", "train", "eval", "limit"}
_MAPPINGS: dict[str, type] = {"teacher": TeacherConfig, "curriculum": CurriculumConfig}
_LOADING = {"lora", "top_layers", "dtype", "device"}


@dataclass(frozen=True)
class Run:
    """A finished run.

    path     its folder: config.yaml, metrics.jsonl, samples.jsonl, checkpoints/final, report.html
    metrics  one mapping per line of metrics.jsonl
    """

    path: Path
    metrics: Sequence[Mapping[str, Any]]

    def report(self) -> Path:
        """Open the report in the browser; its path is printed and returned."""
        page = (self.path / REPORT).resolve()
        print(f"Report: {page}")
        webbrowser.open(page.as_uri())
        return page


def optimize(
    policy: LanguageModel | str,
    prompts: Any,
    reward: Any,
    *,
    algorithm: str | Mapping[str, Any] | Algorithm = "grpo",
    steps: int = 50,
    output: str | Path = "runs/rl",
    held_out: Any = None,
    **options: Any,
) -> Run:
    """Optimize a policy against a reward, in place, and leave a run folder with a report.

    Args:
        policy: a policy of `prefrl.load`, or its name.
        prompts: a file, hub id or task, a list of dicts, a `datasets.Dataset`, a list of `Prompt`, or a list of
            strings, which become user messages where the tokenizer has a chat template.
        reward: a reward source, or a plain function of `text`, `prompt` and dataset columns; None to learn from a
            teacher alone.
        algorithm: name, name and parts to change, or an `Algorithm`.
        steps: optimizer steps.
        output: the run folder.
        held_out: prompts for evaluation, like `prompts`; by default a share of them, `eval_fraction`.
        options: any field of `RLConfig`, `SamplingConfig` or `DataConfig`, and the training fields of
            `ModelConfig`: `lr=1e-4, max_new_tokens=16, prompts_per_step=8`; `teacher` and `curriculum` as mappings.

    Raises:
        ConfigError: an unknown option, or a value that cannot work.
        DataError: prompts that cannot be read.
        RewardError: something that is no reward, or a reward that fails too often.
    """
    source = None if reward is None else as_source(reward)
    chosen: Any = dict(algorithm) if isinstance(algorithm, Mapping) else algorithm
    if isinstance(chosen, Algorithm) and ALGORITHMS.get(chosen.name) == chosen:
        chosen = chosen.name  # a row of the table: its name says it all
    resolved = resolve(chosen)
    parts = _sorted_options(options)
    config = RLConfig(
        policy=ModelConfig(name=policy if isinstance(policy, str) else policy.name, **parts["policy"]),
        data=DataConfig(train=_named(prompts), eval=_named(held_out), **parts["data"]),
        rewards=[{"kind": source.name}] if source is not None else [],
        algorithm=chosen,
        sampling=SamplingConfig(**parts["sampling"]),
        steps=steps,
        output=str(output),
        **parts["run"],
    )
    adapted = None if isinstance(policy, str) else hasattr(policy.model, "peft_config")
    check(config, resolved, adapted=adapted)  # refuse what cannot work before anything is loaded
    refuse(config, resolved, adapted=adapted)
    with opened(config, kind_of(resolved)) as (folder, checkpoints):
        model = load(policy, seed=config.seed) if isinstance(policy, str) else policy
        train, probe = _train_and_held_out(prompts, held_out, model, config)
        if resolved.distill.shows_solution:
            train, probe = (with_solutions(some, model, config) for some in (train, probe))
        carry_out(folder, model, train, probe, source, config, checkpoints=checkpoints)
    return Run(folder.path, read(folder.path).metrics)


def _train_and_held_out(
    prompts: Any, held_out: Any, model: LanguageModel, config: RLConfig
) -> tuple[list[Prompt], list[Prompt]]:
    """Prompts to train on, and those given to evaluate on or a share split off; the two never share an episode."""
    key = key_of(config)
    train = fitting_prompts(_prompts(prompts, model, config.data), model, config.data)
    if held_out is None:
        return split_by_prompt(train, config.data.eval_fraction, config.seed, key=key)
    probe = fitting_prompts(_prompts(held_out, model, config.data), model, config.data)
    check_disjoint(train, probe, key=key)
    return train, probe


def _sorted_options(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by the part of the configuration that they belong to."""
    place = {f.name: part for part, kind in _PARTS.items() for f in fields(kind) if f.name not in _ELSEWHERE | _LOADING}
    parts: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    for name, value in options.items():
        if name in _LOADING:
            raise ConfigError(f"{name} is an option of loading: policy = prefrl.load(..., {name}={value!r}).")
        if name not in place:
            raise ConfigError(f"optimize has no option {name!r}; valid: {', '.join(place)}.{did_you_mean(name, place)}")
        kind = _MAPPINGS.get(name)
        if kind is not None and isinstance(value, Mapping):
            check_keys(kind, value, f"optimize: {name}")
            value = kind(**value)
        parts[place[name]][name] = value
    return parts


def _named(prompts: Any) -> str:
    """What the configuration of the run folder says of prompts that may have been given as objects."""
    if prompts is None:
        return ""
    return str(prompts) if isinstance(prompts, str | Path) else f"{len(prompts)} prompts from Python"


def _prompts(given: Any, policy: LanguageModel, data: DataConfig) -> list[Prompt]:
    if isinstance(given, list | tuple) and given:
        if all(isinstance(item, Prompt) for item in given):
            return list(given)
        if all(isinstance(item, str) for item in given):
            given = [{"prompt": _content(text, policy)} for text in given]
    return report_read(to_prompts(load_table(given), max_bad_fraction=data.max_dropped_fraction), "prompts")


def _content(text: str, policy: LanguageModel) -> Any:
    return [{"role": "user", "content": text}] if policy.tokenizer.chat_template else text
